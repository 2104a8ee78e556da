//! Events of the container runtime.

use crate::eviction::collection::CollectionEnd;
use crate::report::record::Record;
use crate::runtime::{CAPABILITY, CollectEnd, Event, State};
use crate::units::{Monotonic, split_degradation};

use super::Agent;

impl Agent {
    pub(super) fn handle_runtime_event(&mut self, event: &Event) {
        let now = Monotonic::now();
        match event {
            Event::State(state) => self.report_runtime_state(state, now),
            Event::Collected(collected) => {
                self.actions.note_collected(match collected.end {
                    CollectEnd::Enough => CollectionEnd::Enough,
                    CollectEnd::Exhausted => CollectionEnd::Exhausted,
                    CollectEnd::Interrupted(_) => CollectionEnd::Interrupted,
                    CollectEnd::Listed => CollectionEnd::Listed,
                });
                self.sensors.signals.filesystems.ask_now();
                self.reporter.report(&Record::GarbageCollected(collected), now);
            }
            Event::Stopped(stopped) => {
                self.reporter.report(&Record::PodStopped(stopped), now);
                self.actions.answer_order(stopped);
            }
        }
        self.actions.hint_stores(&mut self.sensors);
    }

    fn report_runtime_state(&mut self, state: &State, now: Monotonic) {
        let degradation = state.degradation();
        let reason = degradation.as_deref().map(|text| split_degradation(text).1);
        self.reporter.set_capability(CAPABILITY, reason, "the container runtime does not answer", now);
        match state {
            State::Up { runtime, socket } => {
                self.reporter.report(&Record::RuntimeFound { runtime, socket }, now);
            }
            State::Absent => {
                self.reporter.report(&Record::RuntimeAbsent, now);
            }
            State::Looking | State::Off | State::Down { .. } => {}
        }
    }
}
