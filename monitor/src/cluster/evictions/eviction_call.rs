//! One request and its answer.

use std::time::Duration;

use jiff::Timestamp;
use kube::client::Body;

use super::super::api_answer::{Text, chain};
use super::eviction_requests;
use super::exchange::{Answer, Step};
use super::intent::Intent;

/// The removal must not wait long for the mark that comes first.
const MARK_LIMIT: Duration = Duration::from_secs(1);
/// Nor at all when the loop waits for the removal: without an answer within two seconds it sends SIGTERM itself.
const BRIEF_MARK_LIMIT: Duration = Duration::from_millis(500);
/// What else is asked; an API server behind a slow link takes seconds.
const LIMIT: Duration = Duration::from_secs(10);
/// What is asked on behalf of somebody who waits.
const ASKING_LIMIT: Duration = Duration::from_secs(5);
/// A pod is far smaller.
const LARGEST_ANSWER: usize = 4 << 20;

/// Asks, and waits for the whole answer, but not for long. `is_removed`: the pod is on its way out already.
pub async fn send(client: &kube::Client, step: Step, intent: &Intent, node: &str, is_removed: bool) -> Answer {
    let limit = match step {
        Step::Mark if !is_removed && !intent.is_hard() => BRIEF_MARK_LIMIT,
        Step::Mark => MARK_LIMIT,
        Step::Remove if !intent.is_certain => ASKING_LIMIT,
        Step::Remove | Step::Look | Step::Tell => LIMIT,
    };
    let request = match eviction_requests::build(step, intent, node, Timestamp::now()) {
        Ok(request) => request,
        Err(error) => return Answer::Refused(format!("cannot be asked for: {error}")),
    };
    let exchange = async {
        let response = client.send(request.map(Body::from)).await.map_err(|error| chain(&error))?;
        let code = response.status();
        let retry_after = response.headers().get(http::header::RETRY_AFTER).cloned();
        let mut body = Vec::new();
        Text(response.into_body()).read(&mut body, LARGEST_ANSWER).await?;
        let retry_after = retry_after.as_ref().and_then(|value| value.to_str().ok());
        Ok::<Answer, String>(eviction_requests::understand(step, intent, code, retry_after, &body))
    };
    match tokio::time::timeout(limit, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(reason)) => Answer::Unknown(reason),
        Err(_) => Answer::Unknown(format!("no answer within {} s", limit.as_secs_f64())),
    }
}
