//! Asks an agent over HTTP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, to_bytes};
use futures_util::StreamExt as _;
use http::{Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::input::{self, CommandError};
use super::pinned_certificate;
use crate::cluster::name_resolution;
use crate::config::MonitorConfig;

const TIMEOUT: Duration = Duration::from_secs(30);
/// A stream has a document at least every five seconds, or a comment while the agent is busy.
const SILENCE: Duration = Duration::from_secs(15);
/// A document has at most some megabytes.
const LARGEST: usize = 64 << 20;

/// Where an agent listens, and the token that it asks for. Without `tls` the address is local, or of a tunnel.
#[derive(Clone)]
pub struct Agent {
    authority: Arc<str>,
    token: Option<Arc<str>>,
    tls: Option<TlsConnector>,
}

/// Why an agent has not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// All its streams are taken, or its loop is busy.
    Busy,
    Other(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Busy => f.write_str("the agent is busy; try again"),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl Refusal {
    #[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
    fn other(reason: impl ToString) -> Self {
        Self::Other(reason.to_string())
    }
}

/// Reads a token from a file.
pub fn token_of(file: Option<&std::path::PathBuf>) -> Result<Option<Arc<str>>, CommandError> {
    let read = |file: &std::path::PathBuf| match std::fs::read_to_string(file) {
        Ok(token) => Ok(token.trim().into()),
        Err(source) => Err(CommandError::Unreadable { file: file.display().to_string(), source }),
    };
    file.map(read).transpose()
}

impl Agent {
    pub fn new(authority: &str, token: Option<Arc<str>>) -> Self {
        Self { authority: authority.into(), token, tls: None }
    }

    /// Reads a URL such as `http://127.0.0.1:9946`.
    pub fn of_url(url: &str, token: Option<Arc<str>>) -> Result<Self, CommandError> {
        let usage =
            |reason: &str| CommandError::Usage(format!("{url}: {reason}; write for example http://127.0.0.1:9946"));
        let uri: Uri = url.parse().map_err(|_| usage("this is no URL"))?;
        let host = uri.host().ok_or_else(|| usage("there is no host"))?;
        match uri.scheme_str() {
            Some("http") => Ok(Self::new(&format!("{host}:{}", uri.port_u16().unwrap_or(9946)), token)),
            _ => Err(usage("only http is spoken; to an agent with metrics.tls use kubectl exec")),
        }
    }

    /// Connects by TLS to the agent that has this certificate, whatever names the certificate has: the address is that of this machine.
    pub fn pinned(authority: &str, token: Option<Arc<str>>, certificate: &Path) -> Result<Self, CommandError> {
        Ok(Self { tls: Some(pinned_certificate::client(certificate)?), ..Self::new(authority, token) })
    }

    /// Returns the same agent behind another address, such as that of a tunnel.
    pub fn at(&self, authority: &str) -> Self {
        Self { authority: authority.into(), ..self.clone() }
    }

    /// Returns the body of the answer. `path` may have a query.
    pub async fn get(&self, path: &str) -> Result<Bytes, Refusal> {
        self.exchange(Method::GET, path).await
    }

    pub async fn post(&self, path: &str) -> Result<Bytes, Refusal> {
        self.exchange(Method::POST, path).await
    }

    async fn exchange(&self, method: Method, path: &str) -> Result<Bytes, Refusal> {
        let answer = async {
            let answer = self.send(method, path).await?;
            to_bytes(Body::new(answer.into_body()), LARGEST).await.map_err(Refusal::other)
        };
        timeout(TIMEOUT, answer).await.unwrap_or_else(|_| Err(late(TIMEOUT)))
    }

    /// Opens the stream of documents.
    pub async fn watch(&self) -> Result<Documents, Refusal> {
        let answer =
            timeout(TIMEOUT, self.send(Method::GET, "/api/v1/watch")).await.unwrap_or_else(|_| Err(late(TIMEOUT)))?;
        Ok(Documents { body: Body::new(answer.into_body()).into_data_stream(), read: Vec::new() })
    }

    /// Sends a request. Returns the answer if its status is 200.
    async fn send(&self, method: Method, path: &str) -> Result<Response<Incoming>, Refusal> {
        name_resolution::use_builtin_services().map_err(Refusal::other)?;
        let refused = |error: std::io::Error| Refusal::Other(format!("{}: {error}", self.authority));
        let stream = TcpStream::connect(&*self.authority).await.map_err(refused)?;
        let mut sender = match &self.tls {
            None => begin(stream).await?,
            Some(client) => begin(client.connect(pinned_certificate::name(), stream).await.map_err(refused)?).await?,
        };
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &*self.authority);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::empty()).map_err(Refusal::other)?;
        let answer = sender.send_request(request).await.map_err(|error| {
            Refusal::Other(format!(
                "{error}; if the agent has metrics.tls, give its certificate by --certificate or --config"
            ))
        })?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Err(Refusal::Busy),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(Refusal::Other(format!("{status}: the agent asks for a token; give one by --token-file")))
            }
            status => {
                let body = to_bytes(Body::new(answer.into_body()), LARGEST).await.unwrap_or_default();
                Err(Refusal::Other(format!("{status}: {}", String::from_utf8_lossy(&body).trim())))
            }
        }
    }
}

