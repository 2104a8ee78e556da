//! What was said not long ago, and is not said again yet.

use std::time::Duration;

use crate::units::Monotonic;

/// Remembers what was said for a while. Two answers that take turns are said once each, not each time they change.
#[derive(Debug)]
pub(super) struct Said<K> {
    for_so_long: Duration,
    said: Vec<(K, Monotonic)>,
}

impl<K: PartialEq> Said<K> {
    pub(super) fn new(for_so_long: Duration) -> Self {
        Self { for_so_long, said: Vec::new() }
    }

    /// Whether it is to be said now; then it counts as said.
    pub(super) fn is_due(&mut self, what: K, now: Monotonic) -> bool {
        self.said.retain(|(_, at)| now.since(*at) < self.for_so_long);
        let is_due = self.said.iter().all(|(said, _)| *said != what);
        if is_due {
            self.said.push((what, now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_take_turns_are_said_once_a_minute_each() {
        let mut said = Said::new(Duration::from_secs(60));
        let due: Vec<bool> =
            (0..200_u64).map(|second| said.is_due(second % 2, Monotonic(second * 1_000_000_000))).collect();
        let at: Vec<usize> = due.iter().enumerate().filter(|(_, due)| **due).map(|(second, _)| second).collect();
        assert_eq!(at, [0, 1, 60, 61, 120, 121, 180, 181]);
        assert_eq!(said.said.len(), 2);
    }
}
