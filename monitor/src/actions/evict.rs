//! Evictions under way: SIGTERM, grace period, SIGKILL, gone; or by the runtime, which removes what is left of a pod; or by the kubelet,
//! once the API server grants it.

mod advance;
mod running;

use std::time::Duration;

use crate::config::EvictionLimits;
use crate::eviction::decider::{EvictionEnd, EvictionStage, UnderWay};
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
    /// The same, as the decider remembers it.
    pub end: EvictionEnd,
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
    releaser: Releaser,
    stopper: Option<Box<dyn PodStopper>>,
}

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
        Self { running: Vec::new(), releaser, stopper: None }
    }

    /// The same, with a runtime that ends pods.
    #[must_use]
    pub fn with_stopper(self, stopper: Box<dyn PodStopper>) -> Self {
        Self { stopper: Some(stopper), ..self }
    }

    /// The evictions under way, as far as the decider looks at them.
    pub fn under_way(&self) -> impl Iterator<Item = UnderWay> {
        self.running.iter().map(|running| UnderWay {
            id: running.target.id,
            stage: match running.stage {
                Stage::Dying { .. } => EvictionStage::Dying,
                Stage::Removing { .. } => EvictionStage::Removing,
                Stage::Asking { .. } | Stage::Leaving { .. } | Stage::Stopping { .. } | Stage::Terminating { .. } => {
                    EvictionStage::Leaving
                }
            },
            is_urgent: running.pod.as_ref().is_some_and(|pod| pod.urgent),
        })
    }

    /// Starts to evict `target`: SIGKILL at once, or SIGTERM when it is given a grace period. Returns how many processes
    /// were signalled.
    ///
    /// # Errors
    /// When nothing could be signalled.
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
        let pids = signalled?;
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
        let mut ended = Vec::new();
        for mut running in std::mem::take(&mut self.running) {
            match self.advance(&mut running, limits, now) {
                None => self.running.push(running),
                Some(outcome) => {
                    let end = match outcome {
                        Outcome::Gone => EvictionEnd::Gone,
                        Outcome::Refused(_) => EvictionEnd::Refused,
                        Outcome::Failed(_) if matches!(running.stage, Stage::Asking { insists: false, .. }) => {
                            EvictionEnd::Unanswered
                        }
                        Outcome::Failed(_) => EvictionEnd::Failed,
                    };
                    let took = now.since(running.started);
                    let Running { target, cause, killed, note, .. } = running;
                    ended.push(Ended { name: target.name, id: target.id, cause, killed, took, outcome, end, note });
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
