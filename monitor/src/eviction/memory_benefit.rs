//! Chooses, for memory, the first candidate of a ranking whose end helps. A candidate that gives back little buys little time: while it
//! ends, the workload that leaks goes on.

use std::time::Duration;

use crate::units::signed_float;
use crate::workloads::Outlook;

/// A candidate that gives back less than this fraction of the best candidate's gain or of what is expected from those that were killed, and
/// less than what is missing, is never evicted.
const OF_BEST: f64 = 10.0;
/// No workload leaks while the measured fall is less than this share of the fall that is assumed.
const MEASURED_SHARE: f64 = 0.25;
/// A workload leaks if it grows by at least this share of the fall.
const LEAK_SHARE: f64 = 0.5;
/// And by at least this share of the growth of the fastest one that is no dwarf: the fall may have been measured for too short a time, or
/// be hidden by file pages that the kernel drops.
const OF_FASTEST: f64 = 1.0 / 3.0;

/// A DaemonSet's pod that grows by more than this share of the fall may leak: after a pause of the machine the measured fall is many times the
/// pod's growth.
const MAY_LEAK_SHARE: f64 = 0.01;

/// The precedence of candidates that leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Leakers {
    /// A leaker has no precedence.
    #[default]
    AsRanked,
    /// Leakers are evicted before all others.
    First,
    /// Only leakers are evicted.
    Only,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Need {
    /// The bytes by which less is available than wanted.
    pub missing: f64,
    /// The bytes that workloads which were killed have yet to give back.
    pub expected: f64,
    /// The bytes per second by which the available memory falls; `None` if that is not known.
    pub fall: Option<f64>,
    /// The same as it was measured, without the least that is assumed. A leaker is found by this fall.
    pub measured: Option<f64>,
    /// The most by which it falls at present. A workload that leaks need not keep up with one that has stopped to grow.
    pub present: Option<f64>,
    /// The time that an eviction has to buy.
    pub minimum: Duration,
    pub leakers: Leakers,
    /// Whether a candidate that is terminating comes before all others, because its grace period is cut short.
    pub terminating_first: bool,
}

/// A candidate that may be evicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub place: usize,
    pub gain: f64,
    /// The candidate uses no more than it requested.
    pub is_within_request: bool,
    pub outlook: Outlook,
}

/// The worth of a candidate's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    /// The candidate grows by a large part of the fall.
    Leaks,
    /// The candidate covers what is missing, and buys at least the minimum of time.
    Helps(Duration),
    /// The candidate buys this time only, or does not cover what is missing.
    TooLittle(Duration),
    /// The candidate gives back less than a tenth of what the best one does, of what is coming already, or, unless it helps or leaks, of what
    /// a DaemonSet's pod holds that may leak.
    Dwarf(Duration),
    /// The candidate may be evicted only as a leaker, and does not leak.
    NotALeaker,
}

impl Worth {
    /// Returns the worth in words that follow the candidate's name.
    pub fn words(self) -> String {
        let seconds = |time: Duration| {
            if time == Duration::MAX { "enough time".to_owned() } else { format!("{:.1} s", time.as_secs_f64()) }
        };
        match self {
            Self::Leaks => "leaks".to_owned(),
            Self::Helps(time) => format!("buys {}", seconds(time)),
            Self::TooLittle(time) => format!("would buy {}", seconds(time)),
            Self::Dwarf(_) => "would give back too little".to_owned(),
            Self::NotALeaker => "does not leak".to_owned(),
        }
    }
}

/// Judges the candidates of one ranking.
#[derive(Debug, Clone, Default)]
pub struct MemoryBenefit {
    need: Need,
    /// In the order of the ranking.
    rows: Vec<Row>,
    best: f64,
    /// The largest gain of a DaemonSet's pod that may leak.
    of_daemons: f64,
    /// A candidate leaks if it grows at least as fast as this.
    leak: f64,
}

impl MemoryBenefit {
    pub fn of(need: Need, rows: Vec<Row>) -> Self {
        let mut benefit = Self { need, leak: leak(&rows, need), rows, best: 0.0, of_daemons: 0.0 };
        let best = |rows: &mut dyn Iterator<Item = &Row>| rows.map(|row| row.gain).fold(0.0, f64::max);
        benefit.of_daemons = best(&mut benefit.rows.iter().filter(|row| row.outlook.is_daemon && may_leak(row, need)));
        let candidates = || benefit.rows.iter().filter(|row| !row.outlook.only_as_leaker || benefit.leaks(row));
        let of_first = best(&mut candidates().filter(|row| !benefit.is_deferred(row)));
        benefit.best = if of_first > 0.0 { of_first } else { best(&mut candidates()) };
        // Beside what is coming already, a small candidate changes nothing.
        benefit.best = benefit.best.max(need.expected);
        benefit
    }

    /// Returns the buffer of the rows, empty, for the next pick.
    pub fn into_buffer(self) -> Vec<Row> {
        let mut rows = self.rows;
        rows.clear();
        rows
    }

    /// Returns the place of the victim. A candidate that uses no more than it requested, and does not leak, is deferred: it is evicted only
    /// when no other candidate is left. Its request is a promise.
    pub fn pick(&self) -> Option<usize> {
        self.pick_among(|row| !self.is_deferred(row)).or_else(|| self.pick_among(|_| true))
    }

    fn is_deferred(&self, row: &Row) -> bool {
        row.is_within_request && !self.leaks(row)
    }

