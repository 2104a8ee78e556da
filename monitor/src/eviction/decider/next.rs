//! The result of one step of the decider.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::eviction::evicted::{Cause, IMMEDIATE_GRACE_SECONDS};
use crate::eviction::garbage::Collector;
use crate::eviction::proactive_reclaim::{Futile, ReclaimOutcome};
use crate::units::{Amount, Bytes, CgroupId, Monotonic, Signal, named_enum};

use super::arming::{ArmedBy, Unarmed};

/// The thing to do now. After everything but [`Next::Wait`] the driver calls the decider again with the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    /// Wait until something changes or one of these times comes. The turn is over.
    Wait {
        /// When something that was refused may be tried again.
        retry: Option<Monotonic>,
        /// When the next grace period or transition period ends.
        next_change: Option<Duration>,
    },
    /// Measure something that is measured only when the decider needs it.
    Measure(Measure),
    /// Remove garbage, in this order.
    CollectGarbage {
        signal: Signal,
        #[serde(with = "collectors")]
        collectors: &'static [Collector],
    },
    /// Ask the kernel to reclaim memory from a candidate.
    Reclaim {
        place: usize,
        bytes: Bytes,
        deadline: Monotonic,
    },
    /// End the reclaim attempt under way, which had this outcome. `interrupt` tells whether to stop the kernel's reclaim.
    EndReclaim {
        outcome: ReclaimOutcome,
        interrupt: bool,
    },
    Evict(Choice),
}

/// The thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// The signals, sampled anew.
    Signals,
    /// The candidates and their usage of what `signal` counts. With `exact`, upper bounds are not enough.
    Candidates {
        signal: Signal,
        exact: bool,
    },
    /// The state of the container runtime.
    Runtime,
    /// The exact working set of one candidate of the ranking.
    Exact {
        place: usize,
    },
    Standing {
        place: Place,
    },
    /// The memory that reclaim could take from one candidate.
    Holding {
        place: usize,
    },
    /// Whether the figures of every candidate's disk usage are at most `tolerated` older than `since`. With `renew`, the driver orders
    /// new measurements.
    Disks {
        since: Monotonic,
        tolerated: Duration,
        renew: bool,
    },
    /// Which pods are above a limit of their own.
    Limits,
}

/// One candidate: its place in the ranking, or among the pods above a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    Ranked(usize),
    Limit(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    pub place: Place,
    pub cause: Cause,
    /// The place of the threshold among the armed ones, or `None` for a limit of the pod's own.
    pub threshold: Option<usize>,
    pub is_hard: bool,
    /// The seconds between SIGTERM and SIGKILL as the API states them. They are negative only under the quirk of that name.
    pub grace_period_seconds: i64,
    /// The same time for an eviction by signals. It is zero for a hard threshold.
    pub grace: Duration,
    pub route: Route,
    /// Whether the eviction is only recorded, as in observe mode, and not carried out.
    pub is_dry_run: bool,
}

impl Choice {
    /// Returns the choice of a candidate without a threshold. No agent drives the decider then, so the eviction is not carried out.
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
    /// The agent ends the processes and does not report to an API server.
    #[default]
    Local,
    /// The agent ends the processes. No API server is known to list the pod.
    Unlisted,
    /// The agent ends the processes and reports the eviction to the API server.
    Reported,
    /// The agent asks the API server, and the kubelet ends the processes. With `insists`, the agent ends them if there is no answer.
    Requested { insists: bool },
}

