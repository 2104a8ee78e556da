//! Whose an OOM kill was when the kernel's log does not tell the victim's cgroup: the workload's whose own counter of kills rose, where
//! no other can have been meant. Pure.

use std::collections::HashMap;
use std::time::Duration;

use crate::units::Monotonic;

/// In a storm of kills the counters of all workloads are not read for each.
const PAUSE: Duration = Duration::from_millis(250);
/// Where there are many workloads, this many times as long as the last reading took.
const PAUSE_SHARE: u32 = 20;
/// While more kills come all the time, the counters and the log are not at the same point; so long it is tried again.
const PATIENCE: Duration = Duration::from_secs(1);
/// Kills held for one reading; the log is read in smaller portions.
const HELD: usize = 4096;

/// Kills that wait for the counters, and what these are compared with.
#[derive(Debug)]
pub(super) struct ByCounters<K> {
    held: Vec<K>,
    held_since: Option<Monotonic>,
    /// Kills logged since the mark.
    logged: u64,
    /// Those of them whose workload the log told.
    told: HashMap<String, u64>,
    /// By how much each workload's counter has risen since the mark.
    risen: HashMap<String, u64>,
    /// The mark: what the kernel had counted in all.
    total: Option<u64>,
    /// Not before this time are they read again.
    rests_until: Option<Monotonic>,
}

impl<K> Default for ByCounters<K> {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            held_since: None,
            logged: 0,
            told: HashMap::new(),
            risen: HashMap::new(),
            total: None,
            rests_until: None,
        }
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
    pub(super) fn hold(&mut self, kill: K, now: Monotonic) {
        self.held_since.get_or_insert(now);
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
    /// kernel counted. Returns the kills that are to be told now, and whose all of them were, if that is certain.
    pub(super) fn compare(
        &mut self,
        risen: Vec<(String, u64)>,
        total: Option<u64>,
        started: Monotonic,
        ended: Monotonic,
    ) -> (Vec<K>, Option<String>) {
        self.rests_until = Some(ended.after(PAUSE.max(ended.since(started).saturating_mul(PAUSE_SHARE))));
        for (workload, kills) in risen {
            *self.risen.entry(workload).or_default() += kills;
        }
        // A kill that was counted and is still to be logged may be the one that made a counter rise.
        let is_all_logged = total.zip(self.total).is_some_and(|(now, then)| now.saturating_sub(then) == self.logged);
        let is_patient = self.held_since.is_some_and(|since| ended.since(since) < PATIENCE);
        if total.is_some() && !is_all_logged && is_patient && self.held.len() < HELD {
            return (Vec::new(), None);
        }
        let whose = if is_all_logged { self.whose() } else { None };
        let held = std::mem::take(&mut self.held);
        *self = Self { total, rests_until: self.rests_until, ..Self::default() };
        (held, whose)
    }

    /// The only workload whose counter rose by more kills than the log told of.
    fn whose(&mut self) -> Option<String> {
        let told = &self.told;
        let untold = |(workload, risen): (String, u64)| {
            let rest = risen.saturating_sub(told.get(&workload).copied().unwrap_or(0));
            (rest > 0).then_some((workload, rest))
        };
        let mut untold = self.risen.drain().filter_map(untold);
        match (untold.next(), untold.next()) {
            // Fewer than are held: the others were of somebody who is gone.
            (Some((workload, rest)), None) if rest == self.held.len() as u64 => Some(workload),
            _ => None,
        }
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
            counters.hold((), Monotonic(0));
        }
        let risen = risen.iter().map(|(workload, kills)| ((*workload).to_owned(), *kills)).collect();
        let (returned, whose) = counters.compare(risen, total, Monotonic(0), Monotonic(1000 * MS));
        assert_eq!(returned.len(), held);
        assert_eq!(counters.due(Monotonic(1000 * MS)), None, "nothing is left");
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
        counters.hold((), Monotonic(0));
        assert_eq!(counters.due(Monotonic(0)), Some(Duration::ZERO), "the first at once");
        // It took 50 ms.
        counters.compare(Vec::new(), None, Monotonic(0), Monotonic(50 * MS));
        counters.hold((), Monotonic(50 * MS));
        assert_eq!(counters.due(Monotonic(50 * MS)), Some(Duration::from_secs(1)));
        assert_eq!(counters.due(Monotonic(2000 * MS)), Some(Duration::ZERO));
    }

    #[test]
    fn what_is_counted_and_not_logged_yet_is_waited_for() {
        let mut counters = ByCounters::<u32>::default();
        let at = |ms: u64| Monotonic(ms * MS);
        counters.compare(Vec::new(), Some(10), at(0), at(0));
        counters.logged(None);
        counters.hold(1, at(300));
        let rose = |kills| vec![("a".to_owned(), kills)];
        assert_eq!(counters.compare(rose(2), Some(12), at(300), at(300)), (vec![], None));
        counters.logged(None);
        counters.hold(2, at(310));
        assert_eq!(counters.due(at(310)), Some(Duration::from_millis(240)));
        let told = counters.compare(vec![], Some(12), at(550), at(550));
        assert_eq!(told, (vec![1, 2], Some("a".to_owned())));
        // Not for ever.
        counters.logged(None);
        counters.hold(3, at(1000));
        assert_eq!(counters.compare(rose(2), Some(14), at(1000), at(1000)), (vec![], None));
        assert_eq!(counters.compare(vec![], Some(14), at(2000), at(2000)), (vec![3], None));
    }
}
