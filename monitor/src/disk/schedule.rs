//! Which workload is measured next, and how long the others can wait.

use std::collections::BTreeMap;
use std::time::Duration;

use super::places::WorkloadPlaces;
use crate::node::Monotonic;

/// What nobody asks for is this old at most while measuring it is cheap…
const QUIET: Duration = Duration::from_secs(60);
/// …and all of it together takes no more than a thousandth of a CPU: a node where nothing happens is left in peace.
const QUIET_FACTOR: u32 = 1000;
/// One whose inode counters rise is measured again after a pause, and after several times as long as it took: the others must get on.
const HURRIED: Duration = Duration::from_secs(2);
const HURRIED_FACTOR: u32 = 3;
/// While a filesystem runs full everybody is measured again and again.
const PRESSED: Duration = Duration::from_secs(5);
const PRESSED_FACTOR: u32 = 1;

/// A measurement that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// When it began: what was written since may not be in it.
    pub began: Monotonic,
    /// When it ended.
    pub at: Monotonic,
    /// How long it took, rests included.
    pub took: Duration,
    /// What it took of a CPU.
    pub cpu: Duration,
}

#[derive(Debug)]
struct Entry {
    places: WorkloadPlaces,
    is_hurried: bool,
    last: Option<Made>,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Measure this one, which gave a sign of having changed.
    Hurried(WorkloadPlaces),
    /// Measure this one.
    Due(WorkloadPlaces),
    /// Nothing for so long, unless something happens.
    Wait(Duration),
    /// Nothing until something happens.
    Nothing,
}

/// The workloads, and when each was measured.
#[derive(Debug, Default)]
pub struct Schedule {
    entries: BTreeMap<String, Entry>,
    is_pressed: bool,
    /// Whoever was measured before is due.
    renewed: Monotonic,
}

impl Schedule {
    /// Takes the list of all workloads that are to be measured; others are forgotten.
    pub fn want(&mut self, workloads: Vec<WorkloadPlaces>) {
        let mut before = std::mem::take(&mut self.entries);
        for places in workloads {
            let known = before.remove(&places.workload).filter(|known| known.places.id == places.id);
            let (is_hurried, last) = known.map_or((false, None), |known| (known.is_hurried, known.last));
            self.entries.insert(places.workload.clone(), Entry { places, is_hurried, last });
        }
    }

    /// Something happens on the disks of a workload.
    pub fn hurry(&mut self, workload: &str) {
        if let Some(entry) = self.entries.get_mut(workload) {
            entry.is_hurried = true;
        }
    }

    /// Whether a filesystem runs full.
    pub const fn press(&mut self, is_pressed: bool) {
        self.is_pressed = is_pressed;
    }

    /// As told last.
    pub const fn is_pressed(&self) -> bool {
        self.is_pressed
    }

    /// What was measured before counts no more.
    pub fn renew(&mut self, since: Monotonic) {
        self.renewed = self.renewed.max(since);
    }

    /// Whether what began then counts no more.
    pub fn is_outdated(&self, began: Monotonic) -> bool {
        began < self.renewed
    }

    /// Whether it is to be measured still.
    pub fn wants(&self, places: &WorkloadPlaces) -> bool {
        self.entries.get(&places.workload).is_some_and(|entry| entry.places.id == places.id)
    }

    /// Its measurement begins: what happens from now on is news again.
    pub fn begin(&mut self, workload: &str) {
        if let Some(entry) = self.entries.get_mut(workload) {
            entry.is_hurried = false;
        }
    }

    /// It was measured.
    pub fn done(&mut self, workload: &str, made: Made) {
        if let Some(entry) = self.entries.get_mut(workload) {
            entry.last = Some(made);
        }
    }

    /// Whose turn it is: those who gave a sign, unless the others are to get on first; then those never measured, then who waits longest.
    pub fn next(&self, now: Monotonic, others_first: bool) -> Next {
        let cost: Duration = self.entries.values().filter_map(|entry| entry.last).map(|last| last.cpu).sum();
        let quiet = QUIET.max(cost.saturating_mul(QUIET_FACTOR));
        let due = |entry: &Entry| self.due(entry, quiet);
        let soonest = |entries: &mut dyn Iterator<Item = &Entry>| {
            entries
                .map(|entry| (due(entry), entry))
                // Of those who are due all at once the small ones first: one large tree must not keep them waiting.
                .min_by_key(|(at, entry)| (*at, entry.last.map(|last| last.took)))
                .map(|(at, entry)| (at, entry.places.clone()))
        };
        let hurried = soonest(&mut self.entries.values().filter(|entry| entry.is_hurried));
        if let Some((at, places)) = hurried
            && at <= now
            && !others_first
        {
            return Next::Hurried(places);
        }
        match soonest(&mut self.entries.values()) {
            Some((at, places)) if at <= now => Next::Due(places),
            Some((at, _)) => Next::Wait(at.since(now)),
            None => Next::Nothing,
        }
    }

