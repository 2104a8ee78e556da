//! Where the filesystems of the signals are: `filesystems` of a `MonitorConfiguration`.

use std::path::PathBuf;

use super::document_walk::{Fields, Walk};

/// A path on each filesystem. A path that is not given is detected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilesystemPaths {
    /// `nodefs`: the kubelet's root directory, with logs and volumes.
    pub node: Option<PathBuf>,
    /// `imagefs`: the runtime's images.
    pub image: Option<PathBuf>,
    /// `containerfs`: the writable layers of containers.
    pub container: Option<PathBuf>,
}

impl FilesystemPaths {
    /// Reads `filesystems`.
    pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Self {
        let inner = walk.section(fields, "filesystems", "nodefs imagefs containerfs");
        let mut path = |name, example| inner.get(name).and_then(|field| walk.path(&field, example));
        Self {
            node: path("nodefs", "/var/lib/kubelet"),
            image: path("imagefs", "/var/lib/containerd"),
            container: path("containerfs", "/var/lib/containerd"),
        }
    }
}
