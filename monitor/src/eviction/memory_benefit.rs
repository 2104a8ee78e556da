//! Chooses, for memory, the first candidate of a ranking whose end helps. A candidate that gives back little buys little time: while it
//! ends, the workload that leaks goes on.

use std::time::Duration;

use crate::eviction::mutants::rule;
use crate::units::signed_float;
use crate::workloads::{Outlook, OwnPlace};

/// The end of a candidate makes a difference if it gives back at least this fraction of what is missing, or of what the best one gives back.
const PART: f64 = 10.0;
/// Away from the cliff a candidate that does not help is evicted only if its end buys this much: in less time the agent knows more.
const LEAST_BOUGHT: Duration = Duration::from_secs(1);
/// The memory that the node has left lasts no longer than this at the cliff.
const AT_THE_CLIFF: Duration = Duration::from_secs(2);

/// The precedence of culprits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Culprits {
    /// A culprit has no precedence.
    #[default]
    AsRanked,
    /// Culprits are evicted before bystanders.
    First,
    /// Only culprits are evicted.
    Only,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Need {
    /// The bytes by which less is available than wanted.
    pub missing: f64,
    /// The bytes that workloads which were killed have yet to give back.
    pub expected: f64,
    /// The bytes per second by which the available memory falls, as it was measured; `None` if that is not known.
    pub fall: Option<f64>,
    /// The same without what has just stopped to grow: what culprits cause.
    pub fall_that_goes_on: Option<f64>,
    /// The same since the last kill, which ended what the victim caused; `None` if nothing was killed lately.
    pub fall_since_kill: Option<f64>,
    /// The fastest growth of a workload that is never evicted. Such a workload may be a culprit too.
    pub protected_growth: f64,
    /// The bytes below which the threshold is met.
    pub threshold: f64,
    /// The time that an eviction has to buy.
    pub minimum: Duration,
    pub culprits: Culprits,
    /// Whether the kernel's OOM killer is near. Then no rule of effect or pace holds.
    pub is_cliff: bool,
    /// Whether a candidate that is terminating comes before all others, because its grace period is cut short.
    pub terminating_first: bool,
}

/// A candidate that may be evicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub place: usize,
    pub gain: f64,
    /// The bytes by which the candidate uses more than it requested, at least 0.
    pub excess: f64,
    pub outlook: Outlook,
}

/// The worth of a candidate's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    /// The candidate is a culprit, and its end makes a difference.
    Leaks,
    /// The candidate covers what is missing, and buys at least the minimum of time.
    Helps(Duration),
    /// The candidate buys this time only, or does not cover what is missing.
    TooLittle(Duration),
    /// The end of the candidate makes no difference.
    Dwarf(Duration),
    /// The candidate may be evicted only as a culprit, and is none.
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

/// The candidates among which the victim is picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    All,
    /// Those above their request whose end makes a difference.
    Above,
}

/// Judges the candidates of one ranking.
#[derive(Debug, Clone, Default)]
pub struct MemoryBenefit {
    need: Need,
    /// In the order of the ranking.
    rows: Vec<Row>,
    /// The largest gain of a candidate, or what is expected from those that were killed, if that is more.
    best: f64,
    /// The gain of all candidates together whose end makes a difference.
    all: f64,
    /// The excess growth of the slowest culprit.
    slowest_culprit: f64,
}

impl MemoryBenefit {
    pub fn of(need: Need, rows: Vec<Row>) -> Self {
        let slowest_culprit = slowest_culprit(&rows, need);
        let mut benefit = Self { need, rows, best: 0.0, all: 0.0, slowest_culprit };
        // At the cliff no memory is relied on before it has come.
        let expected = if need.is_cliff { 0.0 } else { need.expected };
        benefit.best = benefit.candidates().map(|row| row.gain).fold(expected, f64::max);
        benefit.all = benefit.candidates().filter(|row| benefit.makes_a_difference(row)).map(|row| row.gain).sum();
        benefit
    }

    /// Returns the buffer of the rows, empty, for the next pick.
    pub fn into_buffer(self) -> Vec<Row> {
        let mut rows = self.rows;
        rows.clear();
        rows
    }

