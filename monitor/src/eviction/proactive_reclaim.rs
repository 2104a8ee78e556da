//! Proactive reclaim: from which workload to reclaim memory without a kill, how much to ask the kernel for, and how the attempt ended.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::rank::{Candidate, Facts, Ranked};
use crate::config::{Policy, Semantics};
use crate::units::{Amount, Bytes, named_enum};

use super::MetThreshold;

/// The percentage of the missing amount that is asked for on top of it. The kernel's reclaim ends near the amount asked for, not above it.
const MARGIN_PERCENT: u64 = 10;
/// The rest after an attempt is this many times as long as the attempt. Attempts without a rest would slow the workload down for good.
const REST_SHARE: u32 = 10;

/// The memory of a workload that the kernel could reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Holding {
    /// The usage above the request. No memory within the request is reclaimed.
    pub above_request: Bytes,
    /// File pages that were used more than once.
    pub active_file: Bytes,
    /// File pages that were used once. Reclaim takes these first.
    pub inactive_file: Bytes,
    /// Anonymous and shared memory that may be swapped out, as far as swap has room.
    pub swappable: Bytes,
}

named_enum! {
    #[derive(Serialize, Deserialize)]
    pub enum Futile {
        NobodyAboveRequest = "no workload is above its request",
        /// File memory counts as available already, and the workload has no room in swap for the rest.
        NoSwap = "file memory counts as available already, and the workload has no room in swap for the rest",
        /// The candidate furthest above its request could not give back all that is missing.
        TooLittle = "the workload furthest above its request could not give back what is missing",
    }
}

named_enum! {
    #[derive(Serialize, Deserialize)]
    pub enum ReclaimOutcome {
        /// The threshold is no longer met.
        Sufficed = "sufficed",
        /// The threshold is still met.
        Insufficient = "insufficient",
        /// The threshold is still met, and the deadline is over.
        TimedOut = "timed_out",
        /// The kernel refused the request.
        Refused = "refused",
        /// Reclaim was not tried, because it was futile or because of observe mode.
        Skipped = "skipped",
    }
}

/// The kernel's answer to a request for reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The kernel reclaimed all that was asked for, or all that it found.
    Done,
    /// The kernel has not answered yet.
    Pending,
    Refused,
}

/// Returns how much memory is missing until the threshold, with its minimum reclaim, is no longer met.
pub fn missing(policy: &Policy, met: &MetThreshold) -> Bytes {
    let missing = met.wanted(policy.quirks) - Amount::from_units(met.value.available);
    if missing.is_negative() { Bytes::ZERO } else { missing.bytes() }
}

/// Returns the place of the candidate furthest above its request; of two equal ones, the first by name. Returns `None` if every
/// candidate is within its request.
pub fn furthest_above_request<C: Candidate>(candidates: &[Ranked<C>]) -> Option<usize> {
    let above = |ranked: &Ranked<C>| {
        let Facts { usage, request, .. } = ranked.candidate.facts();
        usage.unwrap_or_default() - request.unwrap_or_default()
    };
    let furthest = candidates
        .iter()
        .enumerate()
        .max_by(|(_, a), (_, b)| above(a).cmp(&above(b)).then_with(|| b.candidate.name().cmp(&a.candidate.name())));
    furthest.filter(|(_, ranked)| above(ranked) > Amount::ZERO).map(|(place, _)| place)
}

/// Returns how much to ask the kernel for, so that `missing` becomes available under these semantics.
///
/// # Errors
/// Returns why reclaim cannot make that much available.
pub fn ask(semantics: Semantics, missing: Bytes, holding: &Holding) -> Result<Bytes, Futile> {
    let (helps, taken_first) = match semantics {
        // MemAvailable counts file pages, active ones included. Only swapped-out memory adds to it.
        Semantics::Corrected if holding.swappable.is_zero() => return Err(Futile::NoSwap),
        Semantics::Corrected => (holding.swappable, holding.inactive_file.saturating_add(holding.active_file)),
        // The working set does not count inactive file pages, and reclaim takes those first.
        Semantics::Kubelet => (holding.active_file.saturating_add(holding.swappable), holding.inactive_file),
    };
    if helps.min(holding.above_request) < missing {
        return Err(Futile::TooLittle);
    }
    let margin = Bytes(missing.0.saturating_mul(MARGIN_PERCENT) / 100);
    // The kernel chooses how reclaim divides between file pages and swap. At most half is expected to come from file pages, which does
    // not help here.
    let in_vain = match semantics {
        Semantics::Corrected => taken_first.min(missing),
        Semantics::Kubelet => taken_first,
    };
    Ok(missing.saturating_add(margin).saturating_add(in_vain))
}

/// Returns whether to go on waiting for the kernel. Returns false once less than half of the memory that was available is left.
pub fn is_worth_waiting(available_before: Bytes, available: Bytes) -> bool {
    available >= Bytes(available_before.0 / 2)
}

/// Returns how an attempt ended, or `None` while it may still succeed.
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

/// Returns whether another attempt before the deadline is worthwhile: the last one sufficed, or the kernel finished it and freed memory.
pub fn goes_on(outcome: ReclaimOutcome, answer: Answer, freed: Bytes) -> bool {
    match outcome {
        ReclaimOutcome::Sufficed => true,
        ReclaimOutcome::Insufficient => answer == Answer::Done && !freed.is_zero(),
        ReclaimOutcome::TimedOut | ReclaimOutcome::Refused | ReclaimOutcome::Skipped => false,
    }
}

/// Returns how long after an attempt no other one starts.
pub fn rest(took: Duration, cool_down: Duration) -> Duration {
    cool_down.max(took.saturating_mul(REST_SHARE))
}

#[cfg(test)]
#[path = "proactive_reclaim_tests.rs"]
mod tests;
