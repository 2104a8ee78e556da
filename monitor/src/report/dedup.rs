//! Deduplication of log lines and events.

use std::time::Duration;

use crate::units::Monotonic;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternating_keys_are_due_once_an_interval_each() {
        let mut dedup = Dedup::new(Duration::from_secs(60));
        let due = |dedup: &mut Dedup<u64>, second| dedup.is_due(second % 2, Monotonic(second * 1_000_000_000));
        let at: Vec<u64> = (0..200).filter(|second| due(&mut dedup, *second)).collect();
        assert_eq!(at, [0, 1, 60, 61, 120, 121, 180, 181]);
        dedup.clear();
        assert!(due(&mut dedup, 200));
    }
}
