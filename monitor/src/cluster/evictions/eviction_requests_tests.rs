use super::*;
use crate::cluster::evictions::intent::tests::intent;

fn built(step: Step, intent: &Intent) -> (String, Value) {
    built_by(step, Removal { method: intent.method, wakes_kubelet: true }, intent)
}

fn built_by(step: Step, removal: Removal, intent: &Intent) -> (String, Value) {
    let request = build((step, removal), intent, "node-a", Timestamp::from_second(60).unwrap()).unwrap();
    let body = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
    (format!("{} {}", request.method(), request.uri()), body)
}

fn interpreted(step: Step, code: u16, retry_after: Option<&str>, body: &Value) -> Answer {
    let body = body.to_string();
    interpret(step, &intent("u"), StatusCode::from_u16(code).unwrap(), retry_after, body.as_bytes())
}

#[test]
fn every_request_that_changes_a_pod_names_its_uid() {
    let soft = Intent { method: EvictionMethod::Evict, grace_seconds: 30, ..intent("u") };
    let (path, body) = built(Step::Mark, &soft);
    assert_eq!(path, "PATCH /api/v1/namespaces/ns/pods/web-0/status");
    assert_eq!(body["metadata"], json!({"uid": "u"}));
    assert_eq!(body["status"]["conditions"][0]["type"], "DisruptionTarget");
    assert_eq!(body["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:01:00Z");
    let (path, body) = built(Step::Remove, &soft);
    assert_eq!(path, "POST /api/v1/namespaces/ns/pods/web-0/eviction");
    let options =
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 30, "preconditions": {"uid": "u"}});
    assert_eq!(body["deleteOptions"], options);
    let (path, body) = built(Step::Remove, &intent("u"));
    assert_eq!(path, "DELETE /api/v1/namespaces/ns/pods/web-0");
    assert_eq!(body["preconditions"], json!({"uid": "u"}));
    assert_eq!(body["gracePeriodSeconds"], 1);
    assert_eq!(built(Step::Get, &soft), ("GET /api/v1/namespaces/ns/pods/web-0".to_owned(), Value::Null));
}

#[test]
fn a_pod_is_failed_as_the_kubelet_fails_it() {
    let fail = Intent { method: EvictionMethod::Fail, ..intent("u") };
    let (path, body) = built(Step::Remove, &fail);
    assert_eq!(path, "PATCH /api/v1/namespaces/ns/pods/web-0/status");
    let annotations = json!({"node-pressure-monitor/status-written-at": "1970-01-01T00:01:00.000000Z"});
    assert_eq!(body["metadata"], json!({"uid": "u", "annotations": annotations}));
    let (_, quiet) = built_by(Step::Remove, Removal { method: EvictionMethod::Fail, wakes_kubelet: false }, &fail);
    assert_eq!((&quiet["metadata"], &quiet["status"]), (&json!({"uid": "u"}), &body["status"]));
    let fields = [&body["status"]["phase"], &body["status"]["reason"], &body["status"]["message"]];
    assert_eq!(fields, ["Failed", "Evicted", fail.message.as_str()]);
    assert_eq!(body["status"]["conditions"][0]["reason"], MARK_REASON);
    let (_, body) = built(Step::Remove, &Intent { wants_mark: false, ..fail });
    assert_eq!(body["status"]["conditions"], Value::Null);
}

const fn unchanged(decided: Timestamp) -> Decided {
    Decided { then: decided, now: decided }
}

#[test]
fn a_container_restarted_after_the_clock_was_set_back_is_seen() {
    let decided =
        Decided { then: "2026-11-23T10:00:00.5Z".parse().unwrap(), now: "2026-11-23T09:50:00.5Z".parse().unwrap() };
    for (at, restarts, expected) in [
        ("2026-11-23T09:50:02Z", 1, Life::Restarted),
        ("2026-11-23T10:00:02Z", 1, Life::Restarted),
        ("2026-11-23T10:00:02Z", 0, Life::Restarted),
        ("2026-11-23T09:55:00Z", 0, Life::AsBefore),
        ("2026-11-23T09:40:00Z", 1, Life::AsBefore),
    ] {
        let status =
            json!({"containerStatuses": [{"restartCount": restarts, "state": {"running": {"startedAt": at}}}]});
        assert_eq!(life(&status, &decided), expected, "{status}");
    }
    let intent = intent("u");
    assert!(Decided::of(&intent).now > intent.decided_at, "a clock that was set forward changes nothing");
}

