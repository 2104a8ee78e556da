//! What the agent does to the machine. Everything here is idempotent, checks whom it touches, and acts only when told to enforce.

pub mod evict;
pub mod frozen;
pub mod garbage;
pub mod kill;
pub mod oom_score;
pub mod reclaim;
pub mod release;
pub mod self_protection;
pub mod stop;

use std::path::PathBuf;

pub use evict::{Ended, Evictor, Outcome};
pub use frozen::FreezeRecord;
pub use kill::Target;
pub use stop::PodStopper;

/// Why an action had no effect.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The workload's cgroup was removed: what was to be ended has ended.
    #[error("the cgroup is gone")]
    Gone,
    /// The kubelet marks the pod as critical to the node.
    #[error("the pod is critical to the node")]
    Critical,
    /// It is to go by the API server's consent alone, which cannot be had now.
    #[error("put off: {0}")]
    PutOff(String),
    /// The kernel refused.
    #[error("{what}: {source}")]
    Refused {
        /// What was being done, to what.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Processes keep appearing faster than they are killed.
    #[error("processes are left after {rounds} rounds of SIGKILL in {cgroup}", cgroup = cgroup.display())]
    StillAlive {
        /// How often everything in it was killed.
        rounds: u32,
        /// The cgroup.
        cgroup: PathBuf,
    },
}

impl ActionError {
    pub(crate) fn refused(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        let source = source.into();
        match source.raw_os_error() {
            Some(libc::ENODEV) => Self::Gone,
            _ => Self::Refused { what: what.into(), source },
        }
    }
}
