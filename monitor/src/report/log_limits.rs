//! Rate limits of records that a lasting fault repeats.

use std::time::Duration;

use super::RateLimiter;
use super::record::Record;
use crate::kernel::Event;
use crate::units::Monotonic;

#[derive(Debug)]
pub(super) struct LogLimits {
    crossings: RateLimiter,
    exhausted: RateLimiter,
    waits: RateLimiter,
    put_off: RateLimiter,
    unknown_pods: RateLimiter,
    stalls: RateLimiter,
    oom_kills: RateLimiter,
    oom_scores: RateLimiter,
    capabilities: RateLimiter,
    dropped_events: RateLimiter,
}

impl Default for LogLimits {
    fn default() -> Self {
        let seldom = || RateLimiter::new(1, Duration::from_secs(10));
        let often = || RateLimiter::new(10, Duration::from_secs(1));
        Self {
            crossings: RateLimiter::new(20, Duration::from_secs(1)),
            exhausted: seldom(),
            waits: seldom(),
            put_off: seldom(),
            unknown_pods: seldom(),
            stalls: often(),
            oom_kills: RateLimiter::new(200, Duration::from_millis(100)),
            oom_scores: often(),
            capabilities: RateLimiter::new(100, Duration::from_secs(1)),
            dropped_events: seldom(),
        }
    }
}

impl LogLimits {
    /// Returns how many records were suppressed before this one; `None` suppresses this one.
    pub(super) fn admit(&mut self, record: &Record<'_>, now: Monotonic) -> Option<u64> {
        let limiter = match record {
            Record::ThresholdMet { .. } | Record::ThresholdRecovered { .. } => &mut self.crossings,
            Record::CandidatesExhausted { .. } | Record::BudgetSpent { .. } => &mut self.exhausted,
            Record::EvictionWaits { .. } => &mut self.waits,
            Record::EvictionPutOff { .. } => &mut self.put_off,
            Record::PodUnknown { .. } | Record::EvictionUnreported { .. } => &mut self.unknown_pods,
            Record::KernelEvent { event: Event::Stall(_), .. } => &mut self.stalls,
            Record::OomKill(_) => &mut self.oom_kills,
            Record::OomScoreDrift { .. } | Record::OwnOomScore { .. } => &mut self.oom_scores,
            Record::Degraded { .. } | Record::Restored { .. } => &mut self.capabilities,
            Record::EventDropped { .. } => &mut self.dropped_events,
            Record::ConditionChanged { suppressed, .. } => return Some(*suppressed),
            _ => return Some(0),
        };
        limiter.admit(now)
    }

    /// Whether the metrics count a suppressed record too. Records that describe a lasting state are counted as often as they are logged.
    pub(super) const fn is_counted_always(record: &Record<'_>) -> bool {
        !matches!(record, Record::CandidatesExhausted { .. } | Record::EvictionPutOff { .. })
    }
}
