//! The steps after a removal: its event, and the watch over the status Failed.

use std::time::Duration;

use crate::cluster::evictions::exchange::{Answer, Life, Outcome, Verdict, Wait};
use crate::cluster::evictions::failed_status::{LOOK_EVERY, Next, UNTIL_LAST_LOOK, until_next_look};
use crate::config::kubernetes_options::EvictionMethod;

use super::{At, LATE_MARKS, Plan, retry};

/// Attempts to send an event that is refused.
const REFUSED_EVENTS: u32 = 5;
/// Attempts to send an event that is not answered, where the decision does not grow too old first.
const UNKNOWN_EVENTS: u32 = 120;

impl Plan {
    /// Returns the next state once the pod is removed.
    pub(super) fn after_removal(&self) -> At {
        if self.wants_mark && !self.progress.marked && self.marks_apart() {
            At::MarkLate
        } else if self.wants_event {
            At::SendEvent
        } else if self.watches() {
            At::Watch
        } else {
            At::End
        }
    }

    pub(super) fn take_event(&mut self, answer: Answer) -> Outcome {
        let failed = |reason: &str| Some(format!("the event could not be sent: {reason}"));
        match answer {
            Answer::Done | Answer::AlreadyExists | Answer::Conflict | Answer::Found { .. } => {}
            Answer::NotFound => self.note = self.note.take().or(failed("the namespace does not exist")),
            Answer::Refused(reason) | Answer::Budget(reason) if self.attempts >= REFUSED_EVENTS => {
                self.note = failed(&reason);
            }
            Answer::Busy { ref reason, .. } | Answer::Unknown(ref reason) if self.attempts >= UNKNOWN_EVENTS => {
                self.note = failed(reason);
            }
            _ => return retry(&answer),
        }
        self.finish()
    }

    pub(super) fn take_watch(&mut self, answer: Answer, age: Duration) -> Outcome {
        let mut pause = until_next_look(age, self.grace);
        match answer {
            Answer::Found { is_same: true, is_terminating: false, life } => {
                match self.failed_status.take(life, age, self.grace) {
                    Next::Look => {}
                    Next::LookLater => pause = UNTIL_LAST_LOOK,
                    Next::WriteAgain => return self.go(At::WriteAgain, None),
                    Next::Over => {
                        self.has_ended = true;
                        return self.finish();
                    }
                    Next::Restarted => return self.end(Verdict::Restarted),
                    Next::Unknown => return self.lost("the kubelet has not said that it knows of the eviction"),
                    Next::Lost => {
                        self.has_ended = life == Life::Ended;
                        return self.lost("its status is not Failed with the reason Evicted");
                    }
                }
            }
            // Deleted since.
            Answer::Found { .. } | Answer::NotFound => return self.finish(),
            Answer::Refused(_) if self.looks_again() => {
                return Outcome { wait: Wait::Pause(LOOK_EVERY), verdict: None };
            }
            Answer::Refused(reason) => return self.lost(&reason),
            _ if self.attempts >= UNKNOWN_EVENTS => return self.lost("the API server does not answer"),
            _ => return retry(&answer),
        }
        self.attempts = 0;
        Outcome { wait: self.until_look(pause), verdict: None }
    }

    pub(super) fn take_repeat(&mut self, answer: &Answer) -> Outcome {
        match answer {
            Answer::Busy { .. } | Answer::Unknown(_) if self.attempts < LATE_MARKS => retry(answer),
            Answer::Done => self.watch(),
            Answer::Denied(_) if self.leaves_out_annotation() => self.go(At::WriteAgain, None),
            // A refusal, too: the status is written once more if the next look wants that.
            _ => Outcome { wait: Wait::Pause(LOOK_EVERY), ..self.watch() },
        }
    }

    fn lost(&mut self, reason: &str) -> Outcome {
        self.note = self.note.take().or(Some(format!("it may not be seen as evicted: {reason}")));
        let note = self.note.take();
        self.end(Verdict::Done(note))
    }

    /// Watches whether the status Failed lasts, or ends.
    fn finish(&mut self) -> Outcome {
        if self.at == At::SendEvent && self.watches() {
            return self.watch();
        }
        let note = self.note.take();
        self.end(Verdict::Done(note))
    }

    fn watch(&mut self) -> Outcome {
        let outcome = self.go(At::Watch, None);
        Outcome { wait: self.until_look(LOOK_EVERY), ..outcome }
    }

    fn until_look(&self, pause: Duration) -> Wait {
        if self.failed_status.may_be_early() { Wait::WhileFailed(pause) } else { Wait::Pause(pause) }
    }

    /// Notes that the next look is early, because the status was written over.
    pub fn note_overwritten(&mut self) {
        self.failed_status.note_early();
    }

    fn watches(&self) -> bool {
        self.removal.method == EvictionMethod::Fail && !self.is_gone
    }
}
