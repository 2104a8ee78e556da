//! One request to the API server with a JSON answer, and how it may fail.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::units::error_chain;

pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a request when the agent stops.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("not found: {0}")]
    NotFound(String),
    /// Another client has changed the object, or an object of this name exists.
    #[error("conflict: {0}")]
    Conflict(String),
    #[error("not allowed: {0}")]
    Forbidden(String),
    #[error("refused: {0}")]
    Invalid(String),
    /// No answer, or one that asks for a retry: the request may have been carried out.
    #[error("{reason}")]
    Later {
        reason: String,
        /// `Retry-After`.
        after: Option<Duration>,
    },
}

impl Failure {
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Later { after, .. } => *after,
            Self::NotFound(_) | Self::Conflict(_) | Self::Forbidden(_) | Self::Invalid(_) => None,
        }
    }

    fn later(reason: String) -> Self {
        Self::Later { reason, after: None }
    }
}

pub(super) async fn call<T: DeserializeOwned>(
    client: &kube::Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    timeout: Duration,
) -> Result<T, Failure> {
    let request = request.map_err(|error| Failure::Invalid(error.to_string()))?;
    match tokio::time::timeout(timeout, client.request::<T>(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(of_status(&status)),
        Ok(Err(error)) => Err(Failure::later(error_chain(&error))),
        Err(_) => Err(Failure::later(format!("no answer within {} s", timeout.as_secs()))),
    }
}

fn of_status(status: &kube::core::Status) -> Failure {
    let message = if status.message.is_empty() { status.reason.clone() } else { status.message.clone() };
    match status.code {
        404 => Failure::NotFound(message),
        409 => Failure::Conflict(message),
        401 | 403 => Failure::Forbidden(message),
        400 | 405 | 406 | 413 | 415 | 422 => Failure::Invalid(message),
        code => {
            let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            let after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            Failure::Later { reason: format!("{code}: {message}"), after }
        }
    }
}
