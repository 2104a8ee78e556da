//! Asks an agent over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use http::{Request, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(30);
/// A document has at most some megabytes.
const LARGEST: usize = 64 << 20;

/// Returns the body of the answer. `path` may have a query. The connection is not encrypted: the address is local.
///
/// # Errors
/// When the agent cannot be reached, or answers with another status than 200.
pub async fn get(address: SocketAddr, path: &str, token: Option<&str>) -> Result<Bytes, String> {
    let answer = tokio::time::timeout(TIMEOUT, exchange(address, path, token)).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())))
}

async fn exchange(address: SocketAddr, path: &str, token: Option<&str>) -> Result<Bytes, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let handshake = http1::handshake::<_, Body>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    // The task ends with the connection.
    tokio::spawn(connection);
    let mut request = Request::get(path).header(header::HOST, address.to_string());
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| {
        format!("{error}; if the agent has metrics.tls, ask it in its pod: kubectl exec POD -- node-pressure-monitor")
    })?;
    let status = answer.status();
    let body = to_bytes(Body::new(answer.into_body()), LARGEST).await.map_err(|error| error.to_string())?;
    match status {
        StatusCode::OK => Ok(body),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(format!("{status}: the agent asks for a token; give one by --token-file"))
        }
        _ => Err(format!("{status}: {}", String::from_utf8_lossy(&body).trim())),
    }
}
