//! Evictions of pods above a limit of local storage. They do not depend on how full the disk is.

use std::time::Duration;

use crate::config::Mode;
use crate::eviction::budget::Class;
use crate::eviction::evicted::{Cause, IMMEDIATE_GRACE};
use crate::eviction::rank::Candidate;

use super::{Choice, Decider, LimitExceeded, Measure, Next, Phase, Place, Rules, Snapshot};

/// The interval between two checks. A kubelet checks limits as often.
const EVERY: Duration = Duration::from_secs(10);
/// The time until the next check while pods above a limit are left.
const AGAIN: Duration = Duration::from_millis(500);

impl<C> Decider<C> {
    /// Returns when limits are checked next, or `None` before the first check.
    pub fn limits_due(&self) -> Option<crate::units::Monotonic> {
        self.memory.limits_due
    }
}

impl<C: Candidate> Decider<C> {
    pub(super) fn limits_are_due(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> bool {
        let is_due = self.memory.limits_due.is_none_or(|due| due <= snapshot.clock());
        rules.agent().is_some() && snapshot.has_limits && is_due && !self.turn.has_checked_limits
    }

    pub(super) fn check_limits(&mut self, rules: Rules<'_>, snapshot: &Snapshot, exceeded: Vec<LimitExceeded>) -> Next {
        self.turn.has_checked_limits = true;
        self.turn.exceeded = exceeded;
        if rules.agent().is_some() {
            self.memory.limits_due = Some(snapshot.clock().after(EVERY));
        } else if self.turn.exceeded.is_empty() {
            return self.next_threshold(rules, snapshot);
        } else {
            // A kubelet that evicts for limits does nothing else in the same synchronization.
            self.turn.queue.clear();
        }
        self.next_limit(rules, snapshot, 0)
    }

    /// Takes the next pod above a limit. In enforce mode the agent evicts one pod per turn. In observe mode it names all of them, and a
    /// kubelet evicts all of them.
    pub(super) fn next_limit(&mut self, rules: Rules<'_>, snapshot: &Snapshot, from: usize) -> Next {
        let exceeded = self.turn.exceeded.get(from..).unwrap_or_default().iter().copied();
        let Some(agent) = rules.agent() else {
            return match exceeded.into_iter().next() {
                Some(LimitExceeded { cause, .. }) => self.evict_as_kubelet(from, cause),
                None => self.wait(),
            };
        };
        let is_enforcing = agent.mode == Mode::Enforce;
        // The volumes of a pod that was evicted stay until the kubelet removes them.
        let was_evicted = |id| self.memory.budget.has_charged(Class::Limit, id, snapshot.clock());
        let may_go = |it: &LimitExceeded| {
            let may_be_evicted = || self.is_candidate(snapshot, it.id, false) && !was_evicted(it.id);
            !it.is_stale && (!is_enforcing || may_be_evicted())
        };
        let Some(place) = exceeded.into_iter().position(|it| may_go(&it)) else { return self.wait() };
        if is_enforcing && self.may_start(agent, snapshot, Class::Limit, (true, false)).is_err() {
            self.memory.limits_due = Some(snapshot.clock().after(AGAIN));
            return self.wait();
        }
        let place = Place::Limit(from + place);
        self.ask(Phase::Standing(place), Next::Measure(Measure::Standing { place }))
    }

    fn evict_as_kubelet(&mut self, limit: usize, cause: Cause) -> Next {
        let place = Place::Limit(limit);
        self.ask(Phase::Trying(place), Next::Evict(Choice::named(place, cause, IMMEDIATE_GRACE)))
    }

    pub(super) fn limit_started(&mut self, rules: Rules<'_>, snapshot: &Snapshot, limit: usize) -> Next {
        if rules.agent().is_some_and(|agent| agent.mode == Mode::Enforce) {
            self.charge(Place::Limit(limit), Class::Limit, snapshot.clock());
            // The other pods above a limit are checked again soon.
            self.memory.limits_due = Some(snapshot.clock().after(AGAIN));
            return self.wait();
        }
        self.next_limit(rules, snapshot, limit + 1)
    }
}
