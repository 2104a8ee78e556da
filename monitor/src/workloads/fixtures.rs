//! Workloads for the tests of all rooms.

use crate::units::{Bytes, CgroupId};

use super::{Kind, Outlook, Preference, QosClass, Workload, WorkloadUsage};

/// Returns a `BestEffort` service without protection.
pub fn workload(name: &str) -> Workload {
    Workload {
        name: name.to_owned(),
        id: CgroupId(1),
        kind: Kind::Service,
        qos: QosClass::BestEffort,
        request: Bytes::ZERO,
        preference: Preference::None,
        protection: None,
        only_as_leaker: false,
        is_unlisted: false,
        pod: None,
    }
}

/// Returns an exact usage of memory.
pub fn usage(workload: Workload, working_set: Bytes) -> WorkloadUsage {
    let outlook = Outlook::default();
    WorkloadUsage { workload: workload.into(), working_set, exact: true, other: None, outlook }
}