    /// Returns the place of the victim. A candidate within its request is evicted only when the end of none above its request would make a
    /// difference, because a request is a promise, or when none of them takes the node away from the cliff.
    pub fn pick(&self) -> Option<usize> {
        let group = rule!(NoPromise: Group::All, if self.rows(Group::Above).next().is_some() { Group::Above } else { Group::All });
        self.pick_of(group)
    }

    /// Returns whether nobody goes only because some candidates use more than they requested, though none of those helps.
    pub fn is_held_back(&self) -> bool {
        self.pick().is_none() && self.pick_of(Group::All).is_some()
    }

    fn pick_of(&self, group: Group) -> Option<usize> {
        // The kernel comes first: it would keep no promise.
        let at_cliff =
            || [group, Group::All].into_iter().find_map(|group| self.helps(group).or_else(|| self.leaves_cliff(group)));
        let helps = self.helps(group).or_else(|| if self.need.is_cliff { at_cliff() } else { None });
        let any_at_cliff = || self.most_time(Group::All).filter(|_| self.need.is_cliff);
        let picked = helps.or_else(|| self.most_time(group)).or_else(any_at_cliff)?;
        Some(self.own_before(group, picked).unwrap_or(picked))
    }

    /// Returns the candidate that its user would rather lose than the one at `picked`, if its end buys some time. What leaks is never spared,
    /// and at the cliff the other has to take the node away from it.
    fn own_before(&self, group: Group, picked: usize) -> Option<usize> {
        let (row, worth) = self.rows(group).find(|(row, _)| row.place == picked)?;
        let kept = row.outlook.among_own.filter(|kept| kept.place > OwnPlace::Ordinary && worth != Worth::Leaks)?;
        let earlier = self.rows(group).filter_map(|(row, worth)| {
            let own = row.outlook.among_own.filter(|own| own.user == kept.user && own.place < kept.place)?;
            let buys = match worth {
                Worth::Leaks | Worth::Helps(_) => Duration::MAX,
                Worth::TooLittle(_) if self.need.is_cliff && !self.leaves(row) => return None,
                Worth::TooLittle(time) if time >= LEAST_BOUGHT => time,
                _ => return None,
            };
            Some((own.place, buys, row.place))
        });
        let better = |one: &(OwnPlace, Duration, usize), other: &(OwnPlace, Duration, usize)| {
            one.0.cmp(&other.0).then(other.1.cmp(&one.1)).then(one.2.cmp(&other.2))
        };
        earlier.min_by(better).map(|(.., place)| place)
    }

    /// Returns the candidates of a group with their worth. It is computed again each time, so that a decision allocates nothing.
    fn rows(&self, group: Group) -> impl Iterator<Item = (&Row, Worth)> {
        let is_above = |(row, worth): &(&Row, Worth)| {
            let is_above = rule!(GrowthWithinRequest: row.excess > 0.0 || *worth == Worth::Leaks, row.excess > 0.0);
            is_above && matches!(worth, Worth::Leaks | Worth::Helps(_) | Worth::TooLittle(_))
        };
        let all = self.rows.iter().map(|row| (row, self.worth(row)));
        all.filter(move |row| group == Group::All || is_above(row))
    }

    /// Returns the first candidate whose end helps.
    fn helps(&self, group: Group) -> Option<usize> {
        let first = |admits: &dyn Fn(&Row, Worth) -> bool| {
            self.rows(group).find(|(row, worth)| admits(row, *worth)).map(|(row, _)| row.place)
        };
        let helps = |worth: Worth| matches!(worth, Worth::Leaks | Worth::Helps(_));
        let culprit = first(&|_, worth| worth == Worth::Leaks);
        let terminating = || first(&|row, worth| row.outlook.is_terminating && helps(worth));
        match rule!(BystandersAsRanked: Culprits::AsRanked, self.need.culprits) {
            Culprits::Only => culprit,
            Culprits::First if culprit.is_some() => culprit,
            Culprits::First | Culprits::AsRanked => {
                terminating().filter(|_| self.need.terminating_first).or_else(|| first(&|_, worth| helps(worth)))
            }
        }
    }

