//! The places where a workload keeps files.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::container_mounts::Container;
use super::measured_usage::Part;
use crate::units::CgroupId;
use crate::workloads::{Kind, PodUid, Workload};

/// Volumes of a pod that are on the node's own disk and are removed with the pod (`eviction-semantics.md` §5), by the kubelet's name of the
/// plugin.
pub const LOCAL_VOLUMES: [&str; 3] = ["kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~git-repo"];
/// Limit of init's `mountinfo`: a node has some thousand mounts.
pub const MAX_MOUNTINFO_BYTES: u64 = 32 << 20;

/// A writable layer that the runtime has reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub container: String,
    /// The upper directory, in the mounts of the machine's init.
    pub directory: PathBuf,
}

/// A workload to measure, and what is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadPlaces {
    pub workload: String,
    pub id: CgroupId,
    /// The directory of its cgroup, which lists its processes.
    pub cgroup: PathBuf,
    pub pod: Option<PodUid>,
    /// The known writable layers; others are searched for.
    pub layers: Vec<Layer>,
    /// Its disk usage has a known limit. It is measured more often, because growing files give no event.
    pub is_limited: bool,
    /// Its project quotas are reliable: no process in it can move files to another project.
    pub trusts_quotas: bool,
}

impl WorkloadPlaces {
    /// Returns what is to be measured of a workload; `None` if its files cannot be located: a plain service may write anywhere.
    pub fn of(workload: &Workload, hierarchy: &Path) -> Option<Self> {
        let places = || Self {
            workload: workload.name.clone(),
            id: workload.id,
            cgroup: hierarchy.join(&workload.name),
            pod: workload.kind.pod_uid().cloned(),
            layers: Vec::new(),
            is_limited: false,
            trusts_quotas: false,
        };
        Self::has(workload).then(places)
    }

    /// Whether the files of a workload of this kind can be located.
    pub fn has(workload: &Workload) -> bool {
        match workload.kind {
            Kind::Pod(_) | Kind::Container(_) => true,
            Kind::Service | Kind::Scope | Kind::Cgroup => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub part: Part,
    /// The path in the mounts of the machine's init.
    pub path: PathBuf,
}

/// The filesystems on which the open files of a container's processes can be.
#[derive(Debug, Default)]
pub struct VisibleMounts {
    /// The device of its own overlay, shared with no other container.
    pub layer: Option<(String, Part)>,
    pub mounts: HashMap<u64, Part>,
    /// Ids of mounts that show something else.
    pub others: HashSet<u64>,
    /// The pod's volumes by device, for mounts that are not visible any more.
    pub volumes: Vec<(String, Part)>,
}

#[derive(Debug, Default)]
pub struct Found {
    pub places: Vec<Place>,
    /// The containers whose open files are scanned, with the mounts they see.
    pub views: Vec<(Container, VisibleMounts)>,
    pub volumes: Vec<(String, Part)>,
    pub missing: BTreeSet<String>,
    /// Containers without a readable process: most likely they have just exited.
    pub unreadable: usize,
}

impl Found {
    pub fn miss(&mut self, what: impl std::fmt::Display) {
        self.missing.insert(format!("disk usage: {what}"));
    }
}