    fn pick_among(&self, is_considered: impl Fn(&Row) -> bool) -> Option<usize> {
        let rows = || self.rows.iter().filter(|row| is_considered(row));
        let worth = |row: &Row| (row.place, self.worth(row));
        let helps = |worth: Worth| matches!(worth, Worth::Leaks | Worth::Helps(_));
        let is_leaker = |worth: Worth| worth == Worth::Leaks;
        let first =
            |admits: &dyn Fn(&Row, Worth) -> bool| rows().find(|row| admits(row, self.worth(row))).map(|row| row.place);
        if self.need.leakers != Leakers::AsRanked
            && let Some(leaker) = first(&|_, worth| is_leaker(worth))
        {
            return Some(leaker);
        }
        if self.need.leakers == Leakers::Only {
            return None;
        }
        if self.need.terminating_first
            && let Some(terminating) = first(&|row, worth| row.outlook.is_terminating && helps(worth))
        {
            return Some(terminating);
        }
        if let Some(helpful) = first(&|_, worth| helps(worth)) {
            return Some(helpful);
        }
        // No candidate helps. The victim is the one that buys most time; of equal ones the first of the ranking.
        let bought = rows().map(worth).filter_map(|(place, worth)| match worth {
            Worth::TooLittle(time) => Some((place, time)),
            Worth::Leaks | Worth::Helps(_) | Worth::Dwarf(_) | Worth::NotALeaker => None,
        });
        bought.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(place, _)| place)
    }

    /// Returns the bytes per second by which all candidates together grow.
    pub fn growth_of_all(&self) -> f64 {
        let measured = self.rows.iter().filter(|row| row.outlook.is_growth_measured);
        measured.map(growth).filter(|growth| *growth > 0.0).sum()
    }

    pub fn leakers(&self) -> Leakers {
        self.need.leakers
    }

    pub fn worth_at(&self, place: usize) -> Option<Worth> {
        self.rows.iter().find(|row| row.place == place).map(|row| self.worth(row))
    }

    /// Returns the time that the end of the candidate at `place` buys.
    pub fn buys_at(&self, place: usize) -> Option<Duration> {
        self.rows.iter().find(|row| row.place == place).map(|row| self.buys(row))
    }

    fn worth(&self, row: &Row) -> Worth {
        let buys = self.buys(row);
        let covers = row.gain >= self.need.missing;
        let (helps, leaks) = (covers && buys >= self.need.minimum, self.leaks(row));
        let is_dwarf = !covers && row.gain * OF_BEST < self.best
            // After a pause of the machine a DaemonSet's pod that leaks is not known as a leaker: nothing was measured.
            || !helps && !leaks && row.gain * OF_BEST < self.of_daemons;
        // The gain that counts is positive in any case: a candidate without memory gives nothing back.
        if row.gain <= 0.0 || is_dwarf {
            return Worth::Dwarf(buys);
        }
        if leaks {
            return Worth::Leaks;
        }
        if row.outlook.only_as_leaker {
            return Worth::NotALeaker;
        }
        if helps { Worth::Helps(buys) } else { Worth::TooLittle(buys) }
    }

    fn leaks(&self, row: &Row) -> bool {
        row.outlook.growth > 0 && growth(row) >= self.leak
    }

    fn buys(&self, row: &Row) -> Duration {
        let left = self.need.fall.map_or(0.0, |fall| fall - growth(row));
        if left <= 0.0 {
            return Duration::MAX;
        }
        Duration::try_from_secs_f64(row.gain / left).unwrap_or(Duration::MAX)
    }
}

/// Returns whether a candidate may leak without being known as a leaker.
fn may_leak(row: &Row, need: Need) -> bool {
    // Growth that is zero and was not measured is that of a workload which is not among the largest.
    if row.outlook.is_growth_measured {
        growth(row) > need.fall.unwrap_or(0.0) * MAY_LEAK_SHARE
    } else {
        row.outlook.growth != 0
    }
}

fn growth(row: &Row) -> f64 {
    signed_float(row.outlook.growth)
}

/// Returns the growth from which on a candidate leaks: half of the fall, and a third of the fastest growth of a large one. If no candidate
/// grows that fast, the fastest ones leak that together grow by half of the fall. Returns infinity if all together grow less: then something else leaks.
fn leak(rows: &[Row], need: Need) -> f64 {
    let (Some(measured), Some(assumed)) = (need.measured, need.fall) else { return f64::INFINITY };
    if measured <= 0.0 || measured < assumed * MEASURED_SHARE {
        return f64::INFINITY;
    }
    let half = need.present.map_or(measured, |present| measured.min(present)) * LEAK_SHARE;
    let measured = || rows.iter().filter(|row| row.outlook.is_growth_measured);
    if rows.iter().any(|row| growth(row) >= half) {
        let largest = rows.iter().map(|row| row.gain).fold(0.0, f64::max);
        // Guesses by size and age compare with each other, but not with what was measured.
        let is_any_measured = measured().next().is_some();
        let alike = rows.iter().filter(|row| row.outlook.is_growth_measured == is_any_measured);
        let large = alike.filter(|row| row.gain * OF_BEST >= largest);
        return half.max(large.map(growth).fold(0.0, f64::max) * OF_FASTEST);
    }
    let mut growing: Vec<f64> = measured().map(growth).filter(|growth| *growth > 0.0).collect();
    growing.sort_by(|a, b| b.total_cmp(a));
    let mut sum = 0.0;
    let last = growing.into_iter().find(|growth| {
        sum += growth;
        sum >= half
    });
    last.unwrap_or(f64::INFINITY)
}

#[cfg(test)]
#[path = "memory_benefit_tests.rs"]
mod tests;