    /// Returns the first candidate whose end alone takes the node away from the cliff: it lasts, or gives back at least half of the threshold.
    fn leaves_cliff(&self, group: Group) -> Option<usize> {
        let leaves = |(row, worth): &(&Row, Worth)| {
            let may_go = rule!(EffectAtTheCliff: self.need.culprits != Culprits::Only, true);
            may_go && matches!(worth, Worth::Helps(_) | Worth::TooLittle(_)) && self.leaves(row)
        };
        self.rows(group).find(leaves).map(|(row, _)| row.place)
    }

    fn leaves(&self, row: &Row) -> bool {
        row.gain >= self.need.missing.max(self.need.threshold / 2.0) || self.buys(row) >= AT_THE_CLIFF
    }

    /// Returns the candidate that buys most time where none helps; of equal ones the first of the ranking.
    fn most_time(&self, group: Group) -> Option<usize> {
        // All together would not end the shortage. A part of it is worth an eviction only when the kernel would kill.
        let is_futile = self.all < self.need.missing;
        let (is_cliff, culprits_only) = (self.need.is_cliff, self.need.culprits == Culprits::Only);
        if !is_cliff && (is_futile || culprits_only) {
            return None;
        }
        // After evictions in vain one that buys next to nothing is in vain at the cliff, too.
        let least = if is_cliff && !culprits_only { Duration::ZERO } else { LEAST_BOUGHT };
        let bought = self.rows(group).filter_map(|(row, worth)| match worth {
            Worth::TooLittle(time) if time >= least => Some((row.place, time)),
            _ => None,
        });
        bought.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(place, _)| place)
    }

    /// Returns the bytes per second by which all candidates together grow.
    pub fn growth_of_all(&self) -> f64 {
        growth_together(&self.rows)
    }

    pub fn culprits(&self) -> Culprits {
        self.need.culprits
    }

    pub fn worth_at(&self, place: usize) -> Option<Worth> {
        self.rows.iter().find(|row| row.place == place).map(|row| self.worth(row))
    }

    /// Returns whether the candidate at `place` uses more than it requested.
    pub fn is_above_request(&self, place: usize) -> Option<bool> {
        self.rows.iter().find(|row| row.place == place).map(|row| row.excess > 0.0)
    }

    /// Returns the time that the end of the candidate at `place` buys.
    pub fn buys_at(&self, place: usize) -> Option<Duration> {
        self.rows.iter().find(|row| row.place == place).map(|row| self.buys(row))
    }

    fn worth(&self, row: &Row) -> Worth {
        let buys = self.buys(row);
        if !self.may_go(row) {
            return Worth::NotALeaker;
        }
        if !self.makes_a_difference(row) {
            return Worth::Dwarf(buys);
        }
        if self.is_culprit(row) {
            return Worth::Leaks;
        }
        let covers = row.gain >= self.need.missing;
        let lasts = rule!(NoMinimum: true, buys >= self.need.minimum);
        let helps = covers && lasts;
        if helps { Worth::Helps(buys) } else { Worth::TooLittle(buys) }
    }

    fn candidates(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| self.may_go(row))
    }

    fn is_culprit(&self, row: &Row) -> bool {
        excess_growth(row) >= self.slowest_culprit
    }

    fn may_go(&self, row: &Row) -> bool {
        !row.outlook.only_as_leaker || self.is_culprit(row)
    }

    /// Where no candidate gives back a part of what is missing that counts, the best one is the measure. A candidate without memory gives
    /// nothing back.
    fn makes_a_difference(&self, row: &Row) -> bool {
        let measure = if self.best * PART >= self.need.missing { self.need.missing } else { self.best };
        #[cfg(feature = "mutants")]
        let largest = || self.rows.iter().map(|row| row.gain).fold(0.0, f64::max);
        let measure = rule!(DwarfsBesideTheLargest: largest(), measure);
        row.gain > 0.0 && rule!(DwarfsGo: true, row.gain * PART >= measure)
    }

    fn buys(&self, row: &Row) -> Duration {
        let left = self.need.fall.map_or(0.0, |fall| fall - growth(row).unwrap_or(0.0));
        if left <= 0.0 {
            return Duration::MAX;
        }
        Duration::try_from_secs_f64(row.gain / left).unwrap_or(Duration::MAX)
    }
}

