//! Drives the decider: one turn from a sample to its actions and their report.

use std::time::Duration;

use crate::eviction::Observation;
use crate::eviction::decider::{Answer, Attempt, Measure, Next, Rules, Snapshot};
use crate::report::Turn;
use crate::sensors::control_plane::SoftEvictions;
use crate::units::{Monotonic, Resource};

use super::{Agent, Wakeup};

impl Agent {
    /// Takes a turn on this sample, or on a fresh one, and reports what happened in it.
    pub(super) fn decide(&mut self, wakeup: Wakeup, woken: Monotonic, sample: Option<(Monotonic, Observation)>) {
        let polled = Monotonic::now();
        let ended = self.actions.poll(&self.config.evictions, &mut self.sensors, polled);
        let Some(observed) = sample.or_else(|| self.observe()) else {
            return self.reporter.report_ended(&ended, polled, None);
        };
        // The action precedes the report: writing a log record takes as long as a decision.
        let turn = self.take_turn(Turn::begin((wakeup.as_str(), woken), observed, &self.decision));
        let eviction = self.reporter.started_eviction(&turn, &mut self.decision, &mut self.actions);
        self.pass_on_samples();
        self.reporter.report_ended(&ended, polled, Some(&turn.observation));
        let now = Monotonic::now();
        self.reporter.report_action_notes(&self.actions.take_notes(), now);
        let (notes, pods_expected) = (self.decision.notes().collect(), self.actions.pods_expected());
        let (reporter, mut state) = self.reporting();
        reporter.report_turn(&mut state, &turn, eviction.as_ref(), notes, pods_expected, now);
        self.publish_status(now);
    }

    /// Steps the decider until the turn is over, and carries out each requested step.
    fn take_turn(&mut self, mut turn: Turn) -> Turn {
        let mut snapshot = self.snapshot((turn.sampled, turn.observation.clone()));
        let mut answer = Answer::Begin;
        loop {
            let rules = Rules::of_agent(&self.config);
            let next = turn.recording.step(&mut self.decision, rules, &snapshot, answer);
            if let Next::Measure(Measure::Limits) = next {
                self.read_pods(Monotonic::now());
            }
            let Self { config, sensors, decision, actions, .. } = self;
            answer = match next {
                Next::Wait { .. } => return turn,
                Next::Measure(Measure::Signals) => {
                    turn.ordered = Monotonic::now();
                    let Some(observed) = self.observe() else { return turn };
                    self.sensors.renew(&mut snapshot, observed, &self.config);
                    let resource = self.decision.acted_on().map(|met| met.threshold.signal.resource());
                    if resource.is_some_and(Resource::is_on_disk) {
                        // A pod may have ended meanwhile.
                        snapshot.expected = self.actions.expected_space(&self.sensors, snapshot.clock());
                    }
                    turn.decided = Monotonic::now();
                    Answer::Sampled
                }
                Next::Measure(what) => sensors.measure(what, config, decision, &mut turn.above),
                Next::CollectGarbage { signal, .. } => {
                    Answer::CollectionStarted(actions.collect_garbage(signal, config, decision.armed(), sensors))
                }
                Next::Reclaim { place, bytes, deadline } => {
                    Answer::ReclaimStarted(actions.begin_reclaim(place, (bytes, deadline), decision, sensors))
                }
                Next::EndReclaim { outcome, interrupt } => {
                    let freed = actions.end_reclaim(outcome, interrupt, &snapshot.observation);
                    snapshot.reclaim = actions.reclaim.facts();
                    Answer::Reclaimed(freed)
                }
                Next::Evict(choice) => {
                    let attempt = match actions.attempt(&choice, decision, &turn.above, sensors, config) {
                        Ok(started) => {
                            turn.note_started(choice, started);
                            Attempt::Started
                        }
                        Err(error) => error.attempt(),
                    };
                    // Evictions of this turn count for the rest of the turn.
                    snapshot.under_way = actions.evictor.under_way().collect();
                    Answer::Attempt(attempt)
                }
            };
        }
    }

    fn snapshot(&mut self, (sampled, observation): (Monotonic, Observation)) -> Snapshot {
        let Self { config, sensors, decision, actions, reporter, last, .. } = self;
        let soft = sensors.soft_evictions(config, sampled);
        reporter.report_outdated_maintenance(&soft, decision.assessment(), sampled);
        // After a standstill it is as after a start: what leaks is not known.
        let first = sensors.growth.resumed().max(Some(*last.first_sample.get_or_insert(sampled)));
        let snapshot = actions.snapshot(sensors, sampled);
        Snapshot {
            in_maintenance: soft == SoftEvictions::Deferred,
            first_sample: first.filter(|first| sampled.since(*first) < Duration::from_secs(1)),
            ..sensors.complete(snapshot, (sampled, observation), decision.awaits_stalls(), config)
        }
    }
}
