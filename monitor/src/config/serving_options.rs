//! Who may read what the agent serves, and over what kind of connection.

use std::path::PathBuf;

/// `metrics.tls`, `metrics.bearerToken`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServingOptions {
    /// Without it nothing is encrypted.
    pub tls: Option<TlsFiles>,
    /// Tokens that may read everything, one on each line.
    pub token_file: Option<PathBuf>,
    /// The API server is asked whose a token is, and whether that one may `get` the path.
    pub token_review: bool,
}

impl ServingOptions {
    /// Whether a token is asked for.
    #[must_use]
    pub fn asks_for_token(&self) -> bool {
        self.token_file.is_some() || self.token_review
    }
}

/// PEM files, read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then those that lead to a root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}
