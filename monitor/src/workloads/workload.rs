//! A workload, and its usage at one moment.

use std::sync::Arc;

use crate::units::{Amount, Bytes, CgroupId, Resource};

use super::among_own::AmongOwn;
use super::cgroup_path::{PodUid, QosClass};
use super::oomd_marks::Preference;
use super::outlook::Outlook;
use super::pod::Pod;
use super::protection::Protection;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Pod(PodUid),
    Service,
    Scope,
    /// A container outside Kubernetes, by the runtime's id.
    Container(String),
    /// Any other cgroup that contains processes.
    Cgroup,
}

impl Kind {
    pub const fn pod_uid(&self) -> Option<&PodUid> {
        match self {
            Self::Pod(uid) => Some(uid),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Path of the cgroup, relative to the memory hierarchy's root.
    pub name: String,
    /// Identity of the cgroup: a new cgroup at the same path has another id.
    pub id: CgroupId,
    pub kind: Kind,
    /// The class from the cgroup's path in Kubernetes, else from `memory.min`, `memory.low` and `memory.max`.
    pub qos: QosClass,
    /// The memory that the pod requests, else the memory that the cgroup guarantees; zero if there is neither.
    pub request: Bytes,
    pub preference: Preference,
    /// The place among the workloads of the same user; `None` for a workload of the system.
    pub among_own: Option<AmongOwn>,
    pub protection: Option<Protection>,
    /// The workload is a candidate only while it leaks: a service of `system.slice` that `evictions.services` does not list.
    pub only_as_leaker: bool,
    /// The API server's list of pods is awaited, and the pod is not known.
    pub is_unlisted: bool,
    /// The pod's object from the API server or the file of pods. The last known object is kept as long as the cgroup exists.
    pub pod: Option<Arc<Pod>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadUsage {
    pub workload: Arc<Workload>,
    /// Usage minus inactive file memory; an upper bound if not `exact`.
    pub working_set: Bytes,
    /// False if inactive file memory was not read. Reading it costs the kernel as much as everything else together.
    pub exact: bool,
    /// The usage of the scarce resource, if that is not memory.
    pub other: Option<OtherUsage>,
    pub outlook: Outlook,
}

/// The usage of a resource other than memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherUsage {
    pub resource: Resource,
    /// The used amount; `None` while it is unknown.
    pub used: Option<Amount>,
    /// The requested amount; `None` for a resource that cannot be requested.
    pub request: Option<Amount>,
}

/// Returns the QoS class of a workload outside Kubernetes. `request` is `memory.min` or `memory.low` (v1: the soft limit), `limit` is
/// `memory.max`. A limit alone guarantees nothing, so it does not make a workload Guaranteed.
pub fn qos_class(request: Bytes, limit: Option<Bytes>) -> QosClass {
    match (request, limit) {
        (Bytes(0), None) => QosClass::BestEffort,
        (Bytes(0), Some(_)) => QosClass::Burstable,
        (request, Some(limit)) if request >= limit => QosClass::Guaranteed,
        _ => QosClass::Burstable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qos_follows_from_request_and_limit() {
        for (request, limit, qos) in [
            (0, None, QosClass::BestEffort),
            (0, Some(100), QosClass::Burstable),
            // The user of a delegated cgroup can limit it to nothing.
            (0, Some(0), QosClass::Burstable),
            (50, None, QosClass::Burstable),
            (50, Some(100), QosClass::Burstable),
            (100, Some(100), QosClass::Guaranteed),
            // If memory.low is above memory.max, it protects all memory up to the limit.
            (200, Some(100), QosClass::Guaranteed),
        ] {
            assert_eq!(qos_class(Bytes(request), limit.map(Bytes)), qos, "{request} {limit:?}");
        }
    }
}
