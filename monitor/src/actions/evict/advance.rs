//! Transitions between the stages of an eviction.

use std::time::Duration;

use crate::config::EvictionLimits;
use crate::runtime::TearDown;
use crate::units::Monotonic;

use super::moving::Moving;
use super::running::{Running, Stage, no_answer, not_by_the_runtime, not_removed, removal};
use super::{ANSWER_LIMIT, CONSENT_LIMIT, Evictor, Outcome};
use crate::actions::ActionError;
use crate::actions::stop::NotDone;

/// Interval of repeated kills where processes are killed one by one: the kernel lists a process only a moment after the
/// fork.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// How long after the grace period the runtime may take to send SIGKILL.
const LATE: Duration = Duration::from_secs(2);

impl Evictor {
    /// Performs the next stage of the eviction if it is due. Returns the outcome once the eviction has ended.
    pub(super) fn advance(&self, running: &mut Running, limits: &EvictionLimits, now: Monotonic) -> Option<Outcome> {
        if let Stage::Removing { asked, since } = &running.stage {
            let by = running.pod.as_ref().map_or(TearDown::Runtime, |pod| pod.by);
            let left = removal(asked.answer(), now.since(*since), by)?;
            running.note = running.note.take().or(left);
            return Some(Outcome::Gone);
        }
        if running.target.is_gone() {
            return self.remove_rest(running, now);
        }
        match running.stage {
            Stage::Telling { ref asked, until, grace } => match asked.answer() {
                None if now < until => None,
                answer => {
                    let problem = match answer {
                        Some(Ok(())) => None,
                        Some(Err(
                            NotDone::Failed(reason) | NotDone::Refused(reason) | NotDone::Begun { reason, .. },
                        )) => Some(reason),
                        Some(Err(NotDone::Critical)) | None => Some(no_answer(ANSWER_LIMIT)),
                    };
                    running.note = problem.map(|reason| format!("{reason}; its processes were signalled all the same"));
                    self.terminate(running, now.after(grace), now)
                }
            },
            Stage::Asking { ref asked, until, grace, insists } => match asked.answer() {
                Some(Ok(())) => {
                    running.stage = Stage::Leaving { until: now.after(grace) };
                    None
                }
                Some(Err(NotDone::Refused(reason))) => Some(Outcome::Refused(reason)),
                Some(Err(NotDone::Begun { reason, is_explicit })) => {
                    running.stage = Stage::Moving(Moving::begin(reason, is_explicit, now));
                    None
                }
                Some(Err(NotDone::Critical)) => Some(Outcome::Refused("it must not be touched".to_owned())),
                Some(Err(NotDone::Failed(reason))) if !insists => Some(Outcome::Failed(reason)),
                None if now < until => None,
                None if !insists => Some(Outcome::Failed(no_answer(CONSENT_LIMIT))),
                answer => {
                    let reason = match answer {
                        Some(Err(NotDone::Failed(reason))) => reason,
                        _ => no_answer(ANSWER_LIMIT),
                    };
                    running.note = Some(format!("{reason}; its processes were signalled instead"));
                    // The kubelet may know of no eviction.
                    if let Some(pod) = &mut running.pod {
                        pod.by = TearDown::Runtime;
                    }
                    self.terminate(running, now.after(grace), now)
                }
            },
            Stage::Moving(ref moving) => moving.failure(now).map(Outcome::Refused),
            // Some pods have no grace period, and the kubelet needs a moment even then.
            Stage::Leaving { until } if now >= until.after(LATE) => {
                running.note = Some(format!(
                    "the kubelet had not stopped it {:.1} s after its grace period: killed",
                    now.since(until).as_secs_f64()
                ));
                self.kill_late(running, now)
            }
            Stage::Stopping { ref asked, until } => match asked.answer() {
                // Only the runtime knew that the pod is critical. Nothing was touched.
                Some(Err(NotDone::Critical)) => {
                    Some(Outcome::Failed("the runtime says that it is a static pod".to_owned()))
                }
                Some(Err(NotDone::Failed(reason) | NotDone::Refused(reason) | NotDone::Begun { reason, .. })) => {
                    running.note = Some(not_by_the_runtime(&reason));
                    self.terminate(running, until, now)
                }
                // Stopped processes take a moment to exit. Processes that start meanwhile are killed.
                Some(Ok(())) => {
                    running.stage = Stage::Terminating { until: now.after(LATE) };
                    None
                }
                None if now >= until.after(LATE) => {
                    running.note = Some(format!(
                        "the runtime had not stopped it {:.1} s after its grace period: killed",
                        now.since(until).as_secs_f64()
                    ));
                    self.kill_late(running, now)
                }
                None => None,
            },
            Stage::Terminating { until } if now >= until => self.kill_late(running, now),
            Stage::Dying { since, ref mut progress, is_repeated } => {
                let left = || running.target.count_left();
                if progress.is_stuck(limits.kill_timeout, now, left) {
                    let seconds = now.since(since).as_secs_f64();
                    return Some(Outcome::Failed(format!("processes are still there {seconds:.1} s after SIGKILL")));
                }
                if is_repeated && now.since(running.again.unwrap_or(since)) >= KILL_AGAIN {
                    running.again = Some(now);
                    // Remaining processes are killed at the next poll, or reported at the time limit.
                    let _left = running.target.kill(&self.kills);
                }
                None
            }
            Stage::Leaving { .. } | Stage::Terminating { .. } | Stage::Removing { .. } => None,
        }
    }

    /// Kills a workload that has outlived its grace period.
    fn kill_late(&self, running: &mut Running, now: Monotonic) -> Option<Outcome> {
        match self.kill(&running.target, now) {
            Ok((_, stage)) => {
                running.stage = stage;
                running.killed = Some(now);
                None
            }
            Err(ActionError::Gone) => self.remove_rest(running, now),
            Err(error) => Some(Outcome::Failed(error.to_string())),
        }
    }

    /// Sends SIGTERM, with the rest of the grace period.
    fn terminate(&self, running: &mut Running, until: Monotonic, now: Monotonic) -> Option<Outcome> {
        // A frozen process does not act on SIGTERM.
        if now >= until || running.target.is_frozen() {
            return self.kill_late(running, now);
        }
        match running.target.terminate() {
            Ok(_) => {
                running.stage = Stage::Terminating { until };
                None
            }
            Err(ActionError::Gone) => self.remove_rest(running, now),
            Err(error) => Some(Outcome::Failed(error.to_string())),
        }
    }

    /// Handles the exit of the last process. The removal of the pod's disk usage takes longer.
    fn remove_rest(&self, running: &mut Running, now: Monotonic) -> Option<Outcome> {
        let (Some(pod), Some(stopper)) = (&running.pod, &self.stopper) else { return Some(Outcome::Gone) };
        match stopper.remove(&pod.uid, pod.by) {
            Ok(asked) => {
                running.stage = Stage::Removing { asked, since: now };
                None
            }
            Err(reason) => {
                running.note = running.note.take().or(Some(not_removed(&reason)));
                Some(Outcome::Gone)
            }
        }
    }
}
