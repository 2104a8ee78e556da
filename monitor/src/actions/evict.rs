//! Evictions under way: by SIGTERM, grace period and SIGKILL, once the API server knows of the eviction if it is for a disk; by the runtime,
//! which also removes the pod; or by the kubelet, once the API server grants the eviction.

mod advance;
mod moving;
mod running;

use std::time::Duration;

use crate::config::EvictionLimits;
use crate::eviction::decider::{EvictionEnd, EvictionStage, UnderWay};
use crate::eviction::evicted::Cause;
use crate::runtime::TearDown;
use crate::units::{CgroupId, Monotonic};
use crate::workloads::PodUid;

use super::action_error::ActionError;
use super::kill::{Killed, Target};
use super::kill_writer::KillWriter;
use super::release::Releaser;
use super::stop::{Asked, PodStopper};

pub use self::running::StoppedPod;
use self::running::{Progress, Running, Stage, not_by_the_runtime};

#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    pub name: String,
    pub id: CgroupId,
    pub cause: Cause,
    /// When SIGKILL followed, if the workload outlived its grace period.
    pub killed: Option<Monotonic>,
    /// Duration from the first signal to the end.
    pub took: Duration,
    pub outcome: Outcome,
    /// The end as the decider sees it.
    pub end: EvictionEnd,
    /// A problem: the runtime was late or refused, or the disk usage was not freed.
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No process is left.
    Gone,
    /// The eviction failed, for this reason; the decider tries the next candidate.
    Failed(String),
    /// The API server or a disruption budget refuses. Nothing was touched; the decider tries the next candidate.
    Refused(String),
}

/// An eviction that has not ended, with what reports say about it.
#[derive(Debug, Clone, Copy)]
pub struct Ongoing {
    pub under_way: UnderWay,
    pub cause: Cause,
    pub started: Monotonic,
}

/// Carries evictions out and keeps track of them.
#[derive(Debug)]
pub struct Evictor {
    running: Vec<Running>,
    kills: KillWriter,
    releaser: Releaser,
    stopper: Option<Box<dyn PodStopper>>,
}

/// Poll interval of a dying workload.
const POLL: Duration = Duration::from_millis(5);
/// Poll interval of a longer stage.
const SLOW_POLL: Duration = Duration::from_millis(100);
/// Poll interval of a pod that another controller moves away, which takes minutes.
const MOVING_POLL: Duration = Duration::from_secs(1);
/// Time limit for the API server's answer if the pod is evicted regardless.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Time limit for the API server's answer if its consent is required. The request itself times out earlier.
const CONSENT_LIMIT: Duration = Duration::from_secs(20);

