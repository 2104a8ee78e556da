//! The budgets of evictions: how many may follow one another, and how fast. Each class of causes has its own, so that none refuses because
//! of another.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::config::EvictionLimits;
use crate::units::{CgroupId, Monotonic, Resource, Signal, named_enum};

named_enum! {
    /// The class of causes that share a budget.
    #[derive(Serialize, Deserialize)]
    pub enum Class {
        HardMemory = "hard thresholds on memory",
        OtherHard = "other hard thresholds",
        Soft = "soft thresholds",
        /// A limit of a pod's own.
        Limit = "limits of a pod's own",
    }
}

impl Class {
    pub fn of(signal: Signal, is_hard: bool) -> Self {
        match (is_hard, signal.resource()) {
            (false, _) => Self::Soft,
            (true, Resource::Memory) => Self::HardMemory,
            (true, Resource::EphemeralStorage | Resource::Inodes | Resource::Pids) => Self::OtherHard,
        }
    }
}

/// Why no eviction may start now, with the time to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The last eviction with an effect was less than the cool-down ago.
    CoolDown(Duration),
    /// The evictions of this minute are spent.
    Spent(Duration),
}

/// The evictions of the last minute. An eviction counts from its kill, whatever its effect, unless it was refused and nothing was touched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    charges: Vec<Charge>,
    /// When the last eviction of each class had its effect.
    effects: Vec<(Class, Monotonic)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Charge {
    class: Class,
    id: CgroupId,
    at: Monotonic,
}

const MINUTE: Duration = Duration::from_secs(60);
/// On a node with more workloads than this, the evictions per minute grow in proportion. Kubernetes plans 110 pods for a node.
const WORKLOADS: usize = 110;

impl Budget {
    /// Checks whether an eviction of `class` may start at `now` on a node with this number of `workloads`.
    ///
    /// # Errors
    /// Returns the reason for which none may start, with the time to wait.
    pub fn check(
        &self,
        limits: &EvictionLimits,
        (class, workloads): (Class, usize),
        now: Monotonic,
    ) -> Result<(), Refusal> {
        let effect = self.effects.iter().find(|(of, _)| *of == class);
        if let Some(left) = effect.and_then(|(_, last)| left(*last, limits.cool_down, now)) {
            return Err(Refusal::CoolDown(left));
        }
        match self.recent(class, now).count().checked_sub(allowed(limits, workloads)) {
            // The newest eviction that must become older than a minute before another may start.
            Some(over) => Err(Refusal::Spent(self.recent(class, now).nth(over).unwrap_or(MINUTE))),
            None => Ok(()),
        }
    }

    /// Returns the evictions of `class` in the last minute, and how many are allowed.
    pub fn figures(
        &self,
        limits: &EvictionLimits,
        (class, workloads): (Class, usize),
        now: Monotonic,
    ) -> (usize, usize) {
        (self.recent(class, now).count(), allowed(limits, workloads))
    }

    /// Returns for each eviction of the last minute when it becomes older than that.
    fn recent(&self, class: Class, now: Monotonic) -> impl Iterator<Item = Duration> {
        let charges = self.charges.iter().filter(move |charge| charge.class == class);
        charges.filter_map(move |charge| left(charge.at, MINUTE, now))
    }

    pub fn charge(&mut self, class: Class, id: CgroupId, now: Monotonic) {
        self.charges.retain(|charge| left(charge.at, MINUTE, now).is_some());
        self.charges.push(Charge { class, id, at: now });
    }

    /// Takes back the last charge for an eviction that was refused. Nothing was touched.
    pub fn refund(&mut self, id: CgroupId) {
        if let Some(last) = self.charges.iter().rposition(|charge| charge.id == id) {
            self.charges.remove(last);
        }
    }

    /// Notes that an eviction had its effect. The cool-down of its class begins.
    pub fn note_effect(&mut self, class: Class, now: Monotonic) {
        self.effects.retain(|(of, _)| *of != class);
        self.effects.push((class, now));
    }

