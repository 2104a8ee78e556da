//! Whose an OOM kill was when the kernel's log does not tell the victim's cgroup: the workload's whose own counter of kills rose, where
//! no other can have been meant. Pure.

use std::collections::HashMap;
use std::time::Duration;

use crate::node::Monotonic;

/// In a storm of kills the counters of all workloads are not read for each.
const PAUSE: Duration = Duration::from_millis(250);
/// Where there are many workloads, this many times as long as the last reading took.
const PAUSE_SHARE: u32 = 20;
/// Kills held for one reading; the log is read in smaller portions.
const HELD: usize = 4096;

/// Kills that wait for the counters, and what these are compared with.
#[derive(Debug)]
pub(super) struct ByCounters<K> {
    held: Vec<K>,
    /// Kills logged since the counters were last read.
    logged: u64,
    /// Those of them whose workload the log told.
    told: HashMap<String, u64>,
    /// The kernel's count of all kills when the counters were last read.
    total: Option<u64>,
    /// Not before this time are they read again.
    rests_until: Option<Monotonic>,
}

impl<K> Default for ByCounters<K> {
    fn default() -> Self {
        Self { held: Vec::new(), logged: 0, told: HashMap::new(), total: None, rests_until: None }
    }
}

impl<K> ByCounters<K> {
    /// Takes note of a kill that the log told of, and of its workload as far as it told that.
    pub(super) fn logged(&mut self, workload: Option<&str>) {
        self.logged += 1;
        let Some(workload) = workload else { return };
        match self.told.get_mut(workload) {
            Some(told) => *told += 1,
            None => drop(self.told.insert(workload.to_owned(), 1)),
        }
    }

    /// Keeps a kill until the counters are read.
    pub(super) fn hold(&mut self, kill: K) {
        self.held.push(kill);
    }

    /// How long until the counters are to be read for a kill that is held.
    pub(super) fn due(&self, now: Monotonic) -> Option<Duration> {
        if self.held.is_empty() {
            return None;
        }
        let rest = self.rests_until.map_or(Duration::ZERO, |until| until.since(now));
        Some(if self.held.len() >= HELD { Duration::ZERO } else { rest })
    }

    /// Takes in the counters: by how much each workload's `risen` since they were last read, and then the `total` of all kills that the
    /// kernel counted. Returns the kills that were held, and whose all of them were, if that is certain.
    pub(super) fn compare(
        &mut self,
        risen: Vec<(String, u64)>,
        total: Option<u64>,
        started: Monotonic,
        ended: Monotonic,
    ) -> (Vec<K>, Option<String>) {
        let held = std::mem::take(&mut self.held);
        let told = std::mem::take(&mut self.told);
        let logged = std::mem::take(&mut self.logged);
        let before = std::mem::replace(&mut self.total, total);
        self.rests_until = Some(ended.after(PAUSE.max(ended.since(started).saturating_mul(PAUSE_SHARE))));
        // A kill that was counted and is still to be logged may be the one that made a counter rise.
        let is_all_logged = total.zip(before).is_some_and(|(total, before)| total.saturating_sub(before) == logged);
        let untold = |(workload, risen): (String, u64)| {
            let rest = risen.saturating_sub(told.get(&workload).copied().unwrap_or(0));
            (rest > 0).then_some((workload, rest))
        };
        let mut untold = risen.into_iter().filter_map(untold);
        let whose = match (untold.next(), untold.next()) {
            // Fewer than are held: the others were of somebody who is gone.
            (Some((workload, rest)), None) if is_all_logged && rest == held.len() as u64 => Some(workload),
            _ => None,
        };
        (held, whose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Whose `held` kills are found to be, after the log told of these workloads' kills.
    fn whose(told: &[&str], held: usize, risen: &[(&str, u64)], total: Option<u64>) -> Option<String> {
        let mut counters = ByCounters::<()>::default();
        counters.compare(Vec::new(), Some(1000), Monotonic(0), Monotonic(0));
        told.iter().for_each(|workload| counters.logged(Some(workload)));
        for _ in 0..held {
            counters.logged(None);
            counters.hold(());
        }
        let risen = risen.iter().map(|(workload, kills)| ((*workload).to_owned(), *kills)).collect();
        let (returned, whose) = counters.compare(risen, total, Monotonic(0), Monotonic(0));
        assert_eq!(returned.len(), held);
        assert_eq!(counters.due(Monotonic(0)), None, "nothing is left");
        whose
    }

    #[test]
    fn only_the_one_that_can_have_been_meant() {
        let a = Some("a".to_owned());
        for (name, told, held, risen, total, expected) in [
            ("one kill, one counter", &[][..], 1, &[("a", 1)][..], Some(1001), a.clone()),
            ("a storm in one workload", &["a", "a"], 5, &[("a", 7)], Some(1007), a.clone()),
            ("the others were told", &["b", "b"], 2, &[("a", 2), ("b", 2)], Some(1004), a),
            ("two may be meant", &[], 2, &[("a", 1), ("b", 1)], Some(1002), None),
            ("a victim's cgroup is gone with its counter", &[], 2, &[("a", 1)], Some(1002), None),
            ("no counter rose", &[], 1, &[], Some(1001), None),
            ("another was counted and is not logged yet", &[], 1, &[("a", 1)], Some(1002), None),
            ("logged, and counted before the last reading", &[], 1, &[("a", 1)], Some(1000), None),
            ("the total is not known", &[], 1, &[("a", 1)], None, None),
        ] {
            assert_eq!(whose(told, held, risen, total), expected, "{name}");
        }
    }

    #[test]
    fn counters_are_read_now_and_then() {
        let mut counters = ByCounters::<()>::default();
        counters.hold(());
        assert_eq!(counters.due(Monotonic(0)), Some(Duration::ZERO), "the first at once");
        // It took 50 ms.
        counters.compare(Vec::new(), None, Monotonic(0), Monotonic(50 * MS));
        counters.hold(());
        assert_eq!(counters.due(Monotonic(50 * MS)), Some(Duration::from_secs(1)));
        assert_eq!(counters.due(Monotonic(2000 * MS)), Some(Duration::ZERO));
    }
}
