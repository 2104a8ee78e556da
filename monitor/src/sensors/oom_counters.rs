//! Finds the workload of OOM kills that the kernel's log reports without a cgroup. It is the workload whose own counter of kills
//! rose, if there is only one such workload. Pure.

use std::collections::HashMap;
use std::time::Duration;

use crate::units::Monotonic;

/// The shortest pause between two readings of all counters, during many kills.
const PAUSE: Duration = Duration::from_millis(250);
/// With many workloads the pause is this many times as long as a reading takes.
const PAUSE_SHARE: u32 = 20;
/// During many kills the counters may be ahead of the log. Kills are held for at most this long until the log catches up.
const LONGEST_HOLD: Duration = Duration::from_secs(1);
/// The most kills that are held for one reading. One read of the log returns fewer.
const HELD: usize = 4096;

/// The held kills, and the figures that the next reading of the counters is compared with.
#[derive(Debug)]
pub(super) struct ByCounters<K> {
    held: Vec<K>,
    held_since: Option<Monotonic>,
    /// Kills logged since the mark.
    logged: u64,
    /// Kills logged since the mark with a workload in the log, by workload.
    named: HashMap<String, u64>,
    /// By how much each workload's counter has risen since the mark.
    risen: HashMap<String, u64>,
    /// The mark: the kernel's count of all kills at the last reading.
    total: Option<u64>,
    /// The earliest time of the next reading.
    not_before: Option<Monotonic>,
}

impl<K> Default for ByCounters<K> {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            held_since: None,
            logged: 0,
            named: HashMap::new(),
            risen: HashMap::new(),
            total: None,
            not_before: None,
        }
    }
}

impl<K> ByCounters<K> {
    /// Counts a kill of the log, for its workload if the log names it.
    pub(super) fn logged(&mut self, workload: Option<&str>) {
        self.logged += 1;
        let Some(workload) = workload else { return };
        match self.named.get_mut(workload) {
            Some(named) => *named += 1,
            None => drop(self.named.insert(workload.to_owned(), 1)),
        }
    }

    /// Holds a kill until the counters are read.
    pub(super) fn hold(&mut self, kill: K, now: Monotonic) {
        self.held_since.get_or_insert(now);
        self.held.push(kill);
    }

    /// Returns how long until the next reading; nothing while no kill is held.
    pub(super) fn due(&self, now: Monotonic) -> Option<Duration> {
        if self.held.is_empty() {
            return None;
        }
        let rest = self.not_before.map_or(Duration::ZERO, |until| until.since(now));
        Some(if self.held.len() >= HELD { Duration::ZERO } else { rest })
    }

    /// Compares a reading: the rise of each workload's counter since the last one, `risen`, and then the `total` of all kills.
    /// Returns the kills to be reported now, and their common workload if that is certain.
    pub(super) fn compare(
        &mut self,
        risen: Vec<(String, u64)>,
        total: Option<u64>,
        started: Monotonic,
        ended: Monotonic,
    ) -> (Vec<K>, Option<String>) {
        self.not_before = Some(ended.after(PAUSE.max(ended.since(started).saturating_mul(PAUSE_SHARE))));
        for (workload, kills) in risen {
            *self.risen.entry(workload).or_default() += kills;
        }
        // A kill that is counted but not logged yet may be the one that raised a counter.
        let is_all_logged = total.zip(self.total).is_some_and(|(now, then)| now.saturating_sub(then) == self.logged);
        let may_wait = self.held_since.is_some_and(|since| ended.since(since) < LONGEST_HOLD);
        if total.is_some() && !is_all_logged && may_wait && self.held.len() < HELD {
            return (Vec::new(), None);
        }
        let workload = if is_all_logged { self.workload_of_held() } else { None };
        let held = std::mem::take(&mut self.held);
        *self = Self { total, not_before: self.not_before, ..Self::default() };
        (held, workload)
    }

    /// Returns the only workload whose counter rose by more kills than the log named.
    fn workload_of_held(&mut self) -> Option<String> {
        let named = &self.named;
        let unnamed = |(workload, risen): (String, u64)| {
            let rest = risen.saturating_sub(named.get(&workload).copied().unwrap_or(0));
            (rest > 0).then_some((workload, rest))
        };
        let mut unnamed = self.risen.drain().filter_map(unnamed);
        match (unnamed.next(), unnamed.next()) {
            // A smaller rise than the number of held kills means that the others were in a cgroup that was removed.
            (Some((workload, rest)), None) if rest == self.held.len() as u64 => Some(workload),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns the workload of `held` kills, after the log has named `told` as the workloads of other kills.
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
        assert_eq!(counters.due(Monotonic(1000 * MS)), None, "no kill is held any more");
        whose
    }

    #[test]
    fn the_only_workload_with_unnamed_kills_is_found() {
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
    fn readings_have_a_pause_between_them() {
        let mut counters = ByCounters::<()>::default();
        counters.hold((), Monotonic(0));
        assert_eq!(counters.due(Monotonic(0)), Some(Duration::ZERO), "the first at once");
        // The reading took 50 ms.
        counters.compare(Vec::new(), None, Monotonic(0), Monotonic(50 * MS));
        counters.hold((), Monotonic(50 * MS));
        assert_eq!(counters.due(Monotonic(50 * MS)), Some(Duration::from_secs(1)));
        assert_eq!(counters.due(Monotonic(2000 * MS)), Some(Duration::ZERO));
    }

    #[test]
    fn kills_are_held_until_the_log_catches_up() {
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
        // The agent does not wait for ever.
        counters.logged(None);
        counters.hold(3, at(1000));
        assert_eq!(counters.compare(rose(2), Some(14), at(1000), at(1000)), (vec![], None));
        assert_eq!(counters.compare(vec![], Some(14), at(2000), at(2000)), (vec![3], None));
    }
}
