//! Workloads for the tests of all rooms.

use std::fs;
use std::path::Path;

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
        among_own: None,
        protection: None,
        only_as_leaker: false,
        is_unlisted: false,
        pod: None,
    }
}

/// Returns the figures of a workload: how often it was at its limit (without that it is there now), and its stalled milliseconds.
pub fn at_limit(hits: Option<u64>, stalled_ms: Option<u64>) -> super::AtLimit {
    super::own_limit::fixture(hits, stalled_ms)
}

/// Returns an exact usage of memory.
pub fn usage(workload: Workload, working_set: Bytes) -> WorkloadUsage {
    let outlook = Outlook::default();
    WorkloadUsage { workload: workload.into(), working_set, exact: true, other: None, outlook }
}

/// Makes a populated cgroup with the files of v2 and these processes, one a line.
pub fn populate(directory: &Path, processes: &str) {
    fs::create_dir_all(directory).unwrap();
    for (file, text) in [
        ("cgroup.procs", processes),
        ("cgroup.kill", ""),
        ("cgroup.events", "populated 1\n"),
        ("memory.current", "4096\n"),
        ("memory.stat", "inactive_file 0\n"),
        ("memory.min", "0\n"),
        ("memory.low", "0\n"),
        ("memory.max", "max\n"),
    ] {
        fs::write(directory.join(file), text).unwrap();
    }
}
