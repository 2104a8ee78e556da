//! Reading and changing the decider's state between steps.

use std::time::Duration;

use crate::config::{EvictionLimits, Threshold};
use crate::eviction::budget::Class;
use crate::eviction::rank::Ranked;
use crate::eviction::{Armed, Assessment, Layout, MetThreshold, Observation, SignalValue, arm};
use crate::units::Monotonic;

use super::memory::Renewal;
use super::{Decider, Memory, Note, Rules, Turn, Unarmed, memory};

impl<C> Decider<C> {
    /// Returns a decider that continues from the memory of another decider.
    pub fn remembering(memory: Memory) -> Self {
        Self { memory, ..Self::default() }
    }

    /// Converts the decider to another type of candidates. The present turn is dropped, so this is only for the time between two turns.
    pub fn between_turns<D>(self) -> Decider<D> {
        let Self { armed, layout, memory, verdicts, turn: _ } = self;
        Decider { armed, layout, memory, verdicts, turn: Turn::default() }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns how many evictions the limit per minute allows now, and how many it allows in a minute. Of the hard thresholds on memory.
    pub fn budget(&self, limits: &EvictionLimits, workloads: usize, now: Monotonic) -> (usize, usize) {
        let (used, allowed) = self.memory.budget.figures(limits, (Class::HardMemory, workloads), now);
        (allowed.saturating_sub(used), allowed)
    }

    /// Returns how long evictions pause after the last one.
    pub fn cool_down(&self, now: Monotonic) -> Option<Duration> {
        self.memory.cool_downs.last().map(|until| until.since(now)).filter(|left| !left.is_zero())
    }

    /// Returns whether it is known how fast the signal falls.
    pub fn knows_fall(&self, value: SignalValue, now: Monotonic) -> bool {
        self.memory.fall(value, now).is_some()
    }

    /// Returns the thresholds that are watched on the present layout.
    pub fn armed(&self) -> &[Armed] {
        &self.armed
    }

    /// Returns the thresholds that do not evict yet, with their places and the reasons.
    pub fn unarmed(&self) -> &[(usize, Threshold, Unarmed)] {
        &self.verdicts.unarmed
    }

    /// Returns whether the snapshot is to have the stalls for memory: a threshold that is not armed waits for them.
    pub fn awaits_stalls(&self) -> bool {
        self.verdicts.awaits_stalls()
    }

    /// Returns the layout that the thresholds are armed for, or `None` before the first step.
    pub fn layout(&self) -> Option<Layout> {
        self.layout
    }

    pub fn assessment(&self) -> &Assessment {
        &self.turn.assessment
    }

    pub fn observation(&self) -> &Observation {
        &self.turn.observation
    }

    /// Returns the present threshold: the one that the last ranking, eviction or wait was for.
    pub fn acted_on(&self) -> Option<&MetThreshold> {
        self.turn.queue.get(self.turn.in_hand)
    }

    /// Returns the candidates, first to be evicted first.
    pub fn ranking(&self) -> &[Ranked<C>] {
        &self.turn.ranking
    }

    /// Returns when something that was refused in the last turn may be tried again.
    pub fn retry(&self) -> Option<Monotonic> {
        self.turn.retry
    }

    pub fn renewal(&self) -> Renewal {
        self.memory.renewal
    }

    /// Takes the notes of the last turn.
    pub fn notes(&mut self) -> std::vec::Drain<'_, Note> {
        self.turn.notes.drain(..)
    }

    /// Takes the assessment of the last turn.
    pub fn take_assessment(&mut self) -> Assessment {
        std::mem::take(&mut self.turn.assessment)
    }

    /// Takes the ranking of the last turn.
    pub fn take_ranking(&mut self) -> Vec<Ranked<C>> {
        std::mem::take(&mut self.turn.ranking)
    }

    /// Ends all cool-downs. The caller uses it when the rules that set them no longer apply.
    pub fn reconsider(&mut self) {
        self.memory.cool_downs = memory::CoolDowns::default();
        self.turn.retry = None;
    }

    pub fn forget_reclaim(&mut self) {
        self.memory.reclaim = memory::ReclaimMemory::default();
    }

    /// Forgets the measurement of disk usage that was ordered. The caller uses it when no disk threshold is met any more, or when the
    /// pressure began anew.
    pub fn reset_renewal(&mut self) {
        self.memory.renewal.reset();
    }

    /// Takes the observed thresholds for armed, as they are in an agent that has run for long. Statistics do not tell when it started.
    pub fn presume_armed(&mut self, rules: Rules<'_>, layout: Layout, observation: &Observation) {
        if self.layout != Some(layout) {
            self.arm(rules, layout);
        }
        for Armed { threshold, .. } in &self.armed {
            if let Some(value) = observation.get(threshold.signal) {
                self.memory.arming.presume(threshold, value.capacity, rules.policy.quirks);
            }
        }
    }

    /// Arms the thresholds of the policy for this layout. Thresholds that stay armed keep the time for which they have been met.
    pub fn arm(&mut self, rules: Rules<'_>, layout: Layout) {
        let armed = arm(rules.policy, layout);
        if self.layout.is_some() {
            self.memory.thresholds = self.memory.thresholds.rearmed(&self.armed, &armed);
        }
        (self.armed, self.layout) = (armed, Some(layout));
        self.turn.assessment.crossed.clear();
    }
}
