//! Where the filesystems of the signals are, when the operator says so.

use std::path::PathBuf;

/// A path on each; the filesystem meant is the one that holds it. What is not given is found out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilesystemPaths {
    /// `nodefs`: the kubelet's root directory, with logs and volumes.
    pub node: Option<PathBuf>,
    /// `imagefs`: the runtime's images.
    pub image: Option<PathBuf>,
    /// `containerfs`: the writable layers of containers.
    pub container: Option<PathBuf>,
}
