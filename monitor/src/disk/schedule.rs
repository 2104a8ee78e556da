//! Which workload is measured next, and how long the others can wait.

use std::collections::BTreeMap;
use std::time::Duration;

use super::places::WorkloadPlaces;
use crate::units::Monotonic;

/// What nobody asks for is this old at most while measuring it is cheap…
const QUIET: Duration = Duration::from_secs(60);
/// …and all of it together takes no more than a thousandth of a CPU: a node where nothing happens is left in peace…
const QUIET_FACTOR: u32 = 1000;
/// …but appended bytes give no sign: for so long at most, and so long where a limit of what may be kept is known.
const LONGEST_QUIET: Duration = Duration::from_secs(15 * 60);
const LONGEST_QUIET_LIMITED: Duration = Duration::from_secs(2 * 60);
/// While measuring it is cheap such a one is measured as often as limits are looked at…
const QUIET_LIMITED: Duration = Duration::from_secs(10);
/// …and however many there are, all of them together take no more than a five-hundredth of a CPU: each has an equal part of that.
const QUIET_LIMITED_FACTOR: u32 = 500;
/// One whose inode counters rise is measured again after a pause, and after several times as long as it took: the others must get on.
const HURRIED: Duration = Duration::from_secs(2);
const HURRIED_FACTOR: u32 = 3;
/// While a filesystem runs full everybody is measured again and again, as long as somebody may be chosen by it: where nobody is for so
/// long after the last renewal, nobody can be.
const PRESSED_FOR: Duration = Duration::from_secs(60);
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
    /// It is being measured, or was left in the middle of it.
    is_begun: bool,
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
    pressed: Option<Monotonic>,
    /// Whoever was measured before is due.
    renewed: Monotonic,
}

impl Schedule {
    /// Takes the list of all workloads that are to be measured; others are forgotten.
    pub fn want(&mut self, workloads: Vec<WorkloadPlaces>) {
        let mut before = std::mem::take(&mut self.entries);
        for places in workloads {
            let known = before.remove(&places.workload).filter(|known| known.places.id == places.id);
            let new = || Entry { places: places.clone(), is_hurried: false, is_begun: false, last: None };
            let entry = known.unwrap_or_else(new);
            self.entries.insert(places.workload.clone(), Entry { places, ..entry });
        }
    }

    /// Something happens on the disks of a workload.
    pub fn hurry(&mut self, workload: &str) {
        if let Some(entry) = self.entries.get_mut(workload) {
            entry.is_hurried = true;
        }
    }

    /// Whether a filesystem runs full.
    pub fn press(&mut self, is_pressed: bool, now: Monotonic) {
        self.pressed = is_pressed.then(|| self.pressed.unwrap_or(now));
    }

    /// As told last.
    pub const fn is_told_pressed(&self) -> bool {
        self.pressed.is_some()
    }

    /// Whether one does, and somebody may be chosen by what is measured.
    pub fn is_pressed(&self, now: Monotonic) -> bool {
        self.pressed.is_some_and(|since| now.since(since.max(self.renewed)) < PRESSED_FOR)
    }

    /// What was measured before counts no more.
    pub fn renew(&mut self, since: Monotonic) {
        self.renewed = self.renewed.max(since);
    }

    /// Whether it is to be measured still.
    pub fn wants(&self, places: &WorkloadPlaces) -> bool {
        self.entries.get(&places.workload).is_some_and(|entry| entry.places.id == places.id)
    }

    /// Its measurement begins: what happens from now on is news again.
    pub fn begin(&mut self, workload: &str) {
        if let Some(entry) = self.entries.get_mut(workload) {
            (entry.is_hurried, entry.is_begun) = (false, true);
        }
    }

    /// It was measured.
    pub fn done(&mut self, workload: &str, made: Made) {
        if let Some(entry) = self.entries.get_mut(workload) {
            (entry.last, entry.is_begun) = (Some(made), false);
        }
    }

    /// How many were never measured to the end.
    pub fn unmeasured(&self) -> usize {
        self.entries.values().filter(|entry| entry.last.is_none()).count()
    }

