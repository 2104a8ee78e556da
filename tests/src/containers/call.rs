//! One gRPC call over a Unix socket: an HTTP/2 request with one message, and an answer with one message and a status.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Request};
use tokio::net::UnixStream;

use super::wire::Message;

/// The length of the header of each message: one byte for compression, four bytes for the length.
const PREFIX: usize = 5;

/// Calls `/SERVICE/METHOD` and waits for the answer.
pub fn call(socket: &Path, method: &str, request: &Message, limit: Duration) -> Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let outcome = runtime.block_on(async { tokio::time::timeout(limit, exchange(socket, method, request)).await });
    match outcome {
        Ok(answer) => answer.with_context(|| format!("{method} at {}", socket.display())),
        Err(_) => bail!("{method} at {}: no answer within {limit:?}", socket.display()),
    }
}

async fn exchange(socket: &Path, method: &str, message: &Message) -> Result<Vec<u8>> {
    let stream = UnixStream::connect(socket).await.context("connect")?;
    let (client, connection) = h2::client::handshake(stream).await.context("HTTP/2 handshake")?;
    // The streams report the end of the connection, and the task ends with the runtime.
    drop(tokio::spawn(connection));
    let mut client = client.ready().await.context("HTTP/2 connection")?;
    let request = Request::post(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .context("request")?;
    let (answer, mut body) = client.send_request(request, false).context("send the request")?;
    body.send_data(framed(message.encoded())?, true).context("send the message")?;
    let answer = answer.await.context("read the answer")?;
    if let Some(problem) = failure(answer.headers()) {
        bail!("{problem}");
    }
    let mut body = answer.into_body();
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.context("read the message")?;
        // The flow-control window grows again by the bytes that were read.
        body.flow_control().release_capacity(chunk.len()).context("HTTP/2 flow control")?;
        bytes.extend_from_slice(&chunk);
    }
    let trailers = body.trailers().await.context("read the status")?.unwrap_or_default();
    if let Some(problem) = failure(&trailers) {
        bail!("{problem}");
    }
    Ok(bytes.get(PREFIX..).unwrap_or_default().to_vec())
}

pub(super) fn framed(message: &[u8]) -> Result<Bytes> {
    let length = u32::try_from(message.len()).context("length of the message")?;
    let mut framed = vec![0];
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    Ok(Bytes::from(framed))
}

/// Returns the error that the status headers report, if the status is present and not zero.
fn failure(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let status = text("grpc-status").filter(|status| status != "0")?;
    Some(format!("status {status}: {}", text("grpc-message").unwrap_or_default()))
}
