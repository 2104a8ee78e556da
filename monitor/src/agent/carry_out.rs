//! Carries out one eviction: through the runtime, by signals, or through the API server.

use crate::actions::{ActionError, FreezeRecord, Target};
use crate::cluster::Intent;
use crate::config::Mode;
use crate::eviction::decider::{Choice, Place, Route};
use crate::eviction::evicted::{Cause, IMMEDIATE_GRACE};
use crate::report::eviction_report::Action;
use crate::report::record::Record;
use crate::units::{CgroupId, Monotonic};
use crate::workloads::{PodUid, Workload};

use super::Agent;
use super::evictions::Why;
use super::turn::{Started, Turn};

impl Agent {
    /// Starts the eviction; in observe mode only records it.
    pub(super) fn carry_out(&mut self, choice: &Choice, turn: &Turn) -> Result<Started, ActionError> {
        let id = self.cgroup_at(choice.place, turn).ok_or(ActionError::Gone)?;
        if self.config.mode == Mode::Observe {
            return Ok(Started { processes: 0, action: Action::DryRun, at: Monotonic::now() });
        }
        let tracked = self.sensors.workloads.tree().find(id).ok_or(ActionError::Gone)?;
        let action = action(tracked.workload(), choice);
        let pod = tracked.workload().kind.pod_uid().cloned();
        let record = FreezeRecord::beside(&self.config.lock_file);
        let hierarchy = self.sensors.workloads.tree().hierarchy();
        let target = Target::new(tracked, hierarchy, &self.config.proc_root)?.recorded_in(record);
        let processes = match choice.route {
            Route::Local => self.end_processes(target, pod, choice)?,
            Route::Unlisted => {
                if let Some(uid) = &pod {
                    self.reporter.report(&Record::PodUnknown { pod_uid: &uid.0 }, Monotonic::now());
                }
                self.end_processes(target, pod, choice)?
            }
            Route::Reported => self.end_and_report(target, pod, choice, turn)?,
            Route::Requested { .. } => self.request_eviction(target, pod, choice, turn)?,
        };
        Ok(Started { processes, action, at: Monotonic::now() })
    }

    fn cgroup_at(&self, place: Place, turn: &Turn) -> Option<CgroupId> {
        match place {
            Place::Ranked(place) => self.decision.ranking().get(place).map(|ranked| ranked.candidate.workload.id),
            Place::Limit(place) => turn.above.get(place).map(|above| above.id),
        }
    }

    /// Ends the processes and reports the eviction to the API server. The intent is written to the ledger before the
    /// pod is touched. If the agent dies in between, the next agent finishes the eviction.
    fn end_and_report(
        &mut self,
        target: Target,
        pod: Option<PodUid>,
        choice: &Choice,
        turn: &Turn,
    ) -> Result<usize, ActionError> {
        let Some(intent) = self.intent_of(pod.as_ref(), choice, turn) else {
            return self.end_processes(target, pod, choice);
        };
        let is_noted = self.note_intent(&intent);
        let ended = self.end_processes(target, pod, choice);
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

    fn request_eviction(
        &mut self,
        target: Target,
        pod: Option<PodUid>,
        choice: &Choice,
        turn: &Turn,
    ) -> Result<usize, ActionError> {
        let Some(intent) = self.intent_of(pod.as_ref(), choice, turn) else {
            return Err(ActionError::PutOff("the API server no longer lists this pod".to_owned()));
        };
        let (insists, workload) = (intent.is_certain, target.name.clone());
        let asked = self.ask_api_server(&intent).map_err(ActionError::PutOff)?;
        let now = Monotonic::now();
        if let Some(uid) = pod.as_ref().filter(|_| choice.cause.is_for_disk()) {
            self.expect_back(uid, &workload, now);
        }
        Ok(self.actions.evictor.ask(target, pod, (asked, insists), choice.cause, choice.grace, now))
    }

    fn intent_of(&self, pod: Option<&PodUid>, choice: &Choice, turn: &Turn) -> Option<Intent> {
        self.intent(pod?, choice, &self.why(choice, turn)?)
    }

    /// Returns the facts from which the eviction message is composed.
    fn why<'t>(&self, choice: &Choice, turn: &'t Turn) -> Option<Why<'t>> {
        match choice.place {
            Place::Ranked(place) => {
                let met = self.decision.acted_on()?.clone();
                Some(Why::Threshold(Box::new((met, self.decision.ranking().get(place)?.clone()))))
            }
            Place::Limit(place) => turn.above.get(place).map(Why::Limit),
        }
    }

    /// Ends the processes through the runtime if the eviction is for a disk, else by signals.
    fn end_processes(&mut self, target: Target, pod: Option<PodUid>, choice: &Choice) -> Result<usize, ActionError> {
        let (cause, now) = (choice.cause, Monotonic::now());
        let Some(uid) = pod.filter(|_| cause.is_for_disk()) else {
            return self.actions.evictor.start(target, cause, choice.grace, now);
        };
        // A disk does not fill within a second, so an orderly exit is affordable in a hard eviction too.
        let grace = if choice.is_hard { IMMEDIATE_GRACE } else { choice.grace };
        let workload = target.name.clone();
        let started = self.actions.evictor.stop_pod(target, (uid.clone(), choice.is_hard), cause, grace, now);
        if started.is_ok() {
            self.expect_back(&uid, &workload, now);
        }
        started
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
