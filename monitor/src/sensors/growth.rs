//! The growth of the largest workloads, by which leakers are found, and the other facts about candidates that the rule of benefit uses.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use crate::eviction::fall::Window;
use crate::units::{Bytes, CgroupId, Monotonic, signed};
use crate::workloads::{Outlook, Protection, Tracked, WorkloadTree, WorkloadUsage};

const MEASURED: usize = 32;
/// The interval of the readings.
const EVERY: Duration = Duration::from_millis(200);
/// A threshold that is near for longer than this is near for long. A soft threshold may be met for weeks.
const LASTING: Duration = Duration::from_secs(60);
/// The interval of the readings then.
const SELDOM: Duration = Duration::from_millis(1500);
/// Readings of this age are those of an agent, or a machine, that stood still since.
const STALE: Duration = Duration::from_secs(3);
/// Evictions wait for new readings at most this often.
const RESUMED_EVERY: Duration = Duration::from_secs(10);
/// A growth is the average over this time.
const SPAN: Duration = Duration::from_secs(1);
/// The interval at which the largest workloads are chosen anew.
const CHOSEN_EVERY: Duration = Duration::from_secs(1);
/// A workload of this age in seconds may have appeared since.
const YOUNG: u64 = 2;
/// After each reading, at most so many workloads are examined for whether another program has killed them.
const EXAMINED: usize = 8;

/// A workload that grows by fewer bytes per second does not count as growing.
const LEAST_GROWTH: i64 = 64 << 10;

/// The readings of the largest workloads. There are readings only while a threshold is near.
#[derive(Debug, Default)]
pub struct Growth {
    readings: HashMap<CgroupId, Reading>,
    /// When the first reading was made.
    since: Option<Monotonic>,
    read: Option<Monotonic>,
    /// When the readings were last found stale, at most every [`RESUMED_EVERY`].
    resumed: Option<Monotonic>,
    chosen: Option<Monotonic>,
    /// How many workloads had appeared since the start of the agent when the largest were chosen.
    appeared: u64,
}

#[derive(Debug)]
struct Reading {
    window: Window,
    gain: Bytes,
    /// Bytes per second, once there are two readings.
    growth: Option<i64>,
}

impl Growth {
    /// Returns whether a reading is due while a threshold is near. `appeared` is how many workloads have appeared since the agent started.
    pub(super) fn is_due(&self, is_urgent: bool, appeared: u64, now: Monotonic) -> bool {
        let is_lasting = self.since.is_some_and(|since| now.since(since) >= LASTING);
        // Size and age are a poor guess. The workload that is new may be the one that leaks.
        let is_blind = appeared != self.appeared || self.readings.values().any(|reading| reading.growth.is_none());
        let interval = match (is_blind, is_lasting, is_urgent) {
            (true, ..) | (false, false, false) => EVERY,
            (false, true, _) => SELDOM,
            (false, false, true) => SPAN,
        };
        self.read.is_none_or(|read| now.since(read) >= interval)
    }

    pub(super) fn read(&mut self, tree: &mut WorkloadTree, appeared: u64, now: Monotonic) {
        self.read = Some(now);
        self.since.get_or_insert(now);
        if appeared != self.appeared || self.chosen.is_none_or(|chosen| now.since(chosen) >= CHOSEN_EVERY) {
            (self.chosen, self.appeared) = (Some(now), appeared);
            self.choose(tree);
        }
        self.readings.retain(|id, reading| {
            let Some(gain) = tree.measure(*id).and_then(|usage| usage.outlook.gain) else { return false };
            reading.gain = gain;
            let (gain, at) = (gain.signed(), Monotonic::now());
            reading.growth = reading.window.fall(gain, at).map(|fall| rounded(-fall));
            reading.window.observe(gain, at);
            true
        });
    }

    /// Forgets the growth if it was measured too long ago to count for the present.
    pub(super) fn forget_stale(&mut self, now: Monotonic) {
        if self.read.is_none_or(|read| now.since(read) < STALE) {
            return;
        }
        self.readings.values_mut().for_each(|reading| reading.growth = None);
        // An agent that hardly gets a CPU would wait again and again.
        if self.resumed.is_none_or(|resumed| now.since(resumed) >= RESUMED_EVERY) {
            self.resumed = Some(now);
        }
    }

