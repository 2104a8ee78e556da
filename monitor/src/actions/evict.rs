//! Evictions under way: SIGTERM, grace period, SIGKILL, gone; or by the runtime, which removes what is left of a pod; or by the kubelet,
//! once the API server grants it.

mod advance;
mod running;

use std::time::Duration;

use crate::config::EvictionLimits;
use crate::eviction::budget::{Budget, Refusal};
use crate::eviction::evicted::Cause;
use crate::units::{CgroupId, Monotonic};
use crate::workloads::PodUid;

use super::release::Releaser;
use super::stop::{Asked, PodStopper};
use super::{ActionError, Target};

use self::running::{Running, Stage, StoppedPod, not_by_the_runtime};

/// An eviction that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// The workload.
    pub name: String,
    /// Its cgroup.
    pub id: CgroupId,
    /// What it was evicted for.
    pub cause: Cause,
    /// When SIGKILL followed, where it outlived its grace period.
    pub killed: Option<Monotonic>,
    /// From the first signal to the end.
    pub took: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// What did not go as it should have: the runtime was late or refused, or its disk was not given back.
    pub note: Option<String>,
}

/// How an eviction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No process is left.
    Gone,
    /// It did not work, and why; the next candidate is to be tried.
    Failed(String),
    /// The API server, or a disruption budget, does not allow it: nothing was touched, and the next candidate is to be tried.
    Refused(String),
}

/// Carries evictions out and keeps track of them.
#[derive(Debug)]
pub struct Evictor {
    running: Vec<Running>,
    /// Who is left out, and until when.
    failed: Vec<(CgroupId, Monotonic)>,
    /// The same of soft thresholds only: what a disruption budget says, or an API server that does not answer, exempts nobody from a hard one.
    refused: Vec<(CgroupId, Monotonic)>,
    budget: Budget,
    releaser: Releaser,
    stopper: Option<Box<dyn PodStopper>>,
}

/// How long a workload that could not be evicted is left out of the candidates.
const FAILED_FOR: Duration = Duration::from_secs(30);
/// The same for one whose eviction is not allowed: budgets change when another pod has become ready.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// How often a dying workload is looked at.
const POLL: Duration = Duration::from_millis(5);
/// How often one that takes its time is.
const PATIENT_POLL: Duration = Duration::from_millis(100);
/// How long the API server may take to answer when the pod is ended whatever it says.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take when nothing happens without its consent; whoever asks it gives up before.
const LONG_PATIENCE: Duration = Duration::from_secs(20);

impl Evictor {
    /// Nothing under way.
    #[must_use]
    pub fn new(releaser: Releaser) -> Self {
        Self {
            running: Vec::new(),
            failed: Vec::new(),
            refused: Vec::new(),
            budget: Budget::default(),
            releaser,
            stopper: None,
        }
    }

    /// The same, with a runtime that ends pods.
    #[must_use]
    pub fn with_stopper(self, stopper: Box<dyn PodStopper>) -> Self {
        Self { stopper: Some(stopper), ..self }
    }

    /// Whether an eviction may start now. A hard one never waits for the grace period of another, only for processes that have
    /// been killed already and whose memory is on its way back; and for disk, for another whose disk is.
    ///
    /// # Errors
    /// Why not, and for how long.
    pub fn may_start(
        &self,
        cause: impl Into<Cause>,
        hard: bool,
        limits: &EvictionLimits,
        now: Monotonic,
    ) -> Result<(), Refusal> {
        let for_disk = cause.into().is_for_disk();
        let in_the_way = |running: &Running| match running.stage {
            Stage::Dying { .. } => true,
            Stage::Removing { .. } => !hard || for_disk,
            Stage::Asking { .. } | Stage::Leaving { .. } | Stage::Stopping { .. } | Stage::Terminating { .. } => {
                !hard || for_disk && running.pod.as_ref().is_some_and(|pod| pod.urgent)
            }
        };
        if self.running.iter().any(in_the_way) {
            return Err(Refusal::CoolDown(self.next_poll(now).unwrap_or(POLL)));
        }
        self.budget.check(limits, now)
    }