#[test]
fn the_status_tells_what_became_of_the_containers() {
    let decided: Timestamp = "2026-11-23T10:00:00.5Z".parse().unwrap();
    let running = |at: &str| json!({"state": {"running": {"startedAt": at}}});
    let stopped = json!({"state": {"terminated": {"exitCode": 137}}});
    let (before, after) = (running("2026-11-23T09:00:00Z"), running("2026-11-23T10:00:01Z"));
    let same = running("2026-11-23T10:00:00Z");
    for (phase, reason, containers, expected) in [
        ("Running", "", vec![&before, &stopped], Life::AsBefore),
        ("Running", "", vec![&before, &after], Life::Restarted),
        ("Running", "", vec![&stopped], Life::Stopped),
        ("Running", "", vec![], Life::Stopped),
        ("Failed", "", vec![&stopped], Life::Ended),
        ("Succeeded", "", vec![&stopped], Life::Succeeded),
        ("Running", "", vec![&same], Life::Restarted),
        ("Failed", "Evicted", vec![&before], Life::Evicted { is_over: false }),
        ("Failed", "Evicted", vec![&stopped], Life::Evicted { is_over: false }),
    ] {
        let status = json!({"phase": phase, "reason": reason, "containerStatuses": containers});
        assert_eq!(life(&status, &unchanged(decided)), expected, "{status}");
    }
}

#[test]
fn a_pod_that_runs_its_init_containers_again_was_restarted() {
    let decided: Timestamp = "2026-11-23T10:00:00.5Z".parse().unwrap();
    let running = |at: &str| json!({"running": {"startedAt": at}});
    let ended = |code: i32, at: &str| json!({"terminated": {"exitCode": code, "startedAt": at}});
    let (before, after) = ("2026-11-23T09:00:00Z", "2026-11-23T10:00:03Z");
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    for (init, expected) in [
        (json!({"state": running(after)}), Life::Restarted),
        (json!({"state": ended(0, after)}), Life::Restarted),
        (json!({"state": waiting, "lastState": ended(1, after)}), Life::Restarted),
        (json!({"state": waiting, "lastState": ended(1, before)}), Life::Stopped),
        (json!({"state": ended(0, before)}), Life::Stopped),
        (json!({"state": ended(137, after)}), Life::Stopped),
        (json!({"state": running(before)}), Life::AsBefore),
    ] {
        let main = json!([{"state": {"waiting": {"reason": "PodInitializing"}}}]);
        let status = json!({"phase": "Pending", "initContainerStatuses": [init], "containerStatuses": main});
        assert_eq!(life(&status, &unchanged(decided)), expected, "{status}");
    }
}

#[test]
fn an_eviction_is_over_when_the_kubelet_knows_of_it() {
    let stopped = json!({"state": {"terminated": {"exitCode": 137}}});
    for (ready, expected) in [("ContainersNotReady", false), ("PodFailed", true)] {
        let conditions = json!([{"type": "PodScheduled"}, {"type": "Ready", "status": "False", "reason": ready}]);
        let status =
            json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": [stopped], "conditions": conditions});
        assert_eq!(life(&status, &unchanged(Timestamp::UNIX_EPOCH)), Life::Evicted { is_over: expected }, "{ready}");
    }
    // A sidecar is an init container.
    let sidecar = json!([{"state": {"running": {"startedAt": "2026-11-23T09:00:00Z"}}}]);
    let conditions = json!([{"type": "Ready", "status": "False", "reason": "PodFailed"}]);
    let status =
        json!({"phase": "Failed", "reason": "Evicted", "initContainerStatuses": sidecar, "conditions": conditions});
    assert_eq!(life(&status, &unchanged(Timestamp::UNIX_EPOCH)), Life::Evicted { is_over: false });
}

#[test]
fn the_event_is_as_the_kubelets_with_its_own_name() {
    let (path, body) = built(Step::SendEvent, &intent("0a1b-2C"));
    assert_eq!(path, "POST /api/v1/namespaces/ns/events");
    assert_eq!(body["metadata"]["name"], "web-0.evicted-0a1b-2c");
    assert_eq!(body["metadata"]["annotations"], json!({"starved_resource": "memory"}));
    assert_eq!(body["involvedObject"]["uid"], "0a1b-2C");
    let fields = [&body["type"], &body["reason"], &body["message"], &body["source"]["host"]];
    assert_eq!(fields, ["Warning", "Evicted", "The node was low on resource: memory. ", "node-a"]);
    let long = Intent { name: format!("{}.{}", "a".repeat(159), "b".repeat(90)), ..intent("u") };
    assert_eq!(event_name(&long), format!("{}.evicted-u", "a".repeat(159)));
}