    fn due(&self, entry: &Entry, quiet: Duration) -> Monotonic {
        let Some(Made { began, at, took, .. }) = entry.last else { return Monotonic::default() };
        if self.is_outdated(began) {
            return Monotonic::default();
        }
        let mut pause = quiet;
        if self.is_pressed {
            pause = pause.min(PRESSED.max(took.saturating_mul(PRESSED_FACTOR)));
        }
        if entry.is_hurried {
            pause = pause.min(HURRIED.max(took.saturating_mul(HURRIED_FACTOR)));
        }
        at.after(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CgroupId;

    const SECOND: u64 = 1_000_000_000;

    fn places(name: &str, id: u64) -> WorkloadPlaces {
        let workload = name.to_owned();
        WorkloadPlaces { workload, id: CgroupId(id), cgroup: "/".into(), pod: None, layers: Vec::new() }
    }

    fn schedule(names: &[&str]) -> Schedule {
        let mut schedule = Schedule::default();
        schedule.want(names.iter().map(|name| places(name, 1)).collect());
        schedule
    }

    fn made(at: u64, took: u64, cpu_micros: u64) -> Made {
        Made {
            began: Monotonic(at.saturating_sub(took) * SECOND),
            at: Monotonic(at * SECOND),
            took: Duration::from_secs(took),
            cpu: Duration::from_micros(cpu_micros),
        }
    }

    fn whose(schedule: &Schedule, at: u64) -> String {
        match schedule.next(Monotonic(at * SECOND), false) {
            Next::Hurried(places) => format!("hurried {}", places.workload),
            Next::Due(places) => places.workload,
            Next::Wait(duration) => format!("wait {}", duration.as_secs()),
            Next::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn everybody_is_measured_once_a_minute_while_that_is_cheap() {
        let mut schedule = schedule(&["a", "b"]);
        assert_eq!(whose(&schedule, 0), "a");
        schedule.done("a", made(1, 1, 100));
        assert_eq!(whose(&schedule, 1), "b");
        schedule.done("b", made(2, 1, 100));
        assert_eq!(whose(&schedule, 2), "wait 59");
        assert_eq!(whose(&schedule, 61), "a");
        // Three seconds of a CPU are worth an hour's rest.
        schedule.done("a", made(100, 60, 3_000_000));
        assert_eq!(whose(&schedule, 2900), "wait 102");
        assert_eq!(whose(&Schedule::default(), 0), "nothing");
    }

    #[test]
    fn who_gave_a_sign_goes_first_but_not_all_the_time() {
        let mut schedule = schedule(&["a", "b", "c"]);
        schedule.hurry("c");
        schedule.hurry("unknown");
        assert_eq!(whose(&schedule, 0), "hurried c");
        schedule.begin("c");
        schedule.done("c", made(10, 8, 100));
        assert_eq!(whose(&schedule, 10), "a");
        schedule.hurry("c");
        assert_eq!(whose(&schedule, 10), "a", "it took eight seconds: the others have 24");
        schedule.done("a", made(11, 1, 100));
        schedule.done("b", made(12, 1, 100));
        assert_eq!(whose(&schedule, 12), "wait 22");
        assert_eq!(whose(&schedule, 34), "hurried c");
        schedule.done("c", made(40, 8, 100));
        assert_eq!(whose(&schedule, 71), "hurried c");
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
    fn while_a_filesystem_runs_full_everybody_is_measured_again() {
        let mut schedule = schedule(&["a", "b"]);
        schedule.done("a", made(1, 1, 3_000_000));
        schedule.done("b", made(2, 20, 3_000_000));
        assert_eq!(whose(&schedule, 10), "wait 5991");
        schedule.press(true);
        assert_eq!(whose(&schedule, 10), "a");
        schedule.done("a", made(11, 1, 3_000_000));
        assert_eq!(whose(&schedule, 15), "wait 1");
        schedule.press(false);
        assert_eq!(whose(&schedule, 15), "wait 5987");
    }

    #[test]
    fn before_somebody_has_to_go_everybody_is_measured_once_more() {
        let mut schedule = schedule(&["a", "b"]);
        schedule.done("a", made(4, 1, 100));
        schedule.done("b", made(6, 3, 100));
        assert_eq!(whose(&schedule, 6), "wait 58");
        schedule.renew(Monotonic(4 * SECOND));
        assert_eq!(whose(&schedule, 6), "a");
        schedule.done("a", made(7, 1, 100));
        assert_eq!(whose(&schedule, 7), "b", "it was done after, and begun before");
        schedule.done("b", made(8, 1, 100));
        assert_eq!(whose(&schedule, 8), "wait 59");
    }

    #[test]
    fn another_of_the_same_name_was_never_measured() {
        let mut schedule = schedule(&["a", "b"]);
        schedule.done("a", made(1, 1, 100));
        schedule.done("b", made(1, 1, 100));
        schedule.want(vec![places("a", 2), places("b", 1)]);
        assert_eq!(whose(&schedule, 1), "a");
        assert!(schedule.wants(&places("a", 2)) && !schedule.wants(&places("a", 1)));
        schedule.want(vec![places("b", 1)]);
        assert_eq!(whose(&schedule, 1), "wait 60");
    }
}
