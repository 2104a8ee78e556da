//! What the loop hears of the container runtime.

use crate::config::Mode;
use crate::runtime::{CAPABILITY, CollectEnd, Collected, Event, State, Stopped};
use crate::units::Monotonic;

use super::Agent;

/// Names that go into a log record.
const SHOWN: usize = 10;

impl Agent {
    /// Takes note of it, and tells it.
    pub(super) fn hear(&mut self, event: &Event) {
        match event {
            Event::State(state) => self.hear_state(state),
            Event::Collected(collected) => self.hear_collected(collected),
            Event::Stopped(stopped) => {
                tell_stopped(stopped);
                self.answer_order(stopped);
            }
        }
        self.hint_stores();
    }

    fn hear_state(&self, state: &State) {
        let degradation = state.degradation();
        let prefix = format!("{CAPABILITY}: ");
        let reason = degradation.as_deref().map(|text| text.strip_prefix(&prefix).unwrap_or(text));
        self.reporter.health.set_degradation(CAPABILITY, reason);
        match (state, reason) {
            (_, Some(reason)) => {
                tracing::warn!(
                    event = "degraded",
                    capability = CAPABILITY,
                    reason,
                    "the container runtime does not answer"
                );
            }
            (State::Up { runtime, socket }, None) => {
                let socket = socket.display();
                tracing::info!(event = "container_runtime", runtime, %socket, "the container runtime answers");
            }
            (State::Absent, None) => {
                tracing::info!(
                    event = "container_runtime",
                    "no container runtime was found: workloads are known by their cgroups"
                );
            }
            (State::Looking | State::Off | State::Down { .. }, None) => {}
        }
    }

    fn hear_collected(&mut self, collected: &Collected) {
        self.actions.garbage.note(collected, Monotonic::now());
        self.sensors.signals.look_at_disks();
        self.with_metrics(|metrics| metrics.collected(collected));
        let names: Vec<&str> = collected.steps.iter().take(SHOWN).map(|step| step.name.as_str()).collect();
        let names = names.join(", ");
        let counts = collected.counts;
        let outcome = collected.end.as_str();
        let why = match &collected.end {
            CollectEnd::Interrupted(why) => Some(why.as_str()),
            CollectEnd::Enough | CollectEnd::Exhausted | CollectEnd::Listed => None,
        };
        tracing::info!(
            event = "garbage_collected",
            mode = if collected.end == CollectEnd::Listed { Mode::Observe.as_str() } else { Mode::Enforce.as_str() },
            outcome,
            why,
            containers = counts.containers,
            sandboxes = counts.sandboxes,
            images = counts.images,
            frees_bytes = collected.frees.0,
            first = names,
            took_ms = collected.took.as_secs_f64() * 1e3,
            "{}",
            if collected.end == CollectEnd::Listed { "would collect garbage" } else { "collected garbage" }
        );
        for (step, reason) in collected.refused.iter().take(SHOWN) {
            let kind = step.target.kind();
            tracing::warn!(
                event = "garbage_refused",
                kind,
                name = step.name,
                reason,
                "the container runtime would not remove it"
            );
        }
    }
}

fn tell_stopped(stopped: &Stopped) {
    let uid = stopped.uid.0.as_str();
    let took_ms = stopped.took.as_secs_f64() * 1e3;
    match &stopped.result {
        Ok(containers) => {
            tracing::info!(event = "pod_stopped", uid, containers, took_ms, "stopped by the container runtime");
        }
        Err(reason) => {
            tracing::warn!(event = "pod_not_stopped", uid, %reason, took_ms, "not stopped by the container runtime");
        }
    }
}
