//! The growth of workloads, by which culprits are found: when is read, and of which workloads what.
//!
//! `memory.current` is one cheap file, so it is read of every workload. It counts file pages too. What a workload's end gives back takes a
//! second file, and is read of the workloads that grow fastest. Only this second reading makes a culprit.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use super::fall::Window;
use super::mutants::rule;
use crate::units::{Bytes, CgroupId, Monotonic, signed_float};
use crate::workloads::Listed;

/// Growth is measured while a threshold on memory may be met within this time.
pub const HORIZON: Duration = Duration::from_secs(30);

/// Growth is measured for so long after a threshold was near: the memory of a victim that comes back takes the next crossing away only for a
/// moment.
const LINGERS: Duration = Duration::from_secs(10);

/// Near a threshold the workloads are listed this often. The one that is new may be the one that leaks.
pub const LISTED_EVERY: Duration = Duration::from_secs(1);

/// At one time the gain of so many workloads is read: of those that were read longest ago.
const EXACT: usize = 64;
/// The gain of so many is read in turn, if that many grow.
const WATCHED: usize = 512;
/// The interval of the readings.
const EVERY: Duration = Duration::from_millis(200);
/// A threshold that is near for longer than this is near for long. A soft threshold may be met for weeks.
const LASTING: Duration = Duration::from_secs(60);
/// The interval of the readings then.
const SELDOM: Duration = Duration::from_millis(1500);
/// The same where more than [`EXACT`] are read in turn: all [`WATCHED`] have a turn within four seconds.
const SELDOM_IN_TURN: Duration = Duration::from_millis(500);
/// Readings of this age are those of an agent, or a machine, that stood still since.
const STALE: Duration = Duration::from_secs(3);
/// Evictions wait for new readings at most this often.
const RESUMED_EVERY: Duration = Duration::from_secs(10);
/// A growth is the average over this time.
const SPAN: Duration = Duration::from_secs(1);
/// The interval at which every workload is read, and the fastest are chosen anew.
const CHOSEN_EVERY: Duration = Duration::from_secs(1);
/// At most so many workloads are examined for whether another program has killed them.
const EXAMINED: usize = 8;
/// A workload that grows by fewer bytes per second does not count as growing.
const LEAST_GROWTH: i64 = 4 << 10;

/// The readings. There are readings only while a threshold is near, and a little longer.
#[derive(Debug, Default)]
pub struct Growth {
    /// Of every workload.
    usage: HashMap<CgroupId, Usage>,
    /// Of those that grow fastest.
    gain: HashMap<CgroupId, Gain>,
    /// When the first reading was made.
    since: Option<Monotonic>,
    /// When a threshold was last near.
    near: Option<Monotonic>,
    read: Option<Monotonic>,
    /// When the readings were last found stale, at most every [`RESUMED_EVERY`].
    resumed: Option<Monotonic>,
    /// When every workload was read, and how often.
    chosen: Option<Monotonic>,
    choices: u32,
    /// How many workloads had appeared since the start of the agent at that time.
    appeared: u64,
    /// How many gains are still to be read in this round. A round is cut where the next sample is due.
    left: usize,
}

/// The reading of one workload's gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The gain, and when it was read.
    Of(Bytes, Monotonic),
    /// The workload has been removed.
    Gone,
    /// The next sample is due. The rest of the round is read later.
    NoTime,
}

/// The last reading of `memory.current`.
#[derive(Debug, Clone, Copy)]
struct Usage {
    bytes: i64,
    at: Monotonic,
    /// The bytes per second by which it grew, as far as is known, or half of this figure before if that is more. One that gives memory back
    /// now and then stays among those that grow.
    growth: i64,
}

/// The readings of what the workload's end gives back.
#[derive(Debug)]
struct Gain {
    window: Window,
    bytes: Bytes,
    /// The first and the last reading.
    first: Option<Monotonic>,
    read: Option<Monotonic>,
    /// Bytes per second, once there are two readings.
    growth: Option<i64>,
    /// The same between the last two readings.
    lately: Option<i64>,
}

impl Gain {
    fn unknown() -> Self {
        Self {
            window: Window::of(SPAN, EVERY),
            bytes: Bytes::ZERO,
            first: None,
            read: None,
            growth: None,
            lately: None,
        }
    }