    /// Who is to be begun with: those who gave a sign, unless the others are to get on first; then those never measured, then who waits longest.
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
                // Of those who are due all at once the small ones first: one large tree must not keep them waiting.
                .min_by_key(|(at, entry)| (*at, entry.last.map(|last| last.took)))
                .map(|(at, entry)| (at, entry.places.clone()))
        };
        let hurried = soonest(&mut waiting().filter(|entry| entry.is_hurried));
        if let Some((at, places)) = hurried
            && at <= now
            && !others_first
        {
            return Next::Hurried(places);
        }
        match soonest(&mut waiting()) {
            Some((at, places)) if at <= now => Next::Due(places),
            Some((at, _)) => Next::Wait(at.since(now)),
            None => Next::Nothing,
        }
    }

    fn due(&self, entry: &Entry, quiet: Duration, limited_factor: u32, now: Monotonic) -> Monotonic {
        let Some(Made { began, at, took, cpu }) = entry.last else { return Monotonic::default() };
        if began < self.renewed {
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
        if entry.is_hurried {
            pause = pause.min(HURRIED.max(took.saturating_mul(HURRIED_FACTOR)));
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
            believes_quotas: false,
        }
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
        assert_eq!(schedule.unmeasured(), 1);
        assert_eq!(whose(&schedule, 1), "b");
        schedule.done("b", made(2, 1, 100));
        assert_eq!(whose(&schedule, 2), "wait 59");
        assert_eq!(whose(&schedule, 61), "a");
        // Half a second of a CPU is worth some minutes' rest.
        schedule.done("a", made(100, 60, 300_000));
        schedule.done("b", made(100, 60, 200_000));
        assert_eq!(whose(&schedule, 110), "wait 490");
        // Three seconds would be worth an hour's: too long for files that grow, and much too long where there is a limit.
        schedule.done("a", made(100, 60, 3_000_000));
        assert_eq!(whose(&schedule, 110), "wait 890");
        schedule.want(vec![places("a", 1), WorkloadPlaces { is_limited: true, ..places("b", 1) }]);
        assert_eq!(whose(&schedule, 110), "wait 110");
        schedule.done("b", made(100, 60, 20_000));
        assert_eq!(whose(&schedule, 110), "wait 10", "it is cheap by itself, whatever the others cost");
        assert_eq!(whose(&Schedule::default(), 0), "nothing");
    }

    #[test]
    fn hundreds_with_a_limit_are_measured_as_seldom_as_they_are_many() {
        let mut schedule = Schedule::default();
        let limited = |number: u64| WorkloadPlaces { is_limited: true, ..places(&format!("pod-{number:03}"), number) };
        let mut wait_of = |count: u64| {
            schedule.want((0..count).map(limited).collect());
            (0..count).for_each(|number| schedule.done(&format!("pod-{number:03}"), made(100, 1, 250)));
            whose(&schedule, 100)
        };
        assert_eq!(wait_of(50), "wait 10");
        // 500 times 250 µs in 62 s are two thousandths of a CPU.
        assert_eq!(wait_of(500), "wait 62");
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
        assert_eq!(whose(&schedule, 10), "wait 891");
        schedule.press(true, Monotonic(10 * SECOND));
        assert_eq!(whose(&schedule, 10), "a");
        schedule.done("a", made(11, 1, 3_000_000));
        assert_eq!(whose(&schedule, 15), "wait 1");
        schedule.press(false, Monotonic(15 * SECOND));
        assert_eq!(whose(&schedule, 15), "wait 887");
    }

    #[test]
    fn where_nobody_is_chosen_it_calms_down_again() {
        let mut schedule = schedule(&["a"]);
        let press = |schedule: &mut Schedule, at| schedule.press(true, Monotonic(at * SECOND));
        press(&mut schedule, 100);
        schedule.done("a", made(150, 1, 3_000_000));
        press(&mut schedule, 150);
        assert_eq!(whose(&schedule, 150), "wait 5");
        assert_eq!(whose(&schedule, 160), "wait 890");
        // Somebody may be chosen again.
        schedule.renew(Monotonic(200 * SECOND));
        schedule.done("a", made(202, 1, 3_000_000));
        press(&mut schedule, 203);
        assert_eq!(whose(&schedule, 203), "wait 4");
    }

    #[test]
    fn what_was_begun_is_not_begun_again_before_its_end() {
        let mut schedule = schedule(&["a", "b"]);
        schedule.begin("a");
        assert_eq!(whose(&schedule, 1), "b");
        schedule.begin("b");
        schedule.renew(Monotonic(5 * SECOND));
        schedule.hurry("a");
        schedule.want(vec![places("a", 1), places("b", 1)]);
        assert_eq!(whose(&schedule, 5), "nothing");
        // It began before the renewal, and its end says so.
        schedule.done("a", made(9, 6, 100));
        assert_eq!(whose(&schedule, 9), "hurried a");
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
