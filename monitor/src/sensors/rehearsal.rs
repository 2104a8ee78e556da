//! Rehearses the decision before it is needed. The agent locks a page in memory only once it was used (`MLOCK_ONFAULT`), so the first
//! decision would load the pages of its code at the moment at which memory is short.

use crate::config::{EvictionLimits, Mode, MonitorConfig, Policy};
use crate::eviction::decider::{AgentRules, Answer, Decider, Next, Pace, Recording, Rules, Snapshot};
use crate::eviction::{Observation, SignalValue};
use crate::units::{Bytes, Monotonic, Signal};

use super::Sensors;

/// A decision about one threshold takes fewer steps.
const MOST_STEPS: usize = 32;

impl Sensors {
    /// Decides about a memory threshold as if no memory were left, in observe mode and with a decider of its own. Measures what the decider
    /// asks for, and carries nothing out.
    pub fn rehearse(&mut self, config: &MonitorConfig, now: Monotonic) {
        let Some(capacity) = self.memory.sample().map(|sample| sample.meminfo.total) else { return };
        let snapshot = snapshot(capacity, now);
        let policy = policy(&config.policy);
        let rules = Rules { policy: &policy, pace: Pace::Agent(agent_rules(config)) };
        let (mut decider, mut above) = (Decider::default(), Vec::new());
        let mut recording = Recording::begin(&decider);
        let mut answer = Answer::Begin;
        for _ in 0..MOST_STEPS {
            let Next::Measure(what) = recording.step(&mut decider, rules, &snapshot, answer) else { return };
            answer = self.measure(what, config, &decider, &mut above);
        }
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
    use crate::eviction::decider::{Measure, Standing};
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
