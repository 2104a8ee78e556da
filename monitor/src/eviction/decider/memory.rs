//! What the decider remembers from one turn to the next.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Mode;
use crate::eviction::State as ThresholdState;
use crate::eviction::budget::Budget;
use crate::eviction::collection::CollectionMemory;
use crate::units::{Bytes, CgroupId, Monotonic, Resource, Signal};

use super::snapshot::{EvictionEnd, Snapshot};

/// After a failed attempt a workload is no candidate for this long.
const FAILED_FOR: Duration = Duration::from_secs(30);
/// After a refusal it is none for soft thresholds: disruption budgets change when another pod becomes ready.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// After the API server could not be asked, a soft eviction waits this long.
pub(super) const PUT_OFF: Duration = Duration::from_secs(5);
/// A disk is freed seconds after the last process exits, when directories are removed: as often as the kubelet samples.
pub const DISK_COOL_DOWN: Duration = Duration::from_secs(10);
/// Enforcing, a fresh list of candidates takes this long to make sense after none could be evicted.
const ENFORCE_COOL_DOWN: Duration = Duration::from_millis(250);
/// Observe mode ranks this often while a threshold stays met: kernel events may wake the loop at any time.
const OBSERVE_COOL_DOWN: Duration = Duration::from_millis(100);

/// Everything that a later decision depends on. It serializes, so that a recorded decision can be replayed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    pub(super) thresholds: ThresholdState,
    pub(super) cool_downs: CoolDowns,
    pub(super) budget: Budget,
    pub(super) exclusions: Exclusions,
    pub(super) collection: CollectionMemory,
    pub(super) renewal: Renewal,
    pub(super) reclaim: ReclaimMemory,
    /// What was available when waiting for expected space began.
    pub(super) expected_since: Vec<(Signal, i64)>,
    /// When limits of local storage are checked next.
    pub(super) limits_due: Option<Monotonic>,
}

impl Memory {
    /// Takes in the evictions that ended.
    pub(super) fn take_in(&mut self, snapshot: &Snapshot) {
        let now = snapshot.clock();
        self.exclusions.expire(now);
        for ended in &snapshot.ended {
            match ended.end {
                EvictionEnd::Gone => self.budget.spend(now),
                EvictionEnd::Failed => self.exclusions.exclude(ended.id, now.after(FAILED_FOR)),
                EvictionEnd::Unanswered => self.exclusions.exclude_soft(ended.id, now.after(FAILED_FOR)),
                EvictionEnd::Refused => self.exclusions.exclude_soft(ended.id, now.after(REFUSED_FOR)),
            }
            match (ended.end, ended.cause.signal()) {
                // Nothing was done: the next candidate is tried at once.
                (EvictionEnd::Refused, Some(signal)) => self.cool_downs.forget((signal, false)),
                (_, Some(signal)) => self.cool_disks(signal.resource(), now),
                // A pod above its own limit says nothing about how full the disk is.
                (_, None) => {}
            }
        }
    }

    pub(super) fn fail(&mut self, id: CgroupId, now: Monotonic) {
        self.exclusions.exclude(id, now.after(FAILED_FOR));
    }

    /// Something was done about a disk: its effect takes a while, on bytes and inodes alike.
    pub(super) fn cool_disks(&mut self, resource: Resource, now: Monotonic) {
        if !resource.is_on_disk() {
            return;
        }
        for signal in Signal::ALL.into_iter().filter(|signal| signal.resource().is_on_disk()) {
            for hard in [true, false] {
                self.cool_downs.set((signal, hard), now, DISK_COOL_DOWN);
            }
        }
        self.renewal.reset();
    }
}

/// How long nothing more is tried about a resource after no candidate could be evicted, or after a dry run.
pub(super) const fn cool_down(resource: Resource, mode: Mode) -> Duration {
    match (resource, mode) {
        (Resource::EphemeralStorage | Resource::Inodes, _) => DISK_COOL_DOWN,
        (Resource::Memory | Resource::Pids, Mode::Observe) => OBSERVE_COOL_DOWN,
        (Resource::Memory | Resource::Pids, Mode::Enforce) => ENFORCE_COOL_DOWN,
    }
}

/// A kind of threshold: the signal, and whether it is hard. Another filesystem is another matter.
type Kind = (Signal, bool);

/// Times until which nothing is tried, by kind of threshold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct CoolDowns(Vec<(Kind, Monotonic)>);

impl CoolDowns {
    pub(super) fn set(&mut self, kind: Kind, now: Monotonic, duration: Duration) {
        self.0.retain(|(known, until)| *known != kind && now < *until);
        self.0.push((kind, now.after(duration)));
    }

