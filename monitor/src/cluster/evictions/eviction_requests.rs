//! The requests of an eviction, and the meaning of their answers. Pure.
//!
//! As kube-apiserver 1.36 answers: 409 for a DELETE or an eviction whose UID is another pod's; 422 with a cause on `metadata.uid` for a
//! patch that carries another UID, which makes the UID a precondition there, as in the kubelet's own status patches.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::config::kubernetes_options::EvictionMethod;

use super::super::api_answer::retry_after_seconds;
use super::super::api_time;
use super::super::events::event_request::{EventRequest, InvolvedObject};
use super::exchange::{Answer, Begun, Life, Removal, Step};
use super::intent::Intent;

/// Reason of the condition `DisruptionTarget`, named as Kubernetes' own are (`EvictionByEvictionAPI`, `TerminationByKubelet`). Policies of
/// Jobs match type and status alone.
pub const MARK_REASON: &str = "EvictionByNodePressureMonitor";
/// The kubelet's reason, of the event and of the pod's status.
pub const EVICTED: &str = "Evicted";
/// Annotation of a pod whose status was set to Failed, with the time of the request. A kubelet that learns of a changed status alone does not
/// look at the phase before a container starts or ends, or up to 90 s have passed. A changed annotation makes it look at once (1.36:
/// `podsDifferSemantically` in pkg/kubelet/config), so the value differs in each request.
const STATUS_WRITTEN_AT: &str = "node-pressure-monitor/status-written-at";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Seconds; a longer `Retry-After` is cut.
const LONGEST_WAIT: u64 = 60;
/// Characters of the pod's name within an event's name, which the UID follows.
const LONGEST_NAME: usize = 160;

/// Builds the request of a step.
///
/// # Errors
/// When the names make no path, which names from the API server always do.
pub fn build(
    (step, removal): (Step, Removal),
    intent: &Intent,
    node: &str,
    now: Timestamp,
) -> Result<Request<Vec<u8>>, http::Error> {
    let Intent { uid, namespace, name, grace_seconds, .. } = intent;
    let pod = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let preconditions = json!({"uid": uid});
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_seconds, "preconditions": preconditions,
    });
    let (method, path, content_type, body) = match (step, removal.method) {
        (Step::Get, _) => (Method::GET, pod, "", None),
        (Step::Mark, _) => (Method::PATCH, format!("{pod}/status"), STRATEGIC, Some(status(intent, json!({}), now))),
        (Step::Remove, EvictionMethod::Fail) => {
            let failed = json!({"phase": "Failed", "reason": EVICTED, "message": intent.message});
            let mut patch = status(intent, failed, now);
            if removal.wakes_kubelet {
                patch["metadata"]["annotations"] = json!({STATUS_WRITTEN_AT: api_time::format_in_micros(now)});
            }
            (Method::PATCH, format!("{pod}/status"), STRATEGIC, Some(patch))
        }
        (Step::Remove, EvictionMethod::Evict) => {
            // kube's own type writes `delete_options`, which the API server ignores: the precondition would be lost.
            let body = json!({
                "kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name, "namespace": namespace},
                "deleteOptions": options,
            });
            (Method::POST, format!("{pod}/eviction"), "application/json", Some(body))
        }
        (Step::Remove, EvictionMethod::Delete | EvictionMethod::Off) => {
            (Method::DELETE, pod, "application/json", Some(options))
        }
        (Step::SendEvent, _) => {
            let path = format!("/api/v1/namespaces/{namespace}/events");
            (Method::POST, path, "application/json", Some(event(intent, node)))
        }
    };
    let mut request = Request::builder().method(method).uri(path).header(http::header::ACCEPT, "application/json");
    if !content_type.is_empty() {
        request = request.header(http::header::CONTENT_TYPE, content_type);
    }
    request.body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default())
}

/// Returns the patch that adds these fields, and the mark, to the pod's status.
fn status(intent: &Intent, mut fields: Value, now: Timestamp) -> Value {
    if intent.wants_mark {
        fields["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True", "reason": MARK_REASON, "message": intent.message,
            "lastTransitionTime": api_time::format(now),
        }]);
    }
    json!({"metadata": {"uid": intent.uid}, "status": fields})
}

