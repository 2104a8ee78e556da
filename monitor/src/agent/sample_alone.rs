//! A sample that finds nothing below a threshold ends after it was compared. Near a threshold most samples are such, hundreds a second.

use std::time::Duration;

use crate::eviction::{Observation, growth};
use crate::units::Monotonic;

use super::{Agent, Wakeup};

/// A whole turn follows the last one after this time at the latest.
const WHOLE_TURN_EVERY: Duration = Duration::from_secs(1);
/// The same where memory falls towards a threshold: a turn prepares the decision, and reads growth.
const NEAR_EVERY: Duration = Duration::from_millis(100);

/// The outcome of a wake-up.
pub(super) enum Sampled {
    /// The sample is all that was due.
    Alone,
    /// A whole turn follows, with this sample and its time if one was taken.
    ForTurn(Option<(Monotonic, Observation)>),
}

impl Agent {
    /// Takes a sample if that is all that is due, and passes it on unless something is below a threshold.
    pub(super) fn sample_alone(&mut self, wakeup: Wakeup, now: Monotonic) -> Sampled {
        if wakeup != Wakeup::Deadline || self.last.alone_until.is_none_or(|until| now >= until) {
            return Sampled::ForTurn(None);
        }
        let is_recent = self.last.whole_turn.is_some_and(|last| now.since(last) < NEAR_EVERY);
        if !is_recent && self.decision.is_memory_near(&self.config.policy, growth::HORIZON, now) {
            return Sampled::ForTurn(None);
        }
        let Some((sampled, observation)) = self.observe() else { return Sampled::ForTurn(None) };
        if !self.decision.passes_by(&self.config.policy, &observation, sampled) {
            return Sampled::ForTurn(Some((sampled, observation)));
        }
        self.pass_on_samples();
        Sampled::Alone
    }

    /// Notes at the end of a whole turn until when a sample may come alone: nothing goes on, and nothing else is due.
    pub(super) fn note_whole_turn(&mut self) {
        let now = Monotonic::now();
        self.last.whole_turn = Some(now);
        let goes_on = self.actions.evictor.next_poll(now).is_some() || self.actions.reclaim.next_check(now).is_some();
        // The readings of growth go on between two samples.
        let is_calm = !goes_on && self.decision.is_calm() && !self.sensors.growth.is_cut();
        let until = || now.after(self.next_besides_sample(now).0.min(WHOLE_TURN_EVERY));
        self.last.alone_until = is_calm.then(until);
    }
}
