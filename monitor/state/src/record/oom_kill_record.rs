//! The part of a record about an OOM kill.

use serde::{Deserialize, Serialize};

use crate::Identity;

use super::is_zero;

/// One invocation of the kernel's OOM killer, which may kill several processes.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct OomKill {
    /// The kernel's constraint: `none` (the node ran out of memory), `cpuset`, `memory_policy` or `memcg`.
    pub constraint: Option<String>,
    /// The invocation chose several processes (`memory.oom.group`).
    pub group: bool,
    /// `ebpf` or `kmsg`.
    pub source: String,
    /// The allocation's size is 2^order pages; -1 for a kill requested through SysRq.
    pub order: Option<i32>,
    pub limit: Option<Limit>,
    pub trigger: Option<Trigger>,
    pub victims: Vec<Victim>,
    /// Processes that `victims` leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    pub victims_omitted: usize,
}

/// A cgroup that hit its limit.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Limit {
    /// Path below the hierarchy's root; left out if the cgroup was removed before the agent read its path.
    pub cgroup: Option<String>,
    pub cgroup_id: Option<u64>,
    /// The workload that contains the cgroup; the path itself for a cgroup above workloads.
    pub workload: Option<String>,
    pub name: Option<Identity>,
    pub limit_bytes: Option<u64>,
    /// Usage when the record was made: the victims' memory is free by then.
    pub usage_bytes: Option<u64>,
}

/// The task whose allocation found no memory.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Trigger {
    pub pid: Option<i32>,
    pub tid: Option<i32>,
    pub comm: Option<String>,
    pub workload: Option<String>,
    pub name: Option<Identity>,
    /// The container's id at the container runtime.
    pub container: Option<String>,
    pub cgroup: Option<String>,
    pub cgroup_id: Option<u64>,
}

/// A process that the OOM killer chose.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Victim {
    pub pid: i32,
    pub comm: Option<String>,
    pub uid: Option<u32>,
    pub workload: Option<String>,
    pub name: Option<Identity>,
    /// The container's id at the container runtime.
    pub container: Option<String>,
    /// The container's name within its pod.
    pub container_name: Option<String>,
    /// `namespace/name`, if known.
    pub pod: Option<String>,
    pub cgroup: Option<String>,
    pub cgroup_id: Option<u64>,
    /// Anonymous memory: heap and stack.
    pub anon_bytes: Option<u64>,
    pub file_bytes: Option<u64>,
    /// Shared memory and tmpfs.
    pub shmem_bytes: Option<u64>,
    pub pgtables_bytes: Option<u64>,
    pub total_vm_bytes: Option<u64>,
    pub oom_score_adj: Option<i32>,
    /// From the process's start to the choice.
    pub age_ms: Option<f64>,
    /// From the choice to the process's exit.
    pub dying_ms: Option<f64>,
}

impl OomKill {
    /// As [`super::Incident::name_rows`].
    pub fn name_rows(&mut self, name: impl Fn(&str, Option<&str>) -> Option<Identity>) {
        let fill = |workload: Option<&String>, cgroup: Option<&String>, known: &mut Option<Identity>| {
            if known.is_none() {
                *known = workload.and_then(|workload| name(workload, cgroup.map(String::as_str)));
            }
        };
        for Victim { workload, cgroup, name, .. } in &mut self.victims {
            fill(workload.as_ref(), cgroup.as_ref(), name);
        }
        if let Some(Trigger { workload, cgroup, name, .. }) = &mut self.trigger {
            fill(workload.as_ref(), cgroup.as_ref(), name);
        }
        if let Some(Limit { workload, cgroup, name, .. }) = &mut self.limit {
            fill(workload.as_ref(), cgroup.as_ref(), name);
        }
    }
}

impl Victim {
    /// Returns the process's resident memory; `None` if no part is known.
    pub fn resident_bytes(&self) -> Option<u64> {
        let parts = [self.anon_bytes, self.file_bytes, self.shmem_bytes];
        parts
            .iter()
            .any(Option::is_some)
            .then(|| parts.iter().flatten().fold(0_u64, |sum, part| sum.saturating_add(*part)))
    }
}
