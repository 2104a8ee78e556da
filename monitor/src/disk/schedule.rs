//! Chooses the next workload to measure, and computes how long the thread can wait.

use std::collections::BTreeMap;
use std::time::Duration;

use super::workload_places::WorkloadPlaces;
use crate::units::Monotonic;

/// The interval of measurements of an ordinary workload while they are cheap.
const QUIET: Duration = Duration::from_secs(60);
/// Measurements of ordinary workloads together take at most a thousandth of a CPU.
const QUIET_FACTOR: u32 = 1000;
/// The maximum interval, without and with a known limit of disk usage. It is needed because growing files generate no event.
const LONGEST_QUIET: Duration = Duration::from_secs(15 * 60);
const LONGEST_QUIET_LIMITED: Duration = Duration::from_secs(2 * 60);
/// The interval for a workload with a limit while measurements are cheap. It equals the interval at which limits are checked.
const QUIET_LIMITED: Duration = Duration::from_secs(10);
/// Measurements of all workloads with a limit take at most a five-hundredth of a CPU, in equal parts.
const QUIET_LIMITED_FACTOR: u32 = 500;
/// The interval for a workload whose inode counters rise. It is at least a multiple of the duration of a measurement, so that the
/// others are measured as well.
const PRIORITIZED: Duration = Duration::from_secs(2);
const PRIORITIZED_FACTOR: u32 = 3;
/// While a filesystem is running full, all workloads are measured repeatedly. This ends when no victim had to be chosen for this
/// long.
const PRESSED_FOR: Duration = Duration::from_secs(60);
const PRESSED: Duration = Duration::from_secs(5);
const PRESSED_FACTOR: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// When the measurement began. Later writes may not be included.
    pub began: Monotonic,
    pub at: Monotonic,
    /// The duration, including pauses.
    pub took: Duration,
    pub cpu: Duration,
}

#[derive(Debug)]
struct Entry {
    places: WorkloadPlaces,
    is_prioritized: bool,
    /// Whether its measurement is running or suspended.
    is_begun: bool,
    last: Option<Timing>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Measure this workload, whose files are changing.
    Prioritized(WorkloadPlaces),
    Due(WorkloadPlaces),
    /// Wait this long, unless there are new orders.
    Wait(Duration),
    Nothing,
}

#[derive(Debug, Default)]
pub struct Schedule {
    entries: BTreeMap<String, Entry>,
    pressed: Option<Monotonic>,
    /// Workloads whose measurement began before this time are due.
    invalidated: Monotonic,
}

impl Schedule {
    pub fn set_workloads(&mut self, workloads: Vec<WorkloadPlaces>) {
        let mut before = std::mem::take(&mut self.entries);
        for places in workloads {
            let known = before.remove(&places.workload).filter(|known| known.places.id == places.id);
            let new = || Entry { places: places.clone(), is_prioritized: false, is_begun: false, last: None };
            let entry = known.unwrap_or_else(new);
            self.entries.insert(places.workload.clone(), Entry { places, ..entry });
        }
    }

    pub fn prioritize(&mut self, workload: &str) {
        if let Some(entry) = self.entries.get_mut(workload) {
            entry.is_prioritized = true;
        }
    }

    pub fn set_pressure(&mut self, is_pressed: bool, now: Monotonic) {
        self.pressed = is_pressed.then(|| self.pressed.unwrap_or(now));
    }

    pub const fn is_pressure_reported(&self) -> bool {
        self.pressed.is_some()
    }

    /// Returns whether a filesystem is running full and a victim may be chosen by disk usage.
    pub fn is_pressed(&self, now: Monotonic) -> bool {
        self.pressed.is_some_and(|since| now.since(since.max(self.invalidated)) < PRESSED_FOR)
    }

    /// Makes all measurements that began before `since` due.
    pub fn invalidate(&mut self, since: Monotonic) {
        self.invalidated = self.invalidated.max(since);
    }

    pub fn contains(&self, places: &WorkloadPlaces) -> bool {
        self.entries.get(&places.workload).is_some_and(|entry| entry.places.id == places.id)
    }

    /// Records the start of a measurement. Later changes prioritize the workload again.
    pub fn begin(&mut self, workload: &str) {
        if let Some(entry) = self.entries.get_mut(workload) {
            (entry.is_prioritized, entry.is_begun) = (false, true);
        }
    }

    pub fn done(&mut self, workload: &str, timing: Timing) {
        if let Some(entry) = self.entries.get_mut(workload) {
            (entry.last, entry.is_begun) = (Some(timing), false);
        }
    }

    pub fn unmeasured(&self) -> usize {
        self.entries.values().filter(|entry| entry.last.is_none()).count()
    }