    pub(super) fn forget(&mut self, kind: Kind) {
        self.0.retain(|(known, _)| *known != kind);
    }

    pub(super) fn until(&self, kind: Kind, now: Monotonic) -> Option<Monotonic> {
        self.0.iter().find(|(known, until)| *known == kind && now < *until).map(|(_, until)| *until)
    }
}

/// Workloads that are no candidates for a while.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Exclusions {
    all: Vec<(CgroupId, Monotonic)>,
    /// Only from soft thresholds: neither a disruption budget nor a silent API server exempts a workload from a hard one.
    soft: Vec<(CgroupId, Monotonic)>,
}

impl Exclusions {
    fn exclude(&mut self, id: CgroupId, until: Monotonic) {
        self.all.push((id, until));
    }

    fn exclude_soft(&mut self, id: CgroupId, until: Monotonic) {
        self.soft.push((id, until));
    }

    fn expire(&mut self, now: Monotonic) {
        self.all.retain(|(_, until)| now < *until);
        self.soft.retain(|(_, until)| now < *until);
    }

    pub(super) fn holds(&self, id: CgroupId, hard: bool, now: Monotonic) -> bool {
        let is_among =
            |excluded: &[(CgroupId, Monotonic)]| excluded.iter().any(|(of, until)| *of == id && now < *until);
        is_among(&self.all) || !hard && is_among(&self.soft)
    }
}

/// Measuring every candidate's disk usage anew before one is evicted for a disk: no event reports files that grow, and a figure may be a
/// minute old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Renewal {
    /// When it was ordered.
    pub(super) since: Option<Monotonic>,
    /// How often no candidate was chosen by what was measured anew.
    pub(super) in_vain: u32,
}

/// A figure older than this is measured anew before the next eviction…
const FRESH: Duration = Duration::from_secs(10);
/// …twice as old each time that no candidate was found, up to this.
const LONGEST_FRESH: Duration = Duration::from_secs(60);
/// After this many times in vain it is not urgent any more: a disk for which no candidate can be evicted may stay full for weeks.
const IN_VAIN: u32 = 3;

impl Renewal {
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(super) fn fresh(&self) -> Duration {
        FRESH.saturating_mul(1 << self.in_vain.min(IN_VAIN)).min(LONGEST_FRESH)
    }

    /// Whether measuring disks deserves a larger share of the CPU.
    pub fn is_urgent(&self) -> bool {
        self.in_vain < IN_VAIN
    }
}

/// Proactive reclaim under way, and when the next attempt may start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct ReclaimMemory {
    pub(super) attempt: Option<ReclaimAttempt>,
    pub(super) not_before: Option<Monotonic>,
    /// Attempts that have an effect follow one another until this deadline.
    pub(super) episode: Option<Episode>,
    /// The reason reported last for not asking.
    pub(super) futile: Option<crate::eviction::proactive_reclaim::Futile>,
}

/// One request to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReclaimAttempt {
    pub(super) available_before: Bytes,
    pub(super) started: Monotonic,
    pub(super) deadline: Monotonic,
}

/// Attempts that follow one another, for as long as a hard threshold may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Episode {
    pub(super) started: Monotonic,
    pub(super) deadline: Monotonic,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_measured_less_often_when_nothing_comes_of_it() {
        let fresh = |in_vain| Renewal { in_vain, ..Renewal::default() }.fresh().as_secs();
        assert_eq!([0, 1, 2, 3, 4, u32::MAX].map(fresh), [10, 20, 40, 60, 60, 60]);
    }

    #[test]
    fn a_refusal_excludes_from_soft_thresholds_only() {
        let (id, now) = (CgroupId(7), Monotonic(0));
        let cases = [
            (EvictionEnd::Refused, 61, [(false, true), (true, false)]),
            (EvictionEnd::Unanswered, 31, [(false, true), (true, false)]),
            (EvictionEnd::Failed, 31, [(false, true), (true, true)]),
            (EvictionEnd::Gone, 0, [(false, false), (true, false)]),
        ];
        for (end, over, expected) in cases {
            let mut memory = Memory::default();
            let cause = crate::eviction::evicted::Cause::Signal(Signal::MemoryAvailable);
            let ended = vec![super::super::EndedEviction { id, cause, end }];
            memory.take_in(&Snapshot { ended, ..Snapshot::default() });
            for (hard, excluded) in expected {
                assert_eq!(memory.exclusions.holds(id, hard, now), excluded, "{end:?} {hard}");
                assert!(!memory.exclusions.holds(id, hard, now.after(Duration::from_secs(over))), "{end:?}");
            }
        }
    }
}
