//! The health of the loop: its last turn, whether it samples, and the capabilities that are missing.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use crate::units::{CapabilityChange, Degradations, lock};

/// The loop hangs if its last turn is older than this, even if the sampling ceiling is short.
const SHORTEST_HANG: Duration = Duration::from_secs(10);

/// The age of the last turn at which the loop hangs; `ceiling` is the longest time between two turns.
pub fn hang_limit(ceiling: Duration) -> Duration {
    ceiling.saturating_mul(3).max(SHORTEST_HANG)
}

/// Shared by the loop, which sets it, and `/healthz` and `/readyz`.
#[derive(Debug)]
pub struct Health {
    state: Mutex<HealthState>,
}

#[derive(Debug)]
struct HealthState {
    limit: Duration,
    last_turn: Instant,
    not_ready: Option<String>,
    degradations: Degradations,
}

impl Health {
    /// Starts alive and not ready. `limit` is that of [`hang_limit`].
    pub fn new(limit: Duration, now: Instant) -> Self {
        let (not_ready, degradations) = (Some("starting".to_owned()), Degradations::default());
        Self { state: Mutex::new(HealthState { limit, last_turn: now, not_ready, degradations }) }
    }

    pub fn beat(&self, now: Instant) {
        lock(&self.state).last_turn = now;
    }

    pub fn set_limit(&self, limit: Duration) {
        lock(&self.state).limit = limit;
    }

    /// Sets whether sampling works. The error is the reason for a failure.
    pub fn set_ready(&self, ready: Result<(), String>) {
        lock(&self.state).not_ready = ready.err();
    }

    /// Sets the reason for a missing capability, or `None` if it is available. The caller logs the change.
    pub fn set_degradation(&self, capability: &str, reason: Option<&str>) -> CapabilityChange {
        lock(&self.state).degradations.set(capability, reason)
    }

    pub fn degradations(&self) -> Degradations {
        lock(&self.state).degradations.clone()
    }

    pub(super) fn healthz(&self, now: Instant) -> (StatusCode, String) {
        let HealthState { limit, last_turn, .. } = *lock(&self.state);
        let age = now.saturating_duration_since(last_turn);
        if age < limit {
            return (StatusCode::OK, "ok\n".to_owned());
        }
        let text = format!(
            "the last turn of the loop was {:.1} s ago, limit {:.1} s\n",
            age.as_secs_f64(),
            limit.as_secs_f64()
        );
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }

    pub(super) fn readyz(&self) -> (StatusCode, String) {
        let state = lock(&self.state);
        let (status, mut text) = match &state.not_ready {
            None => (StatusCode::OK, "ready\n".to_owned()),
            Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
        };
        for (capability, reason) in state.degradations.iter() {
            text.push_str(&format!("degraded: {capability}: {reason}\n"));
        }
        (status, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_the_age_of_the_last_turn() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let health = Health::new(Duration::from_secs(30), start);
        assert_eq!(health.healthz(after(29)).0, StatusCode::OK);
        let (status, text) = health.healthz(after(30));
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "the last turn of the loop was 30.0 s ago, limit 30.0 s\n");
        health.beat(after(30));
        assert_eq!(health.healthz(after(31)).0, StatusCode::OK);
        // A turn later than the reader's clock is young.
        assert_eq!(health.healthz(start).0, StatusCode::OK);
    }
}