const POLICY: &str = "pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: the agent may not change labels";

#[test]
fn answers_are_interpreted_by_code_and_cause() {
    let status =
        |reason: &str, message: &str| json!({"kind": "Status", "reason": reason, "message": message, "new": [1]});
    let budget = json!({
        "message": "Cannot evict pod as it would violate the pod's disruption budget.", "reason": "TooManyRequests",
        "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 1"}]},
    });
    let another =
        json!({"reason": "Invalid", "details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}});
    let gone = json!({"reason": "NotFound", "details": {"kind": "pods", "name": "web-0"}});
    let busy = |after: Option<u64>, reason: &str| Answer::Busy {
        after: after.map(Duration::from_secs),
        reason: reason.to_owned(),
    };
    let too_long = json!({"message": "Too long", "details": {"causes": [{"field": "metadata.annotations"}]}});
    let words = "Cannot evict pod as it would violate the pod's disruption budget. (429 Too Many Requests)";
    let lacking = |verb: &str, resource: &str| format!("User \"u\" cannot {verb} resource \"{resource}\" in API group");
    let role = |verb: &str, resource: &str| status("Forbidden", &lacking(verb, resource));
    let not_permitted =
        |verb: &str, resource: &str| Answer::NotPermitted(format!("{} (403 Forbidden)", lacking(verb, resource)));
    for (step, code, retry_after, body, expected) in [
        (Step::Remove, 200, None, json!({"kind": "Pod"}), Answer::Done),
        (Step::SendEvent, 201, None, json!({}), Answer::Done),
        (Step::Remove, 404, None, gone, Answer::NotFound),
        (Step::Remove, 409, None, status("Conflict", "the UID in the precondition"), Answer::Conflict),
        (Step::SendEvent, 409, None, status("AlreadyExists", "there"), Answer::AlreadyExists),
        (Step::Mark, 422, None, another, Answer::Conflict),
        (Step::Mark, 422, None, status("Invalid", "no"), Answer::Refused("no (422 Unprocessable Entity)".to_owned())),
        (Step::Remove, 429, Some("10"), budget, Answer::Budget(words.to_owned())),
        (
            Step::Remove,
            429,
            Some("1"),
            status("TooManyRequests", "later"),
            busy(Some(1), "later (429 Too Many Requests)"),
        ),
        (Step::Remove, 429, Some("9999"), json!({}), busy(Some(60), "the API server answered 429 Too Many Requests")),
        (
            Step::Remove,
            503,
            None,
            json!({"details": {"retryAfterSeconds": 3}}),
            busy(Some(3), "the API server answered 503 Service Unavailable"),
        ),
        (Step::Remove, 403, None, status("Forbidden", "no"), Answer::Refused("no (403 Forbidden)".to_owned())),
        (Step::Remove, 403, None, role("create", "pods/eviction"), not_permitted("create", "pods/eviction")),
        (Step::Remove, 403, None, role("patch", "pods/status"), not_permitted("patch", "pods/status")),
        (Step::Remove, 403, None, role("delete", "pods"), not_permitted("delete", "pods")),
        (
            Step::Mark,
            403,
            None,
            role("patch", "pods/status"),
            Answer::Refused(format!("{} (403 Forbidden)", lacking("patch", "pods/status"))),
        ),
        (Step::Remove, 403, None, status("Forbidden", POLICY), Answer::Denied(format!("{POLICY} (403 Forbidden)"))),
        (Step::Remove, 422, None, too_long, Answer::Denied("Too long (422 Unprocessable Entity)".to_owned())),
        (Step::Mark, 403, None, status("Forbidden", POLICY), Answer::Refused(format!("{POLICY} (403 Forbidden)"))),
        (Step::Remove, 410, None, status("Expired", "old"), Answer::Refused("old (410 Gone)".to_owned())),
        (Step::Remove, 500, None, status("", "etcd"), Answer::Unknown("etcd (500 Internal Server Error)".to_owned())),
    ] {
        assert_eq!(interpreted(step, code, retry_after, &body), expected, "{step:?} {code} {body}");
    }
}

/// The answers of kubevirt/kubevirt (`pod-eviction-admitter.go`, #11532) and of strimzi/drain-cleaner (`ValidatingWebhook`; Azure/AKS#4720,
/// kubereboot/kured#1269) as the API server passes them on. The words that name an eviction in the background are the descheduler's
/// (kubernetes-sigs/descheduler, `EvictionInBackgroundErrorText`).
#[test]
fn a_webhook_that_says_later_has_begun_an_eviction() {
    let denied = |webhook: &str, words: &str| format!("admission webhook \"{webhook}\" denied the request: {words}");
    let kubevirt = |words: &str| denied("virt-launcher-eviction-interceptor.kubevirt.io", words);
    let strimzi = denied("strimzi-drain-cleaner.strimzi.io", "The pod will be rolled by the Strimzi Cluster Operator");
    for (code, words, is_explicit) in [
        (429, kubevirt("Eviction triggered evacuation of VMI \"vms/db\""), true),
        (429, kubevirt("Evacuation in progress: Eviction triggered evacuation of VMI \"vms/db\""), true),
        (429, kubevirt("VMI db is configured with an eviction strategy but is not live-migratable"), false),
        (429, denied("evict.example.org", "Eviction triggered evacuation"), true),
        (429, denied("evict.example.org", "the database fails over first"), false),
        (500, strimzi.clone(), false),
    ] {
        let body = json!({"kind": "Status", "code": code, "message": words});
        let Answer::Begun(begun) = interpreted(Step::Remove, code, None, &body) else { panic!("{words}") };
        assert!(begun.is_explicit == is_explicit && begun.reason.starts_with(&words), "{begun:?}");
        assert!(!matches!(interpreted(Step::SendEvent, code, None, &body), Answer::Begun(_)), "{words}");
    }
    // A webhook without a code of its own forbids, and one that cannot be called has decided nothing.
    let forbids = json!({"message": strimzi});
    assert!(matches!(interpreted(Step::Remove, 400, None, &forbids), Answer::Denied(_)));
    let fails = json!({"message": "Internal error occurred: failed calling webhook \"w\": connection refused"});
    assert!(matches!(interpreted(Step::Remove, 500, None, &fails), Answer::Unknown(_)));
}

#[test]
fn a_found_pod_is_compared_by_uid() {
    for (body, expected) in [
        (
            json!({"metadata": {"uid": "u", "x": 1}}),
            Answer::Found { is_same: true, is_terminating: false, life: Life::Stopped },
        ),
        (
            json!({"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            Answer::Found { is_same: true, is_terminating: true, life: Life::Stopped },
        ),
        (
            json!({"metadata": {"uid": "v"}}),
            Answer::Found { is_same: false, is_terminating: false, life: Life::Stopped },
        ),
    ] {
        assert_eq!(interpreted(Step::Get, 200, None, &body), expected);
    }
    for body in [json!({}), json!({"metadata": {}}), json!([1])] {
        assert!(matches!(interpreted(Step::Get, 200, None, &body), Answer::Unknown(_)), "{body}");
    }
    let page = interpret(Step::Remove, &intent("u"), StatusCode::BAD_GATEWAY, None, b"<html>");
    assert_eq!(page, Answer::Unknown("the API server answered 502 Bad Gateway".to_owned()));
}

#[test]
fn only_the_api_servers_404_means_not_found() {
    let not_found = |kind: &str, name: &str| {
        json!({"kind": "Status", "reason": "NotFound", "details": {"kind": kind, "name": name}}).to_string()
    };
    let code = StatusCode::NOT_FOUND;
    for (step, body, is_gone) in [
        (Step::Remove, not_found("pods", "web-0"), true),
        (Step::Get, not_found("pods", "web-0"), true),
        (Step::SendEvent, not_found("namespaces", "ns"), true),
        (Step::Remove, "404 page not found".to_owned(), false),
        (Step::Get, "<html>".to_owned(), false),
        (Step::Get, "{}".to_owned(), false),
        (Step::Remove, json!({"reason": "NotFound", "details": {}}).to_string(), false),
        (Step::Remove, json!({"reason": "NotFound"}).to_string(), false),
        (Step::Remove, not_found("pods", "web-1"), false),
        (Step::Remove, not_found("services", "web-0"), false),
        (Step::SendEvent, not_found("pods", "web-0"), false),
    ] {
        let answer = interpret(step, &intent("u"), code, None, body.as_bytes());
        assert_eq!(answer == Answer::NotFound, is_gone, "{step:?} {body}");
        assert_eq!(matches!(answer, Answer::Unknown(_)), !is_gone, "{step:?} {body}");
    }
}