impl Evictor {
    /// Starts the threads that kill and that release memory.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start() -> std::io::Result<Self> {
        let (kills, releaser) = (KillWriter::start()?, Releaser::start()?);
        Ok(Self { running: Vec::new(), kills, releaser, stopper: None })
    }

    /// Sets the runtime that ends pods.
    #[must_use]
    pub fn with_stopper(self, stopper: Box<dyn PodStopper>) -> Self {
        Self { stopper: Some(stopper), ..self }
    }

    pub fn under_way(&self) -> impl Iterator<Item = UnderWay> {
        self.ongoing().map(|ongoing| ongoing.under_way)
    }

    pub fn ongoing(&self) -> impl Iterator<Item = Ongoing> {
        let under_way = |running: &Running| UnderWay {
            id: running.target.id,
            stage: match running.stage {
                Stage::Dying { .. } => EvictionStage::Dying,
                Stage::Removing { .. } => EvictionStage::Removing,
                Stage::Telling { .. }
                | Stage::Asking { .. }
                | Stage::Moving(_)
                | Stage::Leaving { .. }
                | Stage::Stopping { .. }
                | Stage::Terminating { .. } => EvictionStage::Leaving,
            },
            is_urgent: running.pod.as_ref().is_some_and(|pod| pod.urgent),
        };
        self.running.iter().map(move |running| Ongoing {
            under_way: under_way(running),
            cause: running.cause,
            started: running.started,
        })
    }

    /// Starts to evict `target`: with SIGKILL at once, or with SIGTERM if it has a grace period. Returns the number of
    /// signalled processes.
    ///
    /// # Errors
    /// When no process could be signalled.
    pub fn evict(
        &mut self,
        target: Target,
        cause: impl Into<Cause>,
        grace: Duration,
        now: Monotonic,
    ) -> Result<usize, ActionError> {
        self.signal(target, cause.into(), grace, None, None, now)
    }

    /// Starts to evict a pod for a disk: the runtime kills it after its grace period and removes it. Falls back to [`Self::evict`] if the
    /// runtime cannot be asked. Returns the number of its processes.
    ///
    /// # Errors
    /// As [`Self::evict`].
    pub fn stop_pod(
        &mut self,
        target: Target,
        pod: StoppedPod,
        cause: impl Into<Cause>,
        grace: Duration,
        now: Monotonic,
    ) -> Result<usize, ActionError> {
        let cause = cause.into();
        let Some(stopper) = &self.stopper else { return self.signal(target, cause, grace, None, None, now) };
        let asked = stopper.stop(&pod.uid, grace);
        let pod = Some(pod);
        match asked {
            Ok(asked) => {
                let count = target.processes().map_or(0, |pids| pids.len());
                self.run(target, cause, Stage::Stopping { asked, until: now.after(grace) }, pod, None, now);
                Ok(count)
            }
            Err(reason) => self.signal(target, cause, grace, pod, Some(not_by_the_runtime(&reason)), now),
        }
    }

    /// Starts to evict a pod for a disk that the kubelet tears down. The API server, which was `asked`, is told of the eviction first, and SIGTERM
    /// follows the answer: a kubelet that sees a container or the sandbox end before it knows of the eviction makes them anew. Returns the number
    /// of processes.
    pub fn tell_first(
        &mut self,
        target: Target,
        pod: StoppedPod,
        asked: Asked,
        cause: impl Into<Cause>,
        grace: Duration,
        now: Monotonic,
    ) -> usize {
        let count = target.processes().map_or(0, |pids| pids.len());
        let stage = Stage::Telling { asked, until: now.after(ANSWER_LIMIT), grace };
        self.run(target, cause.into(), stage, Some(pod), None, now);
        count
    }

    /// Starts to evict a pod through the API server, which was `asked`. Once the API server grants it, the kubelet
    /// stops the pod; the agent signals the pod if the kubelet is late. With `insists` the pod gets SIGTERM even
    /// without an answer, otherwise it stays. Returns the number of its processes.
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
        let until = now.after(if insists { ANSWER_LIMIT } else { CONSENT_LIMIT });
        // The kubelet cleans up the disk of a pod that is evicted for memory.
        let pod = pod.filter(|_| cause.is_for_disk());
        let pod = pod.map(|uid| StoppedPod { uid, by: TearDown::Kubelet, urgent: false });
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
        // A frozen process does not act on SIGTERM, so its grace period would be waited for in vain.
        let grace = if !grace.is_zero() && target.is_frozen() { Duration::ZERO } else { grace };
        let (count, stage) = if grace.is_zero() {
            self.kill(&target, now)?
        } else {
            (target.terminate()?.len(), Stage::Terminating { until: now.after(grace) })
        };
        self.run(target, cause, stage, pod, note, now);
        Ok(count)
    }

    /// Kills the workload. Returns the number of processes that exit, and the stage that follows.
    fn kill(&self, target: &Target, now: Monotonic) -> Result<(usize, Stage), ActionError> {
        let Killed { pids, is_repeated } = target.kill(&self.kills)?;
        let count = pids.len();
        self.releaser.release(pids);
        Ok((count, Stage::Dying { since: now, progress: Progress::begin(count, now), is_repeated }))
    }

    /// Tracks an eviction. It replaces an earlier eviction of the same workload, and keeps its start time.
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
        // An eviction for another cause must not cancel the removal that an earlier one needs.
        let pod = pod.or_else(|| earlier.and_then(|earlier| earlier.pod));
        self.running.push(Running { target, cause, stage, started, killed: None, again: None, pod, note });
    }

    /// Polls the evictions: kills workloads that outlived their grace period, and returns the ended evictions.
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

    /// Takes in which of the pods that another controller moves away carry its annotation.
    pub fn note_moving(&mut self, is_marked: impl Fn(&str) -> bool) {
        for running in &mut self.running {
            if let Stage::Moving(moving) = &mut running.stage {
                moving.note(is_marked(&running.target.name));
            }
        }
    }

    /// Returns the workloads inside their grace period after SIGTERM.
    pub fn in_grace(&self) -> impl Iterator<Item = &str> {
        let in_grace = |running: &&Running| matches!(running.stage, Stage::Terminating { .. });
        self.running.iter().filter(in_grace).map(|running| running.target.name.as_str())
    }

    /// Cancels all further kills. Workloads inside their grace period have SIGTERM only, and requests to the API server
    /// take their course. SIGKILL and orders to the runtime cannot be undone.
    pub fn stand_down(&mut self) -> Vec<String> {
        let is_spared = |running: &mut Running| {
            matches!(
                running.stage,
                Stage::Telling { .. }
                    | Stage::Asking { .. }
                    | Stage::Moving(_)
                    | Stage::Leaving { .. }
                    | Stage::Terminating { .. }
            )
        };
        self.running.extract_if(.., is_spared).map(|running| running.target.name).collect()
    }

    /// Returns when to poll next; `None` without evictions.
    pub fn next_poll(&self, now: Monotonic) -> Option<Duration> {
        let wait = |running: &Running| match running.stage {
            Stage::Dying { .. } => POLL,
            // The workload may end before its grace period does.
            Stage::Stopping { until, .. } | Stage::Leaving { until } | Stage::Terminating { until } => {
                until.since(now).clamp(POLL, SLOW_POLL)
            }
            Stage::Moving(_) => MOVING_POLL,
            // The answer itself wakes the loop.
            Stage::Telling { .. } | Stage::Asking { .. } | Stage::Removing { .. } => SLOW_POLL,
        };
        self.running.iter().map(wait).min()
    }
}
