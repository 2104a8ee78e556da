//! A workload with memory.

use super::sleepers::Cgroups;

/// Holds 8 MiB that are charged to its cgroup. Memory that a process holds when it is moved there is not charged to it.
const HOLDER: &str = "until grep -q npm-test- /proc/self/cgroup; do sleep 0.05; done; \
                      { head -c 8388608 /dev/zero; exec sleep 600; } | exec tail -c 8388608";

/// Makes a workload that holds 8 MiB.
pub fn holder(cgroups: &mut Cgroups, name: &str) -> String {
    cgroups.workload_of(name, 1, &["sh", "-c", HOLDER])
}
