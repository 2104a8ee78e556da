//! What the control plane has to say.

use std::time::Duration;

use crate::cluster::{CAPABILITY, Event, State};

use super::Agent;

/// How long an agent that stops has to take its conditions and taints off the node.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Agent {
    /// Ends what goes on beside the loop, after the loop.
    pub fn end(self) {
        self.cluster.stop(LAST_WORDS);
    }

    /// Takes note of it, and tells it.
    pub(super) fn hear_cluster(&mut self, event: Event) {
        match event {
            Event::State(state) => self.learn_state(&state),
            Event::Settled(settled) => self.hear_settled(settled),
            trouble @ Event::Trouble { .. } => self.hear_trouble(&trouble),
            Event::Pods | Event::Node => {}
        }
    }

    fn learn_state(&self, state: &State) {
        let degradation = state.degradation();
        let prefix = format!("{CAPABILITY}: ");
        let reason = degradation.as_deref().map(|text| text.strip_prefix(&prefix).unwrap_or(text));
        self.health.set_degradation(CAPABILITY, reason);
        match (state, reason) {
            (_, Some(reason)) => {
                tracing::warn!(event = "degraded", capability = CAPABILITY, reason, "the API server does not answer");
            }
            (State::Up, None) => tracing::info!(event = "api_server", "the API server answers"),
            (State::Looking | State::Off | State::Down { .. }, None) => {}
        }
    }
}
