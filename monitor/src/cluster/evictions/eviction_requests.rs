//! The requests of an eviction, and what their answers mean. Pure.
//!
//! Answers as kube-apiserver 1.36 gives them: a DELETE or an eviction whose UID is another's is 409; a patch that carries another UID is
//! 422 with a cause on `metadata.uid`, so that the UID is a precondition there too, as in the kubelet's own status patches.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::kubernetes_options::EvictionMethod;

use super::super::api_answer::Status;
use super::super::api_time;
use super::super::events::{self, EventRequest, InvolvedObject};
use super::exchange::{Answer, Step};
use super::intent::Intent;

/// The reason of the condition `DisruptionTarget`, of the kind that Kubernetes documents (`EvictionByEvictionAPI`,
/// `TerminationByKubelet`): it was not the kubelet that decided. Policies of Jobs go by type and status alone.
pub const MARK_REASON: &str = "EvictionByNodePressureMonitor";
/// The event's reason is the kubelet's.
const EVENT_REASON: &str = "Evicted";
/// Longer, Retry-After is not believed.
const LONGEST_PAUSE: u64 = 60;
/// Names of events may be that long, with a UID after them.
const LONGEST_NAME: usize = 160;

/// The request of a step.
///
/// # Errors
/// When the names in it make no path, which those of the API server always do.
pub fn build(step: Step, intent: &Intent, node: &str, now: Timestamp) -> Result<Request<Vec<u8>>, http::Error> {
    let Intent { uid, namespace, name, grace_seconds, .. } = intent;
    let pod = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let preconditions = json!({"uid": uid});
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_seconds, "preconditions": preconditions,
    });
    let (method, path, content_type, body) = match (step, intent.method) {
        (Step::Look, _) => (Method::GET, pod, "", None),
        (Step::Mark, _) => {
            let content = "application/strategic-merge-patch+json";
            (Method::PATCH, format!("{pod}/status"), content, Some(mark(intent, now)))
        }
        (Step::Remove, EvictionMethod::Evict) => {
            // Not the library's own: it writes `delete_options`, which the API server does not know, and the precondition would be lost.
            let body = json!({
                "kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name, "namespace": namespace},
                "deleteOptions": options,
            });
            (Method::POST, format!("{pod}/eviction"), "application/json", Some(body))
        }
        (Step::Remove, EvictionMethod::Delete | EvictionMethod::Off) => {
            (Method::DELETE, pod, "application/json", Some(options))
        }
        (Step::Tell, _) => {
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

fn mark(intent: &Intent, now: Timestamp) -> Value {
    json!({
        "metadata": {"uid": intent.uid},
        "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": MARK_REASON, "message": intent.message,
            "lastTransitionTime": api_time::words(now),
        }]},
    })
}

/// Of a name that follows from the pod's UID: sent twice, it is there already.
fn event(intent: &Intent, node: &str) -> Value {
    let Intent { uid, namespace, name, .. } = intent;
    let object = InvolvedObject::Pod { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
    let (reason, message) = (EVENT_REASON.to_owned(), intent.message.clone());
    let happening = EventRequest { object, is_warning: true, reason, message };
    let mut event = events::body(&happening, &event_name(intent), node, 1, [intent.decided_at; 2]);
    let annotations: serde_json::Map<String, Value> =
        intent.annotations.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
    event["metadata"]["annotations"] = annotations.into();
    event
}

/// The event's name.
#[must_use]
pub fn event_name(intent: &Intent) -> String {
    let name: String = intent.name.chars().take(LONGEST_NAME).collect();
    let of_dns = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    let uid: String = intent.uid.to_ascii_lowercase().chars().map(of_dns).collect();
    format!("{}.evicted-{}", name.trim_end_matches(['.', '-']), uid.trim_end_matches('-'))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: Option<Metadata>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    deletion_timestamp: Option<Value>,
}

/// What an answer with that status, header `Retry-After` and body means.
#[must_use]
pub fn understand(step: Step, intent: &Intent, code: StatusCode, retry_after: Option<&str>, body: &[u8]) -> Answer {
    if code.is_success() {
        return if step == Step::Look { found(intent, body) } else { Answer::Done };
    }
    // A proxy's page is no Status: the code has to do.
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let causes = &status.details.causes;
    let reason = words(code, &status);
    match code {
        StatusCode::NOT_FOUND if is_of_what_was_asked(step, intent, &status) => Answer::Gone,
        // A load balancer knows no path, a webhook's service may be missing: neither says anything of the pod.
        StatusCode::NOT_FOUND => Answer::Unknown(reason),
        StatusCode::CONFLICT if status.reason == "AlreadyExists" => Answer::Exists,
        StatusCode::CONFLICT => Answer::Conflict,
        StatusCode::UNPROCESSABLE_ENTITY if causes.iter().any(|cause| cause.field == "metadata.uid") => {
            Answer::Conflict
        }
        StatusCode::TOO_MANY_REQUESTS if causes.iter().any(|cause| cause.reason == "DisruptionBudget") => {
            Answer::Budget(reason)
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let told = Some(status.details.retry_after_seconds).filter(|seconds| *seconds > 0);
            let after = retry_after.and_then(|text| text.trim().parse().ok()).or(told);
            let after = after.map(|seconds: u64| Duration::from_secs(seconds.min(LONGEST_PAUSE)));
            Answer::Busy { after, reason }
        }
        code if code.is_server_error() => Answer::Unknown(reason),
        // 410 speaks of versions and of a cluster's past, not of this pod; the others of what is not allowed or understood.
        _ => Answer::Refused(reason),
    }
}

/// Whether the API server itself says that there is no such pod, or, of an event, no such namespace.
fn is_of_what_was_asked(step: Step, intent: &Intent, status: &Status) -> bool {
    let (kind, name) = match step {
        Step::Tell => ("namespaces", &intent.namespace),
        Step::Mark | Step::Remove | Step::Look => ("pods", &intent.name),
    };
    // A path that is not served has the same reason, and details that are empty.
    status.reason == "NotFound" && status.details.kind == kind && status.details.name == *name
}

fn found(intent: &Intent, body: &[u8]) -> Answer {
    match serde_json::from_slice::<Pod>(body) {
        Ok(Pod { metadata: Some(metadata) }) if !metadata.uid.is_empty() => {
            Answer::Found { is_same: metadata.uid == intent.uid, is_leaving: metadata.deletion_timestamp.is_some() }
        }
        Ok(_) => Answer::Unknown("the API server answered with something that is no pod".to_owned()),
        Err(error) => Answer::Unknown(format!("the API server answered with something that is no pod: {error}")),
    }
}

fn words(code: StatusCode, status: &Status) -> String {
    let message: String = status.message.chars().take(500).collect();
    if message.is_empty() { format!("the API server answered {code}") } else { format!("{message} ({code})") }
}

#[cfg(test)]
#[path = "eviction_requests_tests.rs"]
mod tests;