    /// One that was not there a moment ago held nothing then: the first reading tells how fast it grows.
    fn of_new(absent: Option<Monotonic>) -> Self {
        let mut reading = Self::unknown();
        if let Some(absent) = absent {
            reading.window.observe(0, absent);
            reading.first = Some(absent);
        }
        reading
    }

    fn take(&mut self, bytes: Bytes, at: Monotonic) {
        let grown = || self.growth_since_last(bytes, at);
        self.growth = self.window.fall(bytes.signed(), at).map(|fall| rounded(-fall)).or_else(grown);
        self.lately = self.window.since_last(bytes.signed(), at).map(|fall| rounded(-fall));
        (self.bytes, self.read) = (bytes, Some(at));
        self.first.get_or_insert(at);
        self.window.observe(bytes.signed(), at);
    }

    /// Returns the growth, if the readings cover the whole span.
    fn growth_over_span(&self) -> Option<i64> {
        let covered = self.read?.since(self.first?);
        self.growth.filter(|_| covered >= SPAN)
    }

    /// Returns the growth since the reading before. Where many are read in turn that may be some seconds ago.
    fn growth_since_last(&self, bytes: Bytes, at: Monotonic) -> Option<i64> {
        let passed = at.since(self.read?);
        per_second(bytes.signed() - self.bytes.signed(), passed).filter(|_| passed > SPAN && passed < STALE * 2)
    }
}

impl Growth {
    /// Takes in whether a threshold is near. Returns whether growth is measured; if not, forgets it.
    pub fn is_wanted(&mut self, is_near: bool, now: Monotonic) -> bool {
        if is_near {
            self.near = Some(now);
        }
        let is_wanted = self.near.is_some_and(|near| now.since(near) < LINGERS);
        if !is_wanted {
            *self = Self::default();
        }
        is_wanted
    }

    /// Returns whether a reading is due. `appeared` is how many workloads have appeared since the agent started: one that is new is read at
    /// once. That a decision may be due in a moment delays no reading: a workload that grew a second ago may have stopped since.
    pub fn is_due(&self, appeared: u64, now: Monotonic) -> bool {
        if appeared != self.appeared || self.left > 0 {
            return true;
        }
        let is_lasting = self.since.is_some_and(|since| now.since(since) >= LASTING);
        let is_in_turn = self.gain.len() > EXACT;
        let is_blind = self.gain.values().any(|reading| reading.growth.is_none());
        let interval = match (is_blind, is_lasting) {
            (false, true) if is_in_turn => SELDOM_IN_TURN,
            (false, true) => SELDOM,
            _ => EVERY,
        };
        self.read.is_none_or(|read| now.since(read) >= interval)
    }

    /// Begins a round of readings, or goes on with one. Returns whether it begins with `memory.current` of every workload, which
    /// [`Self::choose`] takes: a second time soon after the first, because one reading does not show which workloads grow.
    pub fn begin(&mut self, appeared: u64, now: Monotonic) -> bool {
        self.read = Some(now);
        self.since.get_or_insert(now);
        let is_due = self.chosen.is_none_or(|chosen| now.since(chosen) >= CHOSEN_EVERY);
        if self.left > 0 && appeared == self.appeared && !is_due {
            return false;
        }
        self.left = EXACT;
        let chooses = appeared != self.appeared || self.choices < 2 || is_due;
        if chooses {
            (self.chosen, self.appeared, self.choices) = (Some(now), appeared, self.choices.saturating_add(1));
        }
        chooses
    }

