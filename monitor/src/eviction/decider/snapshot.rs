//! The input of one step of the decider: plain facts that can be serialized and replayed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::start::PodList;
use crate::eviction::collection::{CollectionEnd, RuntimeFacts};
use crate::eviction::evicted::Cause;
use crate::eviction::proactive_reclaim::{Answer as ReclaimAnswer, Holding};
use crate::eviction::standing::Standing;
use crate::eviction::{Layout, Observation};
use crate::units::{Amount, Bytes, CgroupId, Moment, Monotonic, Signal};

use super::pending::DyingMemory;

/// The facts of one moment. It leaves out facts that cost reads or allocations. The decider asks for those with
/// [`super::Next::Measure`], and gets them with the [`Answer`] of the next step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    /// The time, for grace periods, transition periods and cool-downs.
    pub now: Moment,
    /// How the node's filesystems share devices.
    pub layout: Layout,
    pub observation: Observation,
    /// `rank` asks about this signal, whether or not a threshold on it is met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Signal>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub under_way: Vec<UnderWay>,
    /// Evictions that ended since the step before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<EndedEviction>,
    /// A garbage collection that ended since the step before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collected: Option<CollectionEnd>,
    /// The amounts, by signal, that evicted and ended pods still occupy and that the container runtime or the kubelet is going to free.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<(Signal, Amount)>,
    /// Whether a disk is below a hard threshold of the kubelet that runs on this node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_kubelets_turn: bool,
    /// The memory of workloads that were killed and whose memory has not come back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dying: Vec<DyingMemory>,
    /// The free pages on the lists of the CPUs, which `MemAvailable` leaves out. Read for a second after a kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_cpu_lists: Option<Bytes>,
    /// The workload that grows fastest among those that are protected, with its growth in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected_growth: Option<(CgroupId, i64)>,
    pub workloads: usize,
    /// The refaults that `memory.available` is corrected by.
    #[serde(skip_serializing_if = "Refaults::is_zero")]
    pub refaults: Refaults,
    /// The node is in maintenance, or the agent does not know yet whether it is.
    pub in_maintenance: bool,
    /// Whether the API server has listed the pods of this node.
    pub pod_list: PodList,
    /// When the agent took its first sample, or the first after a standstill, if that was less than a second ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_sample: Option<Monotonic>,
    pub reclaim: ReclaimFacts,
    /// The total time for which all tasks waited for memory (PSI `full`). It is read while [`super::Decider::awaits_stalls`] asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_stalled: Option<Duration>,
    /// How fast the kernel swaps out, while a threshold on memory is near. `None` where no swap delays an eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapOut>,
    /// When the kernel's OOM killer last acted for the whole node, and not for a cgroup's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_killed: Option<Monotonic>,
    /// When it last acted for the limit of all pods together, of which `allocatableMemory.available` is the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_oom_killed: Option<Monotonic>,
    /// Whether the local storage of candidates is to be checked against their limits when a check is due.
    pub has_limits: bool,
}

impl Snapshot {
    /// The time on the agent's monotonic clock.
    pub fn clock(&self) -> Monotonic {
        Monotonic(u64::try_from(self.now.0).unwrap_or(0))
    }
}

/// The refaults that `memory.available` is corrected by, and the workload that causes most of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Refaults {
    /// The bytes that are subtracted from `MemAvailable`.
    pub correction: Bytes,
    /// The workload with most refaults, candidate or not, and its refaults in the same time. `None` until they were counted twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<(CgroupId, Bytes)>,
}

impl Refaults {
    pub fn is_zero(&self) -> bool {
        self.correction.is_zero()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    pub id: CgroupId,
    pub stage: EvictionStage,
    /// The eviction is for a hard threshold or a limit, and is to free a disk.
    pub is_urgent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EvictionStage {
    /// The workload is inside its grace period, or the eviction waits for the runtime, the kubelet or the API server.
    Leaving,
    /// SIGKILL was sent, but processes are left.
    Dying,
    /// No process is left, and the runtime removes files.
    Removing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedEviction {
    pub id: CgroupId,
    pub cause: Cause,
    pub end: EvictionEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EvictionEnd {
    /// No process is left.
    Gone,
    /// Processes are left, or no process could be signalled.
    Failed,
    /// The API server did not answer, and no process was signalled.
    Unanswered,
    /// The API server or a disruption budget refused, and no process was signalled.
    Refused,
}

/// The state of proactive reclaim (`memory.reclaim`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ReclaimFacts {
    /// Proactive reclaim is not configured or not possible.
    #[default]
    Off,
    /// In observe mode, proactive reclaim is only reported.
    DryRun,
    /// Proactive reclaim is possible, and the kernel works on no request.
    Idle,
    /// The kernel works on a request. The field is its answer so far.
    Busy(ReclaimAnswer),
}

/// The facts about swap for the rule of swap. The agent reads them between two turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwapOut {
    /// When the figures were read.
    pub at: Monotonic,
    /// The free swap.
    pub free: Bytes,
    /// The memory of the growing workload with least room in swap that may still be swapped out; `None` if no workload is known to grow.
    pub room: Option<Bytes>,
    /// The bytes that the kernel swapped out per second: the larger of the averages over one second and over ten, as of the fall.
    pub per_second: Bytes,
    /// The thousandths of the last tenth of a second or more for which all tasks waited for memory; `None` without PSI.
    pub stalled: Option<u32>,
}

/// The result of what the previous step asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Answer<C> {
    /// No result: a turn begins.
    #[default]
    Begin,
    /// The signals were sampled anew. They are in the snapshot.
    Sampled,
    /// The candidates, in any order.
    Candidates(Vec<C>),
    /// The state of the container runtime.
    Runtime(RuntimeFacts),
    /// One candidate with its exact usage, or `None` if it no longer exists.
    Exact(Option<C>),
    Standing(Standing),
    /// The memory that reclaim could take from one candidate; `None` if it cannot be read.
    Holding(Option<Holding>),
    /// Whether every candidate's disk usage is measured anew.
    DisksMeasured(bool),
    /// The pods above a limit of their own, in order.
    Limits(Vec<LimitExceeded>),
    /// Garbage was collected. The field is the observation afterwards.
    Collected(Observation),
    /// Whether the runtime took the order to collect garbage.
    CollectionStarted(bool),
    /// Whether the kernel was asked to reclaim.
    ReclaimStarted(bool),
    /// The number of bytes by which the usage of the workload fell.
    Reclaimed(Bytes),
    /// The outcome of an eviction attempt.
    Attempt(Attempt),
}

/// A pod above a limit of local storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitExceeded {
    pub id: CgroupId,
    pub cause: Cause,
    /// The usage was measured too long ago, or before the pod was started. It has to be measured again first.
    pub is_stale: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// The eviction is under way. In observe mode, it was recorded.
    Started,
    /// The workload ended by itself.
    Gone,
    /// The workload turned out to be critical.
    Critical,
    /// The API server could not be asked.
    PutOff,
    /// No process could be signalled.
    Failed,
}
