//! Looking at the node: memory by the loop itself, the rest by who looks at it.

use std::time::Duration;

use crate::config::Semantics;
use crate::eviction::deadline::until_next_sample;
use crate::eviction::{Observation, SignalValue};
use crate::node::MemorySample;
use crate::node::pinned_file::FileError;
use crate::units::{Bytes, Monotonic, Signal};

use super::Agent;

/// The capability's name.
const SAMPLING: &str = "sampling";

impl Agent {
    /// How long until memory must be looked at again.
    pub(super) fn until_sample(&self, now: Monotonic, sample: MemorySample) -> Duration {
        let observation = self.observation(sample);
        let until = until_next_sample(&self.config.policy, &self.config.sampling, &observation, &self.sensors.rate);
        until.saturating_sub(now.since(sample.at))
    }

    /// A fresh sample as an observation, and when it was taken; without one nothing is decided.
    pub(super) fn observe(&mut self) -> Option<(Monotonic, Observation)> {
        match self.sample() {
            Ok(sample) => {
                if self.sensors.sample.replace(sample).is_none() {
                    self.reporter.outlets.health.set_ready(Ok(()));
                    self.reporter.set_capability(SAMPLING, None, "", sample.at);
                }
                self.observe_others();
                let observation = self.observation(sample);
                self.sensors.rate.observe(self.uncorrected(sample), sample.at);
                if let Some(value) = observation.get(Signal::MemoryAvailable) {
                    self.sensors.unnoted.push((sample.at, value.available_bytes()));
                }
                Some((sample.at, observation))
            }
            Err(error) => {
                self.sensors.sample = None;
                self.reporter.outlets.health.set_ready(Err(format!("cannot observe memory: {error}")));
                let reason = error.to_string();
                let effect = "memory cannot be observed: the agent decides nothing";
                self.reporter.set_capability(SAMPLING, Some(&reason), effect, Monotonic::now());
                None
            }
        }
    }

    /// Hands what this look saw to those who look at its course. They may touch memory for the first time, which takes long when none is
    /// left: after the deed.
    pub(super) fn note_samples(&mut self) {
        for (at, available) in self.sensors.unnoted.drain(..) {
            self.sensors.figures.observe(available, at);
            self.reporter.recorder.add_sample(at, available);
        }
    }

    fn sample(&mut self) -> Result<MemorySample, FileError> {
        let sample = self.sensors.memory.sample()?;
        if self.config.policy.semantics == Semantics::Kubelet {
            self.sensors.root_usage = self.sensors.memory.root_usage()?;
        }
        Ok(sample)
    }

    /// What the chosen semantics make of a sample, and the other signals as they were last.
    pub(super) fn observation(&self, sample: MemorySample) -> Observation {
        let capacity = sample.meminfo.total;
        let correction = match self.config.policy.semantics {
            Semantics::Corrected => self.sensors.figures.correction(),
            Semantics::Kubelet => Bytes::ZERO,
        };
        let available = self.uncorrected(sample).saturating_sub(correction);
        let memory = SignalValue::now(Signal::MemoryAvailable, available, capacity);
        Observation { signals: std::iter::once(memory).chain(self.sensors.others.iter().copied()).collect() }
    }
}
