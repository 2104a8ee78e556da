//! Pairs each OOM kill that one source reports with the log's report of the same kill. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::{Monotonic, Pid};

/// How long a kill waits for its report. The kernel writes the report before the victim exits, so a wait is rare.
const KILL_WAIT: Duration = Duration::from_millis(100);
/// How long a report waits for its kill, because a victim may take long to exit.
const REPORT_WAIT: Duration = Duration::from_secs(30);
/// The most reports that wait.
const MOST_REPORTS: usize = 1024;

/// Kills and reports that wait for each other, by the victim's process id.
#[derive(Debug)]
pub struct Pairing<K, R> {
    kills: VecDeque<(Pid, Monotonic, K)>,
    reports: VecDeque<(Pid, Monotonic, R)>,
}

impl<K, R> Default for Pairing<K, R> {
    fn default() -> Self {
        Self { kills: VecDeque::new(), reports: VecDeque::new() }
    }
}

impl<K, R> Pairing<K, R> {
    pub fn report(&mut self, victim: Pid, report: R, now: Monotonic) {
        self.reports.retain(|(_, at, _)| now.since(*at) < REPORT_WAIT);
        if self.reports.len() >= MOST_REPORTS {
            self.reports.pop_front();
        }
        self.reports.push_back((victim, now, report));
    }

    pub fn kill(&mut self, victim: Pid, kill: K, now: Monotonic) {
        self.kills.push_back((victim, now, kill));
    }

    /// Returns the oldest kill with its report, or without one when the wait for it is over.
    pub fn next(&mut self, now: Monotonic) -> Option<(K, Option<R>)> {
        let (victim, since, _) = self.kills.front()?;
        // The kernel reuses process ids, so the oldest report belongs to the oldest kill.
        let place = self.reports.iter().position(|(pid, ..)| pid == victim);
        if place.is_none() && now.since(*since) < KILL_WAIT {
            return None;
        }
        let report = place.and_then(|place| self.reports.remove(place)).map(|(.., report)| report);
        self.kills.pop_front().map(|(.., kill)| (kill, report))
    }

    /// Returns after how long [`Self::next`] returns the oldest kill at the latest.
    pub fn due(&self, now: Monotonic) -> Option<Duration> {
        self.kills.front().map(|(_, since, _)| KILL_WAIT.saturating_sub(now.since(*since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Monotonic {
        Monotonic(millis * 1_000_000)
    }

    #[test]
    fn kills_and_reports_wait_for_each_other() {
        let mut pairing: Pairing<&str, &str> = Pairing::default();
        pairing.report(Pid(7), "of seven", at(0));
        pairing.kill(Pid(7), "seven", at(1));
        pairing.kill(Pid(8), "eight", at(1));
        pairing.kill(Pid(9), "nine", at(2));
        assert_eq!(pairing.next(at(2)), Some(("seven", Some("of seven"))));
        assert_eq!((pairing.next(at(2)), pairing.due(at(2))), (None, Some(Duration::from_millis(99))));
        pairing.report(Pid(9), "of nine", at(50));
        assert_eq!(pairing.next(at(50)), None, "in their order");
        assert_eq!(pairing.next(at(101)), Some(("eight", None)), "not for ever");
        assert_eq!(pairing.next(at(101)), Some(("nine", Some("of nine"))));
        assert_eq!((pairing.next(at(101)), pairing.due(at(101))), (None, None));
    }

    #[test]
    fn a_report_without_a_kill_expires() {
        let mut pairing: Pairing<(), u64> = Pairing::default();
        pairing.report(Pid(7), 1, at(0));
        pairing.report(Pid(8), 2, at(40_000));
        pairing.kill(Pid(7), (), at(40_000));
        assert_eq!(pairing.next(at(40_200)), Some(((), None)));
        for number in 0..2000 {
            pairing.report(Pid(1), number, at(41_000));
        }
        pairing.kill(Pid(1), (), at(41_000));
        assert_eq!(pairing.next(at(41_000)), Some(((), Some(2000 - 1024))));
    }
}
