//! The requests left for one eviction: a pure state machine, from an answer to the next request.
//!
//! | state | request | effect of the answers |
//! |---|---|---|
//! | mark | PATCH `pods/status`: `DisruptionTarget` | by the method `delete` only; retried once, then remove in any case |
//! | look | GET the pod | before a removal that is late. Restarted by the kubelet and running, or succeeded: end; its end not reported yet: look again, for a minute, then remove; refused: look again, after a minute end; else remove |
//! | remove | PATCH `pods/status`: Failed; or DELETE; or POST `pods/eviction`, with the UID as precondition | done: mark late, send event; 404: gone; 409: compare; refused by a budget: end; not permitted: asked five times, then as any refusal; denied: Failed without the annotation, at once; else retried |
//! | compare | GET the pod | the same UID: remove again; not found or another UID: gone |
//! | check | GET the pod | after a removal without an answer. Terminating or not found: mark late, send event; refused: look again for a minute; else end, the pod stays |
//! | mark late | PATCH `pods/status` | send event in any case |
//! | send event | POST an event whose name follows from the UID | done, or exists already: watch |
//! | watch | GET the pod | only after `Failed`: until the status lasts, at times and when the pods' watch shows another phase; lost: write again; restarted in the end: end; refused: look again for a minute |
//! | write again | PATCH `pods/status`: Failed | denied: without the annotation, at once; else watch |
//!
//! A pod that is gone gets its event if the agent evicted it, or may have. An eviction that the agent carries out itself is retried until
//! its decision is ten minutes old. One that needs the API server's consent ends when it is refused or has no answer in time.
//!
//! The mark comes before a deletion, so that the pod's owner sees the cause. The status Failed has the mark in it, and the Eviction API sets
//! a mark of its own.

mod after_removal;

use std::time::Duration;

use crate::config::kubernetes_options::EvictionMethod;

use super::exchange::{Answer, Begun, Life, Outcome, Removal, Step, Verdict, Wait};
use super::failed_status::{FailedStatus, LOOK_EVERY};
use super::intent::{Intent, Progress};

/// How long the API server is asked for an eviction that needs its consent.
pub const ASKED_FOR: Duration = Duration::from_secs(10);
/// Age of a decision at which its removal is given up: the kubelet has restarted the pod since, and it may be healthy.
pub const OLDEST_REMOVAL: Duration = Duration::from_secs(600);
/// Time after the decision from which a removal is late: the kubelet may have restarted its containers.
const LATE_AFTER: Duration = Duration::from_secs(3);
/// How long a pod is looked at whose containers the kubelet has not reported since their end, or that may not be read. A kubelet that was started
/// in an outage of the API server needs 48 s.
const LOOKS_FOR_REPORT: u32 = 60;
/// Age of a decision at which its event is given up: the API server keeps events for an hour.
const OLDEST_EVENT: Duration = Duration::from_secs(3600);
/// Attempts at a removal that is refused, where the decision does not grow too old first.
const REFUSED_REMOVALS: u32 = 120;
/// Refusals for lack of the right, one a second, after which an eviction that needs consent ends.
const REFUSED_FOR_RIGHT: u32 = 5;
/// Comparisons after conflicts that do not end, such as a webhook's: some minutes.
const COMPARISONS: u32 = 20;
/// Attempts to mark before the removal, which must not wait.
const FIRST_MARKS: u32 = 2;
/// Attempts to mark after the removal.
const LATE_MARKS: u32 = 3;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Mark,
    Look,
    Remove,
    Compare,
    Check,
    MarkLate,
    SendEvent,
    Watch,
    WriteAgain,
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    is_certain: bool,
    wants_mark: bool,
    /// Attempts to mark before the removal.
    first_marks: u32,
    wants_event: bool,
    removal: Removal,
    grace: Duration,
    at: At,
    progress: Progress,
    /// A removal was requested without an answer: it may have been carried out.
    is_unsure: bool,
    /// Attempts in this state.
    attempts: u32,
    /// Comparisons in all, since each leads back to the removal.
    comparisons: u32,
    is_delay_reported: bool,
    /// The pod was looked at since the last attempt that was late.
    has_looked: bool,
    is_gone: bool,
    /// The kubelet has ended the pod, and its object is still there.
    has_ended: bool,
    looks: u32,
    /// Refusals of a look in succession.
    refused_looks: u32,
    /// Refusals for lack of the right.
    refused_for_right: u32,
    failed_status: FailedStatus,
    note: Option<String>,
}

