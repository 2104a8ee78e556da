//! Facts reported about an eviction.

use std::collections::BTreeMap;

use node_pressure_state::Name;

use crate::actions::{Action, ReclaimAttempt, Started};
use crate::eviction::MetThreshold;
use crate::eviction::decider::{Decider, RecordedTurn};
use crate::eviction::evicted::Cause;
use crate::eviction::memory_benefit::Worth;
use crate::eviction::rank::{Order, Ranked};
use crate::incidents::model::RawJson;
use crate::runtime::Names;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::{PodUid, WorkloadUsage};

/// Candidates named in the log record.
const RANKING_SHOWN: usize = 5;

#[derive(Debug)]
pub struct EvictionRecord<'r> {
    pub workload: &'r str,
    pub cgroup: CgroupId,
    pub name: Name,
    pub pod_uid: Option<&'r PodUid>,
    pub labels: BTreeMap<String, String>,
    pub action: Action,
    /// How many processes were signalled.
    pub processes: usize,
    pub trigger: Trigger<'r>,
    /// When the loop woke for it.
    pub woken: Monotonic,
    /// When the signals were sent.
    pub acted: Monotonic,
    /// The policy that the decider followed, as `simulate --config` reads it.
    pub policy: Option<RawJson>,
    /// The decider's snapshots and steps that led to the eviction, oldest first.
    pub trace: Vec<RawJson>,
}

#[derive(Debug, Clone, Copy)]
pub enum Trigger<'r> {
    Threshold(&'r StartedEviction, Order<'r>),
    // A local-storage limit of the pod. The message is the excess in words.
    Limit { cause: Cause, message: &'r str, measured: Monotonic },
}

impl Trigger<'_> {
    pub const fn cause(&self) -> Cause {
        match self {
            Self::Threshold(eviction, _) => Cause::Signal(eviction.met.threshold.signal),
            Self::Limit { cause, .. } => *cause,
        }
    }
}

/// The worth of the victim's end, and why the candidates before it were passed over. Known for memory under corrected semantics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BenefitReport {
    pub victim: Option<String>,
    pub passed_over: Option<String>,
}

impl BenefitReport {
    /// Returns what the last pick of the decider found about the victim at `place` and the candidates before it.
    pub fn of(
        decider: &Decider<WorkloadUsage>,
        place: usize,
        ranking: &[Ranked<WorkloadUsage>],
        names: &Names,
    ) -> Self {
        let growth = |place: usize| {
            let growth = ranking.get(place)?.candidate.outlook.growth;
            u64::try_from(growth).ok().filter(|growth| *growth > 0).map(Bytes)
        };
        let words = |place| match (decider.worth_at(place)?, growth(place)) {
            (Worth::Leaks, Some(growth)) => Some(format!("leaks: it grows by {growth} a second")),
            (worth, _) => Some(worth.words()),
        };
        let before = ranking.iter().take(place).enumerate();
        let named =
            before.filter_map(|(place, ranked)| Some(format!("{} {}", shown_name(ranked, names), words(place)?)));
        let shown: Vec<String> = named.take(RANKING_SHOWN).collect();
        let more = place.saturating_sub(shown.len());
        let passed_over = match (shown.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(shown.join(", ")),
            (false, more) => Some(format!("{}, and {more} more", shown.join(", "))),
        };
        Self { victim: words(place), passed_over }
    }
}

/// An eviction for a threshold that has started, or a dry run, with the time of each step.
#[derive(Debug)]
pub struct StartedEviction {
    pub met: MetThreshold,
    pub victim: Ranked<WorkloadUsage>,
    /// Every candidate, in the order of eviction.
    pub ranking: Vec<Ranked<WorkloadUsage>>,
    pub benefit: BenefitReport,
    /// The reclaim attempt that failed before the eviction.
    pub reclaim: Option<ReclaimAttempt>,
    pub started: Started,
    pub wakeup: &'static str,
    pub woken: Monotonic,
    /// When the first sample was taken.
    pub sampled: Monotonic,
    /// When the candidates were ranked.
    pub ordered: Monotonic,
    /// When a sample taken after the ranking still called for the eviction.
    pub decided: Monotonic,
    pub turn: RecordedTurn,
}

impl StartedEviction {
    /// The names of the first candidates.
    pub fn ranking_head(&self, names: &Names) -> String {
        let head = self.ranking.iter().take(RANKING_SHOWN);
        let names: Vec<String> = head.map(|ranked| shown_name(ranked, names)).collect();
        match self.ranking.len().saturating_sub(RANKING_SHOWN) {
            0 => names.join(", "),
            more => format!("{}, and {more} more", names.join(", ")),
        }
    }
}

fn shown_name(ranked: &Ranked<WorkloadUsage>, names: &Names) -> String {
    names.of_workload(&ranked.candidate.workload).display
}
