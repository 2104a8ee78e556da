//! A TLS client for the agent on this machine: it trusts the certificate in the agent's configuration, and no other.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::input::CommandError;

/// Returns the name that the client tells. Names are not compared.
pub(super) fn name() -> ServerName<'static> {
    IpAddr::V4(Ipv4Addr::LOCALHOST).into()
}

#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

/// Returns a client that connects only to a server with the first certificate of this PEM file.
pub(super) fn client(file: &Path) -> Result<TlsConnector, CommandError> {
    let wrong = |reason: String| CommandError::Wrong(format!("{}: {reason}", file.display()));
    let unreadable = |source| CommandError::Unreadable { file: file.display().to_string(), source };
    let pem = std::fs::read(file).map_err(unreadable)?;
    let certificate = CertificateDer::from_pem_slice(&pem)
        .map_err(|error| wrong(format!("{error}; it should hold the agent's certificate in PEM")))?;
    let provider = Arc::new(ring::default_provider());
    let pinned = Pinned { certificate, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| wrong(error.to_string()))?;
    let config = builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned)).with_no_client_auth();
    Ok(Arc::new(config).into())
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_pinned = *end_entity == self.certificate;
        is_pinned.then(ServerCertVerified::assertion).ok_or_else(|| CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
