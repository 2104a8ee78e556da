//! Answers that are read as they come in, and refusals. Each read has a timeout: an API server that accepts a request and never answers
//! is as much down as one that refuses the connection.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Body as _;
use kube::client::Body;
use serde_json::Value;

use crate::units::error_chain;

/// Bytes of a refusal that are read.
const LONGEST_REFUSAL: usize = 64 << 10;
/// A longer `Retry-After` is cut.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// None: there was no answer.
    pub(super) status: Option<StatusCode>,
    /// Why, and what to do about it.
    pub(super) reason: String,
    /// `Retry-After`.
    pub(super) wait: Option<Duration>,
}

impl Refusal {
    /// Reads a refusal from a `metav1.Status`. Fields that are missing or odd count as absent.
    pub(super) fn from_status(code: Option<StatusCode>, status: &Value) -> Self {
        let seconds = retry_after_seconds(status).map(Duration::from_secs);
        let reason = explain(code, status["message"].as_str().unwrap_or_default());
        Self { status: code, reason, wait: seconds.map(|wait| wait.min(LONGEST_WAIT)) }
    }

    pub(super) fn unanswered(reason: impl Into<String>) -> Self {
        Self { status: None, reason: reason.into(), wait: None }
    }

    /// Returns whether the API server has forgotten the resource version (410).
    pub(super) fn is_gone(&self) -> bool {
        self.status == Some(StatusCode::GONE)
    }
}

pub(super) fn code_of(status: &Value) -> Option<StatusCode> {
    StatusCode::from_u16(u16::try_from(status["code"].as_u64()?).ok()?).ok()
}

/// Returns the wait that a `metav1.Status` asks for.
pub(super) fn retry_after_seconds(status: &Value) -> Option<u64> {
    status["details"]["retryAfterSeconds"].as_u64().filter(|seconds| *seconds > 0)
}

fn explain(status: Option<StatusCode>, message: &str) -> String {
    let what = status.map_or_else(|| "refused".to_owned(), |status| status.to_string());
    let fix = match status {
        Some(StatusCode::FORBIDDEN) => "; grant it: config/kubernetes has the ClusterRole",
        Some(StatusCode::UNAUTHORIZED) => "; the token or certificate is not accepted",
        _ => "",
    };
    let message = message.trim();
    if message.is_empty() { format!("{what}{fix}") } else { format!("{what}: {message}{fix}") }
}

/// The body of an answer, read in pieces.
#[derive(Debug)]
pub(super) struct AnswerBody(pub(super) Body);

impl AnswerBody {
    /// Returns the next piece; none at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            let frame = std::future::poll_fn(|context| Pin::new(&mut self.0).poll_frame(context)).await?;
            match frame {
                Err(error) => return Some(Err(error_chain(&error))),
                // Frames without data are trailers, which are ignored.
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
            }
        }
    }

    /// Reads the rest, at most `most` bytes. After an error `into` holds what was read until then.
    pub(super) async fn read(mut self, into: &mut Vec<u8>, most: usize) -> Result<(), String> {
        while let Some(piece) = self.next().await {
            let piece = piece.map_err(|reason| format!("the answer was cut off: {reason}"))?;
            if into.len() + piece.len() > most {
                return Err(format!("the answer is larger than {} KiB", most >> 10));
            }
            into.extend_from_slice(&piece);
        }
        Ok(())
    }
}

/// Sends a GET of `path`; the answer's head must come within `timeout`.
pub(super) async fn get(client: &kube::Client, path: &str, timeout: Duration) -> Result<AnswerBody, Refusal> {
    let request = Request::get(path).header(header::ACCEPT, HeaderValue::from_static("application/json"));
    let request = request.body(Body::empty()).map_err(|error| Refusal::unanswered(error.to_string()))?;
    let late = || Refusal::unanswered(format!("no answer within {} s", timeout.as_secs_f64()));
    let answer = tokio::time::timeout(timeout, client.send(request)).await.map_err(|_| late())?;
    let answer = answer.map_err(|error| match &error {
        kube::Error::Service(inner) => Refusal::unanswered(error_chain(&**inner)),
        _ => Refusal::unanswered(error_chain(&error)),
    })?;
    if answer.status().is_success() {
        return Ok(AnswerBody(answer.into_body()));
    }
    let read = tokio::time::timeout(timeout, refusal(answer)).await;
    Err(read.unwrap_or_else(|_| late()))
}

async fn refusal(answer: Response<Body>) -> Refusal {
    let code = answer.status();
    let header = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut body = Vec::new();
    // The code counts even if the body cannot be read, or is a proxy's page.
    let _unread = AnswerBody(answer.into_body()).read(&mut body, LONGEST_REFUSAL).await;
    let refusal = Refusal::from_status(Some(code), &serde_json::from_slice(&body).unwrap_or_default());
    let wait = header.map(Duration::from_secs).map(|wait| wait.min(LONGEST_WAIT));
    Refusal { wait: wait.or(refusal.wait), ..refusal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_reason_and_fix() {
        for (text, status, reason, wait) in [
            (
                r#"{"kind":"Status","code":403,"message":"pods is forbidden","details":null,"new":[1]}"#,
                403,
                "ClusterRole",
                None,
            ),
            (r#"{"code":429,"message":"slow down","details":{"retryAfterSeconds":7}}"#, 429, "slow down", Some(7)),
            (r#"{"code":503,"details":{"retryAfterSeconds":99999}}"#, 503, "Service Unavailable", Some(120)),
            (r#"{"code":410,"message":"too old resource version: 1 (5)"}"#, 410, "410 Gone: too old", None),
        ] {
            let json = serde_json::from_str(text).unwrap();
            let refusal = Refusal::from_status(code_of(&json), &json);
            assert_eq!(refusal.status.map(|status| status.as_u16()), Some(status));
            assert!(refusal.reason.contains(reason), "{}", refusal.reason);
            assert_eq!(refusal.wait, wait.map(Duration::from_secs));
        }
    }
}
