//! The memory of the decider from one turn to the next.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Mode;
use crate::eviction::budget::{Budget, Class};
use crate::eviction::collection::CollectionMemory;
use crate::eviction::fall::{Fall, FallNow};
use crate::eviction::{Observation, SignalValue, State as ThresholdState};
use crate::units::{Bytes, CgroupId, Monotonic, Resource, Signal, signed_float};

use super::arming::{Arming, Stalls};
use super::kubelet_turn::KubeletTurn;
use super::pending::{DyingMemory, Pending};
use super::shortage::Shortages;
use super::snapshot::{EvictionEnd, Snapshot};
use super::swap_rule::SwapWait;

/// A workload is no candidate for this long after a failed attempt.
const FAILED_FOR: Duration = Duration::from_secs(30);
/// A workload is no candidate for soft thresholds for this long after a refusal. A disruption budget changes when another pod becomes
/// ready.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// An eviction for a soft threshold waits this long after the API server could not be asked.
pub(super) const PUT_OFF: Duration = Duration::from_secs(5);
/// The cool-down after an eviction for a disk. Space is freed only when directories are removed, seconds after the last process exits.
/// The kubelet samples as often.
pub const DISK_COOL_DOWN: Duration = Duration::from_secs(10);
/// In enforce mode, candidates are ranked again this long after none of them could be evicted.
const ENFORCE_COOL_DOWN: Duration = Duration::from_millis(250);
/// In observe mode, candidates are ranked this often while a threshold stays met. Kernel events could wake the loop far more often.
const OBSERVE_COOL_DOWN: Duration = Duration::from_millis(100);

/// Everything that a later decision depends on. It can be serialized, so that a recorded decision can be replayed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    pub(super) thresholds: ThresholdState,
    pub(super) cool_downs: CoolDowns,
    pub(super) budget: Budget,
    pub(super) exclusions: Exclusions,
    pub(super) arming: Arming,
    pub(super) stalls: Stalls,
    pub(super) collection: CollectionMemory,
    pub(super) renewal: Renewal,
    pub(super) reclaim: ReclaimMemory,
    /// The amount that was available of each signal when the wait for expected space began.
    pub(super) expected_since: Vec<(Signal, i64)>,
    /// The recent samples of the memory signals.
    pub(super) falls: Falls,
    pub(super) shortages: Shortages,
    pub(super) pending: Pending,
    pub(super) swap_wait: SwapWait,
    pub(super) kubelet_turn: KubeletTurn,
    /// When limits of local storage are checked next.
    pub(super) limits_due: Option<Monotonic>,
}

/// The recent samples of `memory.available` and of `allocatableMemory.available`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Falls {
    available: Fall,
    allocatable: Fall,
}

impl Falls {
    const fn of(&self, signal: Signal) -> &Fall {
        match signal {
            Signal::AllocatableMemoryAvailable => &self.allocatable,
            _ => &self.available,
        }
    }
}

impl Memory {
    /// Takes in the evictions that ended.
    pub(super) fn take_in(&mut self, snapshot: &Snapshot) {
        let now = snapshot.clock();
        self.exclusions.expire(now);
        for ended in &snapshot.ended {
            match ended.end {
                EvictionEnd::Gone => {
                    let class = if ended.cause.signal().is_some() { Class::Soft } else { Class::Limit };
                    self.budget.note_effect(self.budget.class_of(ended.id).unwrap_or(class), now);
                }
                EvictionEnd::Failed => self.exclusions.exclude(ended.id, now.after(FAILED_FOR)),
                EvictionEnd::Unanswered => self.exclusions.exclude_soft(ended.id, now.after(FAILED_FOR)),
                EvictionEnd::Refused => self.exclusions.exclude_soft(ended.id, now.after(REFUSED_FOR)),
            }
            if matches!(ended.end, EvictionEnd::Unanswered | EvictionEnd::Refused) {
                self.budget.refund(ended.id);
            }
            match (ended.end, ended.cause.signal()) {
                // A refusal has no effect on the node, so the next candidate is tried at once.
                (EvictionEnd::Refused, Some(signal)) => self.cool_downs.forget((signal, false)),
                (_, Some(signal)) => self.cool_disks(signal.resource(), now),
                // The eviction of a pod above its own limit starts no cool-down, because it says nothing about how full the disk is.
                (_, None) => {}
            }
        }
    }

