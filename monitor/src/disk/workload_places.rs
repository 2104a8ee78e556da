//! The places where a workload stores files.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::container_mounts::Container;
use super::measured_usage::Part;
use crate::units::{CgroupId, kernel_text};
use crate::workloads::{Kind, PodUid, Workload};

/// Volumes of a pod that are on the node's own disk and are removed with the pod (`eviction-semantics.md` §5), by the kubelet's name of the
/// plugin.
pub const LOCAL_VOLUMES: [&str; 3] = ["kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~git-repo"];
/// Limit of init's `mountinfo`. A node has about a thousand mounts.
pub const MAX_MOUNTINFO_BYTES: u64 = 32 << 20;

/// A writable layer that the runtime has reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub container: String,
    /// The upper directory in the mounts of the machine's init.
    pub directory: PathBuf,
}

/// A workload to measure, with the known facts about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadPlaces {
    pub workload: String,
    pub id: CgroupId,
    /// The directory of its cgroup, which lists its processes.
    pub cgroup: PathBuf,
    pub pod: Option<PodUid>,
    /// The known writable layers. The finder searches for other layers.
    pub layers: Vec<Layer>,
    /// Whether its disk usage has a known limit. It is then measured more often, because growing files generate no event.
    pub is_limited: bool,
    /// Whether its project quotas are reliable, because no process in it can move files to another project.
    pub trusts_quotas: bool,
}

impl WorkloadPlaces {
    /// Returns the places of a workload to measure; `None` if its files cannot be located: a service outside Kubernetes may write
    /// anywhere.
    pub fn of(workload: &Workload, hierarchy: &Path) -> Option<Self> {
        let places = || Self {
            workload: workload.name.clone(),
            id: workload.id,
            cgroup: hierarchy.join(kernel_text::path(&workload.name)),
            pod: workload.kind.pod_uid().cloned(),
            layers: Vec::new(),
            is_limited: false,
            trusts_quotas: false,
        };
        Self::has(workload).then(places)
    }

    /// Returns whether the files of a workload of this kind can be located.
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

/// The filesystems that may hold open files of a container's processes.
#[derive(Debug, Default)]
pub struct VisibleMounts {
    /// The device of the container's own overlay. No other container has it.
    pub layer: Option<(String, Part)>,
    pub mounts: HashMap<u64, Part>,
    /// Ids of the mounts that show other files.
    pub others: HashSet<u64>,
    /// The pod's volumes by device, for mounts that are no longer visible.
    pub volumes: Vec<(String, Part)>,
}

#[derive(Debug, Default)]
pub struct Found {
    pub places: Vec<Place>,
    /// The containers whose open files are scanned, with the mounts they see.
    pub views: Vec<(Container, VisibleMounts)>,
    pub volumes: Vec<(String, Part)>,
    pub missing: BTreeSet<String>,
    /// The number of containers without a readable process or without an overlay. Most likely they have just exited or have just begun.
    pub unreadable: usize,
}

impl Found {
    pub fn miss(&mut self, what: impl std::fmt::Display) {
        self.missing.insert(format!("disk usage: {what}"));
    }
}
