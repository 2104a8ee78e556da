//! The pods of this node.

use super::thread::Context;

/// Watches them for ever.
pub(super) async fn watch(_context: &Context) {
    std::future::pending::<()>().await;
}
