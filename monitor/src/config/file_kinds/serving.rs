//! `metrics` of our own kind of file.

use std::net::SocketAddr;

use crate::config::document_walk::{Fields, Walk};
use crate::config::serving_options::{ServingOptions, TlsFiles};
use crate::config::yaml::Node;

use super::monitor_configuration::set;

const CERTIFICATE: &str = "/etc/node-pressure-monitor/tls/tls.crt";
const KEY: &str = "/etc/node-pressure-monitor/tls/tls.key";
const TOKENS: &str = "/etc/node-pressure-monitor/tokens";

/// Reads the map. What is wrong with it is noted in `walk`.
pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>, listen: &mut SocketAddr) -> ServingOptions {
    let mut options = ServingOptions::default();
    let Some((path, node)) = fields.get("metrics") else { return options };
    let inner = walk.fields(&path, node, &["listen", "tls", "bearerToken"]);
    if let Some((field, node)) = inner.get("listen") {
        set(listen, walk.address(&field, node));
    }
    if let Some((path, node)) = inner.get("tls") {
        options.tls = read_tls(walk, &path, node);
    }
    if let Some((path, token)) = inner.get("bearerToken") {
        let inner = walk.fields(&path, token, &["file", "review"]);
        if let Some((field, node)) = inner.get("file") {
            options.token_file = walk.path(&field, node, TOKENS);
        }
        if let Some((field, node)) = inner.get("review") {
            set(&mut options.token_review, walk.boolean(&field, node));
        }
        if options.asks_for_token() && options.tls.is_none() && !listen.ip().is_loopback() {
            let fix = "add metrics.tls, or listen on 127.0.0.1 alone";
            walk.warning(&path, token, "without TLS the token can be read by whoever is on the way", fix);
        }
    }
    options
}

/// Both files or none.
fn read_tls(walk: &mut Walk<'_>, path: &str, node: &Node) -> Option<TlsFiles> {
    let inner = walk.fields(path, node, &["certificate", "key"]);
    let certificate = inner.get("certificate").and_then(|(field, node)| walk.path(&field, node, CERTIFICATE));
    let key = inner.get("key").and_then(|(field, node)| walk.path(&field, node, KEY));
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        (certificate, _) => {
            let missing = if certificate.is_some() { "key" } else { "certificate" };
            let example = if certificate.is_some() { KEY } else { CERTIFICATE };
            walk.error(path, node, format!("{missing} is missing"), &format!("add `{missing}: {example}`"));
            None
        }
    }
}
