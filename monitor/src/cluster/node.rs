//! The node's own object: whether it is cordoned, drained or updated.

use super::thread::Context;

/// What of the node's object matters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// Unique for ever; empty while it is not known.
    pub uid: String,
    /// Why the node is in maintenance, for people, if it is.
    pub maintenance: Option<String>,
}

/// Watches it for ever.
pub(super) async fn watch(_context: &Context) {
    std::future::pending::<()>().await;
}
