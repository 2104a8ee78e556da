//! Rehearses the decision before it is needed. The agent locks a page in memory only once it was used (`MLOCK_ONFAULT`), so the first
//! decision would load the pages of its code at the moment at which memory is short.

use std::time::Duration;

use crate::config::{EvictionLimits, Mode, MonitorConfig, Policy};
use crate::eviction::decider::{AgentRules, Answer, Next, Pace, Rules, Snapshot};
use crate::eviction::{Observation, SignalValue};
use crate::units::{Bytes, Monotonic, Signal};

use super::Agent;
use super::turn::Turn;

/// After this time a rehearsal is repeated when a threshold is near.
const EVERY: Duration = Duration::from_secs(60);
/// A decision about one threshold takes fewer steps.
const MOST_STEPS: usize = 32;

impl Agent {
    /// Rehearses the decision if that was not done for a while.
    pub(super) fn rehearse_if_due(&mut self, now: Monotonic) {
        if self.last.rehearsed.is_none_or(|last| now.since(last) >= EVERY) {
            self.rehearse();
        }
    }

    /// Decides about a memory threshold as if no memory were left, in observe mode and with a decider of its own. Measures what the decider
    /// asks for, and carries nothing out.
    pub(super) fn rehearse(&mut self) {
        let now = Monotonic::now();
        self.last.rehearsed = Some(now);
        let Some(capacity) = self.sensors.memory.sample().map(|sample| sample.meminfo.total) else { return };
        let snapshot = snapshot(capacity, now);
        let policy = policy(&self.config.policy);
        let rules = Rules { policy: &policy, pace: Pace::Agent(agent_rules(&self.config)) };
        let in_force = std::mem::take(&mut self.decision);
        let mut turn = Turn::begin(&self.decision);
        let mut answer = Answer::Begin;
        for _ in 0..MOST_STEPS {
            answer = match turn.recording.step(&mut self.decision, rules, &snapshot, answer) {
                Next::Measure(what) => self.measure(what, &mut turn),
                Next::Wait { .. }
                | Next::CollectGarbage { .. }
                | Next::Reclaim { .. }
                | Next::EndReclaim { .. }
                | Next::Evict(_) => break,
            };
        }
        self.decision = in_force;
    }
}

fn snapshot(capacity: Bytes, now: Monotonic) -> Snapshot {
    let signals = vec![SignalValue::now(Signal::MemoryAvailable, Bytes::ZERO, capacity)];
    Snapshot { now: now.into(), observation: Observation { signals }, ..Snapshot::default() }
}

fn policy(configured: &Policy) -> Policy {
    Policy { thresholds: vec![Policy::default_hard_threshold()], hard_count: 1, ..configured.clone() }
}

fn agent_rules(config: &MonitorConfig) -> AgentRules {
    AgentRules {
        mode: Mode::Observe,
        limits: EvictionLimits { act_on_present_pressure: true, ..config.evictions },
        methods: config.kubernetes.evictions,
        defers_soft: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::decider::{Decider, Measure, Standing};
    use crate::workloads::fixtures;

    #[test]
    fn a_rehearsal_reaches_the_choice_of_a_victim() {
        let config = MonitorConfig { mode: Mode::Enforce, ..MonitorConfig::default() };
        let (capacity, policy) = (Bytes::from_mib(1024), policy(&config.policy));
        let rules = Rules { policy: &policy, pace: Pace::Agent(agent_rules(&config)) };
        let snapshot = snapshot(capacity, Monotonic(1));
        let usage = || fixtures::usage(fixtures::workload("a.service"), Bytes::from_mib(200));
        let (mut decider, mut answer) = (Decider::default(), Answer::Begin);
        for _ in 0..MOST_STEPS {
            answer = match decider.step(rules, &snapshot, answer) {
                Next::Measure(Measure::Candidates { .. }) => Answer::Candidates(vec![usage()]),
                Next::Measure(Measure::Exact { .. }) => Answer::Exact(Some(usage())),
                Next::Measure(Measure::Signals) => Answer::Sampled,
                Next::Measure(Measure::Standing { .. }) => Answer::Standing(Standing::default()),
                Next::Evict(choice) => return assert!(choice.is_dry_run),
                other => panic!("{other:?}"),
            };
        }
        panic!("no victim after {MOST_STEPS} steps");
    }
}