async fn begin(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<SendRequest<Body>, Refusal> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Refusal::other)?;
    // The task ends with the connection.
    tokio::spawn(connection);
    Ok(sender)
}

/// Returns the address of this machine at which the agent of a configuration file, or of the defaults, can be reached.
pub fn address_of(config: Option<&PathBuf>) -> Result<SocketAddr, CommandError> {
    let config = config.map(|file| Ok::<_, CommandError>(input::load(file)?.1.config)).transpose()?;
    Ok(address_on_this_machine(&config.unwrap_or_default()))
}

/// Returns the address of this machine at which the agent can be reached.
pub fn address_on_this_machine(config: &MonitorConfig) -> SocketAddr {
    let listen = config.listen;
    let is_of_all = listen.ip().is_unspecified();
    if is_of_all { SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), listen.port()) } else { listen }
}

fn late(limit: Duration) -> Refusal {
    Refusal::Other(format!("no answer within {} s", limit.as_secs()))
}

/// The documents of a stream of server-sent events.
#[derive(Debug)]
pub struct Documents {
    body: BodyDataStream,
    read: Vec<u8>,
}

impl Documents {
    /// Returns the next document as JSON; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Refusal> {
        loop {
            while let Some(event) = take_event(&mut self.read) {
                if let Some(json) = data_of(&event) {
                    return Ok(Some(json));
                }
            }
            let chunk = timeout(SILENCE, self.body.next()).await.map_err(|_| late(SILENCE))?;
            let Some(chunk) = chunk else { return Ok(None) };
            self.read.extend_from_slice(&chunk.map_err(Refusal::other)?);
            if self.read.len() > LARGEST {
                return Err(Refusal::Other("a document is too large".to_owned()));
            }
        }
    }
}

/// Takes the first whole event.
fn take_event(read: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = read.windows(2).position(|pair| pair == b"\n\n")?;
    let mut event: Vec<u8> = read.drain(..end + 2).collect();
    event.truncate(end);
    Some(event)
}

/// Returns the data of an event; `None` of a comment.
fn data_of(event: &[u8]) -> Option<Vec<u8>> {
    let mut lines = event.split(|byte| *byte == b'\n');
    lines.find_map(|line| line.strip_prefix(b"data: ")).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_when_they_are_whole() {
        let mut read = b": busy\n\nevent: state\ndata: {}\n\nevent: st".to_vec();
        let data: Vec<_> = std::iter::from_fn(|| take_event(&mut read)).map(|event| data_of(&event)).collect();
        assert_eq!(data, [None, Some(b"{}".to_vec())]);
        assert_eq!(read, b"event: st");
    }

    #[test]
    fn urls_are_read_or_refused_with_the_fix() {
        for (url, expected) in [
            ("http://127.0.0.1:9946", Ok("127.0.0.1:9946")),
            ("http://[::1]:1/", Ok("[::1]:1")),
            ("http://worker-1", Ok("worker-1:9946")),
            ("https://worker-1", Err("only http is spoken")),
            ("worker-1:9946", Err("only http is spoken")),
            ("?", Err("this is no URL")),
        ] {
            match (Agent::of_url(url, None), expected) {
                (Ok(agent), Ok(expected)) => assert_eq!(&*agent.authority, expected),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{url}: {error}"),
                (found, _) => panic!("{url}: {:?}", found.err()),
            }
        }
    }
}