    /// Takes `memory.current` of every workload, and chooses those whose gain is read: the ones that grow fastest, and of the others the largest.
    pub fn choose(&mut self, all: impl Iterator<Item = Listed>, now: Monotonic) {
        let before = std::mem::take(&mut self.usage);
        let is_first = before.is_empty();
        let mut order: Vec<(i64, Listed)> = Vec::new();
        for listed in all {
            let (id, bytes) = (listed.id, listed.usage.signed());
            let before = before.get(&id);
            let grown = before.and_then(|before| per_second(bytes - before.bytes, now.since(before.at)));
            // One that was not there a moment ago may have grown by all that it uses.
            let most = grown.unwrap_or(if is_first { 0 } else { bytes });
            // What only fills caches gives way. A workload that grows by steps may seem to stand still over less than the span.
            let known = self.gain.get(&id).and_then(Gain::growth_over_span).map_or(most, |growth| most.min(growth));
            let growth = known.max(before.map_or(0, |before| before.growth / 2));
            let order_by = rule!(LargestAreWatched: 0, growth);
            order.push((order_by, listed));
            self.usage.insert(id, Usage { bytes, at: now, growth });
        }
        order.sort_unstable_by_key(|(growth, listed)| (Reverse(*growth), Reverse(listed.usage), listed.id));
        let growing = order.partition_point(|(growth, _)| *growth >= LEAST_GROWTH);
        order.truncate(growing.clamp(EXACT, WATCHED));
        let mut gain = std::mem::take(&mut self.gain);
        let mut of = |listed: &Listed| gain.remove(&listed.id).unwrap_or_else(|| Gain::of_new(listed.absent));
        self.gain = order.iter().map(|(_, listed)| (listed.id, of(listed))).collect();
    }

    /// Reads the gain of chosen workloads, those that were read longest ago first. Returns whether the round is complete.
    pub fn read(&mut self, mut read: impl FnMut(CgroupId) -> Reading) -> bool {
        let mut oldest: Vec<(Option<Monotonic>, CgroupId)> =
            self.gain.iter().map(|(id, reading)| (reading.read, *id)).collect();
        oldest.sort_unstable();
        self.left = self.left.min(oldest.len());
        for (_, id) in oldest.into_iter().take(self.left) {
            match read(id) {
                Reading::Of(bytes, at) => {
                    if let Some(gain) = self.gain.get_mut(&id) {
                        gain.take(bytes, at);
                    }
                }
                Reading::Gone => {
                    self.gain.remove(&id);
                }
                Reading::NoTime => return false,
            }
            self.left -= 1;
        }
        self.left = 0;
        true
    }

    /// Forgets the growth if it was measured too long ago to count for the present.
    pub fn forget_stale(&mut self, now: Monotonic) {
        if self.read.is_none_or(|read| now.since(read) < STALE) {
            return;
        }
        self.gain.values_mut().for_each(|reading| reading.growth = None);
        // An agent that hardly gets a CPU would wait again and again.
        if self.resumed.is_none_or(|resumed| now.since(resumed) >= RESUMED_EVERY) {
            self.resumed = Some(now);
        }
    }

    /// Returns when the readings began anew, after a standstill.
    pub fn resumed(&self) -> Option<Monotonic> {
        self.resumed
    }

