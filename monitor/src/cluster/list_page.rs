//! Reads a page of a list, object by object: little memory is needed, however long the page is.

use std::time::Duration;

use super::api_answer::{self, Refusal};
use super::list_stream::ListStream;
use super::watch_stream::{Frame, Meta};

/// Gets `path` and calls `take` with each object. The answer's head, and each piece of it, must come within `timeout`.
pub(super) async fn read(
    client: &kube::Client,
    path: &str,
    timeout: Duration,
    mut take: impl FnMut(&[u8]),
) -> Result<Meta, Refusal> {
    let mut body = api_answer::get(client, path, timeout).await?;
    let mut items = ListStream::default();
    loop {
        let late = |_| Refusal::unanswered(format!("the list stopped half-way for {} s", timeout.as_secs_f64()));
        match tokio::time::timeout(timeout, body.next()).await.map_err(late)? {
            Some(Ok(piece)) => items.push(&piece, &mut take).map_err(Refusal::unanswered)?,
            Some(Err(reason)) => return Err(Refusal::unanswered(reason)),
            None => break,
        }
    }
    let frame = items.end().map_err(Refusal::unanswered)?;
    let list: Frame = serde_json::from_slice(&frame)
        .map_err(|error| Refusal::unanswered(format!("the answer is no list: {error}")))?;
    Ok(list.metadata)
}

/// Percent-encodes a value of a query.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