    /// Takes in a sample of the memory signals.
    pub(super) fn observe_memory(&mut self, observation: &Observation, now: Monotonic) {
        for value in observation.signals.iter().filter(|value| value.signal.resource() == Resource::Memory) {
            let Falls { available, allocatable } = &mut self.falls;
            let fall = if value.signal == Signal::MemoryAvailable { available } else { allocatable };
            fall.observe(value.available, now);
        }
    }

    /// Returns by how much the signal falls per second, if that is known.
    pub(super) fn fall(&self, value: SignalValue, now: Monotonic) -> Option<FallNow> {
        self.falls.of(value.signal).per_second(value.available, value.capacity, now)
    }

    /// Returns by how much the signal falls per second now that these workloads were killed. Right after a kill it is what fell before, less
    /// what the victims grew by. A jump of the counters is taken for a fall only where little is left (`is_scarce`).
    pub(super) fn fall_after(&self, value: SignalValue, dying: &[DyingMemory], is_scarce: bool, now: Monotonic) -> f64 {
        // The growth of a victim that cannot exit ended with its kill.
        let since = self.fall_since_kill(value, dying, now);
        let dying = dying.iter().filter(|dying| dying.is_recent(now));
        let grew: i64 = dying.map(|dying| dying.growth.max(0)).fold(0, i64::saturating_add);
        let before = || self.fall(value, now).map_or(0.0, FallNow::assumed) - signed_float(grew);
        let since = since.map(|(whole, certain)| if is_scarce { whole } else { certain });
        since.unwrap_or_else(before).max(0.0)
    }

    /// Returns by how much the signal fell per second since the last of these workloads was killed, as [`Fall::since`] does.
    pub(super) fn fall_since_kill(
        &self,
        value: SignalValue,
        dying: &[DyingMemory],
        now: Monotonic,
    ) -> Option<(f64, f64)> {
        let killed = dying.iter().filter(|dying| dying.is_recent(now) && dying.grace_ends.is_none());
        let last = killed.map(|dying| dying.killed).max()?;
        self.falls.of(value.signal).since(last, (value.available, value.capacity), now)
    }

    pub(super) fn fail(&mut self, id: CgroupId, now: Monotonic) {
        self.exclusions.exclude(id, now.after(FAILED_FOR));
    }

    /// Starts the cool-down of every disk signal after an action for a disk. Its effect on bytes and inodes takes a while.
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

/// Returns the cool-down of a resource after no candidate could be evicted, or after a dry run.
pub(super) const fn cool_down(resource: Resource, mode: Mode) -> Duration {
    match (resource, mode) {
        (Resource::EphemeralStorage | Resource::Inodes, _) => DISK_COOL_DOWN,
        (Resource::Memory | Resource::Pids, Mode::Observe) => OBSERVE_COOL_DOWN,
        (Resource::Memory | Resource::Pids, Mode::Enforce) => ENFORCE_COOL_DOWN,
    }
}

/// A kind of threshold: the signal, and whether the threshold is hard.
type Kind = (Signal, bool);

/// The ends of cool-downs, by kind of threshold.
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

    /// Returns the end of the pause that lasts longest.
    pub(super) fn last(&self) -> Option<Monotonic> {
        self.0.iter().map(|(_, until)| *until).max()
    }

    pub(super) fn until(&self, kind: Kind, now: Monotonic) -> Option<Monotonic> {
        self.0.iter().find(|(known, until)| *known == kind && now < *until).map(|(_, until)| *until)
    }
}