    /// Returns whether an eviction of this workload was charged to `class` in the last minute.
    pub fn has_charged(&self, class: Class, id: CgroupId, now: Monotonic) -> bool {
        let is_of_it = |charge: &&Charge| charge.class == class && charge.id == id;
        self.charges.iter().filter(is_of_it).any(|charge| left(charge.at, MINUTE, now).is_some())
    }

    /// Returns the class that the last eviction of this workload was charged to.
    pub fn class_of(&self, id: CgroupId) -> Option<Class> {
        self.charges.iter().rev().find(|charge| charge.id == id).map(|charge| charge.class)
    }
}

/// Returns how many evictions of a class are allowed in a minute on a node with this number of workloads.
fn allowed(limits: &EvictionLimits, workloads: usize) -> usize {
    let allowed = usize::try_from(limits.max_per_minute).unwrap_or(usize::MAX);
    allowed.saturating_mul(workloads.max(WORKLOADS)) / WORKLOADS
}

fn left(since: Monotonic, period: Duration, now: Monotonic) -> Option<Duration> {
    period.checked_sub(now.since(since)).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EvictionLimits = EvictionLimits {
        cool_down: Duration::from_secs(2),
        max_per_minute: 2,
        kill_timeout: Duration::from_secs(5),
        minimum_gain: Duration::from_secs(10),
        reclaim_deadline: Duration::ZERO,
        act_on_present_pressure: false,
        wait_for_swap: true,
    };

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    fn check(budget: &Budget, class: Class, seconds: u64) -> Result<(), Refusal> {
        budget.check(&LIMITS, (class, 10), at(seconds))
    }

    #[test]
    fn the_cool_down_then_the_minute_refuse_an_eviction() {
        let (mut budget, class) = (Budget::default(), Class::HardMemory);
        assert_eq!(check(&budget, class, 10), Ok(()));
        budget.charge(class, CgroupId(1), at(10));
        budget.note_effect(class, at(11));
        assert_eq!(check(&budget, class, 12), Err(Refusal::CoolDown(Duration::from_secs(1))));
        assert_eq!(check(&budget, class, 13), Ok(()));
        budget.charge(class, CgroupId(2), at(13));
        assert_eq!(check(&budget, class, 20), Err(Refusal::Spent(Duration::from_secs(50))), "also without an effect");
        assert_eq!(check(&budget, class, 70), Ok(()));
    }

    #[test]
    fn no_class_refuses_because_of_another() {
        let classes = [Class::HardMemory, Class::OtherHard, Class::Soft, Class::Limit];
        for spent in classes {
            let mut budget = Budget::default();
            for id in [1, 2] {
                budget.charge(spent, CgroupId(id), at(1));
            }
            budget.note_effect(spent, at(1));
            for class in classes {
                assert_eq!(check(&budget, class, 2).is_err(), class == spent, "{spent:?} {class:?}");
            }
        }
    }

    #[test]
    fn a_refused_eviction_is_taken_back() {
        let mut budget = Budget::default();
        for id in [1, 2] {
            budget.charge(Class::Soft, CgroupId(id), at(1));
        }
        assert_eq!(budget.class_of(CgroupId(2)), Some(Class::Soft));
        budget.refund(CgroupId(2));
        assert_eq!(check(&budget, Class::Soft, 2), Ok(()));
    }

    #[test]
    fn a_node_with_many_pods_has_a_larger_budget() {
        let mut budget = Budget::default();
        for id in [1, 2] {
            budget.charge(Class::HardMemory, CgroupId(id), at(1));
        }
        for (workloads, is_refused) in [(0, true), (110, true), (164, true), (165, false), (500, false)] {
            let refused = budget.check(&LIMITS, (Class::HardMemory, workloads), at(2)).is_err();
            assert_eq!(refused, is_refused, "{workloads}");
        }
    }

    #[test]
    fn a_budget_of_zero_allows_no_eviction() {
        let limits = EvictionLimits { max_per_minute: 0, ..LIMITS };
        let refused = Budget::default().check(&limits, (Class::Soft, 1), at(1));
        assert_eq!(refused, Err(Refusal::Spent(MINUTE)));
    }
}