    /// Returns when the readings began anew, after a standstill.
    pub fn resumed(&self) -> Option<Monotonic> {
        self.resumed
    }

    /// Forgets the readings when no threshold is near.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    fn choose(&mut self, tree: &mut WorkloadTree) {
        let mut all = tree.usage_upper_bounds();
        all.retain(|usage| usage.workload.protection != Some(Protection::HoldsOthers));
        if all.len() > MEASURED {
            all.select_nth_unstable_by_key(MEASURED, |usage| Reverse(usage.working_set));
            all.truncate(MEASURED);
        }
        self.readings.retain(|id, _| all.iter().any(|usage| usage.workload.id == *id));
        for usage in all {
            let fresh = || Reading { window: Window::of(SPAN, EVERY), gain: Bytes::ZERO, growth: None };
            self.readings.entry(usage.workload.id).or_insert_with(fresh);
        }
    }

    /// Returns the workloads that hold most, largest first.
    pub(super) fn largest(&self) -> Vec<CgroupId> {
        let mut found: Vec<_> = self.readings.iter().map(|(id, reading)| (Reverse(reading.gain), *id)).collect();
        found.sort_unstable();
        found.truncate(EXAMINED);
        found.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn of(&self, id: CgroupId) -> Option<i64> {
        self.readings.get(&id)?.growth
    }

    /// Returns the workloads that grow at least a quarter as fast as the fastest one.
    pub(super) fn growing(&self) -> impl Iterator<Item = CgroupId> {
        let growth = || self.readings.iter().filter_map(|(id, reading)| Some((*id, reading.growth?)));
        let fastest = growth().map(|(_, growth)| growth).max().unwrap_or(0);
        growth().filter(move |(_, growth)| *growth >= LEAST_GROWTH && *growth >= fastest / 4).map(|(id, _)| id)
    }

    /// Returns the workload that grows fastest among the `protected`, with its growth.
    pub(super) fn fastest<'a>(&self, protected: impl Iterator<Item = &'a Tracked>) -> Option<(CgroupId, i64)> {
        let growth = protected.filter_map(|tracked| Some((tracked.workload().id, self.of(tracked.workload().id)?)));
        growth.filter(|(_, growth)| *growth > 0).max_by_key(|(_, growth)| *growth)
    }

    /// Adds to `usage` what is known about its memory. Unknown growth counts as the size divided by the age.
    pub(super) fn complete(&self, usage: &mut WorkloadUsage, tracked: Option<&Tracked>) {
        let workload = &usage.workload;
        let is_daemon = workload.protection == Some(Protection::DaemonSet);
        let measured = self.of(workload.id);
        let by_age = || {
            // Where there are readings, a workload without one is not among the largest, unless it appeared after they were chosen.
            let has_readings = self.readings.values().any(|reading| reading.growth.is_some());
            let age = tracked?.age_in_seconds().filter(|age| !has_readings || *age <= YOUNG)?;
            Some(usage.outlook.gain.unwrap_or(usage.working_set).signed() / signed(age.max(1)))
        };
        usage.outlook = Outlook {
            growth: measured.or_else(by_age).unwrap_or(0),
            is_growth_measured: measured.is_some(),
            only_as_leaker: is_daemon || workload.only_as_leaker,
            is_daemon,
            // A pod that has failed and still runs is inside its grace period too.
            is_terminating: workload
                .pod
                .as_ref()
                .is_some_and(|pod| pod.metadata.deletion.is_some() || !pod.is_active()),
            ..usage.outlook
        };
    }
}