/// Workloads that are no candidates for a while.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Exclusions {
    all: Vec<(CgroupId, Monotonic)>,
    /// Exclusions from soft thresholds only. Neither a disruption budget nor an unreachable API server exempts a workload from a hard
    /// threshold.
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

/// The state of measuring every candidate's disk usage anew before an eviction for a disk. It is necessary because no event reports that
/// files grow, so a figure may be a minute old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Renewal {
    /// When the measurement was ordered.
    pub(super) since: Option<Monotonic>,
    /// How many consecutive measurements led to no victim.
    pub(super) in_vain: u32,
}

/// A measurement older than this is repeated before the next eviction.
const FRESH: Duration = Duration::from_secs(10);
/// The age doubles each time that a measurement led to no victim, up to this.
const LONGEST_FRESH: Duration = Duration::from_secs(60);
/// After this many measurements without a victim, measuring is not urgent any more: a disk for which no candidate can be evicted may stay
/// full for weeks.
const IN_VAIN: u32 = 3;

impl Renewal {
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(super) fn fresh(&self) -> Duration {
        FRESH.saturating_mul(1 << self.in_vain.min(IN_VAIN)).min(LONGEST_FRESH)
    }

    /// Returns whether measuring disk usage deserves a larger share of the CPU.
    pub fn is_urgent(&self) -> bool {
        self.in_vain < IN_VAIN
    }
}

/// The state of proactive reclaim: the attempt under way, and when the next one may start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct ReclaimMemory {
    pub(super) attempt: Option<ReclaimAttempt>,
    pub(super) not_before: Option<Monotonic>,
    /// The present series of attempts. Attempts that have an effect follow one another until its deadline.
    pub(super) episode: Option<Episode>,
    /// The last reported reason for which reclaim was futile.
    pub(super) futile: Option<crate::eviction::proactive_reclaim::Futile>,
}

/// One attempt: a request to the kernel to reclaim memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReclaimAttempt {
    pub(super) available_before: Bytes,
    pub(super) started: Monotonic,
    pub(super) deadline: Monotonic,
}

/// A series of attempts. It lasts at most as long as the eviction for a hard threshold may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Episode {
    pub(super) started: Monotonic,
    pub(super) deadline: Monotonic,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_kill_only_what_falls_since_counts() {
        let at = |milliseconds: u64| Monotonic((20_000 + milliseconds) * 1_000_000);
        let value = |available| SignalValue::now(Signal::MemoryAvailable, Bytes(available), Bytes(1_000_000));
        let mut memory = Memory::default();
        let mut see = |available, now| {
            memory.observe_memory(&Observation { signals: vec![value(available)] }, at(now));
        };
        (0..=10_u64).for_each(|step| see(300_000 - step * 20_000, step * 100));
        see(100_000, 1_060);
        let killed = |growth| DyingMemory {
            id: CgroupId(1),
            expected: Bytes(200_000),
            left: Bytes(200_000),
            killed: at(1_010),
            grace_ends: None,
            growth,
            is_own: true,
            is_whole: true,
            is_populated: true,
        };
        let fall = |growth, now| memory.fall_after(value(100_000), &[killed(growth)], false, at(now));
        assert!(fall(0, 1_070) > 150_000.0, "right after the kill, growth unknown");
        assert!(fall(200_000, 1_070) < 1_000.0, "right after the kill, the victim was what leaked");
        assert!(fall(0, 1_200).abs() < f64::EPSILON, "nothing has fallen since");
        let undying = DyingMemory { killed: Monotonic(0), ..killed(200_000) };
        assert!(
            memory.fall_after(value(100_000), &[undying], false, at(1_070)) > 150_000.0,
            "its growth has long ended"
        );
    }

    #[test]
    fn disks_are_measured_less_often_without_a_victim() {
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
