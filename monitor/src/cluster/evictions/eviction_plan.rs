//! What is left to do at the API server for one eviction: pure steps, from an answer to the next request.
//!
//! | at | asked | what the answers lead to |
//! |---|---|---|
//! | mark | PATCH `pods/status`: `DisruptionTarget` | once more when it fails, then remove whatever came of it |
//! | remove | DELETE, or POST `pods/eviction`, with the UID as precondition | done: mark, tell; 404: gone; 409: compare; refused by a budget: end; else again |
//! | compare | GET the pod | the same UID: remove again; gone or another UID: gone |
//! | check | GET the pod | it was asked for and nobody knows what came of it: leaving or gone: mark, tell; still there: end, nothing happened |
//! | mark late | PATCH `pods/status` | tell whatever came of it |
//! | tell | POST an event of a name that follows from the UID | done, or there already: end |
//!
//! A pod that is gone is told of when the agent ended it, or may have. What the agent ends by itself marks first, so that the pod's owner
//! sees why it goes, and goes on without an answer until its decision is ten minutes old; what is asked first ends when it is refused, or not answered in time.

use std::time::Duration;

use crate::config::kubernetes_options::EvictionMethod;

use super::intent::Intent;

use super::exchange::{Answer, Outcome, Progress, Step, Verdict, Wait};

/// How long the API server is asked for an eviction that happens only with its consent.
pub const ASKED_FOR: Duration = Duration::from_secs(10);
/// A removal that was decided so long ago is not asked for any more: the kubelet has started the pod again since, and it may be fine.
pub const OLDEST_REMOVAL: Duration = Duration::from_secs(600);
/// What was decided so long ago is not told any more: the API server keeps events for an hour.
const OLDEST_NEWS: Duration = Duration::from_secs(3600);
/// Tries of a removal that is refused; its age ends it first, unless the pauses are short.
const REFUSED_REMOVALS: u32 = 120;
/// How often the pod is compared after a conflict that does not go away, as that of a webhook: some minutes.
const COMPARISONS: u32 = 20;
/// Tries to mark before the removal, which must not wait for it.
const FIRST_MARKS: u32 = 2;
/// Tries to mark after it.
const LATE_MARKS: u32 = 3;
/// Tries to send an event that is refused.
const REFUSED_EVENTS: u32 = 5;
/// Tries to send one that is not answered: its age ends it first, unless the pauses are short.
const UNKNOWN_EVENTS: u32 = 120;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Mark,
    Remove,
    Compare,
    Check,
    MarkLate,
    Tell,
    End,
}

/// One eviction under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    is_certain: bool,
    wants_mark: bool,
    /// Tries to mark before the removal.
    first_marks: u32,
    wants_event: bool,
    by_eviction_api: bool,
    at: At,
    progress: Progress,
    /// A removal was asked for, and may have been carried out although no answer said so.
    is_unsure: bool,
    /// Tries of this step.
    tries: u32,
    /// Comparisons in all, since each leads back to the removal.
    comparisons: u32,
    is_delay_told: bool,
    note: Option<String>,
}

impl Plan {
    /// What is left of `intent` with this `progress`. `is_resumed`: another agent began it, and nobody waits for an answer any more.
    #[must_use]
    pub fn of(intent: &Intent, progress: Progress, is_resumed: bool) -> Self {
        let by_eviction_api = intent.method == EvictionMethod::Evict;
        let mut plan = Self {
            is_certain: intent.is_certain,
            wants_mark: intent.wants_mark,
            // Somebody waits for the removal of the others.
            first_marks: if intent.is_hard() { FIRST_MARKS } else { 1 },
            wants_event: intent.wants_event,
            by_eviction_api,
            at: At::End,
            progress,
            is_unsure: is_resumed && progress.asked,
            tries: 0,
            comparisons: 0,
            is_delay_told: false,
            note: None,
        };
        plan.at = if progress.removed {
            plan.after_removal()
        } else if !intent.is_certain && is_resumed {
            // Why it was asked for is forgotten. Whether it happened is to be found out; it is not asked for again.
            if progress.asked { At::Check } else { At::End }
        } else if plan.wants_mark && !progress.marked && !by_eviction_api {
            At::Mark
        } else {
            // The Eviction API may refuse; and it writes a condition of its own, which ours replaces afterwards.
            At::Remove
        };
        plan
    }

