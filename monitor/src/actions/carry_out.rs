//! Carries out one eviction: through the runtime, by signals, or through the API server.

use std::time::Duration;

use crate::cluster::{Intent, State};
use crate::config::{Mode, MonitorConfig};
use crate::eviction::decider::{Choice, Decider, Place, Route};
use crate::eviction::evicted::{Cause, IMMEDIATE_GRACE};
use crate::runtime::TearDown;
use crate::sensors::Sensors;
use crate::sensors::decider_facts::cgroup_at;
use crate::sensors::local_storage_limits::Above;
use crate::units::Monotonic;
use crate::workloads::{PodUid, Workload, WorkloadUsage};

use super::api_evictions::intent;
use super::carried_out::{EvictionOrder, Reason};
use super::{Action, ActionError, ActionNote, Actions, FreezeRecord, Started, StoppedPod, Target};

impl Actions {
    /// Starts the chosen eviction; in observe mode only records it. `above` are the pods above a limit of their own.
    ///
    /// # Errors
    /// When the eviction was not started.
    pub fn attempt(
        &mut self,
        choice: &Choice,
        decider: &Decider<WorkloadUsage>,
        above: &[Above],
        sensors: &mut Sensors,
        config: &MonitorConfig,
    ) -> Result<Started, ActionError> {
        let id = cgroup_at(choice.place, decider, above).ok_or(ActionError::Gone)?;
        let (ranked, reason) = match choice.place {
            Place::Ranked(place) => {
                let ranked = decider.ranking().get(place);
                (ranked, decider.acted_on().zip(ranked).map(|(met, ranked)| Reason::Threshold(met, ranked)))
            }
            Place::Limit(place) => (None, above.get(place).map(Reason::Limit)),
        };
        let started = self.evict(EvictionOrder { choice, id, reason }, sensors, config)?;
        if choice.grace.is_zero() && !choice.is_dry_run {
            sensors.note_own_kill(id, ranked.map(|ranked| &ranked.candidate), started.at);
        }
        Ok(started)
    }

    fn evict(
        &mut self,
        order: EvictionOrder<'_>,
        sensors: &Sensors,
        config: &MonitorConfig,
    ) -> Result<Started, ActionError> {
        let started = self.carry_out(order, sensors, config);
        match &started {
            Ok(_) if !order.choice.is_dry_run && order.choice.cause.is_for_disk() => {
                sensors.signals.filesystems.ask_now();
            }
            Err(error) if is_reported(error, order.choice) => {
                let workload = sensors.workloads.owner(order.id).to_string();
                let (cause, reason) = (order.choice.cause, error.to_string());
                self.notes.push(ActionNote::NotStarted { cause, workload, reason });
            }
            Ok(_) | Err(_) => {}
        }
        started
    }

    fn carry_out(
        &mut self,
        order: EvictionOrder<'_>,
        sensors: &Sensors,
        config: &MonitorConfig,
    ) -> Result<Started, ActionError> {
        let choice = order.choice;
        if config.mode == Mode::Observe {
            return Ok(Started { processes: 0, action: Action::DryRun, at: Monotonic::now() });
        }
        let tracked = sensors.workloads.tree().find(order.id).ok_or(ActionError::Gone)?;
        let action = action(tracked.workload(), choice);
        let pod = tracked.workload().kind.pod_uid().cloned();
        let record = FreezeRecord::beside(&config.lock_file);
        let hierarchy = sensors.workloads.tree().hierarchy();
        let has_monitors = sensors.has_monitors(tracked);
        let target = Target::new(tracked, hierarchy, &config.proc_root, has_monitors).recorded_in(record);
        let intent = || intent(pod.as_ref()?, choice, order.reason?, sensors, config);
        let processes = match choice.route {
            Route::Local => self.end_processes(target, pod, choice, sensors)?,
            Route::Unlisted => {
                let noted = pod.as_ref().map(|uid| ActionNote::PodUnknown { pod_uid: uid.0.clone() });
                self.notes.extend(noted);
                self.end_processes(target, pod, choice, sensors)?
            }
            Route::Reported => match intent() {
                Some(intent) => self.end_and_report(target, pod, choice, intent, sensors)?,
                None => self.end_processes(target, pod, choice, sensors)?,
            },
            Route::Requested { .. } => match intent() {
                Some(intent) => self.request_eviction(target, pod, choice, &intent, sensors)?,
                None => return Err(ActionError::PutOff("the API server no longer lists this pod".to_owned())),
            },
        };
        Ok(Started { processes, action, at: Monotonic::now() })
    }

