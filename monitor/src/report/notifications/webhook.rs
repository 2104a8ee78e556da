//! A notification by HTTP.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::{Request, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::failure_text::log_first_line;
use super::notice::Notice;
use super::permitted;
use crate::cluster::name_resolution;
use crate::config::notification_options::Webhook;
use crate::config::read_limited;

/// The largest file with certificates or a token.
const LARGEST: u64 = 1 << 20;
const AGENT: &str = concat!("node-pressure-monitor/", env!("CARGO_PKG_VERSION"));

/// Posts the notification, and waits for the answer. Redirections are not followed.
/// `directory` is that of the configuration.
pub(super) fn post(webhook: &Webhook, directory: &Path, notice: &Notice, timeout: Duration) -> Result<(), String> {
    let named = |reason: String| format!("{}: {reason}", shown(&webhook.url));
    let document = notice.document()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| named(error.to_string()))?;
    let answer =
        runtime.block_on(async { tokio::time::timeout(timeout, exchange(webhook, directory, document)).await });
    // A name that is still being looked up must not delay the next notification.
    runtime.shutdown_background();
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", timeout.as_secs_f64()))).map_err(named)
}

/// Returns the URL without its path and query, which may hold a secret.
fn shown(url: &Uri) -> String {
    format!("{}://{}", url.scheme_str().unwrap_or_default(), url.authority().map_or("", |authority| authority.as_str()))
}

async fn exchange(webhook: &Webhook, directory: &Path, document: Vec<u8>) -> Result<(), String> {
    name_resolution::use_builtin_services().map_err(|error| format!("name resolution: {error}"))?;
    let url = &webhook.url;
    let is_tls = url.scheme_str() == Some("https");
    let host = url.host().unwrap_or_default();
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let request = request(webhook, directory, document)?;
    let stream = TcpStream::connect(format!("{host}:{port}")).await.map_err(|error| error.to_string())?;
    if !is_tls {
        return answer(stream, request, &shown(url)).await;
    }
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|error| error.to_string())?;
    let client = TlsConnector::from(client(webhook.authorities.as_deref())?);
    let stream = client.connect(name, stream).await.map_err(|error| error.to_string())?;
    answer(stream, request, &shown(url)).await
}

fn request(webhook: &Webhook, directory: &Path, document: Vec<u8>) -> Result<Request<Body>, String> {
    let url = &webhook.url;
    let mut request = Request::post(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, url.authority().map_or("", |authority| authority.as_str()))
        .header(header::USER_AGENT, AGENT)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close");
    if let Some(file) = &webhook.token_file {
        let token = String::from_utf8(read(&permitted::token_file(file, directory)?)?)
            .map_err(|_| format!("{}: not UTF-8", file.display()))?;
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.trim()));
    }
    request.body(Body::from(document)).map_err(|error| error.to_string())
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Body>,
    server: &str,
) -> Result<(), String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // The task ends with the runtime.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    if status.is_redirection() {
        return Err(format!("{status}; redirections are not followed"));
    }
    let body = to_bytes(Body::new(answer.into_body()), 64 << 10).await.unwrap_or_default();
    log_first_line(server, &body);
    Err(status.to_string())
}

/// Returns a client that trusts the authorities of this PEM file, or else those of the system.
fn client(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(file) => {
            let unusable = |reason: String| format!("{}: {reason}", file.display());
            for certificate in CertificateDer::pem_slice_iter(&read(file)?) {
                let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
                roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(unusable("no certificate in it".to_owned()));
            }
        }
        None => {
            let _some_unusable = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(
                    "the system has no certificates of authorities; set webhook.certificateAuthority".to_owned()
                );
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let read = std::fs::File::open(file).and_then(|opened| read_limited(opened, LARGEST));
    read.map_err(|error| format!("{}: cannot be read: {error}", file.display()))
}
