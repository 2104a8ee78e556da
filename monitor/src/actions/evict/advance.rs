//! From one step of an eviction to the next.

use std::time::Duration;

use crate::config::EvictionLimits;
use crate::units::Monotonic;

use super::running::{Running, Stage, no_answer, not_by_the_runtime, not_removed, removal};
use super::{Evictor, LONG_PATIENCE, Outcome, PATIENCE};
use crate::actions::ActionError;
use crate::actions::stop::NotDone;

/// How often a dying workload is killed once more where processes are killed one by one: the kernel lists a process a moment after it was
/// forked.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// How long after the grace period the runtime may take to kill by itself.
const LATE: Duration = Duration::from_secs(2);

impl Evictor {
    /// What comes next in its course, if it is time for it; how it ended, when it has.
    pub(super) fn advance(&self, running: &mut Running, limits: &EvictionLimits, now: Monotonic) -> Option<Outcome> {
        if let Stage::Removing { asked, since } = &running.stage {
            let left = removal(asked.answer(), now.since(*since))?;
            running.note = running.note.take().or(left);
            return Some(Outcome::Gone);
        }
        if running.target.is_gone() {
            return self.remove_rest(running, now);
        }
        match running.stage {
            Stage::Asking { ref asked, until, grace, insists } => match asked.answer() {
                Some(Ok(())) => {
                    running.stage = Stage::Leaving { until: now.after(grace) };
                    None
                }
                Some(Err(NotDone::Refused(reason))) => Some(Outcome::Refused(reason)),
                Some(Err(NotDone::Critical)) => Some(Outcome::Refused("it must not be touched".to_owned())),
                Some(Err(NotDone::Failed(reason))) if !insists => Some(Outcome::Failed(reason)),
                None if now < until => None,
                None if !insists => Some(Outcome::Failed(no_answer(LONG_PATIENCE))),
                answer => {
                    let reason = match answer {
                        Some(Err(NotDone::Failed(reason))) => reason,
                        _ => no_answer(PATIENCE),
                    };
                    running.note = Some(format!("{reason}; its processes were signalled instead"));
                    self.terminate_instead(running, now.after(grace), now)
                }
            },
            // The grace period of some pods is zero, and the kubelet needs a moment all the same.
            Stage::Leaving { until } if now >= until.after(LATE) => {
                running.note = Some(format!(
                    "the kubelet had not stopped it {:.1} s after its grace period: killed",
                    now.since(until).as_secs_f64()
                ));
                self.kill(running, now)
            }
            Stage::Stopping { ref asked, until } => match asked.answer() {
                // Known by the runtime alone, and just in time: nothing was touched.
                Some(Err(NotDone::Critical)) => {
                    Some(Outcome::Failed("the runtime says that it is a static pod".to_owned()))
                }
                Some(Err(NotDone::Failed(reason) | NotDone::Refused(reason))) => {
                    running.note = Some(not_by_the_runtime(&reason));
                    self.terminate_instead(running, until, now)
                }
                // What it has stopped takes a moment to go; what somebody starts again meanwhile is killed.
                Some(Ok(())) => {
                    running.stage = Stage::Terminating { until: now.after(LATE) };
                    None
                }
                None if now >= until.after(LATE) => {
                    running.note = Some(format!(
                        "the runtime had not stopped it {:.1} s after its grace period: killed",
                        now.since(until).as_secs_f64()
                    ));
                    self.kill(running, now)
                }
                None => None,
            },
            Stage::Terminating { until } if now >= until => self.kill(running, now),
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
            Stage::Leaving { .. } | Stage::Terminating { .. } | Stage::Dying { .. } | Stage::Removing { .. } => None,
        }
    }

    fn kill(&self, running: &mut Running, now: Monotonic) -> Option<Outcome> {
        match running.target.kill() {
            Ok(pids) => {
                self.releaser.release(pids);
                running.stage = Stage::Dying { since: now };
                running.killed = Some(now);
                None
            }
            Err(ActionError::Gone) => self.remove_rest(running, now),
            Err(error) => Some(Outcome::Failed(error.to_string())),
        }
    }

    /// What the runtime does not do is done here, within what is left of the grace period.
    fn terminate_instead(&self, running: &mut Running, until: Monotonic, now: Monotonic) -> Option<Outcome> {
        if now >= until {
            return self.kill(running, now);
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

    /// No process is left. What a pod leaves on the disk takes a while longer.
    fn remove_rest(&self, running: &mut Running, now: Monotonic) -> Option<Outcome> {
        let (Some(pod), Some(stopper)) = (&running.pod, &self.stopper) else { return Some(Outcome::Gone) };
        match stopper.remove(&pod.uid) {
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
