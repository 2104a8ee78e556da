//! Whether memory can be had back without a kill: of whom, how much to ask for, and what came of it.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::rank::{Candidate, Facts, Ranked};
use crate::config::{Policy, Semantics};
use crate::units::{Amount, Bytes};

use super::MetThreshold;

/// Asked for on top of what is missing: the kernel's reclaim ends near what it was asked for, not above it.
const MARGIN_PERCENT: u64 = 10;
/// A workload that needs this again and again would be slowed down for good: this many times as long as the last attempt took
/// there is no other.
const REST_SHARE: u32 = 10;

/// What a workload has that the kernel could take from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Holding {
    /// Used, above what it requested. Below its request nothing is taken from it.
    pub above_request: Bytes,
    /// File pages that were used more than once.
    pub active_file: Bytes,
    /// File pages that were not: reclaim takes these first.
    pub inactive_file: Bytes,
    /// Anonymous and shared memory that may be swapped out and has room to go to.
    pub swappable: Bytes,
}

/// Why asking for memory back would be in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Futile {
    /// Every candidate is within its request.
    NobodyAboveRequest,
    /// File memory counts as available already, and there is no swap for the rest.
    NoSwap,
    /// Not all of what is missing could be taken from the one that is furthest above its request.
    TooLittle,
}

impl Futile {
    /// Says it in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NobodyAboveRequest => "no workload is above its request",
            Self::NoSwap => {
                "file memory counts as available already, and the workload has no room in swap for the rest"
            }
            Self::TooLittle => "the workload furthest above its request could not give back what is missing",
        }
    }
}

/// What came of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReclaimOutcome {
    /// The threshold is no longer met.
    Sufficed,
    /// It is still met.
    Insufficient,
    /// It is still met, and the deadline is over.
    TimedOut,
    /// The kernel would not.
    Refused,
    /// It was not tried: futile, or only observed.
    Skipped,
}

impl ReclaimOutcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Sufficed, Self::Insufficient, Self::TimedOut, Self::Refused, Self::Skipped];

    /// As metrics and logs call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sufficed => "sufficed",
            Self::Insufficient => "insufficient",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::Skipped => "skipped",
        }
    }
}

/// How the kernel answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It gave all that was asked for, or all that it found.
    Done,
    /// Not yet.
    Pending,
    /// It refused.
    Refused,
}

/// How much is missing until the threshold, with its minimum reclaim, is no longer met.
pub fn missing(policy: &Policy, met: &MetThreshold) -> Bytes {
    let missing = met.wanted(policy.quirks) - Amount::from_units(met.value.available);
    if missing.is_negative() { Bytes::ZERO } else { missing.bytes() }
}

/// The place of the candidate furthest above its request, the first by name where two are; none where all are within it.
pub fn furthest_above_request<C: Candidate>(candidates: &[Ranked<C>]) -> Option<usize> {
    let above = |ranked: &Ranked<C>| {
        let Facts { usage, request, .. } = ranked.facts();
        usage.unwrap_or_default() - request.unwrap_or_default()
    };
    let furthest = candidates
        .iter()
        .enumerate()
        .max_by(|(_, a), (_, b)| above(a).cmp(&above(b)).then_with(|| b.candidate.name().cmp(&a.candidate.name())));
    furthest.filter(|(_, ranked)| above(ranked) > Amount::ZERO).map(|(place, _)| place)
}

/// How much to ask for so that `missing` becomes available under these semantics.
///
/// # Errors
/// Why it cannot become so.
pub fn ask(semantics: Semantics, missing: Bytes, holding: &Holding) -> Result<Bytes, Futile> {
    let (helps, taken_first) = match semantics {
        // MemAvailable counts file pages, active ones too: only what goes to swap adds to it.
        Semantics::Corrected if holding.swappable.is_zero() => return Err(Futile::NoSwap),
        Semantics::Corrected => (holding.swappable, holding.inactive_file.saturating_add(holding.active_file)),
        // The working set leaves out inactive file pages, and reclaim takes those first.
        Semantics::Kubelet => (holding.active_file.saturating_add(holding.swappable), holding.inactive_file),
    };
    if helps.min(holding.above_request) < missing {
        return Err(Futile::TooLittle);
    }
    let margin = Bytes(missing.0.saturating_mul(MARGIN_PERCENT) / 100);
    // How reclaim divides between file pages and swap is the kernel's choice: at most half of it is expected to go where it does not help.
    let in_vain = match semantics {
        Semantics::Corrected => taken_first.min(missing),
        Semantics::Kubelet => taken_first,
    };
    Ok(missing.saturating_add(margin).saturating_add(in_vain))
}

/// Whether to go on waiting for memory that was asked for: not when half of what was left is gone meanwhile.
pub fn is_worth_waiting(available_before: Bytes, available: Bytes) -> bool {
    available >= Bytes(available_before.0 / 2)
}

/// What came of an attempt; `None` while it may still come to something.
pub fn outcome(answer: Answer, is_met: bool, is_late: bool, is_worth_waiting: bool) -> Option<ReclaimOutcome> {
    match (answer, is_met) {
        (Answer::Refused, _) => Some(ReclaimOutcome::Refused),
        (_, false) => Some(ReclaimOutcome::Sufficed),
        (Answer::Done, true) => Some(ReclaimOutcome::Insufficient),
        (Answer::Pending, true) if is_late => Some(ReclaimOutcome::TimedOut),
        (Answer::Pending, true) if !is_worth_waiting => Some(ReclaimOutcome::Insufficient),
        (Answer::Pending, true) => None,
    }
}

/// Whether it is worth asking again before the deadline: the kernel did what it was asked to, and it had an effect.
pub fn goes_on(outcome: ReclaimOutcome, answer: Answer, freed: Bytes) -> bool {
    match outcome {
        ReclaimOutcome::Sufficed => true,
        ReclaimOutcome::Insufficient => answer == Answer::Done && !freed.is_zero(),
        ReclaimOutcome::TimedOut | ReclaimOutcome::Refused | ReclaimOutcome::Skipped => false,
    }
}

/// How long after an attempt there is no other.
pub fn rest(took: Duration, cool_down: Duration) -> Duration {
    cool_down.max(took.saturating_mul(REST_SHARE))
}

#[cfg(test)]
#[path = "proactive_reclaim_tests.rs"]
mod tests;
