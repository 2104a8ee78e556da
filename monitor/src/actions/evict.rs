//! Evictions under way: SIGTERM, grace period, SIGKILL, gone.

use std::time::Duration;

use crate::config::{CgroupId, EvictionLimits, Signal};
use crate::eviction::budget::{Budget, Refusal};
use crate::node::Monotonic;

use super::release::Releaser;
use super::{ActionError, Target};

/// One eviction under way.
#[derive(Debug)]
struct Running {
    target: Target,
    signal: Signal,
    stage: Stage,
    started: Monotonic,
    /// When its grace period was over and SIGKILL followed.
    killed: Option<Monotonic>,
    /// When it was last killed once more.
    again: Option<Monotonic>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// SIGTERM was sent; SIGKILL follows at the time given.
    Terminating { until: Monotonic },
    /// SIGKILL was sent at the time given.
    Dying { since: Monotonic },
}

/// An eviction that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The workload.
    pub name: String,
    /// Its cgroup.
    pub id: CgroupId,
    /// For which signal it was evicted.
    pub signal: Signal,
    /// When SIGKILL followed, where it outlived its grace period.
    pub killed: Option<Monotonic>,
    /// From the first signal to the end.
    pub took: Duration,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an eviction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No process is left.
    Gone,
    /// It did not work, and why; the next candidate is to be tried.
    Failed(String),
}

/// Carries evictions out and keeps track of them.
#[derive(Debug)]
pub struct Evictor {
    running: Vec<Running>,
    failed: Vec<(CgroupId, Monotonic)>,
    budget: Budget,
    releaser: Releaser,
}

/// How long a workload that could not be evicted is left out of the candidates.
const FAILED_FOR: Duration = Duration::from_secs(30);
/// How often a dying workload is killed once more where processes are killed one by one: the kernel lists a process a moment after it was
/// forked.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// How often a dying workload is looked at.
const POLL: Duration = Duration::from_millis(5);

impl Evictor {
    /// Nothing under way.
    #[must_use]
    pub fn new(releaser: Releaser) -> Self {
        Self { running: Vec::new(), failed: Vec::new(), budget: Budget::default(), releaser }
    }

    /// Whether an eviction may start now. A hard one never waits for the grace period of another, only for processes that have
    /// been killed already and whose memory is on its way back.
    ///
    /// # Errors
    /// Why not, and for how long.
    pub fn may_start(&self, hard: bool, limits: &EvictionLimits, now: Monotonic) -> Result<(), Refusal> {
        let in_the_way = |running: &Running| matches!(running.stage, Stage::Dying { .. }) || !hard;
        if self.running.iter().any(in_the_way) {
            return Err(Refusal::CoolDown(self.next_poll(now).unwrap_or(POLL)));
        }
        self.budget.check(limits, now)
    }

    /// Whether `id` is worth trying: it did not just fail, and is not on its way out already, unless a hard threshold cuts its
    /// grace period short.
    #[must_use]
    pub fn is_candidate(&self, id: CgroupId, hard: bool, now: Monotonic) -> bool {
        let failed = self.failed.iter().any(|(failed, at)| *failed == id && now.since(*at) < FAILED_FOR);
        let leaving = self.running.iter().any(|running| running.target.id == id);
        !failed && (hard || !leaving)
    }

    /// Starts to evict `target`: SIGKILL at once, or SIGTERM when it is given a grace period. Returns how many processes
    /// were signalled.
    ///
    /// # Errors
    /// When nothing could be signalled; the target is then left out for a while.
    pub fn start(
        &mut self,
        target: Target,
        signal: Signal,
        grace: Duration,
        now: Monotonic,
    ) -> Result<usize, ActionError> {
        let signalled = if grace.is_zero() { target.kill() } else { target.terminate() };
        let pids = signalled.inspect_err(|error| {
            if !matches!(error, ActionError::Gone) {
                self.failed.push((target.id, now));
            }
        })?;
        let stage =
            if grace.is_zero() { Stage::Dying { since: now } } else { Stage::Terminating { until: now.after(grace) } };
        let count = pids.len();
        if grace.is_zero() {
            self.releaser.release(pids);
        }
        let earlier = self.running.iter().position(|running| running.target.id == target.id);
        let started = earlier.map_or(now, |index| self.running.swap_remove(index).started);
        self.running.push(Running { target, signal, stage, started, killed: None, again: None });
        Ok(count)
    }

    /// Looks at those under way: kills what outlived its grace period, and returns what ended.
    pub fn poll(&mut self, limits: &EvictionLimits, now: Monotonic) -> Vec<Ended> {
        self.failed.retain(|(_, at)| now.since(*at) < FAILED_FOR);
        let mut ended = Vec::new();
        for mut running in std::mem::take(&mut self.running) {
            match self.advance(&mut running, limits, now) {
                None => self.running.push(running),
                Some(outcome) => {
                    match outcome {
                        Outcome::Gone => self.budget.spend(now),
                        Outcome::Failed(_) => self.failed.push((running.target.id, now)),
                    }
                    let took = now.since(running.started);
                    let Running { target, signal, killed, .. } = running;
                    ended.push(Ended { name: target.name, id: target.id, signal, killed, took, outcome });
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

    /// When to poll next; `None` when nothing is under way.
    #[must_use]
    pub fn next_poll(&self, now: Monotonic) -> Option<Duration> {
        let wait = |running: &Running| match running.stage {
            Stage::Dying { .. } => POLL,
            // The workload may well end before its grace period does.
            Stage::Terminating { until } => until.since(now).clamp(POLL, 20 * POLL),
        };
        self.running.iter().map(wait).min()
    }

    fn advance(&self, running: &mut Running, limits: &EvictionLimits, now: Monotonic) -> Option<Outcome> {
        if running.target.is_gone() {
            return Some(Outcome::Gone);
        }
        match running.stage {
            Stage::Terminating { until } if now >= until => match running.target.kill() {
                Ok(pids) => {
                    self.releaser.release(pids);
                    running.stage = Stage::Dying { since: now };
                    running.killed = Some(now);
                    None
                }
                Err(ActionError::Gone) => Some(Outcome::Gone),
                Err(error) => Some(Outcome::Failed(error.to_string())),
            },
            Stage::Dying { since } if now.since(since) >= limits.kill_timeout => Some(Outcome::Failed(format!(
                "processes are still there {:.1} s after SIGKILL",
                now.since(since).as_secs_f64()
            ))),
            Stage::Dying { since } if !running.target.is_killed_at_once() => {
                if now.since(running.again.unwrap_or(since)) >= KILL_AGAIN {
                    running.again = Some(now);
                    // What is left of it is killed the next time, or said when its time is over.
                    let _left = running.target.kill();
                }
                None
            }
            Stage::Terminating { .. } | Stage::Dying { .. } => None,
        }
    }
}
