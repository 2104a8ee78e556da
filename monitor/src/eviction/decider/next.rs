//! What one step of the decider answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::eviction::evicted::{Cause, IMMEDIATE_GRACE_SECONDS};
use crate::eviction::garbage::Collector;
use crate::eviction::proactive_reclaim::{Futile, ReclaimOutcome};
use crate::units::{Amount, Bytes, CgroupId, Monotonic, Signal};

/// What is to be done now. Everything but [`Next::Wait`] is answered, and the decider is stepped again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    /// Nothing, until something changes or one of these times comes. The turn is over.
    Wait {
        /// When something that was refused may be tried again.
        retry: Option<Monotonic>,
        /// When the next grace period or transition period ends.
        next_change: Option<Duration>,
    },
    /// Measure something that is read only when needed.
    Measure(Measure),
    /// Remove garbage, in this order.
    CollectGarbage {
        signal: Signal,
        #[serde(with = "collectors")]
        collectors: &'static [Collector],
    },
    /// Ask the kernel to reclaim memory from a candidate.
    Reclaim { place: usize, bytes: Bytes, deadline: Monotonic },
    /// The reclaim attempt under way has come to this; `interrupt`: the kernel is to be told to stop.
    EndReclaim { outcome: ReclaimOutcome, interrupt: bool },
    /// Evict.
    Evict(Choice),
}

/// What is to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// The signals, anew.
    Signals,
    /// The candidates and what they use of what `signal` counts; `exact`: no upper bounds.
    Candidates { signal: Signal, exact: bool },
    /// The state of the container runtime.
    Runtime,
    /// The exact working set of one candidate of the ranking.
    Exact { place: usize },
    /// What is known of one candidate.
    Standing { place: Place },
    /// What reclaim could take from one candidate.
    Holding { place: usize },
    /// Whether every candidate's disk usage is at most `tolerated` older than `since`; `renew`: it is to be measured anew.
    Disks { since: Monotonic, tolerated: Duration, renew: bool },
    /// Which pods are above a limit of their own.
    Limits,
}

/// One candidate: its place in the ranking, or among the pods above a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    Ranked(usize),
    Limit(usize),
}

/// One eviction that was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    pub place: Place,
    pub cause: Cause,
    /// The threshold, by its place among the armed ones; none for a limit of the pod's own.
    pub threshold: Option<usize>,
    pub is_hard: bool,
    /// Seconds between SIGTERM and SIGKILL as the API states them; negative only under the quirk of that name.
    pub grace_period_seconds: i64,
    /// The same for signals: zero where the threshold is hard.
    pub grace: Duration,
    pub route: Route,
    /// Observe mode: recorded, not carried out.
    pub is_dry_run: bool,
}

impl Choice {
    /// A candidate that is named without a threshold and never evicted, because no agent drives the decider.
    pub(super) const fn named(place: Place, cause: Cause, grace: Duration) -> Self {
        Self {
            place,
            cause,
            threshold: None,
            is_hard: true,
            grace_period_seconds: IMMEDIATE_GRACE_SECONDS,
            grace,
            route: Route::Local,
            is_dry_run: true,
        }
    }
}

/// How an eviction is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Route {
    /// The agent ends the processes, and tells no API server.
    #[default]
    Local,
    /// The same, where an API server does not list the pod.
    Unlisted,
    /// The agent ends the processes, and reports it to the API server beside.
    Reported,
    /// The API server is asked, and the kubelet ends the processes; `insists`: the agent does when there is no answer.
    Requested { insists: bool },
}

/// What the driver reports once the turn is over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Note {
    /// A soft threshold is met, and its eviction waits: the node is in maintenance.
    Deferred { threshold: usize },
    /// The evictions of this minute are spent.
    BudgetSpent { left: Duration },
    /// What evicted pods still occupy suffices once it is freed.
    Expected { threshold: usize, amount: Amount },
    /// A soft eviction needs the API server, which cannot be asked.
    PutOff { threshold: usize, id: CgroupId },
    /// No candidate is left.
    Exhausted { threshold: usize, candidates: usize },
    /// No workload is asked to give memory back.
    ReclaimFutile { threshold: usize, why: Futile },
    /// Observe mode: this workload would be asked to give memory back.
    ReclaimDryRun { threshold: usize, id: CgroupId, bytes: Bytes },
}

/// Why a candidate is not evicted although it is ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PassedOver {
    /// It must not be evicted.
    Exempt,
    /// Its usage could not be measured.
    NotMeasured,
    /// It would free too little.
    TooLittle,
    /// Its eviction failed, was refused, or is under way.
    Tried,
}

mod collectors {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Collector;

    pub(super) fn serialize<S: Serializer>(all: &&'static [Collector], serializer: S) -> Result<S::Ok, S::Error> {
        all.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static [Collector], D::Error> {
        let all = Vec::<Collector>::deserialize(deserializer)?;
        Ok(match all.as_slice() {
            [] => &[],
            [Collector::Containers] => &[Collector::Containers],
            [Collector::Images] => &[Collector::Images],
            _ => &[Collector::Containers, Collector::Images],
        })
    }
}
