//! Makes a new certificate for each listener.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// A certificate and its TLS configuration.
#[derive(Clone)]
pub struct Identity {
    pem: String,
    acceptor: TlsAcceptor,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// Makes a self-signed certificate for this machine's loopback address.
    pub fn new() -> Result<Self> {
        let names = ["localhost", "127.0.0.1", "kubernetes.default.svc"].map(str::to_owned);
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(names).context("making a certificate for the test server")?;
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("choosing TLS versions")?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())
            .context("serving the certificate of the test server")?;
        Ok(Self { pem: cert.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Returns the certificate, which is its own authority.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) const fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}
