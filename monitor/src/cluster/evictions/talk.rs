//! One request and its answer.

use std::pin::Pin;
use std::time::Duration;

use hyper::body::Body as _;
use jiff::Timestamp;
use kube::client::Body;

use super::plan::{Answer, Step};
use super::{Intent, request};

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
pub async fn ask(client: &kube::Client, step: Step, intent: &Intent, node: &str, is_removed: bool) -> Answer {
    let limit = match step {
        Step::Mark if !is_removed && !intent.is_hard() => BRIEF_MARK_LIMIT,
        Step::Mark => MARK_LIMIT,
        Step::Remove if !intent.is_certain => ASKING_LIMIT,
        Step::Remove | Step::Look | Step::Tell => LIMIT,
    };
    let request = match request::build(step, intent, node, Timestamp::now()) {
        Ok(request) => request,
        Err(error) => return Answer::Refused(format!("cannot be asked for: {error}")),
    };
    let exchange = async {
        let response = client.send(request.map(Body::from)).await.map_err(|error| root_of(&error))?;
        let code = response.status();
        let retry_after = response.headers().get(http::header::RETRY_AFTER).cloned();
        let body = whole(response.into_body()).await?;
        let retry_after = retry_after.as_ref().and_then(|value| value.to_str().ok());
        Ok::<Answer, String>(request::understand(step, intent, code, retry_after, &body))
    };
    match tokio::time::timeout(limit, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(reason)) => Answer::Unknown(reason),
        Err(_) => Answer::Unknown(format!("no answer within {} s", limit.as_secs_f64())),
    }
}

async fn whole(mut body: Body) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| format!("the answer was cut off: {error}"))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > LARGEST_ANSWER {
            return Err(format!("the answer is larger than {} MiB", LARGEST_ANSWER >> 20));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// The library says in the first place that something failed, and what in the last.
fn root_of(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(deeper) = source {
        let text = deeper.to_string();
        if !words.ends_with(&text) {
            words = format!("{words}: {text}");
        }
        source = deeper.source();
    }
    words
}