    /// What to ask next; nothing when there is nothing left.
    #[must_use]
    pub fn step(&self) -> Option<Step> {
        match self.at {
            At::Mark | At::MarkLate => Some(Step::Mark),
            At::Remove => Some(Step::Remove),
            At::Compare | At::Check => Some(Step::Look),
            At::Tell => Some(Step::Tell),
            At::End => None,
        }
    }

    /// What has been done.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Ends what was decided too long ago: `age` is that of the decision. To be asked before each request, also by who goes on with what
    /// another agent began.
    pub fn expire(&mut self, age: Duration) -> Option<Verdict> {
        let oldest = if self.progress.removed { OLDEST_NEWS } else { OLDEST_REMOVAL };
        if self.at == At::End || age < oldest {
            return None;
        }
        self.at = At::End;
        let age = age.as_secs();
        Some(if self.progress.removed {
            let late = format!("decided {age} s ago: it is too late to tell of it");
            Verdict::Done(self.note.take().or(Some(late)))
        } else {
            Verdict::GivenUp(format!("decided {age} s ago: it may have been started again since, and is left alone"))
        })
    }

    /// Takes note that the next request is about to be sent. True when that is worth writing down: should this agent end now, the next
    /// one has to find out what came of it.
    pub fn asks(&mut self) -> bool {
        let is_news = self.at == At::Remove && !self.progress.asked;
        self.progress.asked |= is_news;
        is_news
    }

    /// Goes on from an answer, `age` after the decision.
    pub fn take(&mut self, answer: Answer, age: Duration) -> Outcome {
        self.tries += 1;
        match self.at {
            At::Mark => self.take_mark(&answer, self.first_marks, At::Remove),
            At::MarkLate => self.take_mark(&answer, LATE_MARKS, At::Tell),
            At::Remove => self.take_removal(answer, age),
            At::Compare => self.take_comparison(answer, age),
            At::Check => self.take_check(answer),
            At::Tell => self.take_told(answer),
            At::End => Outcome { wait: Wait::None, news: None },
        }
    }

    fn take_mark(&mut self, answer: &Answer, most: u32, then: At) -> Outcome {
        match answer {
            Answer::Done => self.progress.marked = true,
            Answer::Busy { .. } | Answer::Unknown(_) if self.tries < most => return again(answer),
            // Not tried again after the removal.
            Answer::Refused(reason) => {
                self.wants_mark = false;
                self.note = Some(format!("the pod does not carry the condition DisruptionTarget: {reason}"));
            }
            // Whether it is gone or another, the removal finds out, which has the UID as precondition.
            _ => {}
        }
        self.go(then, None)
    }

    fn take_removal(&mut self, answer: Answer, age: Duration) -> Outcome {
        self.is_unsure |= matches!(answer, Answer::Unknown(_));
        match answer {
            Answer::Done | Answer::Exists | Answer::Found { .. } => self.removed(),
            Answer::Gone => self.gone(),
            Answer::Conflict => self.go(At::Compare, None),
            Answer::Budget(reason) => self.end(Verdict::Refused(reason)),
            Answer::Refused(reason) if !self.is_certain => self.end(Verdict::Refused(reason)),
            Answer::Refused(reason) if self.tries >= REFUSED_REMOVALS => self.end(Verdict::GivenUp(reason)),
            Answer::Busy { .. } | Answer::Unknown(_) | Answer::Refused(_) => self.again_or_too_late(&answer, age),
        }
    }

    fn take_comparison(&mut self, answer: Answer, age: Duration) -> Outcome {
        match answer {
            // Somebody else changed it at the same time: it is asked again.
            Answer::Found { is_same: true, .. } => {
                let reason = "somebody else changed the pod at the same time";
                if self.is_too_late(age) {
                    return self.too_late(reason.to_owned());
                }
                self.comparisons += 1;
                if self.comparisons >= COMPARISONS {
                    return self
                        .end(Verdict::GivenUp("a conflict (409) at every try, and it is the same pod".to_owned()));
                }
                self.at = At::Remove;
                Outcome { wait: Wait::Backoff, news: self.delay(reason) }
            }
            Answer::Found { is_same: false, .. } | Answer::Gone => self.gone(),
            // It is not known whose name that is: the removal, with its precondition, touches no other.
            Answer::Refused(_) if self.is_certain => {
                self.at = At::Remove;
                self.again_later(&answer)
            }
            Answer::Refused(reason) => self.end(Verdict::Refused(reason)),
            _ => self.again_or_too_late(&answer, age),
        }
    }

