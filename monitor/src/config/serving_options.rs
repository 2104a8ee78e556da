//! The clients that may read the metrics, and the connection that they use: `metrics` of a `MonitorConfiguration`.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::document_walk::{Field, Fields, Walk};

const CERTIFICATE: &str = "/etc/node-pressure-monitor/tls/tls.crt";
const KEY: &str = "/etc/node-pressure-monitor/tls/tls.key";
const TOKENS: &str = "/etc/node-pressure-monitor/tokens";

/// `metrics.tls`, `metrics.bearerToken` and `metrics.hostNames`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServingOptions {
    /// Without them connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// A file with one accepted token per line.
    pub token_file: Option<PathBuf>,
    /// Whether the API server reviews tokens, and whether their user may `get` the path.
    pub token_review: bool,
    /// The audiences of which a reviewed token must have one; none: that of the API server.
    pub audiences: Vec<String>,
    /// Whether tokens that are no JWTs are reviewed too.
    pub opaque_tokens: bool,
    /// Names, besides `localhost`, by which a client may ask where no token is asked for.
    pub host_names: Vec<String>,
}

/// PEM files, read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then its intermediates.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl ServingOptions {
    pub fn asks_for_token(&self) -> bool {
        self.token_file.is_some() || self.token_review
    }

    /// Reads `metrics`, and two of its fields into `listen` and `workload_memory`.
    pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>, listen: &mut SocketAddr, workload_memory: &mut bool) -> Self {
        let mut options = Self::default();
        let metrics = walk.section(fields, "metrics", "listen hostNames workloadMemory tls bearerToken");
        walk.set(workload_memory, metrics.get("workloadMemory"), Walk::boolean);
        walk.set(listen, metrics.get("listen"), Walk::address);
        let names = metrics.get("hostNames");
        walk.set(&mut options.host_names, names, |walk, field| {
            Some(walk.texts(field, "write e.g. [node1.example.com]"))
        });
        options.tls = metrics.get("tls").and_then(|field| read_tls(walk, &field));
        let Some(token) = metrics.get("bearerToken") else { return options };
        let inner = walk.fields(&token, "file review audiences opaque");
        options.token_file = inner.get("file").and_then(|field| walk.path(&field, TOKENS));
        walk.set(&mut options.token_review, inner.get("review"), Walk::boolean);
        walk.set(&mut options.opaque_tokens, inner.get("opaque"), Walk::boolean);
        let audiences = inner.get("audiences");
        walk.set(&mut options.audiences, audiences, |walk, field| {
            Some(walk.texts(field, "write e.g. [node-pressure-monitor]"))
        });
        if options.asks_for_token() && options.tls.is_none() && !listen.ip().is_loopback() {
            let fix = "add metrics.tls, or listen on 127.0.0.1 alone";
            walk.warning(&token, "without TLS the token can be read on the network", fix);
        }
        options
    }
}

fn read_tls(walk: &mut Walk<'_>, field: &Field<'_>) -> Option<TlsFiles> {
    let inner = walk.fields(field, "certificate key");
    let certificate = inner.get("certificate").and_then(|field| walk.path(&field, CERTIFICATE));
    let key = inner.get("key").and_then(|field| walk.path(&field, KEY));
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        (certificate, _) => {
            let (missing, example) = if certificate.is_some() { ("key", KEY) } else { ("certificate", CERTIFICATE) };
            walk.error(field, format!("{missing} is missing"), &format!("add `{missing}: {example}`"));
            None
        }
    }
}