    /// Returns the next workload: a prioritized one, unless `others_first`; then one without a measurement; then the one that has
    /// been due for the longest time.
    pub fn next(&self, now: Monotonic, others_first: bool) -> Next {
        let cost: Duration = self.entries.values().filter_map(|entry| entry.last).map(|last| last.cpu).sum();
        let quiet = QUIET.max(cost.saturating_mul(QUIET_FACTOR)).min(LONGEST_QUIET);
        let limited = self.entries.values().filter(|entry| entry.places.is_limited).count();
        let limited = u32::try_from(limited).unwrap_or(u32::MAX).saturating_mul(QUIET_LIMITED_FACTOR).max(QUIET_FACTOR);
        let due = |entry: &Entry| self.due(entry, quiet, limited, now);
        let waiting = || self.entries.values().filter(|entry| !entry.is_begun);
        let soonest = |entries: &mut dyn Iterator<Item = &Entry>| {
            entries
                .map(|entry| (due(entry), entry))
                // Of workloads that are due at the same time, the one with the fastest measurement comes first: a large tree must
                // not delay the others.
                .min_by_key(|(at, entry)| (*at, entry.last.map(|last| last.took)))
                .map(|(at, entry)| (at, entry.places.clone()))
        };
        let prioritized = soonest(&mut waiting().filter(|entry| entry.is_prioritized));
        if let Some((at, places)) = prioritized
            && at <= now
            && !others_first
        {
            return Next::Prioritized(places);
        }
        match soonest(&mut waiting()) {
            Some((at, places)) if at <= now => Next::Due(places),
            Some((at, _)) => Next::Wait(at.since(now)),
            None => Next::Nothing,
        }
    }

