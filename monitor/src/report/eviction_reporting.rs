//! Reports evictions: the start, with all facts that explain it, and the end.

use crate::actions::{Action, Ended, Started};
use crate::eviction::decider::{RecordedLine, RecordedRules, RecordedTurn, Rules};
use crate::eviction::rank::Order;
use crate::eviction::{Observation, SignalValue};
use crate::incidents::model::RawJson;
use crate::sensors::local_storage_limits::Above;
use crate::units::Monotonic;

use super::eviction_report::{EvictionRecord, StartedEviction, Trigger};
use super::record::Record;
use super::{LoopState, Reporter};

impl Reporter {
    /// Reports an eviction for a threshold. `rules` are those of the turn, for a replay.
    pub fn report_eviction(
        &mut self,
        state: &mut LoopState<'_>,
        rules: Rules<'_>,
        eviction: &StartedEviction,
        now: Monotonic,
    ) {
        let StartedEviction { met, victim, started, .. } = eviction;
        let workload = &victim.candidate.workload;
        let order = Order::of(&state.config.policy, met.threshold.signal.resource());
        self.renew_evidence(state, now);
        let (_, labels) = state.sensors.pod_named(workload.kind.pod_uid());
        // Numbers and texts always serialize.
        let policy = RawJson::of(&RecordedRules::of(rules)).ok();
        let record = EvictionRecord {
            workload: &workload.name,
            cgroup: workload.id,
            name: self.names.of_workload(workload),
            pod_uid: workload.kind.pod_uid(),
            labels,
            action: started.action,
            processes: started.processes,
            trigger: Trigger::Threshold(eviction, order),
            woken: eviction.woken,
            acted: started.at,
            policy,
            trace: RawJson::of(&replayed_line(eviction, order)).into_iter().collect(),
        };
        self.report(&Record::Eviction(&record), now);
    }

    /// Reports an eviction for a limit of the pod's own. A dry run is reported at most once a minute.
    pub fn report_limit_eviction(
        &mut self,
        state: &LoopState<'_>,
        rules: Rules<'_>,
        above: &Above,
        started: Started,
        turn: Option<RecordedTurn>,
        (woken, now): (Monotonic, Monotonic),
    ) {
        if started.action == Action::DryRun && !self.limit_dry_runs.is_due((above.cause, above.id), now) {
            return;
        }
        let line = turn.map(|turn| RecordedLine {
            time: started.at.wall().to_string(),
            turn,
            victim: above.workload.clone(),
            above_limit: Some(above.id),
            explanation: above.message.clone(),
        });
        let (_, labels) = state.sensors.pod_named(Some(&above.uid));
        let record = EvictionRecord {
            workload: &above.workload,
            cgroup: above.id,
            name: self.names.of(&above.workload),
            pod_uid: Some(&above.uid),
            labels,
            action: started.action,
            processes: started.processes,
            trigger: Trigger::Limit { cause: above.cause, message: &above.message, measured: above.at },
            woken,
            acted: started.at,
            policy: line.as_ref().and_then(|_| RawJson::of(&RecordedRules::of(rules)).ok()),
            trace: line.iter().filter_map(|line| RawJson::of(line).ok()).collect(),
        };
        self.report(&Record::Eviction(&record), now);
    }

    /// Reports evictions that were found ended at `at`; `seen` was observed right after.
    pub fn report_ended(&mut self, ended: &[Ended], at: Monotonic, seen: Option<&Observation>) {
        for ended in ended {
            // The freed disk space is known only after the next measurement of the filesystem.
            let signal = ended.cause.signal().filter(|signal| !signal.resource().is_on_disk());
            let available: Option<SignalValue> = signal.zip(seen).and_then(|(signal, seen)| seen.get(signal));
            self.report(&Record::EvictionEnded { ended, at, available }, at);
        }
    }
}

/// Returns the deciding turn, for `simulate` to replay.
fn replayed_line(eviction: &StartedEviction, order: Order<'_>) -> RecordedLine {
    RecordedLine {
        time: eviction.decided.wall().to_string(),
        turn: eviction.turn.clone(),
        victim: eviction.victim.candidate.workload.name.clone(),
        above_limit: None,
        explanation: eviction.victim.explanation(order),
    }
}