impl Plan {
    /// Returns what is left of `intent` after `progress`. `is_resumed`: an earlier agent began it, so the loop waits for no answer.
    pub fn of(intent: &Intent, progress: Progress, is_resumed: bool) -> Self {
        let mut plan = Self {
            is_certain: intent.is_certain,
            wants_mark: intent.wants_mark,
            // The loop waits for the removal of those that are not hard.
            first_marks: if intent.is_hard() { FIRST_MARKS } else { 1 },
            wants_event: intent.wants_event,
            removal: Removal { method: intent.method, wakes_kubelet: true },
            grace: intent.grace(),
            at: At::End,
            progress,
            is_unsure: is_resumed && progress.asked,
            attempts: 0,
            comparisons: 0,
            is_delay_reported: false,
            has_looked: false,
            is_gone: false,
            has_ended: false,
            looks: 0,
            refused_looks: 0,
            refused_for_right: 0,
            failed_status: FailedStatus::new(is_resumed),
            note: None,
        };
        plan.at = if progress.removed {
            plan.after_removal()
        } else if !intent.is_certain && is_resumed {
            // The pressure may be over: the removal is checked, not requested again.
            if progress.asked { At::Check } else { At::End }
        } else if plan.wants_mark && !progress.marked && plan.marks_apart() {
            At::Mark
        } else {
            At::Remove
        };
        plan
    }

    /// Returns the next request; none: the eviction is finished.
    pub fn step(&self) -> Option<Step> {
        match self.at {
            At::Mark | At::MarkLate => Some(Step::Mark),
            At::Remove | At::WriteAgain => Some(Step::Remove),
            At::Look | At::Compare | At::Check | At::Watch => Some(Step::Get),
            At::SendEvent => Some(Step::SendEvent),
            At::End => None,
        }
    }

    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Returns whether the kubelet has ended the pod because of its status.
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns how the pod is ended, always by the intent's method: another one would bypass disruption budgets.
    pub const fn removal(&self) -> Removal {
        self.removal
    }

    /// Ends the eviction if its decision is too old for the next request; looks at the pod first if the request is late. Call it before
    /// each request.
    pub fn expire(&mut self, age: Duration) -> Option<Verdict> {
        let oldest = if self.progress.removed { OLDEST_EVENT } else { OLDEST_REMOVAL };
        if self.at == At::End || age < oldest {
            let is_removal = matches!(self.at, At::Mark | At::Remove);
            if is_removal && self.is_certain && !self.has_looked && age >= LATE_AFTER {
                (self.at, self.attempts) = (At::Look, 0);
            }
            return None;
        }
        self.at = At::End;
        let age = age.as_secs();
        Some(if self.progress.removed {
            let late = format!("decided {age} s ago: too late for its event");
            Verdict::Done(self.note.take().or(Some(late)))
        } else {
            Verdict::GivenUp(format!("decided {age} s ago: the pod may have been restarted since, and stays"))
        })
    }

    /// Leaves out the annotation from now on, such as under the admission policy of an earlier version. Returns whether that changes the
    /// request.
    fn leaves_out_annotation(&mut self) -> bool {
        self.removal.method == EvictionMethod::Fail && std::mem::take(&mut self.removal.wakes_kubelet)
    }

    /// Notes that the next request is about to be sent. Returns whether the progress must be written down first: an agent that starts
    /// after this one was killed has to check what the request did.
    pub fn asks(&mut self) -> bool {
        let is_new = self.at == At::Remove && !self.progress.asked;
        self.progress.asked |= is_new;
        is_new
    }

    /// Continues after an answer, `age` after the decision.
    pub fn take(&mut self, answer: Answer, age: Duration) -> Outcome {
        self.attempts += 1;
        if !matches!(answer, Answer::Refused(_)) {
            self.refused_looks = 0;
        }
        match self.at {
            At::Mark => self.take_mark(&answer, self.first_marks, At::Remove),
            At::Look => self.take_look(&answer, age),
            At::MarkLate => self.take_mark(&answer, LATE_MARKS, At::SendEvent),
            At::Remove => self.take_removal(answer, age),
            At::Compare => self.take_comparison(answer, age),
            At::Check => self.take_check(answer),
            At::SendEvent => self.take_event(answer),
            At::Watch => self.take_watch(answer, age),
            At::WriteAgain => self.take_repeat(&answer),
            At::End => Outcome { wait: Wait::None, verdict: None },
        }
    }

    fn take_mark(&mut self, answer: &Answer, most: u32, then: At) -> Outcome {
        match answer {
            Answer::Done => self.progress.marked = true,
            Answer::Busy { .. } | Answer::Unknown(_) if self.attempts < most => return retry(answer),
            // Not retried after the removal.
            Answer::Refused(reason) => {
                self.wants_mark = false;
                self.note = Some(format!("the pod does not carry the condition DisruptionTarget: {reason}"));
            }
            // A pod that is missing or another is found by the removal, whose precondition is the UID.
            _ => {}
        }
        self.go(then, None)
    }