    fn due(&self, entry: &Entry, quiet: Duration, limited_factor: u32, now: Monotonic) -> Monotonic {
        let Some(Timing { began, at, took, cpu }) = entry.last else { return Monotonic::default() };
        if began < self.invalidated {
            return Monotonic::default();
        }
        let mut pause = if entry.places.is_limited {
            QUIET_LIMITED.max(cpu.saturating_mul(limited_factor)).min(LONGEST_QUIET_LIMITED)
        } else {
            quiet
        };
        if self.is_pressed(now) {
            pause = pause.min(PRESSED.max(took.saturating_mul(PRESSED_FACTOR)));
        }
        if entry.is_prioritized {
            pause = pause.min(PRIORITIZED.max(took.saturating_mul(PRIORITIZED_FACTOR)));
        }
        at.after(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::CgroupId;

    const SECOND: u64 = 1_000_000_000;

    fn places(name: &str, id: u64) -> WorkloadPlaces {
        let workload = name.to_owned();
        WorkloadPlaces {
            workload,
            id: CgroupId(id),
            cgroup: "/".into(),
            pod: None,
            layers: Vec::new(),
            is_limited: false,
            trusts_quotas: false,
        }
    }

    fn schedule(names: &[&str]) -> Schedule {
        let mut schedule = Schedule::default();
        schedule.set_workloads(names.iter().map(|name| places(name, 1)).collect());
        schedule
    }

    fn timing(at: u64, took: u64, cpu_micros: u64) -> Timing {
        Timing {
            began: Monotonic(at.saturating_sub(took) * SECOND),
            at: Monotonic(at * SECOND),
            took: Duration::from_secs(took),
            cpu: Duration::from_micros(cpu_micros),
        }
    }

    fn whose(schedule: &Schedule, at: u64) -> String {
        match schedule.next(Monotonic(at * SECOND), false) {
            Next::Prioritized(places) => format!("prioritized {}", places.workload),
            Next::Due(places) => places.workload,
            Next::Wait(duration) => format!("wait {}", duration.as_secs()),
            Next::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn all_are_measured_once_a_minute_while_that_is_cheap() {
        let mut schedule = schedule(&["a", "b"]);
        assert_eq!(whose(&schedule, 0), "a");
        schedule.done("a", timing(1, 1, 100));
        assert_eq!(schedule.unmeasured(), 1);
        assert_eq!(whose(&schedule, 1), "b");
        schedule.done("b", timing(2, 1, 100));
        assert_eq!(whose(&schedule, 2), "wait 59");
        assert_eq!(whose(&schedule, 61), "a");
        // Half a second of CPU time requires some minutes without measuring.
        schedule.done("a", timing(100, 60, 300_000));
        schedule.done("b", timing(100, 60, 200_000));
        assert_eq!(whose(&schedule, 110), "wait 490");
        // Three seconds would require an hour, which is too long for growing files, and even more so with a limit.
        schedule.done("a", timing(100, 60, 3_000_000));
        assert_eq!(whose(&schedule, 110), "wait 890");
        schedule.set_workloads(vec![places("a", 1), WorkloadPlaces { is_limited: true, ..places("b", 1) }]);
        assert_eq!(whose(&schedule, 110), "wait 110");
        schedule.done("b", timing(100, 60, 20_000));
        assert_eq!(whose(&schedule, 110), "wait 10", "its own measurement is cheap, whatever the others cost");
        assert_eq!(whose(&Schedule::default(), 0), "nothing");
    }

    #[test]
    fn many_limited_workloads_share_their_budget() {
        let mut schedule = Schedule::default();
        let limited = |number: u64| WorkloadPlaces { is_limited: true, ..places(&format!("pod-{number:03}"), number) };
        let mut wait_of = |count: u64| {
            schedule.set_workloads((0..count).map(limited).collect());
            (0..count).for_each(|number| schedule.done(&format!("pod-{number:03}"), timing(100, 1, 250)));
            whose(&schedule, 100)
        };
        assert_eq!(wait_of(50), "wait 10");
        // 500 times 250 µs in 62 s are two thousandths of a CPU.
        assert_eq!(wait_of(500), "wait 62");
    }

    #[test]
    fn prioritized_workloads_leave_time_for_the_others() {
        let mut schedule = schedule(&["a", "b", "c"]);
        schedule.prioritize("c");
        schedule.prioritize("unknown");
        assert_eq!(whose(&schedule, 0), "prioritized c");
        schedule.begin("c");
        schedule.done("c", timing(10, 8, 100));
        assert_eq!(whose(&schedule, 10), "a");
        schedule.prioritize("c");
        assert_eq!(whose(&schedule, 10), "a", "it took eight seconds, so the others have 24");
        schedule.done("a", timing(11, 1, 100));
        schedule.done("b", timing(12, 1, 100));
        assert_eq!(whose(&schedule, 12), "wait 22");
        assert_eq!(whose(&schedule, 34), "prioritized c");
        schedule.done("c", timing(40, 8, 100));
        assert_eq!(whose(&schedule, 71), "prioritized c");
        let others_first = schedule.next(Monotonic(71 * SECOND), true);
        assert!(
            matches!(&others_first, Next::Due(places) if places.workload == "c"),
            "it waits longest: {others_first:?}"
        );
        schedule.begin("c");
        let others_first = schedule.next(Monotonic(73 * SECOND), true);
        assert!(matches!(&others_first, Next::Due(places) if places.workload == "a"), "{others_first:?}");
    }

    #[test]
    fn under_pressure_all_are_measured_again() {
        let mut schedule = schedule(&["a", "b"]);
        schedule.done("a", timing(1, 1, 3_000_000));
        schedule.done("b", timing(2, 20, 3_000_000));
        assert_eq!(whose(&schedule, 10), "wait 891");
        schedule.set_pressure(true, Monotonic(10 * SECOND));
        assert_eq!(whose(&schedule, 10), "a");
        schedule.done("a", timing(11, 1, 3_000_000));
        assert_eq!(whose(&schedule, 15), "wait 1");
        schedule.set_pressure(false, Monotonic(15 * SECOND));
        assert_eq!(whose(&schedule, 15), "wait 887");
    }

    #[test]
    fn pressure_ends_when_no_victim_is_chosen() {
        let mut schedule = schedule(&["a"]);
        let set_pressure = |schedule: &mut Schedule, at| schedule.set_pressure(true, Monotonic(at * SECOND));
        set_pressure(&mut schedule, 100);
        schedule.done("a", timing(150, 1, 3_000_000));
        set_pressure(&mut schedule, 150);
        assert_eq!(whose(&schedule, 150), "wait 5");
        assert_eq!(whose(&schedule, 160), "wait 890");
        // A victim may be chosen again.
        schedule.invalidate(Monotonic(200 * SECOND));
        schedule.done("a", timing(202, 1, 3_000_000));
        set_pressure(&mut schedule, 203);
        assert_eq!(whose(&schedule, 203), "wait 4");
    }

    #[test]
    fn a_running_measurement_is_not_begun_again() {
        let mut schedule = schedule(&["a", "b"]);
        schedule.begin("a");
        assert_eq!(whose(&schedule, 1), "b");
        schedule.begin("b");
        schedule.invalidate(Monotonic(5 * SECOND));
        schedule.prioritize("a");
        schedule.set_workloads(vec![places("a", 1), places("b", 1)]);
        assert_eq!(whose(&schedule, 5), "nothing");
        // The measurement began before the invalidation, so the workload is due again when it ends.
        schedule.done("a", timing(9, 6, 100));
        assert_eq!(whose(&schedule, 9), "prioritized a");
    }

    #[test]
    fn an_invalidation_makes_all_due_once() {
        let mut schedule = schedule(&["a", "b"]);
        schedule.done("a", timing(4, 1, 100));
        schedule.done("b", timing(6, 3, 100));
        assert_eq!(whose(&schedule, 6), "wait 58");
        schedule.invalidate(Monotonic(4 * SECOND));
        assert_eq!(whose(&schedule, 6), "a");
        schedule.done("a", timing(7, 1, 100));
        assert_eq!(whose(&schedule, 7), "b", "it ended after the invalidation, and began before");
        schedule.done("b", timing(8, 1, 100));
        assert_eq!(whose(&schedule, 8), "wait 59");
    }

    #[test]
    fn another_workload_of_the_same_name_is_unmeasured() {
        let mut schedule = schedule(&["a", "b"]);
        schedule.done("a", timing(1, 1, 100));
        schedule.done("b", timing(1, 1, 100));
        schedule.set_workloads(vec![places("a", 2), places("b", 1)]);
        assert_eq!(whose(&schedule, 1), "a");
        assert!(schedule.contains(&places("a", 2)) && !schedule.contains(&places("a", 1)));
        schedule.set_workloads(vec![places("b", 1)]);
        assert_eq!(whose(&schedule, 1), "wait 60");
    }
}