#[expect(clippy::cast_possible_truncation, reason = "saturating is right")]
fn rounded(rate: f64) -> i64 {
    rate.round() as i64
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;
    use crate::node::{CgroupVersion, Hierarchy};

    #[test]
    fn a_workload_that_appeared_after_the_choice_grows_by_size_and_age() {
        let root = tempfile::tempdir().unwrap();
        let service = root.path().join("system.slice/new.service");
        fs::create_dir_all(&service).unwrap();
        for (name, text) in [
            ("cgroup.procs", "77\n"),
            ("cgroup.events", "populated 1\n"),
            ("memory.current", "8000\n"),
            ("memory.stat", "anon 8000\ninactive_file 0\n"),
            ("memory.min", "0\n"),
            ("memory.low", "0\n"),
            ("memory.max", "max\n"),
        ] {
            fs::write(service.join(name), text).unwrap();
        }
        let hierarchy =
            Hierarchy { version: CgroupVersion::V2, memory: root.path().to_owned(), freezer: None, hybrid: false };
        let mut tree = WorkloadTree::new(hierarchy, "/proc".into(), Vec::new());
        tree.scan().unwrap();
        let id = tree.tracked().iter().find(|it| it.workload().name.ends_with("new.service")).unwrap().workload().id;
        let growth_at = |growth: &Growth, tree: &mut WorkloadTree| {
            let mut usage = tree.measure(id).unwrap();
            growth.complete(&mut usage, tree.find(id));
            (usage.outlook.growth, usage.outlook.is_growth_measured)
        };
        let reading = Reading { window: Window::of(SPAN, EVERY), gain: Bytes(1), growth: Some(0) };
        let others = Growth { readings: HashMap::from([(CgroupId(1), reading)]), ..Growth::default() };
        let (young, _) = growth_at(&others, &mut tree);
        assert!((4_000..=8_000).contains(&young), "{young}");
        let ten_seconds_ago = SystemTime::now() - Duration::from_secs(10);
        fs::File::open(&service).unwrap().set_modified(ten_seconds_ago).unwrap();
        let mut stood_still = Growth { read: Some(Monotonic(0)), ..others };
        for (seconds, expected) in [(2, 0..=0), (3, 600..=800)] {
            stood_still.forget_stale(Monotonic(seconds * 1_000_000_000));
            let (growth, _) = growth_at(&stood_still, &mut tree);
            assert!(expected.contains(&growth), "{seconds} s after the last reading: {growth}");
            let resumed = (seconds == 3).then_some(Monotonic(3_000_000_000));
            assert_eq!(stood_still.resumed(), resumed);
        }
        let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::open(&service).unwrap().set_modified(old).unwrap();
        let reading = Reading { window: Window::of(SPAN, EVERY), gain: Bytes(1), growth: Some(0) };
        let others = Growth { readings: HashMap::from([(CgroupId(1), reading)]), ..Growth::default() };
        assert_eq!(growth_at(&others, &mut tree), (0, false), "it is not among the largest");
        assert_eq!(growth_at(&Growth::default(), &mut tree), (0, false), "it is very old");
    }

    #[test]
    fn the_second_reading_follows_soon_even_in_an_urgent_moment() {
        let at = |milliseconds: u64| Monotonic(milliseconds * 1_000_000);
        let reading = |growth| Reading { window: Window::of(SPAN, EVERY), gain: Bytes(1), growth };
        for (growth, appeared, milliseconds, is_urgent, is_due) in [
            (None, 0, 200, true, true),
            (Some(0), 0, 200, true, false),
            (Some(0), 1, 200, true, true),
            (Some(0), 0, 1_000, true, true),
            (Some(0), 0, 200, false, true),
            (None, 1, 199, false, false),
        ] {
            let readings = [Some(0), growth].map(reading);
            let readings = (1..).map(CgroupId).zip(readings).collect();
            let read = Growth { readings, since: Some(at(0)), read: Some(at(0)), ..Growth::default() };
            let name = format!("{growth:?} {appeared} {milliseconds} {is_urgent}");
            assert_eq!(read.is_due(is_urgent, appeared, at(milliseconds)), is_due, "{name}");
        }
    }

    #[test]
    fn eight_workloads_hold_most() {
        let reading = |(id, (gain, growth)): (u64, (u64, Option<i64>))| {
            (CgroupId(id), Reading { window: Window::of(SPAN, EVERY), gain: Bytes(gain), growth })
        };
        let found = |readings: &[(u64, Option<i64>)]| {
            let readings = (1..).zip(readings.iter().copied()).map(reading).collect();
            let growth = Growth { readings, ..Growth::default() };
            growth.largest().into_iter().map(|CgroupId(id)| id).collect::<Vec<_>>()
        };
        let mixed = [(400, Some(1)), (100, None), (99, None), (200, Some(0)), (300, Some(-5))];
        assert_eq!(found(&mixed), [1, 5, 4, 2, 3]);
        assert_eq!(found(&[(400, None); 20]), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(found(&[]).is_empty());
    }
}