/// Something that the driver reports once the turn is over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Note {
    /// A hard threshold is met, but the first eviction waits for the API server's list of pods.
    AwaitsPods { threshold: usize },
    /// A soft threshold is met, but its eviction waits because the node is in maintenance.
    Deferred { threshold: usize },
    /// A threshold does not evict yet, for this reason.
    Unarmed { threshold: usize, why: Unarmed },
    /// A threshold that did not evict is armed now.
    Armed { threshold: usize, by: ArmedBy },
    /// The budget of evictions per minute is spent.
    BudgetSpent { left: Duration },
    /// The space that evicted and ended pods still occupy will suffice once it is freed.
    Expected { threshold: usize, amount: Amount },
    /// The disk is below the kubelet's own threshold, and the kubelet evicts for it.
    LeftToKubelet { threshold: usize },
    /// An eviction for a soft threshold needs the API server, which cannot be asked now.
    PutOff { threshold: usize, id: CgroupId },
    /// The memory of workloads that were killed is coming back. `of` has most of it.
    MemoryExpected { threshold: usize, left: Bytes, of: Option<CgroupId> },
    /// The kernel swaps out as fast as memory falls, this many bytes per second, and the growing workloads may use so much more swap.
    SwapKeepsUp { threshold: usize, per_second: Bytes, usable: Bytes },
    /// The eviction does not wait for swap on a node that has swap, or not any longer. `waited` is how long it has waited.
    SwapFallsShort { threshold: usize, waited: Duration, why: SwapLimit },
    /// Evictions have bought too little, and what leaks is no candidate: the protected workload `id`, or something else. Memory falls by
    /// `fall` bytes per second.
    ProtectedLeak { threshold: usize, id: Option<CgroupId>, fall: f64 },
    /// The threshold is met only because of refaults of this size, and no candidate causes them. `by` causes most of them.
    RefaultsOnly { threshold: usize, correction: Bytes, by: Option<CgroupId> },
    /// No candidate may be evicted. `largest` is the one whose end would give back most.
    Exhausted { threshold: usize, candidates: usize, largest: Option<Stays> },
    /// Memory is not reclaimed from any workload, for this reason.
    ReclaimFutile { threshold: usize, why: Futile },
    /// In observe mode: memory would be reclaimed from this workload.
    ReclaimDryRun { threshold: usize, id: CgroupId, bytes: Bytes },
}

named_enum! {
    /// Why swap-out does not delay an eviction, or not any longer.
    #[derive(Serialize, Deserialize)]
    pub enum SwapLimit {
        /// There is no swap that counts, no PSI, or no recent figure.
        Unknown = "swap-out or stalls cannot be observed",
        /// Half of the threshold is left, or will be in half a second.
        HalfLeft = "less than half of the threshold is left, or soon will be",
        /// Available memory falls faster than the kernel swaps out, or nothing is swapped out.
        TooSlow = "memory falls faster than the kernel swaps out, or nothing is swapped out",
        /// Available memory falls, and no workload is known to grow.
        NoGrower = "memory falls, and no workload is known to grow",
        /// The free swap, or what a growing workload may use of it, would not last.
        NoRoom = "the swap that the growing workloads may use would not last",
        /// Tasks wait for memory.
        Stalls = "tasks wait for memory",
        /// The kernel's OOM killer has acted.
        OomKill = "the kernel's OOM killer has acted",
    }
}

/// A candidate that is not evicted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stays {
    pub id: CgroupId,
    pub why: PassedOver,
    /// Bytes per second.
    pub growth: i64,
    /// The bytes per second by which the available memory falls, if the signal is memory.
    pub fall: Option<f64>,
}

/// Why a candidate is not evicted although it is ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PassedOver {
    /// The candidate must not be evicted.
    Exempt,
    /// The usage of the candidate could not be measured.
    NotMeasured,
    /// The eviction would free too little.
    TooLittle,
    /// The eviction would buy this time only.
    WouldBuy(Duration),
    /// The candidate may be evicted only if it leaks.
    NotALeaker,
    /// The candidate uses no more than it requested, and the end of another that uses more helps.
    WithinRequest,
    /// Evictions bought too little, so only culprits are evicted for now, and the candidate is none.
    NotACulprit,
    /// The candidate is a pod of a DaemonSet, and is evicted only for a hard threshold on memory.
    Daemon,
    /// An eviction of the candidate failed, was refused, or is under way.
    Tried,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exempt => formatter.write_str("critical to the node"),
            Self::NotMeasured => formatter.write_str("it could not be measured"),
            Self::TooLittle => formatter.write_str("it would give back too little"),
            Self::WouldBuy(time) => write!(formatter, "it would buy {:.1} s", time.as_secs_f64()),
            Self::NotALeaker => formatter.write_str("it may be evicted only if it leaks"),
            Self::WithinRequest => formatter.write_str("it uses no more than it requested, and another uses more"),
            Self::NotACulprit => formatter.write_str("evictions have bought too little, and it does not leak"),
            Self::Daemon => {
                formatter.write_str("it is a pod of a DaemonSet, evicted only for a hard threshold on memory")
            }
            Self::Tried => formatter.write_str("an eviction of it failed lately, or is under way"),
        }
    }
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
