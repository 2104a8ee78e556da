//! How a workload that has to go is ended: a pod whose disk is wanted back by its runtime, everybody else by signals.

use std::time::Duration;

use crate::actions::{ActionError, Target, oom_score};
use crate::eviction::evicted::{Cause, IMMEDIATE_GRACE_SECONDS};
use crate::report::eviction_report::Action;
use crate::units::Monotonic;
use crate::workloads::Tracked;
use crate::workloads::{PodUid, Workload};

use super::Agent;
use super::evictions::{Way, Why};

/// A disk does not fill within a second as memory does: long enough to end in an orderly way.
pub(super) const AT_ONCE: Duration = Duration::from_secs(IMMEDIATE_GRACE_SECONDS.unsigned_abs());

/// What is done first with a workload that goes, as logs and incidents call it.
pub(super) fn action(workload: &Workload, cause: Cause, grace: Duration) -> Action {
    let is_stopped = cause.is_for_disk() && workload.kind.pod_uid().is_some();
    if grace.is_zero() && !is_stopped { Action::Kill } else { Action::Term }
}

impl Agent {
    /// Starts to evict. The `grace` period of a soft threshold is at most what the pod itself asks for, where that is known. What the API
    /// server is to hear of is written down before the pod is touched: whoever ends in between, the next agent goes on.
    pub(super) fn start_eviction(
        &mut self,
        target: Target,
        pod: Option<PodUid>,
        why: Why<'_>,
        grace: Duration,
    ) -> Result<usize, ActionError> {
        let (cause, hard) = (why.cause(), why.is_hard());
        let own = pod.as_ref().and_then(|uid| self.own_grace(uid));
        let grace = if hard { grace } else { own.map_or(grace, |own| self.config.policy.soft_grace(Some(own))) };
        match self.way(pod.as_ref(), why, grace) {
            Way::Alone => self.end_processes(target, pod, cause, hard, grace),
            Way::Beside(intent) => {
                let is_noted = self.note_intent(&intent);
                let ended = self.end_processes(target, pod, cause, hard, grace);
                match &ended {
                    Ok(_) if is_noted => {
                        self.hand_over(*intent);
                    }
                    // Nothing was touched.
                    Err(_) if is_noted => self.cluster.ledger().end(&intent),
                    Ok(_) | Err(_) => {}
                }
                ended
            }
            Way::Asking(intent) => {
                let (insists, workload) = (intent.is_certain, target.name.clone());
                let asked = self.ask_api_server(&intent).map_err(ActionError::PutOff)?;
                let now = Monotonic::now();
                if let Some(uid) = pod.as_ref().filter(|_| cause.is_for_disk()) {
                    self.expect_back(uid, &workload, now);
                }
                Ok(self.actions.evictor.ask(target, pod, (asked, insists), cause, grace, now))
            }
            Way::Later(reason) => Err(ActionError::PutOff(reason)),
            Way::Never => Err(ActionError::Critical),
        }
    }

    /// By its runtime, or by signals.
    fn end_processes(
        &mut self,
        target: Target,
        pod: Option<PodUid>,
        cause: Cause,
        hard: bool,
        grace: Duration,
    ) -> Result<usize, ActionError> {
        let now = Monotonic::now();
        match pod.filter(|_| cause.is_for_disk()) {
            Some(uid) => {
                let grace = if hard { AT_ONCE } else { grace };
                let workload = target.name.clone();
                let started = self.actions.evictor.stop_pod(target, (uid.clone(), hard), cause, grace, now);
                if started.is_ok() {
                    self.expect_back(&uid, &workload, now);
                }
                started
            }
            None => self.actions.evictor.start(target, cause, grace, now),
        }
    }

    /// How long a pod itself asks to be given, in seconds; its runtime knows it too where the kubelet has noted it.
    fn own_grace(&self, uid: &PodUid) -> Option<i64> {
        let asked_for = self.sensors.local.specs().find(uid).and_then(|pod| pod.spec.termination_grace_period_seconds);
        let noted = || i64::try_from(self.runtime.view().snapshot?.grace_of(uid)?.as_secs()).ok();
        asked_for.or_else(noted)
    }

    /// Whether somebody says that the node cannot do without it: the kubelet by its mark, or the pod itself.
    pub(super) fn is_critical(&self, tracked: &Tracked) -> bool {
        tracked.workload().pod.as_ref().is_some_and(|pod| pod.is_critical())
            || oom_score::is_node_critical(tracked, &self.config.proc_root)
    }
}
