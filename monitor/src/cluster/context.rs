//! What every task of the API threads needs.

use std::sync::Arc;

use tokio::sync::watch;

use super::api_client::Server;
use super::api_state::Reporter;
use super::ledger::Ledger;

#[derive(Clone)]
pub(super) struct Context {
    /// Stays valid when certificates and tokens change.
    pub(super) client: kube::Client,
    pub(super) server: Arc<Server>,
    pub(super) node_name: Arc<str>,
    pub(super) reporter: Reporter,
    pub(super) ledger: Arc<Ledger>,
}

/// Returns when the sender is dropped, which means that the loop has ended.
pub(super) async fn ended<T>(mut watched: watch::Receiver<T>) {
    while watched.changed().await.is_ok() {}
}
