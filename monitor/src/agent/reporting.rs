//! Records that combine facts from sensors and decision: evictions, incidents, the node's status.

use std::time::Duration;

use crate::actions::Ended;
use crate::config::Mode;
use crate::eviction::decider::{RecordedLine, RecordedRules};
use crate::eviction::rank::Order;
use crate::eviction::{NodeCondition, Observation, SignalValue};
use crate::incidents::model::RawJson;
use crate::report::eviction_report::{EvictionRecord, ThresholdTrigger, Trigger};
use crate::report::incident_sink::MemoryScale;
use crate::report::node_status::StatusFacts;
use crate::report::record::Record;
use crate::units::{Monotonic, Signal};

use super::turn::StartedEviction;
use super::{Agent, TurnStart};

impl Agent {
    /// Records the incidents of OOM kills that are due.
    pub(super) fn record_oom_kills(&mut self) {
        let now = Monotonic::now();
        if self.reporter.recorder.next_due(now).is_some_and(|wait| wait.is_zero()) {
            self.renew_evidence(now);
            self.reporter.report_oom_incidents(false, self.config.mode, now);
        }
    }

    /// Records the remaining incidents when the agent stops.
    pub(super) fn record_rest(&mut self) {
        let now = Monotonic::now();
        self.sensors.events.drain();
        self.report_kernel_events(now);
        if self.reporter.recorder.next_due(now).is_some() {
            self.renew_evidence(now);
            self.reporter.report_oom_incidents(true, self.config.mode, now);
        }
        self.send_events();
    }

    /// Renews the evidence for the next incident, unless it is young enough.
    pub(super) fn renew_evidence(&mut self, now: Monotonic) {
        self.refresh_evidence(now);
        self.reporter.recorder.set_scale(self.sensors.memory.sample().map(|sample| {
            let capacity = sample.meminfo.total;
            let of_memory =
                self.decision.armed().iter().filter(|armed| armed.threshold.signal == Signal::MemoryAvailable);
            let of = i64::try_from(capacity.0).unwrap_or(i64::MAX);
            let values = of_memory.map(|armed| armed.threshold.value.resolve(of, self.config.policy.quirks).bytes());
            MemoryScale { capacity, threshold: values.max(), counts_stalls: self.sensors.counts_stalls() }
        }));
    }

    /// Reports an eviction that has started, or a dry run.
    pub(super) fn report_eviction(&mut self, start: &TurnStart, eviction: &StartedEviction) {
        let StartedEviction { met, ranked, candidates, action, processes, .. } = eviction;
        let workload = &ranked.candidate.workload;
        let now = Monotonic::now();
        self.renew_evidence(now);
        let (pod, labels) = self.pod_named(workload.kind.pod_uid());
        let (policy, trace) = self.trace_of(eviction);
        let trigger = ThresholdTrigger {
            met,
            victim: ranked,
            ranking: candidates,
            order: Order::of(&self.config.policy, met.threshold.signal.resource()),
            reclaim: eviction.reclaimed.as_ref(),
            wakeup: start.wakeup.as_str(),
            sampled: start.sampled,
            ordered: eviction.ordered,
            decided: eviction.decided,
        };
        let record = EvictionRecord {
            workload: &workload.name,
            cgroup: workload.id,
            pod,
            labels,
            action: *action,
            processes: *processes,
            trigger: Trigger::Threshold(&trigger),
            woken: start.woken,
            acted: eviction.acted,
            policy,
            trace,
        };
        self.reporter.report(&Record::Eviction(&record), now);
    }

    /// Returns the deciding turn, for `simulate` to replay. Numbers and texts always serialize.
    fn trace_of(&self, eviction: &StartedEviction) -> (Option<RawJson>, Vec<RawJson>) {
        let order = Order::of(&self.config.policy, eviction.met.threshold.signal.resource());
        let line = RecordedLine {
            time: eviction.decided.wall().to_string(),
            turn: eviction.turn.clone(),
            victim: eviction.ranked.candidate.workload.name.clone(),
            explanation: eviction.ranked.explanation(order),
        };
        let policy = RawJson::of(&RecordedRules::of(self.recorded_rules()));
        (policy.ok(), RawJson::of(&line).into_iter().collect())
    }

    /// Reports the resource that is short, in enforce mode.
    pub(super) fn report_reclaiming(&mut self, start: &TurnStart, eviction: Option<&StartedEviction>, now: Monotonic) {
        if self.config.mode != Mode::Enforce || start.assessment.met.is_empty() {
            return;
        }
        let of_eviction = eviction.map(|eviction| eviction.met.threshold.signal);
        let first = || start.assessment.to_act_on().first().map(|met| met.threshold.signal);
        if let Some(signal) = of_eviction.or_else(first) {
            self.reporter.report_reclaiming(signal.resource(), eviction.is_some(), now);
        }
    }

    /// Reports evictions that were found ended at `at`; `seen` was observed right after.
    pub(super) fn report_ended(&mut self, ended: &[Ended], at: Monotonic, seen: Option<&Observation>) {
        for ended in ended {
            // The freed disk space is known only after the next measurement of the filesystem.
            let signal = ended.cause.signal().filter(|signal| !signal.resource().is_on_disk());
            let available: Option<SignalValue> = signal.zip(seen).and_then(|(signal, seen)| seen.get(signal));
            self.reporter.report(&Record::EvictionEnded { ended, at, available }, at);
        }
    }

    /// Publishes the node's conditions and taints if they have changed.
    pub(super) fn publish_status(&mut self) {
        if !self.cluster.is_there() {
            return;
        }
        let mut conditions = [None; NodeCondition::ALL.len()];
        for (condition, holds) in self.node_conditions() {
            let is_known = holds || self.is_observed(condition);
            let place = NodeCondition::ALL.iter().position(|other| *other == condition);
            if let Some(standing) = place.and_then(|place| conditions.get_mut(place)) {
                *standing = Some(is_known.then_some(holds));
            }
        }
        let facts = StatusFacts {
            mode: self.config.mode,
            options: &self.config.kubernetes,
            conditions,
            configuration: self.reload.state(),
        };
        let pressure = self.sensors.pressure.statuses();
        self.reporter.publish_status(facts, pressure, &self.cluster, Monotonic::now());
    }

    /// Returns the time until a taint may be due.
    pub(super) fn until_taint(&self, now: Monotonic) -> Option<Duration> {
        self.reporter.status().until_taint(&self.config.kubernetes, now)
    }

    /// Returns whether a signal behind the condition is observed.
    fn is_observed(&self, condition: NodeCondition) -> bool {
        let is_of = |signal: Signal| NodeCondition::of(signal) == condition;
        match condition {
            NodeCondition::MemoryPressure => self.sensors.memory.sample().is_some(),
            NodeCondition::DiskPressure | NodeCondition::PidPressure => {
                self.sensors.signals.values().iter().any(|value| is_of(value.signal))
            }
        }
    }
}