    /// Ends the processes and reports the eviction to the API server. The intent is written to the ledger before the
    /// pod is touched. If the agent dies in between, the next agent finishes the eviction.
    fn end_and_report(
        &mut self,
        target: Target,
        pod: Option<PodUid>,
        choice: &Choice,
        intent: Intent,
        sensors: &Sensors,
    ) -> Result<usize, ActionError> {
        let is_noted = self.note_intent(&intent);
        let is_up = sensors.platform.cluster.view().state == State::Up;
        if let Some(uid) = pod.as_ref().filter(|_| choice.cause.is_for_disk() && is_noted && is_up) {
            return self.report_and_end(target, uid.clone(), choice, &intent, sensors);
        }
        let ended = self.end_processes(target, pod, choice, sensors);
        match &ended {
            Ok(_) if is_noted => {
                self.hand_over(intent);
            }
            // Nothing was touched.
            Err(_) if is_noted => self.cluster.ledger().end(&intent),
            Ok(_) | Err(_) => {}
        }
        ended
    }

    /// Reports an eviction for a disk, and ends the processes then: the kubelet learns of it from the API server, and tears the pod down.
    fn report_and_end(
        &mut self,
        target: Target,
        uid: PodUid,
        choice: &Choice,
        intent: &Intent,
        sensors: &Sensors,
    ) -> Result<usize, ActionError> {
        // The ledger keeps the eviction for the next agent.
        let Ok(asked) = self.ask_api_server(intent) else {
            return self.end_processes(target, Some(uid), choice, sensors);
        };
        let now = Monotonic::now();
        self.pending.expect((&uid, TearDown::Kubelet), &target.name, sensors, now);
        let pod = StoppedPod { uid, by: TearDown::Kubelet, urgent: choice.is_hard };
        Ok(self.evictor.tell_first(target, pod, asked, choice.cause, orderly(choice), now))
    }

    fn request_eviction(
        &mut self,
        target: Target,
        pod: Option<PodUid>,
        choice: &Choice,
        intent: &Intent,
        sensors: &Sensors,
    ) -> Result<usize, ActionError> {
        let asked = self.ask_api_server(intent).map_err(ActionError::PutOff)?;
        let now = Monotonic::now();
        if let Some(uid) = pod.as_ref().filter(|_| choice.cause.is_for_disk()) {
            self.pending.expect((uid, TearDown::Kubelet), &target.name, sensors, now);
        }
        Ok(self.evictor.ask(target, pod, (asked, intent.is_certain), choice.cause, choice.grace, now))
    }

    /// Ends the processes, and for a disk removes what they leave.
    fn end_processes(
        &mut self,
        target: Target,
        pod: Option<PodUid>,
        choice: &Choice,
        sensors: &Sensors,
    ) -> Result<usize, ActionError> {
        let (cause, now) = (choice.cause, Monotonic::now());
        let Some(uid) = pod.filter(|_| cause.is_for_disk()) else {
            return self.evictor.evict(target, cause, choice.grace, now);
        };
        let workload = target.name.clone();
        let stopped = StoppedPod { uid: uid.clone(), by: TearDown::Runtime, urgent: choice.is_hard };
        let count = self.evictor.stop_pod(target, stopped, cause, orderly(choice), now)?;
        self.pending.expect((&uid, TearDown::Runtime), &workload, sensors, now);
        Ok(count)
    }
}

/// Returns the grace period of an eviction for a disk. A disk does not fill within a second, so an orderly exit is affordable in a hard one too.
fn orderly(choice: &Choice) -> Duration {
    if choice.is_hard { IMMEDIATE_GRACE } else { choice.grace }
}

/// Returns whether a failure is worth a report of its own. The decider reports what is put off for a threshold.
fn is_reported(error: &ActionError, choice: &Choice) -> bool {
    match error {
        ActionError::Gone | ActionError::Critical => false,
        ActionError::PutOff(_) => matches!(choice.place, Place::Limit(_)),
        ActionError::Refused { .. } | ActionError::FrozenFromAbove { .. } | ActionError::StillAlive { .. } => true,
    }
}

/// Returns the first step of an eviction.
fn action(workload: &Workload, choice: &Choice) -> Action {
    let is_stopped = choice.cause.is_for_disk() && workload.kind.pod_uid().is_some();
    match choice.route {
        Route::Requested { .. } if matches!(choice.cause, Cause::Signal(_)) => Action::Ask,
        _ if choice.grace.is_zero() && !is_stopped => Action::Kill,
        _ => Action::Term,
    }
}