    /// Whether `id` is worth trying: it did not just fail, and is not on its way out already, unless a hard threshold cuts its
    /// grace period short.
    #[must_use]
    pub fn is_candidate(&self, id: CgroupId, hard: bool, now: Monotonic) -> bool {
        let is_among =
            |left_out: &[(CgroupId, Monotonic)]| left_out.iter().any(|(of, until)| *of == id && now < *until);
        let leaving = self.running.iter().any(|running| running.target.id == id);
        !is_among(&self.failed) && (hard || !leaving && !is_among(&self.refused))
    }

    /// Starts to evict `target`: SIGKILL at once, or SIGTERM when it is given a grace period. Returns how many processes
    /// were signalled.
    ///
    /// # Errors
    /// When nothing could be signalled; the target is then left out for a while.
    pub fn start(
        &mut self,
        target: Target,
        cause: impl Into<Cause>,
        grace: Duration,
        now: Monotonic,
    ) -> Result<usize, ActionError> {
        self.signal(target, cause.into(), grace, None, None, now)
    }

    /// Starts to evict a pod that is to give back its disk: by the runtime, which kills it when its grace period is over and removes
    /// what is left. Where the runtime cannot be asked, as [`Self::start`] does. Returns how many processes it has.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn stop_pod(
        &mut self,
        target: Target,
        pod: (PodUid, bool),
        cause: impl Into<Cause>,
        grace: Duration,
        now: Monotonic,
    ) -> Result<usize, ActionError> {
        let cause = cause.into();
        let (uid, urgent) = pod;
        let Some(stopper) = &self.stopper else { return self.signal(target, cause, grace, None, None, now) };
        let asked = stopper.stop(&uid, grace);
        let pod = Some(StoppedPod { uid, urgent });
        match asked {
            Ok(asked) => {
                let count = target.processes().map_or(0, |pids| pids.len());
                self.run(target, cause, Stage::Stopping { asked, until: now.after(grace) }, pod, None, now);
                Ok(count)
            }
            Err(reason) => self.signal(target, cause, grace, pod, Some(not_by_the_runtime(&reason)), now),
        }
    }

    /// Starts to evict a pod by the API server, which was `asked`: once that grants it the kubelet stops the pod, and is helped when it is
    /// late. `insists`: without an answer the pod is sent SIGTERM all the same; else it stays. Returns how many processes it has.
    pub fn ask(
        &mut self,
        target: Target,
        pod: Option<PodUid>,
        (asked, insists): (Asked, bool),
        cause: impl Into<Cause>,
        grace: Duration,
        now: Monotonic,
    ) -> usize {
        let cause = cause.into();
        let count = target.processes().map_or(0, |pids| pids.len());
        let until = now.after(if insists { PATIENCE } else { LONG_PATIENCE });
        // What a pod that goes for memory leaves on the disk is the kubelet's business.
        let pod = pod.filter(|_| cause.is_for_disk()).map(|uid| StoppedPod { uid, urgent: false });
        self.run(target, cause, Stage::Asking { asked, until, grace, insists }, pod, None, now);
        count
    }

    /// Whether it waits for what the API server says.
    #[must_use]
    pub fn is_asking(&self, id: CgroupId) -> bool {
        let is_it = |running: &Running| running.target.id == id && matches!(running.stage, Stage::Asking { .. });
        self.running.iter().any(is_it)
    }

    fn signal(
        &mut self,
        target: Target,
        cause: Cause,
        grace: Duration,
        pod: Option<StoppedPod>,
        note: Option<String>,
        now: Monotonic,
    ) -> Result<usize, ActionError> {
        let signalled = if grace.is_zero() { target.kill() } else { target.terminate() };
        let pids = signalled.inspect_err(|error| {
            if !matches!(error, ActionError::Gone) {
                self.failed.push((target.id, now.after(FAILED_FOR)));
            }
        })?;
        let stage =
            if grace.is_zero() { Stage::Dying { since: now } } else { Stage::Terminating { until: now.after(grace) } };
        let count = pids.len();
        if grace.is_zero() {
            self.releaser.release(pids);
        }
        self.run(target, cause, stage, pod, note, now);
        Ok(count)
    }

    /// One that is under way already goes on as the same.
    fn run(
        &mut self,
        target: Target,
        cause: Cause,
        stage: Stage,
        pod: Option<StoppedPod>,
        note: Option<String>,
        now: Monotonic,
    ) {
        let earlier = self.running.iter().position(|running| running.target.id == target.id);
        let earlier = earlier.map(|index| self.running.swap_remove(index));
        let started = earlier.as_ref().map_or(now, |earlier| earlier.started);
        // Whatever it goes for now, its disk is wanted back as well.
        let pod = pod.or_else(|| earlier.and_then(|earlier| earlier.pod));
        self.running.push(Running { target, cause, stage, started, killed: None, again: None, pod, note });
    }

    /// Looks at those under way: kills what outlived its grace period, and returns what ended.
    pub fn poll(&mut self, limits: &EvictionLimits, now: Monotonic) -> Vec<Ended> {
        self.failed.retain(|(_, until)| now < *until);
        self.refused.retain(|(_, until)| now < *until);
        let mut ended = Vec::new();
        for mut running in std::mem::take(&mut self.running) {
            match self.advance(&mut running, limits, now) {
                None => self.running.push(running),
                Some(outcome) => {
                    match outcome {
                        Outcome::Gone => self.budget.spend(now),
                        Outcome::Refused(_) => self.refused.push((running.target.id, now.after(REFUSED_FOR))),
                        // Not answered: nothing was tried on the processes.
                        Outcome::Failed(_) if matches!(running.stage, Stage::Asking { insists: false, .. }) => {
                            self.refused.push((running.target.id, now.after(FAILED_FOR)));
                        }
                        Outcome::Failed(_) => self.failed.push((running.target.id, now.after(FAILED_FOR))),
                    }
                    let took = now.since(running.started);
                    let Running { target, cause, killed, note, .. } = running;
                    ended.push(Ended { name: target.name, id: target.id, cause, killed, took, outcome, note });
                }
            }
        }
        ended
    }

    /// Workloads that were sent SIGTERM and are inside their grace period.
    pub fn in_grace(&self) -> impl Iterator<Item = &str> {
        let in_grace = |running: &&Running| matches!(running.stage, Stage::Terminating { .. });
        self.running.iter().filter(in_grace).map(|running| running.target.name.as_str())
    }

    /// Nobody is to be killed any more: those inside their grace period are left to what they make of SIGTERM, and those that the API server
    /// was asked for to what comes of that. Whoever was sent SIGKILL, or is in the runtime's hands, cannot be called back.
    pub fn stand_down(&mut self) -> Vec<String> {
        let is_spared = |running: &mut Running| {
            matches!(running.stage, Stage::Asking { .. } | Stage::Leaving { .. } | Stage::Terminating { .. })
        };
        self.running.extract_if(.., is_spared).map(|running| running.target.name).collect()
    }

    /// When to poll next; `None` when nothing is under way.
    #[must_use]
    pub fn next_poll(&self, now: Monotonic) -> Option<Duration> {
        let wait = |running: &Running| match running.stage {
            Stage::Dying { .. } => POLL,
            // The workload may well end before its grace period does.
            Stage::Stopping { until, .. } | Stage::Leaving { until } | Stage::Terminating { until } => {
                until.since(now).clamp(POLL, PATIENT_POLL)
            }
            // Its answer wakes the loop.
            Stage::Asking { .. } | Stage::Removing { .. } => PATIENT_POLL,
        };
        self.running.iter().map(wait).min()
    }
}
