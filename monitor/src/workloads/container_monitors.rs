//! Where the container of a monitor (conmon, a shim) is. A monitor is needed for the containers that it has elsewhere. A service that is one
//! container and its monitor, as Podman's quadlets make it, is a workload, and its monitor goes with it.

use std::path::Path;

use crate::node::process_facts;
use crate::units::{Pid, kernel_text};

use super::cgroup_path;

/// More processes of a workload are not looked at. The first process of a container is among the first.
const MOST_PROCESSES: usize = 32;

/// Returns whether the container of this monitor is among the processes of the monitor's own workload: a process that it has started, or one
/// in the cgroup of a container.
pub(super) fn has_ward(proc_root: &Path, monitor: Pid, workload: &[Pid]) -> bool {
    let others = workload.iter().filter(|pid| **pid != monitor).take(MOST_PROCESSES);
    let is_ward = |pid: &Pid| process_facts::parent(proc_root, *pid) == Some(monitor) || is_contained(proc_root, *pid);
    others.into_iter().any(is_ward)
}

/// Returns whether the process is in the cgroup of a container.
pub(super) fn is_contained(proc_root: &Path, pid: Pid) -> bool {
    let text = kernel_text::read(proc_root.join(pid.0.to_string()).join("cgroup")).unwrap_or_default();
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(cgroup_path::is_of_container)
}
