//! Events on pods and on the node.

use tokio::sync::mpsc;

use super::thread::Context;

/// Something that people are to hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    /// What it happened to.
    pub about: About,
    /// `Warning`, not `Normal`.
    pub is_warning: bool,
    /// One CamelCase word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// This node.
    Node,
    /// A pod on it.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Unique for ever.
        uid: String,
    },
}

/// Sends them, until there are no more.
pub(super) async fn send(_context: &Context, mut happenings: mpsc::Receiver<Happening>) {
    while happenings.recv().await.is_some() {}
}