    /// Returns the workloads that hold most, largest first: by what their end gives back, where that is read, and otherwise by all that they use.
    /// A victim of another program does not grow any more, so many that grow may keep it from being read.
    pub fn largest(&self) -> Vec<CgroupId> {
        let bytes = |id: &CgroupId, usage: &Usage| {
            let gain = self.gain.get(id).filter(|gain| gain.read.is_some());
            gain.map_or(usage.bytes, |gain| gain.bytes.signed())
        };
        let mut found: Vec<_> = self.usage.iter().map(|(id, usage)| (Reverse(bytes(id, usage)), *id)).collect();
        found.sort_unstable();
        found.truncate(EXAMINED);
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns whether a round was cut, so that the rest is still to be read.
    pub const fn is_cut(&self) -> bool {
        self.left > 0
    }

    /// Returns whether the gain was read within the last turns. Where rounds are cut again and again that may be long ago.
    fn is_fresh(&self, reading: &Gain) -> bool {
        reading.read.zip(self.read).is_some_and(|(own, last)| last.since(own) < STALE * 2)
    }

    /// Returns the bytes per second by which the workload grows, if that was measured.
    pub fn of(&self, id: CgroupId) -> Option<i64> {
        let measured = self.gain.get(&id).filter(|reading| self.is_fresh(reading)).and_then(|reading| reading.growth);
        rule!(GrowthIsGuessed: measured.or_else(|| Some(self.usage.get(&id)?.bytes)), measured)
    }

    /// Returns the same without what has just stopped to grow.
    pub fn going_on(&self, id: CgroupId) -> Option<i64> {
        let growth = self.of(id)?;
        Some(self.gain.get(&id).and_then(|reading| reading.lately).map_or(growth, |lately| growth.min(lately)))
    }

    /// Returns the workloads that grow at least a quarter as fast as the fastest one.
    pub fn growing(&self) -> impl Iterator<Item = CgroupId> {
        let fresh = || self.gain.iter().filter(|(_, reading)| self.is_fresh(reading));
        let growth = || fresh().filter_map(|(id, reading)| Some((*id, reading.growth?)));
        let fastest = growth().map(|(_, growth)| growth).max().unwrap_or(0);
        growth().filter(move |(_, growth)| *growth >= LEAST_GROWTH && *growth >= fastest / 4).map(|(id, _)| id)
    }

    /// Returns the one of these workloads that grows fastest, with its growth that goes on.
    pub fn fastest(&self, among: impl Iterator<Item = CgroupId>) -> Option<(CgroupId, i64)> {
        fastest(among.filter_map(|id| Some((id, self.going_on(id)?))))
    }
}

/// Returns the one of these workloads that grows fastest, with its growth.
pub(super) fn fastest(growth: impl Iterator<Item = (CgroupId, i64)>) -> Option<(CgroupId, i64)> {
    growth.filter(|(_, growth)| *growth > 0).max_by_key(|(_, growth)| *growth)
}

pub(super) fn per_second(change: i64, passed: Duration) -> Option<i64> {
    let seconds = passed.as_secs_f64();
    (seconds > 0.0).then(|| rounded(signed_float(change) / seconds))
}

#[expect(clippy::cast_possible_truncation, reason = "saturating is right")]
pub(super) fn rounded(rate: f64) -> i64 {
    rate.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Monotonic {
        Monotonic(milliseconds * 1_000_000)
    }

    fn listed(id: u64, bytes: u64) -> Listed {
        Listed { id: CgroupId(id), usage: Bytes(bytes), absent: None }
    }

    fn reading(bytes: u64, growth: Option<i64>) -> Gain {
        Gain { bytes: Bytes(bytes), growth, read: Some(at(0)), ..Gain::unknown() }
    }

    #[test]
    fn a_reading_is_due_soon_and_at_once_where_one_has_appeared() {
        for (growth, appeared, milliseconds, is_due) in [
            (None, 0, 200, true),
            (Some(0), 0, 200, true),
            (None, 0, 199, false),
            (Some(0), 0, 199, false),
            (Some(0), 1, 10, true),
        ] {
            let gain = (1..).map(CgroupId).zip([Some(0), growth].map(|growth| reading(1, growth))).collect();
            let read = Growth { gain, since: Some(at(0)), read: Some(at(0)), ..Growth::default() };
            assert_eq!(read.is_due(appeared, at(milliseconds)), is_due, "{growth:?} {appeared} {milliseconds}");
        }
    }

    #[test]
    fn eight_workloads_hold_most() {
        // Each workload's `memory.current`, and what its end gives back if that is read.
        let found = |readings: &[(i64, Option<u64>)]| {
            let ids = || (1..).map(CgroupId);
            let usage =
                ids().zip(readings.iter().map(|(bytes, _)| Usage { bytes: *bytes, at: at(0), growth: 0 })).collect();
            let gain = ids().zip(readings).filter_map(|(id, (_, gain))| Some((id, reading((*gain)?, None)))).collect();
            let growth = Growth { usage, gain, ..Growth::default() };
            growth.largest().into_iter().map(|CgroupId(id)| id).collect::<Vec<_>>()
        };
        let mixed = [(900, Some(400)), (100, None), (99, Some(99)), (200, None), (800, Some(300))];
        assert_eq!(found(&mixed), [1, 5, 4, 2, 3]);
        assert_eq!(found(&[(400, None); 20]), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(found(&[]).is_empty());
    }

    #[test]
    fn one_that_is_new_grew_from_nothing() {
        for (name, absent, expected) in [
            ("since the list before", Some(at(4_000)), Some(2_000)),
            ("since a list of long ago", Some(at(2_000)), None),
            ("not known", None, None),
        ] {
            let mut growth = Growth::default();
            growth.begin(0, at(5_000));
            growth.choose(std::iter::once(Listed { absent, ..listed(1, 2_000) }), at(5_000));
            growth.read(|_| Reading::Of(Bytes(2_000), at(5_000)));
            assert_eq!(growth.of(CgroupId(1)), expected, "{name}");
        }
    }

    #[test]
    fn large_caches_do_not_hide_what_grows() {
        let mut growth = Growth::default();
        // 100 workloads of 2 GiB that do not grow, and a small one that does.
        let small = CgroupId(500);
        let all = |grown: u64| {
            let large = (0..100).map(|id| listed(id, 2 << 30));
            large.chain([listed(small.0, (100 + grown) << 20)])
        };
        for (milliseconds, grown) in [(0, 0), (200, 12), (1_200, 72)] {
            if growth.begin(0, at(milliseconds)) {
                growth.choose(all(grown), at(milliseconds));
            }
            growth.read(|id| {
                let found = all(grown).find(|it| it.id == id);
                found.map_or(Reading::Gone, |it| Reading::Of(it.usage, at(milliseconds)))
            });
        }
        assert_eq!(growth.of(small), Some(60 << 20));
        assert_eq!(growth.gain.len(), EXACT);
    }

    #[test]
    fn the_gain_of_two_hundred_that_grow_is_read_in_turn() {
        let (mut growth, mut read) = (Growth::default(), 0);
        let all = |step: u64| (0..200).map(move |id| listed(id, (100 + step) << 20));
        for step in 0..10 {
            let now = at(step * 200);
            if growth.begin(0, now) {
                growth.choose(all(step), now);
            }
            read = 0;
            growth.read(|_| {
                read += 1;
                Reading::Of(Bytes((100 + step) << 20), now)
            });
        }
        assert_eq!((growth.gain.len(), read), (200, EXACT));
        assert!((0..200).all(|id| growth.of(CgroupId(id)) == Some(5 << 20)));
    }

    #[test]
    fn a_round_is_cut_where_a_sample_is_due() {
        let mut growth = Growth::default();
        let all = || (0..10).map(|id| listed(id, 100 << 20));
        let mut read = Vec::new();
        // Four fit between two samples.
        for slice in 0..3 {
            let now = at(slice);
            assert!(growth.is_due(0, now), "the round goes on");
            if growth.begin(0, now) {
                growth.choose(all(), now);
            }
            let mut left = 4;
            growth.read(|id| {
                if left == 0 {
                    return Reading::NoTime;
                }
                left -= 1;
                read.push(id);
                Reading::Of(Bytes(100 << 20), now)
            });
        }
        read.sort_unstable();
        assert_eq!(read, (0..10).map(CgroupId).collect::<Vec<_>>(), "each once");
        assert!(!growth.is_due(0, at(3)), "the next round has time");
        assert!(growth.is_due(1, at(3)), "unless a workload has appeared");
    }

    #[test]
    fn growth_is_remembered_for_a_moment_after_memory_came_back() {
        let mut growth = Growth::default();
        for (seconds, is_near, is_wanted) in [(1, false, false), (2, true, true), (11, false, true), (12, false, false)]
        {
            assert_eq!(growth.is_wanted(is_near, at(seconds * 1_000)), is_wanted, "{seconds} s");
        }
    }

    #[test]
    fn growth_is_unknown_after_a_standstill_and_never_guessed() {
        let id = CgroupId(1);
        let mut growth = Growth::default();
        let take = |growth: &mut Growth, seconds: u64, bytes: u64| {
            growth.begin(0, at(seconds * 1_000));
            growth.choose(std::iter::once(listed(id.0, bytes)), at(seconds * 1_000));
            growth.read(|_| Reading::Of(Bytes(bytes), at(seconds * 1_000)));
        };
        take(&mut growth, 1, 8_000);
        assert_eq!(growth.of(id), None, "after one reading");
        take(&mut growth, 2, 9_000);
        assert_eq!(growth.of(id), Some(1_000));
        growth.forget_stale(at(4_000));
        assert_eq!((growth.of(id), growth.resumed()), (Some(1_000), None));
        growth.forget_stale(at(5_000));
        assert_eq!((growth.of(id), growth.resumed()), (None, Some(at(5_000))));
    }
}
