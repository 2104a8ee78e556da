//! What is told of an OOM kill.

use serde::{Deserialize, Serialize};

use super::is_zero;

/// One invocation of the kernel's OOM killer, which may end several processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct OomKill {
    /// Whose memory was at its end: `none` (the node's), `cpuset`, `memory_policy` or `memcg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraint: Option<String>,
    /// One invocation chose more than one process (`memory.oom.group`).
    pub group: bool,
    /// Who told: `ebpf` or `kmsg`.
    pub source: String,
    /// Size of the allocation: two to the power of this many pages; -1 for a kill asked for by hand (SysRq).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<i32>,
    /// The cgroup whose limit was hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The task whose allocation found no memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// The processes that were ended.
    pub victims: Vec<Victim>,
    /// Processes that the list leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    pub victims_omitted: usize,
}

/// A cgroup that hit its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Limit {
    /// Its path below the hierarchy's root; left out when it was gone before anybody saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its kernfs id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
    /// The workload that it is, or is part of; the path itself for a cgroup that only groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Its usage when the record was made: the victims' memory is back by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_bytes: Option<u64>,
}

/// A task that asked for memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Trigger {
    /// Its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<i32>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Its workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Its container's id, as its runtime knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its cgroup's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its cgroup's kernfs id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
}

/// A process that the OOM killer ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Victim {
    /// Its process id.
    pub pid: i32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Its workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Its container's id, as its runtime knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// That container's name within its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// The pod that the workload is, `namespace/name`, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Its cgroup's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its cgroup's kernfs id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
    /// Anonymous memory: heap and stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anon_bytes: Option<u64>,
    /// Mapped files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Shared memory and tmpfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shmem_bytes: Option<u64>,
    /// Page tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pgtables_bytes: Option<u64>,
    /// Address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_vm_bytes: Option<u64>,
    /// How it was marked for the OOM killer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    /// How long it had lived when it was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<f64>,
    /// How long it took to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dying_ms: Option<f64>,
}

impl Victim {
    /// What it had in memory; nothing when nothing is known of it.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let parts = [self.anon_bytes, self.file_bytes, self.shmem_bytes];
        parts
            .iter()
            .any(Option::is_some)
            .then(|| parts.iter().flatten().fold(0_u64, |sum, part| sum.saturating_add(*part)))
    }
}