    /// The kubelet restarts a killed container, unless it learns of the eviction in time. A container that runs again is healthy and is left alone.
    fn take_look(&mut self, answer: &Answer, age: Duration) -> Outcome {
        match answer {
            Answer::NotFound | Answer::Found { is_same: false, .. } => self.gone(),
            Answer::Found { is_terminating: true, .. } | Answer::Found { life: Life::Evicted { .. }, .. } => {
                self.removed()
            }
            Answer::Found { life: Life::Restarted, .. } => self.end(Verdict::Restarted),
            Answer::Found { life: Life::Succeeded, .. } => self.end(Verdict::Gone),
            // Inside its grace period it may run.
            Answer::Found { life: Life::AsBefore, .. }
                if self.looks < LOOKS_FOR_REPORT && age >= self.grace + LATE_AFTER =>
            {
                self.looks += 1;
                Outcome {
                    wait: Wait::Pause(LOOK_EVERY),
                    verdict: self.delay("the kubelet has not reported its end yet"),
                }
            }
            Answer::Found { .. } => {
                self.has_looked = true;
                self.go(At::Remove, None)
            }
            Answer::Refused(reason) if self.looks_again() => {
                Outcome { wait: Wait::Pause(LOOK_EVERY), verdict: self.delay(reason) }
            }
            Answer::Refused(reason) => {
                self.end(Verdict::GivenUp(format!("the pod's status cannot be read, and it may run again: {reason}")))
            }
            _ => self.retry_or_expire(answer, age),
        }
    }

    fn take_removal(&mut self, answer: Answer, age: Duration) -> Outcome {
        self.is_unsure |= matches!(answer, Answer::Unknown(_));
        // Before the next attempt the kubelet may have restarted it.
        self.has_looked = false;
        match answer {
            Answer::NotPermitted(_) if !self.is_certain && self.asks_once_more() => {
                Outcome { wait: Wait::Pause(LOOK_EVERY), verdict: None }
            }
            Answer::Denied(_) if self.leaves_out_annotation() => self.go(At::Remove, None),
            Answer::Done | Answer::AlreadyExists | Answer::Found { .. } => {
                self.failed_status.note_written(age);
                self.removed()
            }
            Answer::NotFound => self.gone(),
            Answer::Conflict => self.go(At::Compare, None),
            Answer::Budget(reason) => self.end(Verdict::Refused(reason)),
            // A killed pod needs no consent: its removal is asked for again.
            Answer::Begun(begun) if !self.is_certain => self.end(Verdict::Begun(begun)),
            Answer::Refused(reason) | Answer::Denied(reason) | Answer::NotPermitted(reason) if !self.is_certain => {
                self.end(Verdict::Refused(reason))
            }
            Answer::Refused(reason) | Answer::Denied(reason) | Answer::NotPermitted(reason)
                if self.attempts >= REFUSED_REMOVALS =>
            {
                self.end(Verdict::GivenUp(reason))
            }
            Answer::Busy { .. }
            | Answer::Begun(_)
            | Answer::Unknown(_)
            | Answer::Refused(_)
            | Answer::Denied(_)
            | Answer::NotPermitted(_) => self.retry_or_expire(&answer, age),
        }
    }

    fn take_comparison(&mut self, answer: Answer, age: Duration) -> Outcome {
        match answer {
            Answer::Found { is_same: true, life: Life::Restarted, .. } if self.is_certain => {
                self.end(Verdict::Restarted)
            }
            Answer::Found { is_same: true, .. } => {
                let reason = "another client changed the pod at the same time";
                if self.is_too_late(age) {
                    return self.too_late(reason.to_owned());
                }
                self.comparisons += 1;
                if self.comparisons >= COMPARISONS {
                    let reason = "each removal conflicts (409), although the pod's UID is the same";
                    return self.end(Verdict::GivenUp(reason.to_owned()));
                }
                self.at = At::Remove;
                Outcome { wait: Wait::Backoff, verdict: self.delay(reason) }
            }
            Answer::Found { is_same: false, .. } | Answer::NotFound => self.gone(),
            // The pod cannot be compared; the removal's precondition protects any other pod of this name.
            Answer::Refused(_) if self.is_certain => {
                self.at = At::Remove;
                self.retry_later(&answer)
            }
            Answer::Refused(reason) => self.end(Verdict::Refused(reason)),
            _ => self.retry_or_expire(&answer, age),
        }
    }

