//! What can be read of the decider, and changed, between steps.

use crate::eviction::rank::Ranked;
use crate::eviction::{Armed, Assessment, Layout, MetThreshold, Observation, arm};
use crate::units::Monotonic;

use super::memory::Renewal;
use super::{Decider, Memory, Note, Rules, Turn, memory};

impl<C> Decider<C> {
    /// Continues from what another decider remembered.
    pub fn remembering(memory: Memory) -> Self {
        Self { memory, ..Self::default() }
    }

    /// The same for candidates of another type, between two turns.
    pub fn between_turns<D>(self) -> Decider<D> {
        let Self { armed, layout, memory, turn: _ } = self;
        Decider { armed, layout, memory, turn: Turn::default() }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The thresholds that are watched on this layout.
    pub fn armed(&self) -> &[Armed] {
        &self.armed
    }

    /// The layout that they are armed for; none before the first step.
    pub fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// What the signals amount to, as of the last turn.
    pub fn assessment(&self) -> &Assessment {
        &self.turn.assessment
    }

    /// The signals that this rests on.
    pub fn observation(&self) -> &Observation {
        &self.turn.observation
    }

    /// The threshold in hand: the one that the last ranking, eviction or wait was for.
    pub fn acted_on(&self) -> Option<&MetThreshold> {
        self.turn.queue.get(self.turn.in_hand)
    }

    /// The candidates, first to be evicted first.
    pub fn ranking(&self) -> &[Ranked<C>] {
        &self.turn.ranking
    }

    /// When something that was refused in the last turn may be tried again.
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

    /// Takes what the signals amount to, as of the last turn.
    pub fn take_assessment(&mut self) -> Assessment {
        std::mem::take(&mut self.turn.assessment)
    }

    /// Takes the ranking of the last turn.
    pub fn take_ranking(&mut self) -> Vec<Ranked<C>> {
        std::mem::take(&mut self.turn.ranking)
    }

    /// Ends all cool-downs: they were set by rules that no longer apply.
    pub fn reconsider(&mut self) {
        self.memory.cool_downs = memory::CoolDowns::default();
        self.turn.retry = None;
    }

    /// Forgets proactive reclaim, under way or failed.
    pub fn forget_reclaim(&mut self) {
        self.memory.reclaim = memory::ReclaimMemory::default();
    }

    /// No disk is short any more, or the pressure began anew: disk usage that was ordered is forgotten.
    pub fn reset_renewal(&mut self) {
        self.memory.renewal.reset();
    }

    /// Arms the thresholds of this policy for this layout; thresholds that stay keep how long they have been met.
    pub fn arm(&mut self, rules: Rules<'_>, layout: Layout) {
        let armed = arm(rules.policy, layout);
        if self.layout.is_some() {
            self.memory.thresholds = self.memory.thresholds.rearmed(&self.armed, &armed);
        }
        (self.armed, self.layout) = (armed, Some(layout));
        self.turn.assessment.crossed.clear();
    }
}
