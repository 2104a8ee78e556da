//! How much is logged of what repeats.

use std::time::{Duration, Instant};

use crate::report::{RateLimiter, Verdict};

/// Limiters of the log lines that a bad hour could repeat without end.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) sampling: RateLimiter,
    pub(super) crossings: RateLimiter,
    pub(super) exhausted: RateLimiter,
    pub(super) pending: RateLimiter,
    pub(super) put_off: RateLimiter,
    pub(super) unknown_pods: RateLimiter,
    pub(super) stalls: RateLimiter,
    pub(super) oom_kills: RateLimiter,
    pub(super) scan: RateLimiter,
    pub(super) adj: RateLimiter,
    pub(super) drift: RateLimiter,
    pub(super) events: RateLimiter,
}

impl Default for Limits {
    fn default() -> Self {
        let seldom = RateLimiter::new(1, Duration::from_secs(10));
        let often = RateLimiter::new(10, Duration::from_secs(1));
        let oom_kills = RateLimiter::new(200, Duration::from_millis(100));
        Self {
            sampling: seldom.clone(),
            crossings: RateLimiter::new(20, Duration::from_secs(1)),
            exhausted: seldom.clone(),
            pending: seldom.clone(),
            put_off: seldom.clone(),
            unknown_pods: seldom.clone(),
            stalls: often.clone(),
            drift: often,
            oom_kills,
            scan: seldom.clone(),
            events: seldom.clone(),
            adj: seldom,
        }
    }
}

/// How many lines were held back, when this one may be written.
pub(super) fn allow(limiter: &mut RateLimiter) -> Option<u64> {
    allow_at(limiter, Instant::now())
}

pub(super) fn allow_at(limiter: &mut RateLimiter, now: Instant) -> Option<u64> {
    match limiter.check(now) {
        Verdict::Write { suppressed } => Some(suppressed),
        Verdict::Suppress => None,
    }
}
