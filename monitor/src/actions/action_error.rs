//! Why an action had no effect.

use std::path::PathBuf;

use crate::eviction::decider::Attempt;

#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The workload's cgroup was removed, so its processes have ended.
    #[error("the cgroup is gone")]
    Gone,
    /// The kubelet marks the pod as critical to the node.
    #[error("the pod is critical to the node")]
    Critical,
    /// The eviction needs the API server's consent, which is unavailable now.
    #[error("put off: {0}")]
    PutOff(String),
    #[error("{what}: {source}")]
    Refused {
        /// The failed operation and its subject.
        what: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The processes have SIGKILL, and on cgroup v1 none of them dies before that cgroup is thawed.
    #[error("killed, but {cgroup} is frozen by a cgroup above it: write THAWED to the freezer.state of that one", cgroup = cgroup.display())]
    FrozenFromAbove { cgroup: PathBuf },
    /// Processes keep appearing faster than they are killed.
    #[error("processes are left after {rounds} rounds of SIGKILL in {cgroup}", cgroup = cgroup.display())]
    StillAlive {
        /// Number of rounds of SIGKILL.
        rounds: u32,
        cgroup: PathBuf,
    },
}

impl ActionError {
    /// Returns the failure as the decider knows it.
    pub fn attempt(&self) -> Attempt {
        match self {
            Self::Gone => Attempt::Gone,
            Self::Critical => Attempt::Critical,
            Self::PutOff(_) => Attempt::PutOff,
            Self::Refused { .. } | Self::FrozenFromAbove { .. } | Self::StillAlive { .. } => Attempt::Failed,
        }
    }

    pub(crate) fn refused(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        let source = source.into();
        match source.raw_os_error() {
            Some(libc::ENODEV) => Self::Gone,
            _ => Self::Refused { what: what.into(), source },
        }
    }
}