/// The name follows from the pod's UID, so a second attempt finds the event there already.
fn event(intent: &Intent, node: &str) -> Value {
    let Intent { uid, namespace, name, .. } = intent;
    let object = InvolvedObject::Pod { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
    let (reason, message) = (EVICTED.to_owned(), intent.message.clone());
    let request = EventRequest { object, is_warning: true, reason, message };
    let mut event = request.to_json(&event_name(intent), node, 1, [intent.decided_at; 2]);
    let annotations: serde_json::Map<String, Value> =
        intent.annotations.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
    event["metadata"]["annotations"] = annotations.into();
    event
}

pub fn event_name(intent: &Intent) -> String {
    let name: String = intent.name.chars().take(LONGEST_NAME).collect();
    let of_dns = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    let uid: String = intent.uid.to_ascii_lowercase().chars().map(of_dns).collect();
    format!("{}.evicted-{}", name.trim_end_matches(['.', '-']), uid.trim_end_matches('-'))
}

/// Returns what an answer with this status, header `Retry-After` and body means.
pub fn interpret(step: Step, intent: &Intent, code: StatusCode, retry_after: Option<&str>, body: &[u8]) -> Answer {
    if code.is_success() {
        return if step == Step::Get { found(intent, body) } else { Answer::Done };
    }
    // A proxy's error page is no Status; then the code has to do.
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let has_cause = |field: &str, value: &str| {
        let causes = status["details"]["causes"].as_array();
        causes.is_some_and(|causes| causes.iter().any(|cause| cause[field] == value))
    };
    let reason = reason_text(code, &status);
    match code {
        StatusCode::NOT_FOUND if is_about_the_object(step, intent, &status) => Answer::NotFound,
        // A load balancer knows no such path, or a webhook's service is missing: the pod may exist.
        StatusCode::NOT_FOUND => Answer::Unknown(reason),
        StatusCode::CONFLICT if status["reason"] == "AlreadyExists" => Answer::AlreadyExists,
        StatusCode::CONFLICT => Answer::Conflict,
        StatusCode::UNPROCESSABLE_ENTITY if has_cause("field", "metadata.uid") => Answer::Conflict,
        StatusCode::TOO_MANY_REQUESTS if has_cause("reason", "DisruptionBudget") => Answer::Budget(reason),
        // Strimzi's drain cleaner answers 500, and its operator then rolls the pod.
        code if step == Step::Remove && says_later(code) && is_denied_by_webhook(&status) => {
            Answer::Begun(Begun { is_explicit: is_evacuation(&status), reason })
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let after = retry_after.and_then(|text| text.trim().parse().ok()).or(retry_after_seconds(&status));
            let after = after.map(|seconds: u64| Duration::from_secs(seconds.min(LONGEST_WAIT)));
            Answer::Busy { after, reason }
        }
        code if code.is_server_error() => Answer::Unknown(reason),
        StatusCode::FORBIDDEN if step == Step::Remove && lacks_the_right(&status) => Answer::NotPermitted(reason),
        _ if step == Step::Remove && (is_denied(&status) || has_cause("field", "metadata.annotations")) => {
            Answer::Denied(reason)
        }
        // Among them 410, which is about resource versions, not about this pod.
        _ => Answer::Refused(reason),
    }
}

/// Returns whether the API server itself says that the pod, or the event's namespace, does not exist.
fn is_about_the_object(step: Step, intent: &Intent, status: &Value) -> bool {
    let (kind, name) = match step {
        Step::SendEvent => ("namespaces", &intent.namespace),
        Step::Mark | Step::Remove | Step::Get => ("pods", &intent.name),
    };
    // A path that is not served has the same reason and empty details.
    status["reason"] == "NotFound" && status["details"]["kind"] == kind && status["details"]["name"] == *name
}

/// Returns whether the role lacks the verb for `pods`, `pods/status` or `pods/eviction`; an admission policy's refusal has another message.
fn lacks_the_right(status: &Value) -> bool {
    let message = status["message"].as_str().unwrap_or_default();
    message.contains(" cannot ") && message.contains(" resource \"pods")
}

/// Returns whether an admission policy (`… denied request: …`) or a webhook (`… denied the request: …`) refuses. A role's refusal has another
/// message.
fn is_denied(status: &Value) -> bool {
    status["message"].as_str().is_some_and(|message| message.contains(" denied "))
}

/// Returns whether the code does not forbid the request for good, as 403 and the 400 of a webhook without a code of its own do.
fn says_later(code: StatusCode) -> bool {
    code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error()
}

/// Returns whether a webhook answers, and not the API server, which asks overloading clients to come later with the same code.
fn is_denied_by_webhook(status: &Value) -> bool {
    status["message"]
        .as_str()
        .is_some_and(|message| message.contains("admission webhook") && message.contains(" denied "))
}

/// Returns whether the answer has the words by which the descheduler recognizes an eviction in the background (`Eviction triggered evacuation`
/// in its pkg/descheduler/evictions). KubeVirt's virt-api answers so while it migrates the pod's virtual machine.
fn is_evacuation(status: &Value) -> bool {
    status["message"].as_str().is_some_and(|message| message.contains("Eviction triggered evacuation"))
}

fn found(intent: &Intent, body: &[u8]) -> Answer {
    let pod: Value = match serde_json::from_slice(body) {
        Ok(pod) => pod,
        Err(error) => return Answer::Unknown(format!("the API server's answer is no pod: {error}")),
    };
    let metadata = &pod["metadata"];
    match metadata["uid"].as_str().unwrap_or_default() {
        "" => Answer::Unknown("the API server's answer is no pod".to_owned()),
        uid => Answer::Found {
            is_same: uid == intent.uid,
            is_terminating: !metadata["deletionTimestamp"].is_null(),
            life: life(&pod["status"], &Decided::of(intent)),
        },
    }
}

/// The reason that the kubelet itself gives for the condition Ready of a pod whose phase is Failed.
const POD_FAILED: &str = "PodFailed";

/// The exit codes of containers from here on are those of signals.
const FIRST_OF_SIGNALS: i64 = 128;

/// The time of a decision, by the node's clock then and by its clock now, which may have been set back.
struct Decided {
    then: Timestamp,
    now: Timestamp,
}

impl Decided {
    fn of(intent: &Intent) -> Self {
        let now = Timestamp::now().saturating_sub(jiff::SignedDuration::try_from(intent.age()).unwrap_or_default());
        Self { then: intent.decided_at, now: now.unwrap_or(intent.decided_at) }
    }

    /// Returns whether a container has entered this state since the decision. The kubelet writes the start in whole seconds. A start
    /// between the two times was before the decision, unless the container was restarted.
    fn precedes(&self, container: &Value, state: &Value) -> bool {
        let is_restarted = container["restartCount"].as_i64().is_some_and(|count| count > 0);
        let first = if is_restarted { self.then.min(self.now) } else { self.then };
        let at = state["startedAt"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        at.is_some_and(|at| at.as_second() >= first.as_second())
    }
}

/// Returns what a pod's status says of its containers since the decision.
fn life(status: &Value, decided: &Decided) -> Life {
    let of = |field: &str| status[field].as_array().into_iter().flatten();
    let all = || of("initContainerStatuses").chain(of("containerStatuses"));
    let mut running =
        all().map(|it| (it, &it["state"]["running"])).filter(|(_, running)| !running.is_null()).peekable();
    let is_stopped = running.peek().is_none();
    // A pod that starts again runs its init containers first, and between two attempts nothing. A container that a signal has ended may
    // be one of those that were killed.
    let ends =
        of("initContainerStatuses").flat_map(|it| ["state", "lastState"].map(|state| (it, &it[state]["terminated"])));
    let has_begun_again = ends
        .filter(|(_, ended)| ended["exitCode"].as_i64().is_some_and(|code| code < FIRST_OF_SIGNALS))
        .chain(running)
        .any(|(container, state)| decided.precedes(container, state));
    match (status["phase"].as_str(), status["reason"].as_str()) {
        (Some("Failed"), Some(EVICTED)) => Life::Evicted { is_over: is_stopped && is_known(status) },
        (Some("Failed"), _) => Life::Ended,
        (Some("Succeeded"), _) => Life::Succeeded,
        _ if has_begun_again => Life::Restarted,
        _ if is_stopped => Life::Stopped,
        _ => Life::AsBefore,
    }
}

/// Returns whether the kubelet has seen that the pod has failed. Until then it may start a container of it, and write the phase Running
/// over Failed.
fn is_known(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["reason"] == POD_FAILED)
}

fn reason_text(code: StatusCode, status: &Value) -> String {
    let message: String = status["message"].as_str().unwrap_or_default().chars().take(500).collect();
    if message.is_empty() { format!("the API server answered {code}") } else { format!("{message} ({code})") }
}

#[cfg(test)]
#[path = "eviction_requests_tests.rs"]
mod tests;