    fn take_check(&mut self, answer: Answer) -> Outcome {
        match answer {
            Answer::Found { is_same: true, is_leaving: false } => self.end(Verdict::Done(Some(
                "what was asked for was not carried out, and is not asked for again".to_owned(),
            ))),
            Answer::Found { is_same: true, is_leaving: true } => self.removed(),
            Answer::Found { is_same: false, .. } | Answer::Gone => self.gone(),
            Answer::Refused(reason) => self.end(Verdict::GivenUp(reason)),
            _ => again(&answer),
        }
    }

    fn take_told(&mut self, answer: Answer) -> Outcome {
        let failed = |reason: &str| Some(format!("the event could not be sent: {reason}"));
        match answer {
            Answer::Done | Answer::Exists | Answer::Conflict | Answer::Found { .. } => {}
            Answer::Gone => self.note = self.note.take().or(failed("the namespace is gone")),
            Answer::Refused(reason) | Answer::Budget(reason) if self.tries >= REFUSED_EVENTS => {
                self.note = failed(&reason);
            }
            Answer::Busy { ref reason, .. } | Answer::Unknown(ref reason) if self.tries >= UNKNOWN_EVENTS => {
                self.note = failed(reason);
            }
            _ => return again(&answer),
        }
        let note = self.note.take();
        self.end(Verdict::Done(note))
    }

    /// It is on its way out.
    fn removed(&mut self) -> Outcome {
        self.progress.removed = true;
        let then = self.after_removal();
        self.go(then, Some(Verdict::Accepted))
    }

    /// It is not there any more. That is told when it was the agent's doing, or may have been.
    fn gone(&mut self) -> Outcome {
        let is_ours = self.is_certain || self.is_unsure;
        self.progress.removed = true;
        self.go(if is_ours { At::Tell } else { At::End }, Some(Verdict::Gone))
    }

    fn after_removal(&self) -> At {
        let mark = self.wants_mark && (self.by_eviction_api || !self.progress.marked);
        match (mark, self.wants_event) {
            (true, _) => At::MarkLate,
            (false, true) => At::Tell,
            (false, false) => At::End,
        }
    }

    fn go(&mut self, at: At, news: Option<Verdict>) -> Outcome {
        self.at = if at == At::Tell && !self.wants_event { At::End } else { at };
        self.tries = 0;
        Outcome { wait: Wait::None, news }
    }

    fn end(&mut self, verdict: Verdict) -> Outcome {
        self.at = At::End;
        Outcome { wait: Wait::None, news: Some(verdict) }
    }

    /// What could not be done of what was to be done beside; once.
    #[must_use]
    pub fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Again, and the loop hears that it takes longer.
    fn again_later(&mut self, answer: &Answer) -> Outcome {
        let reason = match answer {
            Answer::Busy { reason, .. }
            | Answer::Refused(reason)
            | Answer::Unknown(reason)
            | Answer::Budget(reason) => reason.as_str(),
            _ => "an answer that does not fit the question",
        };
        Outcome { news: self.delay(reason), ..again(answer) }
    }

    fn again_or_too_late(&mut self, answer: &Answer, age: Duration) -> Outcome {
        let outcome = self.again_later(answer);
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

    /// Nobody waits any longer. What was asked for may have been carried out all the same.
    fn too_late(&mut self, reason: String) -> Outcome {
        (self.at, self.tries) = (if self.is_unsure { At::Check } else { At::End }, 0);
        Outcome { wait: Wait::Backoff, news: Some(Verdict::NoAnswer(reason)) }
    }

    /// Said once, and not to whom is told how it ends soon.
    fn delay(&mut self, reason: &str) -> Option<Verdict> {
        let is_new = self.is_certain && !std::mem::replace(&mut self.is_delay_told, true);
        is_new.then(|| Verdict::Delayed(reason.to_owned()))
    }
}

/// When to ask the same again.
fn again(answer: &Answer) -> Outcome {
    let wait = if let Answer::Busy { after: Some(after), .. } = answer { Wait::For(*after) } else { Wait::Backoff };
    Outcome { wait, news: None }
}

#[cfg(test)]
#[path = "eviction_plan_tests.rs"]
mod tests;