/// Returns whether the kernel's OOM killer is near: at the measured fall nothing is left within two seconds, or less than a quarter of the
/// threshold and of `usual`, the default threshold.
pub fn is_cliff(available: f64, threshold: f64, usual: f64, fall: Option<f64>) -> bool {
    let lasts = fall.is_none_or(|fall| available > fall * AT_THE_CLIFF.as_secs_f64());
    !lasts || available < threshold / 4.0 && available < usual
}

/// Returns the growth in bytes per second, if it was measured.
fn growth(row: &Row) -> Option<f64> {
    row.outlook.is_growth_measured.then(|| signed_float(row.outlook.growth))
}

/// Returns the part of a growth that goes on: what has just stopped to grow takes no more.
fn going_on(row: &Row, growth: f64) -> f64 {
    row.outlook.growth_lately.map_or(growth, |lately| growth.min(signed_float(lately).max(0.0)))
}

/// Returns by how much the workloads that grow do so together.
fn growth_together(rows: &[Row]) -> f64 {
    rows.iter().filter_map(|row| Some(going_on(row, growth(row)?))).filter(|growth| *growth > 0.0).sum()
}

/// Growth up to the request is what the request promises.
fn excess_growth(row: &Row) -> f64 {
    growth(row).filter(|_| rule!(GrowthWithinRequest: true, row.excess > 0.0)).unwrap_or(0.0)
}

/// Returns the excess growth of the slowest culprit. The culprits are the smallest set of workloads, in the order of their excess growth, that
/// together cause at least half of the fall, without those that only fill up the set beside a much faster one. What has just stopped to grow
/// causes no part of the fall that goes on, so it hides nobody. Returns infinity if all together cause less: then something else uses up the
/// memory.
fn slowest_culprit(rows: &[Row], need: Need) -> f64 {
    let Some(fall) = fall_to_explain(rows, need) else { return f64::INFINITY };
    let growing = growing(rows, need.protected_growth);
    let fastest = growing.first().map_or(0.0, |(growth, _)| *growth);
    let last_of = |part: fn(&(f64, f64)) -> f64| {
        let mut sum = 0.0;
        let together = |growth: &&(f64, f64)| {
            sum += part(growth);
            sum >= fall / 2.0
        };
        growing.iter().find(together).map(|(growth, _)| *growth)
    };
    // One whose burst has just ended may have caused what is still measured as the fall.
    let last = last_of(|(_, going_on)| *going_on).or_else(|| last_of(|(growth, _)| *growth));
    let last = rule!(NoCulprits: None, last);
    let found = last.map_or(f64::INFINITY, |slowest| slowest.max(fastest / PART));
    rule!(EveryGrowerIsACulprit: growing.last().map_or(found, |(growth, _)| *growth), found)
}

/// Returns the fall that the culprits cause; `None` if nothing falls.
fn fall_to_explain(rows: &[Row], need: Need) -> Option<f64> {
    // Memory of victims that came back hides the fall. What grows is all that is known of it then.
    let is_hidden = need.culprits != Culprits::AsRanked;
    let growth = || growth_together(rows) + need.protected_growth.max(0.0);
    let goes_on = need.fall_that_goes_on?;
    let fall = need.fall_since_kill.map_or(goes_on, |since| goes_on.min(since.max(growth())));
    let fall = if fall <= 0.0 && is_hidden { growth() } else { fall };
    (fall > 0.0).then_some(fall)
}

/// Returns the excess growths and the parts that go on, the fastest growth first.
fn growing(rows: &[Row], protected: f64) -> Vec<(f64, f64)> {
    let of_candidates = rows.iter().map(|row| (row, excess_growth(row))).map(|(row, it)| (it, going_on(row, it)));
    let found = of_candidates.chain(std::iter::once((protected, protected))).filter(|(growth, _)| *growth > 0.0);
    let mut growing = Vec::new();
    for growth in found {
        if growing.is_empty() {
            growing.reserve_exact(rows.len() + 1);
        }
        growing.push(growth);
    }
    growing.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
    growing
}

#[cfg(test)]
#[path = "memory_benefit_tests.rs"]
mod tests;
