//! What one step of the decider is given: plain facts that can be written down and replayed.

use serde::{Deserialize, Serialize};

use crate::eviction::collection::{CollectionEnd, RuntimeFacts};
use crate::eviction::evicted::Cause;
use crate::eviction::proactive_reclaim::{Answer as ReclaimAnswer, Holding};
use crate::eviction::standing::Standing;
use crate::eviction::{Layout, Observation};
use crate::units::{Amount, Bytes, CgroupId, Moment, Monotonic, Signal};

/// The facts of one moment. Facts that cost reads or allocations are not here: the decider asks for them ([`super::Next::Measure`]), and
/// the next step's [`Answer`] has them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    /// The time, for grace periods, transition periods and cool-downs.
    pub now: Moment,
    /// How the node's filesystems share devices.
    pub layout: Layout,
    /// The signals.
    pub observation: Observation,
    /// `rank` asks about this signal, whether or not a threshold on it is met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Signal>,
    /// Evictions under way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub under_way: Vec<UnderWay>,
    /// Evictions that ended since the step before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<EndedEviction>,
    /// A garbage collection that ended since the step before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collected: Option<CollectionEnd>,
    /// What evicted pods still occupy and their runtime is going to free, by signal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<(Signal, Amount)>,
    /// The node is in maintenance, or whether it is is not known yet.
    pub in_maintenance: bool,
    pub reclaim: ReclaimFacts,
    /// Candidates' local storage is to be checked against their limits when it is due.
    pub has_limits: bool,
}

impl Snapshot {
    /// The time on the agent's monotonic clock.
    pub fn clock(&self) -> Monotonic {
        Monotonic(u64::try_from(self.now.0).unwrap_or(0))
    }
}

/// One eviction under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    pub id: CgroupId,
    pub stage: EvictionStage,
    /// It is for a hard threshold or a limit, and its disk is wanted back.
    pub is_urgent: bool,
}

/// How far an eviction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EvictionStage {
    /// Inside a grace period, or waiting for the runtime, the kubelet or the API server.
    Leaving,
    /// SIGKILL was sent; processes are still there.
    Dying,
    /// No process is left; the runtime removes the rest.
    Removing,
}

/// One eviction that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedEviction {
    pub id: CgroupId,
    pub cause: Cause,
    pub end: EvictionEnd,
}

/// How an eviction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EvictionEnd {
    /// No process is left.
    Gone,
    /// Processes are left, or nothing could be signalled.
    Failed,
    /// The API server did not answer, and nothing was signalled.
    Unanswered,
    /// The API server or a disruption budget refused; nothing was signalled.
    Refused,
}

/// Proactive reclaim (`memory.reclaim`), as far as it is possible here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ReclaimFacts {
    /// Not configured, or not possible.
    #[default]
    Off,
    /// Observe mode: only reported.
    DryRun,
    /// Possible, and no request is under way in the kernel.
    Idle,
    /// The kernel is at work on a request; its answer so far.
    Busy(ReclaimAnswer),
}

/// What the step before asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Answer<C> {
    /// Nothing was asked: a turn begins.
    #[default]
    Begin,
    /// The signals were sampled anew; they are in the snapshot.
    Sampled,
    /// The candidates, in any order.
    Candidates(Vec<C>),
    /// The state of the container runtime.
    Runtime(RuntimeFacts),
    /// One candidate measured exactly; none where it no longer exists.
    Exact(Option<C>),
    /// What is known of one candidate.
    Standing(Standing),
    /// What reclaim could take from one candidate; none where that cannot be read.
    Holding(Option<Holding>),
    /// Whether every candidate's disk usage is measured anew.
    DisksMeasured(bool),
    /// The pods above a limit of their own, in order.
    Limits(Vec<LimitExceeded>),
    /// Garbage was collected, and this is observed now.
    Collected(Observation),
    /// Whether the runtime took the order to collect garbage.
    CollectionStarted(bool),
    /// Whether the kernel was asked to reclaim.
    ReclaimStarted(bool),
    /// By how much the usage of the workload fell.
    Reclaimed(Bytes),
    /// What became of an eviction attempt.
    Attempt(Attempt),
}

/// A pod above a limit of local storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitExceeded {
    pub id: CgroupId,
    pub cause: Cause,
    /// It was measured too long ago, or before it was started: it is measured again first.
    pub is_stale: bool,
}

/// What became of an eviction attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// The eviction is under way; in observe mode, recorded.
    Started,
    /// The workload has ended by itself.
    Gone,
    /// It is critical after all.
    Critical,
    /// The API server could not be asked.
    PutOff,
    /// Nothing could be signalled.
    Failed,
}
