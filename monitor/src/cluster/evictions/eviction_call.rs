//! Sends one request of an eviction.

use std::time::Duration;

use jiff::Timestamp;
use kube::client::Body;

use crate::units::error_chain;

use super::super::api_answer::AnswerBody;
use super::eviction_requests;
use super::exchange::{Answer, Step};
use super::intent::Intent;

/// For the mark before the removal, which must not wait long for it.
const MARK_TIMEOUT: Duration = Duration::from_secs(1);
/// For the mark while the loop waits for the removal: after two seconds without an answer the loop sends SIGTERM itself.
const BRIEF_MARK_TIMEOUT: Duration = Duration::from_millis(500);
/// For other requests: an API server behind a slow link takes seconds.
const TIMEOUT: Duration = Duration::from_secs(10);
/// For a removal that the loop waits for.
const ASKED_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes; a pod is far smaller.
const LARGEST_ANSWER: usize = 4 << 20;

/// Sends the request and reads the whole answer. `is_removed`: the pod is terminating already, so a mark has more time.
pub async fn send(client: &kube::Client, step: Step, intent: &Intent, node: &str, is_removed: bool) -> Answer {
    let timeout = match step {
        Step::Mark if !is_removed && !intent.is_hard() => BRIEF_MARK_TIMEOUT,
        Step::Mark => MARK_TIMEOUT,
        Step::Remove if !intent.is_certain => ASKED_TIMEOUT,
        Step::Remove | Step::Get | Step::SendEvent => TIMEOUT,
    };
    let request = match eviction_requests::build(step, intent, node, Timestamp::now()) {
        Ok(request) => request,
        Err(error) => return Answer::Refused(format!("no valid request: {error}")),
    };
    let exchange = async {
        let response = client.send(request.map(Body::from)).await.map_err(|error| error_chain(&error))?;
        let code = response.status();
        let retry_after = response.headers().get(http::header::RETRY_AFTER).cloned();
        let mut body = Vec::new();
        AnswerBody(response.into_body()).read(&mut body, LARGEST_ANSWER).await?;
        let retry_after = retry_after.as_ref().and_then(|value| value.to_str().ok());
        Ok::<Answer, String>(eviction_requests::interpret(step, intent, code, retry_after, &body))
    };
    match tokio::time::timeout(timeout, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(reason)) => Answer::Unknown(reason),
        Err(_) => Answer::Unknown(format!("no answer within {} s", timeout.as_secs_f64())),
    }
}
