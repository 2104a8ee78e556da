//! Where the container runtime is, and what of it may be collected.

use std::path::PathBuf;
use std::time::Duration;

/// How the container runtime is found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RuntimeEndpoint {
    /// The first of the usual sockets that answers.
    #[default]
    Auto,
    /// Not at all.
    Off,
    /// This Unix socket.
    Unix(PathBuf),
}

/// The container runtime, as far as it can be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeOptions {
    /// Its socket.
    pub endpoint: RuntimeEndpoint,
    /// A question that takes longer has failed. Removing and stopping have more time.
    pub timeout: Duration,
    /// A dead container or sandbox is kept for so long after it ended: the kubelet may still decide by it whether to run the pod again.
    pub minimum_container_age: Duration,
    /// An image that came while the agent runs is kept for so long (`imageMinimumGCAge`).
    pub image_minimum_gc_age: Duration,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            endpoint: RuntimeEndpoint::default(),
            timeout: Duration::from_secs(5),
            minimum_container_age: Duration::from_secs(60),
            image_minimum_gc_age: Duration::from_secs(120),
        }
    }
}
