//! From a threshold that is met to a workload that goes.

use std::time::Duration;

use crate::actions::{ActionError, Outcome, Target};
use crate::config::Mode;
use crate::eviction::MetThreshold;
use crate::eviction::budget::Refusal;
use crate::eviction::rank::{Ranked, rank};
use crate::node::Monotonic;
use crate::report::EvictionOutcome;

use super::tell::ranking_text;
use super::{Agent, Look, Scan, allow};

/// Near a threshold the list of workloads is renewed this often.
const LIST_AGE: Duration = Duration::from_millis(250);
/// A decision takes a list that was renewed so, and makes a new one only when it is older. Usage is always read anew.
const LIST_AGE_AT_DECISION: Duration = Duration::from_millis(500);
/// On a large tree a scan takes long: then the list may be this many times as old as a scan takes.
const SCAN_SHARE: u32 = 10;
/// How far from a threshold, in time, the list of workloads is made ready.
const PREPARE_WITHIN: Duration = Duration::from_millis(20);
/// What observe mode would do is said again after this long.
const OBSERVED_AGAIN: Duration = Duration::from_secs(60);

/// When each step of a decision was taken.
pub(super) struct Steps {
    pub(super) sampled: Monotonic,
    pub(super) decided: Monotonic,
    /// The head of the ranking.
    pub(super) ranking: String,
}

impl Agent {
    /// Acts on the most urgent threshold that is met.
    pub(super) fn act(&mut self, look: &Look) {
        self.last.retry = None;
        let Some(met) = look.assessment.met.first() else { return };
        let now = Monotonic::now();
        if let Err(refusal) = self.evictor.may_start(met.is_hard(), &self.config.evictions, now) {
            return self.wait(refusal, now);
        }
        self.scan_if_older(LIST_AGE_AT_DECISION);
        let usages = self.tree.usages();
        let ranking = rank(self.config.policy.ranking, usages);
        // Ranking takes a moment, in which the pressure may be gone: decide on numbers taken after it.
        let Some(fresh) = self.observe() else { return };
        let assessment = self.assess(&fresh);
        let still = assessment.met.iter().find(|fresh| fresh.threshold == met.threshold).cloned();
        self.last.assessment = assessment;
        let Some(met) = still else { return };
        let steps = Steps { sampled: look.observation.at, decided: Monotonic::now(), ranking: ranking_text(&ranking) };
        match self.config.mode {
            Mode::Observe => self.say_what_it_would_do(look, &met, &ranking, &steps),
            Mode::Enforce => self.evict_first_possible(look, &met, &ranking, &steps),
        }
    }

    /// Tries the candidates in their order until one can be evicted.
    fn evict_first_possible(&mut self, look: &Look, met: &MetThreshold, ranking: &[Ranked], steps: &Steps) {
        let hard = met.is_hard();
        let grace = if hard { Duration::ZERO } else { self.config.policy.max_pod_grace_period };
        for ranked in ranking {
            let workload = &ranked.usage.workload;
            if !self.evictor.is_candidate(workload.id, hard, steps.decided) {
                continue;
            }
            match self.evict(met, ranked, grace) {
                Ok(processes) => {
                    let action = if grace.is_zero() { "kill" } else { "term" };
                    return self.tell_eviction(look, met, ranked, action, steps, processes);
                }
                Err(ActionError::Gone) => {}
                Err(error) => {
                    self.count_eviction(met.threshold.signal, EvictionOutcome::Failed);
                    tracing::error!(event = "eviction_failed", workload = workload.name, reason = %error, "trying the next candidate");
                }
            }
        }
        self.count_eviction(met.threshold.signal, EvictionOutcome::NoCandidate);
        self.last.retry = Some(Monotonic::now().after(LIST_AGE));
        if let Some(suppressed) = allow(&mut self.limits.exhausted) {
            tracing::error!(
                event = "candidates_exhausted",
                signal = met.threshold.signal.as_str(),
                available_bytes = met.available.0,
                threshold_bytes = met.quantity.0,
                candidates = ranking.len(),
                suppressed,
                "no workload is left to evict: the kernel's OOM killer will choose"
            );
        }
    }

    fn evict(&mut self, met: &MetThreshold, ranked: &Ranked, grace: Duration) -> Result<usize, ActionError> {
        let tracked = self.tree.find(ranked.usage.workload.id).ok_or(ActionError::Gone)?;
        let target = Target::new(tracked, self.tree.hierarchy(), &self.config.proc_root)?;
        self.evictor.start(target, met.threshold.signal, grace, Monotonic::now())
    }

    /// The dry-run twin of an eviction: says once what would happen, and again when the answer changes or a minute has passed.
    fn say_what_it_would_do(&mut self, look: &Look, met: &MetThreshold, ranking: &[Ranked], steps: &Steps) {
        let Some(ranked) = ranking.first() else { return };
        let answer = (met.threshold.signal, ranked.usage.workload.id);
        let is_news = self
            .last
            .observed
            .is_none_or(|(signal, id, at)| (signal, id) != answer || steps.decided.since(at) >= OBSERVED_AGAIN);
        if is_news {
            self.last.observed = Some((answer.0, answer.1, steps.decided));
            self.tell_eviction(look, met, ranked, "would_kill", steps, 0);
        }
    }

    /// Looks at the evictions under way and says which ended.
    pub(super) fn poll_evictions(&mut self) {
        let now = Monotonic::now();
        for ended in self.evictor.poll(&self.config.evictions, now) {
            self.tell_ended(&ended, now);
            if ended.outcome == Outcome::Gone {
                // The list of workloads is out of date.
                self.last.scan = Scan::default();
            }
        }
    }

    /// Near a threshold the list of workloads is kept fresh, so that the decision need not wait for it.
    pub(super) fn prepare(&mut self) {
        if self.next_wakeup().0 <= PREPARE_WITHIN {
            self.scan_if_old();
        }
    }

    pub(super) fn scan_if_old(&mut self) {
        self.scan_if_older(LIST_AGE);
    }

    fn scan_if_older(&mut self, age: Duration) {
        let Scan { at, took } = self.last.scan;
        let allowed = age.max(took.saturating_mul(SCAN_SHARE));
        if at.is_none_or(|at| Monotonic::now().since(at) > allowed) {
            self.scan();
        }
    }

    fn wait(&mut self, refusal: Refusal, now: Monotonic) {
        let (Refusal::CoolDown(left) | Refusal::Spent(left)) = refusal;
        self.last.retry = Some(now.after(left));
        if let Refusal::Spent(left) = refusal
            && let Some(suppressed) = allow(&mut self.limits.exhausted)
        {
            tracing::warn!(
                event = "evictions_spent",
                seconds_left = left.as_secs_f64(),
                suppressed,
                "evictions.maxPerMinute is reached: waiting"
            );
        }
    }
}
