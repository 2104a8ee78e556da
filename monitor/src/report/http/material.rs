//! Certificate, key and tokens of the HTTP server. A separate thread reloads them when their files change, because a disk may hang.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::NoServerSessionStorage;

use crate::config::serving_options::{ServingOptions, TlsFiles};
use crate::config::{FileWatch, Stamp, read_limited};
use crate::report::Health;
use crate::units::lock;

/// Name of the capability in degradations.
const CAPABILITY: &str = "serving";
/// Interval between two checks for changed files.
const EVERY: Duration = Duration::from_secs(5);
/// Maximum file size in bytes. Certificate chains and token lists are far smaller.
const LARGEST: u64 = 256 << 10;
/// Minimum token length in bytes. A shorter token can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// The TLS configuration and the valid tokens.
#[derive(Debug, Default)]
pub struct Material {
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) tokens: Vec<String>,
}

impl Material {
    pub fn read(options: &ServingOptions) -> anyhow::Result<Self> {
        let tls = options.tls.as_ref().map(tls).transpose()?;
        let tokens = options.token_file.as_deref().map(tokens).transpose()?.unwrap_or_default();
        Ok(Self { tls, tokens })
    }
}

fn unusable(path: &Path, reason: impl Display, fix: &str) -> anyhow::Error {
    anyhow::anyhow!("{}: {reason}; {fix}", path.display())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = std::fs::File::open(path).and_then(|file| read_limited(file, LARGEST));
    let unreadable = |error| unusable(path, format!("cannot be read: {error}"), "check the path and its permissions");
    let bytes = read.map_err(unreadable)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LARGEST) {
        return Err(unusable(path, format!("larger than {} KiB", LARGEST >> 10), "check the path"));
    }
    Ok(bytes)
}

fn tls(files: &TlsFiles) -> anyhow::Result<Arc<ServerConfig>> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&read(&files.certificate)?).collect();
    const CERTIFICATE: &str = "it should hold a certificate in PEM, and those that lead to a root";
    let chain = match chain {
        Ok(chain) if chain.is_empty() => Err(unusable(&files.certificate, "no certificate in it", CERTIFICATE)),
        Ok(chain) => Ok(chain),
        Err(error) => Err(unusable(&files.certificate, error, CERTIFICATE)),
    }?;
    const KEY: &str = "it should hold the certificate's private key in PEM, not encrypted";
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?);
    let key = key.map_err(|error| unusable(&files.key, error, KEY))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|error| unusable(&files.key, error, KEY))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Scrapers connect rarely, so resumable TLS sessions would only cost memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn tokens(path: &Path) -> anyhow::Result<Vec<String>> {
    const FIX: &str = "write one token on each line, e.g. what `openssl rand -hex 32` prints";
    let wrong = |reason: &str| unusable(path, reason, FIX);
    let text = String::from_utf8(read(path)?).map_err(|_| wrong("not UTF-8"))?;
    let tokens: Vec<String> = text.lines().map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect();
    match tokens.iter().map(String::len).min() {
        None => Err(wrong("no token in it")),
        Some(shortest) if shortest < SHORTEST_TOKEN => Err(wrong("a token has fewer than 16 characters")),
        Some(_) => Ok(tokens),
    }
}

#[derive(Debug, Default)]
pub struct Current(Mutex<Arc<Material>>);

impl Current {
    pub fn new(material: Material) -> Self {
        Self(Mutex::new(Arc::new(material)))
    }

    pub(super) fn get(&self) -> Arc<Material> {
        Arc::clone(&lock(&self.0))
    }

    pub(super) fn set(&self, material: Material) {
        *lock(&self.0) = Arc::new(material);
    }
}

/// The thread that reloads changed files. Dropping this ends the thread.
#[derive(Debug)]
pub struct MaterialWatch(#[expect(dead_code, reason = "held, so that the thread runs")] FileWatch<()>);

impl MaterialWatch {
    /// Starts the thread, or returns `None` if no files are configured. If a reload fails, the previous material stays in use and
    /// `health` reports a degradation.
    pub fn start(
        options: &ServingOptions,
        current: &Arc<Current>,
        health: &Arc<Health>,
    ) -> std::io::Result<Option<Self>> {
        let mut watched = Watched::new(options.clone());
        if watched.paths.is_empty() {
            return Ok(None);
        }
        let (current, health) = (Arc::clone(current), Arc::clone(health));
        let (mut reported, mut is_lowered) = (None, false);
        let poll = move |_| {
            if !std::mem::replace(&mut is_lowered, true) {
                // The thread inherits the loop's raised priority. Lowering a priority needs no privilege.
                let _kept = rustix::process::setpriority_process(None, 0);
            }
            if let Some(read) = watched.look() {
                renew(read, &mut reported, &current, &health);
            }
            None
        };
        let thread = Builder::new().name("serving".to_owned()).stack_size(256 * 1024);
        FileWatch::start(thread, EVERY, poll).map(|watch| Some(Self(watch)))
    }
}

/// Puts newly read material in use. Reports a failure once per reason.
fn renew(read: anyhow::Result<Material>, reported: &mut Option<String>, current: &Current, health: &Health) {
    match read {
        Ok(material) => {
            current.set(material);
            *reported = None;
            health.set_degradation(CAPABILITY, None);
            tracing::info!(event = "serving_renewed", "certificate, key and tokens were read again");
        }
        Err(error) => {
            let reason = error.to_string();
            if reported.as_ref() != Some(&reason) {
                tracing::error!(
                    event = "degraded",
                    capability = CAPABILITY,
                    reason,
                    "what was read before stays in use"
                );
                health.set_degradation(CAPABILITY, Some(&reason));
                *reported = Some(reason);
            }
        }
    }
}

/// The files, and their stamps when they were last checked and last read.
#[derive(Debug)]
struct Watched {
    options: ServingOptions,
    paths: Vec<PathBuf>,
    /// Stamps at the last check; `None` for a missing file.
    seen: Vec<Option<Stamp>>,
    /// Stamps at the last successful read; `None` after a failure.
    read: Option<Vec<Option<Stamp>>>,
}

impl Watched {
    fn new(options: ServingOptions) -> Self {
        let tls = options.tls.iter().flat_map(|files| [files.certificate.clone(), files.key.clone()]);
        let paths: Vec<PathBuf> = tls.chain(options.token_file.clone()).collect();
        let seen = stamps(&paths);
        Self { options, read: Some(seen.clone()), seen, paths }
    }

    /// Reads the files if one has changed and none has changed since the last check. Certificate and key are written one after the other,
    /// so a change in progress must end first.
    fn look(&mut self) -> Option<anyhow::Result<Material>> {
        let now = stamps(&self.paths);
        let is_still = self.seen == now;
        self.seen.clone_from(&now);
        if !is_still || self.read.as_ref() == Some(&now) {
            return None;
        }
        let material = Material::read(&self.options);
        // Retry a failed read at every check: a repaired disk or permission does not change the files' stamps.
        self.read = material.is_ok().then_some(now);
        Some(material)
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| Stamp::of(path).ok()).collect()
}

#[cfg(test)]
#[path = "material_tests.rs"]
mod tests;
