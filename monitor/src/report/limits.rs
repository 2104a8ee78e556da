//! Limits of what a lasting fault or a flickering value would repeat: log lines, events and token reviews.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::record::Record;
use crate::kernel::Event;
use crate::units::Monotonic;

/// Admits `burst` lines at once, and then one every `interval`.
///
/// This is the generic cell rate algorithm: it keeps the time at which a line that conforms exactly to the rate would be due, so that no
/// tokens have to be refilled.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    interval: Duration,
    /// How far ahead of the rate a line may be.
    tolerance: Duration,
    due: Option<Monotonic>,
    suppressed: u64,
}

impl RateLimiter {
    /// A burst of zero counts as one.
    pub fn new(burst: u32, interval: Duration) -> Self {
        Self { interval, tolerance: interval.saturating_mul(burst.saturating_sub(1)), due: None, suppressed: 0 }
    }

    /// Returns how many lines were suppressed since the last admitted one; `None` suppresses this line.
    pub fn admit(&mut self, now: Monotonic) -> Option<u64> {
        let due = self.due.map_or(now, |due| due.max(now));
        if due.since(now) > self.tolerance {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.due = Some(due.after(self.interval));
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Keys reported within the last `interval`. Two keys that alternate are reported once each, not at every change.
#[derive(Debug)]
pub struct Dedup<K> {
    interval: Duration,
    reported: Vec<(K, Monotonic)>,
}

impl<K: PartialEq> Dedup<K> {
    pub const fn new(interval: Duration) -> Self {
        Self { interval, reported: Vec::new() }
    }

    /// Whether the key is to be reported now; if so, records it as reported.
    pub fn is_due(&mut self, key: K, now: Monotonic) -> bool {
        self.reported.retain(|(_, at)| now.since(*at) < self.interval);
        let is_due = self.reported.iter().all(|(reported, _)| *reported != key);
        if is_due {
            self.reported.push((key, now));
        }
        is_due
    }

    pub fn clear(&mut self) {
        self.reported.clear();
    }
}

/// A condition with a short transition period may flicker: this many changes are reported at once, then one every `INTERVAL`.
const BURST: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(10);

/// The status of each condition that was reported last.
#[derive(Debug, Default)]
pub struct ConditionLog {
    reported: BTreeMap<String, Reported>,
}

#[derive(Debug)]
struct Reported {
    status: bool,
    limiter: RateLimiter,
    /// The status as seen, reported or not.
    seen: bool,
    /// When it was seen to change last.
    since: Option<Monotonic>,
}

impl ConditionLog {
    /// Returns how many changes were suppressed before, if the status differs from the reported one and may be reported now. A suppressed
    /// change is reported later if it still holds. A condition that is false when first seen is no change.
    pub fn update(&mut self, condition: &str, status: bool, now: Monotonic) -> Option<u64> {
        if !self.reported.contains_key(condition) {
            let limiter = RateLimiter::new(BURST, INTERVAL);
            self.reported.insert(condition.to_owned(), Reported { status: false, limiter, seen: status, since: None });
        }
        let reported = self.reported.get_mut(condition)?;
        if reported.seen != status {
            (reported.seen, reported.since) = (status, Some(now));
        }
        if reported.status == status {
            return None;
        }
        let suppressed = reported.limiter.admit(now)?;
        reported.status = status;
        Some(suppressed)
    }

    /// Returns the conditions that have changed since the first look, and when they did last.
    pub fn changes(&self) -> Vec<(String, Monotonic)> {
        self.reported.iter().filter_map(|(condition, it)| Some((condition.clone(), it.since?))).collect()
    }

    /// Drops a condition that the configuration no longer has. If it returns, it starts as false.
    pub fn forget(&mut self, condition: &str) {
        self.reported.remove(condition);
    }
}

/// The limits of records, by the kind of fault.
#[derive(Debug, Default)]
pub(super) struct LogLimits(HashMap<&'static str, RateLimiter>);

impl LogLimits {
    /// Returns how many records were suppressed before this one; `None` suppresses this one.
    pub(super) fn admit(&mut self, record: &Record<'_>, now: Monotonic) -> Option<u64> {
        let seldom = (1, Duration::from_secs(10));
        let often = (10, Duration::from_secs(1));
        let (kind, (burst, interval)) = match record {
            Record::ThresholdMet { .. } | Record::ThresholdRecovered { .. } => {
                ("crossings", (20, Duration::from_secs(1)))
            }
            Record::ThresholdUnarmed { .. } | Record::ThresholdArmed { .. } => {
                ("arming", (20, Duration::from_secs(10)))
            }
            Record::CandidatesExhausted { .. } | Record::BudgetSpent { .. } => ("exhausted", seldom),
            Record::EvictionWaits { .. } | Record::MemoryExpected { .. } => ("waits", seldom),
            Record::LeftToKubelet { .. } => ("left to the kubelet", seldom),
            Record::SwapKeepsUp { .. } => ("swap keeps up", seldom),
            Record::SwapFallsShort { .. } => ("swap falls short", seldom),
            Record::ProtectedLeak { .. } => ("protected leak", seldom),
            Record::RefaultsOnly { .. } => ("refaults", seldom),
            Record::PodsAwaited { .. } => ("pods awaited", seldom),
            Record::EvictionPutOff { .. } => ("put off", seldom),
            Record::PodUnknown { .. } | Record::EvictionUnreported { .. } | Record::EvictionRestLeft { .. } => {
                ("unknown pods", seldom)
            }
            Record::KernelEvent { event: Event::Stall(_), .. } => ("stalls", often),
            Record::OomKill(_) => ("OOM kills", (200, Duration::from_millis(100))),
            Record::OomScoreDrift { .. } | Record::OwnOomScore { .. } => ("OOM scores", often),
            Record::Degraded { .. } | Record::Restored { .. } => ("capabilities", (100, Duration::from_secs(1))),
            Record::EventDropped { .. } => ("dropped events", seldom),
            Record::ConditionChanged { suppressed, .. } => return Some(*suppressed),
            _ => return Some(0),
        };
        self.0.entry(kind).or_insert_with(|| RateLimiter::new(burst, interval)).admit(now)
    }

    /// Whether the metrics count a suppressed record too. Records that describe a lasting state are counted as often as they are logged.
    pub(super) const fn is_counted_always(record: &Record<'_>) -> bool {
        !matches!(
            record,
            Record::CandidatesExhausted { .. } | Record::ProtectedLeak { .. } | Record::EvictionPutOff { .. }
        )
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