    fn take_check(&mut self, answer: Answer) -> Outcome {
        match answer {
            Answer::Found { is_same: true, is_terminating: true, .. }
            | Answer::Found { is_same: true, life: Life::Evicted { .. }, .. } => self.removed(),
            Answer::Found { is_same: true, is_terminating: false, .. } => {
                self.end(Verdict::Done(Some("the removal was not carried out, and is not requested again".to_owned())))
            }
            Answer::Found { is_same: false, .. } | Answer::NotFound => self.gone(),
            Answer::Refused(_) if self.looks_again() => Outcome { wait: Wait::Pause(LOOK_EVERY), verdict: None },
            Answer::Refused(reason) => self.end(Verdict::GivenUp(reason)),
            _ => retry(&answer),
        }
    }

    /// Returns whether to look again after a refusal: an API server that has just started refuses all clients until it knows their roles.
    fn looks_again(&mut self) -> bool {
        self.refused_looks += 1;
        self.refused_looks <= LOOKS_FOR_REPORT
    }

    /// Returns whether to ask again after a refusal for lack of the right: an API server that has just started refuses all clients.
    fn asks_once_more(&mut self) -> bool {
        self.refused_for_right += 1;
        self.refused_for_right < REFUSED_FOR_RIGHT
    }

    fn removed(&mut self) -> Outcome {
        self.progress.removed = true;
        self.progress.marked |= self.wants_mark && self.removal.method == EvictionMethod::Fail;
        let then = self.after_removal();
        self.go(then, Some(Verdict::Accepted))
    }

    /// Returns whether the mark is a request of its own: the status Failed has it in it, and the Eviction API sets one of its own.
    fn marks_apart(&self) -> bool {
        self.removal.method == EvictionMethod::Delete
    }

    /// The pod does not exist. Its event is sent if the agent evicted it, or may have.
    fn gone(&mut self) -> Outcome {
        let is_ours = self.is_certain || self.is_unsure;
        (self.progress.removed, self.is_gone) = (true, true);
        self.go(if is_ours { At::SendEvent } else { At::End }, Some(Verdict::Gone))
    }

    fn go(&mut self, at: At, verdict: Option<Verdict>) -> Outcome {
        self.at = if at == At::SendEvent && !self.wants_event { At::End } else { at };
        self.attempts = 0;
        Outcome { wait: Wait::None, verdict }
    }

    fn end(&mut self, verdict: Verdict) -> Outcome {
        self.at = At::End;
        Outcome { wait: Wait::None, verdict: Some(verdict) }
    }

    /// Returns, once, what could not be marked or reported.
    pub fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Retries, and reports the delay to the loop.
    fn retry_later(&mut self, answer: &Answer) -> Outcome {
        let reason = match answer {
            Answer::Busy { reason, .. }
            | Answer::Refused(reason)
            | Answer::Denied(reason)
            | Answer::NotPermitted(reason)
            | Answer::Unknown(reason)
            | Answer::Begun(Begun { reason, .. })
            | Answer::Budget(reason) => reason.as_str(),
            _ => "the answer does not fit the request",
        };
        Outcome { verdict: self.delay(reason), ..retry(answer) }
    }

    fn retry_or_expire(&mut self, answer: &Answer, age: Duration) -> Outcome {
        let outcome = self.retry_later(answer);
        let longest = if let Wait::For(wait) = outcome.wait { wait } else { Duration::ZERO };
        if !self.is_too_late(age.saturating_add(longest)) {
            return outcome;
        }
        let (Answer::Busy { reason, .. } | Answer::Unknown(reason)) = answer else { return outcome };
        self.too_late(reason.clone())
    }

    fn is_too_late(&self, age: Duration) -> bool {
        !self.is_certain && age >= ASKED_FOR
    }

    /// The loop waits no longer. A removal without an answer may have been carried out all the same, and is checked.
    fn too_late(&mut self, reason: String) -> Outcome {
        (self.at, self.attempts) = (if self.is_unsure { At::Check } else { At::End }, 0);
        Outcome { wait: Wait::Backoff, verdict: Some(Verdict::NoAnswer(reason)) }
    }

    /// Reports a delay once, and only where the loop is not about to get the result.
    fn delay(&mut self, reason: &str) -> Option<Verdict> {
        let is_new = self.is_certain && !std::mem::replace(&mut self.is_delay_reported, true);
        is_new.then(|| Verdict::Delayed(reason.to_owned()))
    }
}

/// Repeats the same request, when the API server asks for it or after a backoff.
fn retry(answer: &Answer) -> Outcome {
    let wait = if let Answer::Busy { after: Some(after), .. } = answer { Wait::For(*after) } else { Wait::Backoff };
    Outcome { wait, verdict: None }
}

#[cfg(test)]
#[path = "eviction_plan_tests.rs"]
mod tests;
