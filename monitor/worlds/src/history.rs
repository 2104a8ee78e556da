//! What happened in a world, with the truth at each decision.

use node_pressure_monitor::eviction::decider::{PassedOver, RecordedTurn};
use node_pressure_monitor::eviction::memory_benefit::Worth;

use crate::plan::Plan;

#[derive(Debug, Default)]
pub struct History {
    pub decisions: Vec<Decision>,
    /// When the kernel's OOM killer acted.
    pub oom: Option<f64>,
    /// When the world ended.
    pub ended: f64,
    pub turns: usize,
    /// The most measurements that the decider asked for in one turn.
    pub most_measured: usize,
    /// Whether the agent was to choose once, and chose nobody.
    pub chose_nobody: bool,
    /// The pods that were named as the largest that stays, with the reason.
    pub stayed: Vec<(usize, PassedOver)>,
    /// The turn that decided first, if it was to be recorded.
    pub recorded: Option<RecordedTurn>,
    /// When each pod was killed, by whomever.
    pub killed: Vec<Option<f64>>,
}

/// One kill.
#[derive(Debug, Clone)]
pub struct Decision {
    pub at: f64,
    pub victim: usize,
    /// What the agent said of the victim.
    pub worth: Option<Worth>,
    /// Whether the agent knew the victim's growth.
    pub is_growth_known: bool,
    pub available: f64,
    /// Threshold plus minimum reclaim, less available, less what is coming back from earlier victims.
    pub missing: f64,
    /// The same without what is coming back: late memory may not come.
    pub short: f64,
    pub fall: f64,
    /// The bytes per second that are used up, without what comes back.
    pub used: f64,
    /// The least fall over spans from 0.2 to 11 seconds.
    pub slow_fall: f64,
    /// The most.
    pub fast_fall: f64,
    /// The fall over the last 0.4 seconds.
    pub present_fall: f64,
    /// The evictions of this shortage before this one.
    pub before: usize,
    /// The workloads that could have been evicted, and those that are protected.
    pub rows: Vec<Row>,
}

/// The truth about one workload.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub pod: usize,
    /// Whether it may be evicted at all.
    pub is_candidate: bool,
    /// Whether it may be evicted only as a culprit.
    pub only_as_culprit: bool,
    pub gain: f64,
    pub excess: f64,
    /// The least and the most growth above its request, over spans from 0.3 to 2 seconds.
    pub slow: f64,
    pub fast: f64,
    /// It has just started, or starts still.
    pub is_new: bool,
    /// Whether it started after the list of workloads that the decision may have used.
    pub may_be_unlisted: bool,
}

impl Decision {
    pub fn victim(&self) -> Option<&Row> {
        self.row(self.victim)
    }

    pub fn row(&self, pod: usize) -> Option<&Row> {
        self.rows.iter().find(|row| row.pod == pod)
    }

    /// Returns the workloads that could have gone instead, without condition.
    pub fn others(&self) -> impl Iterator<Item = &Row> {
        let is_other = |row: &&Row| row.pod != self.victim && row.is_candidate && !row.may_be_unlisted;
        self.rows.iter().filter(is_other)
    }

    /// Returns whether the workload is a culprit beyond doubt: it has been one over every span, and by a margin, or it makes most of the fall
    /// that goes on. The agent takes up to `noise` off the fall. As long as a pod starts it cannot tell.
    pub fn is_certain_culprit(&self, row: &Row, noise: f64) -> bool {
        if self.rows.iter().any(|row| row.is_new) {
            return false;
        }
        let falls =
            [(self.fall - noise).max(1e-6) * 0.8, self.fall, self.fall * 1.4, self.fast_fall.min(self.fall + noise)];
        let growths: [fn(&Row) -> f64; 2] = [|row| row.slow, |row| row.fast];
        let slowest = growths.into_iter().flat_map(|growth| falls.map(|fall| self.slowest_culprit(growth, fall)));
        let slowest = slowest.fold(0.0, f64::max);
        // Memory that comes back hides the fall.
        let hidden = if self.before > 0 { self.used } else { 0.0 };
        let goes_on = if self.slow_fall > 0.0 { (self.present_fall + noise * 4.0).max(hidden) } else { f64::INFINITY };
        row.excess > row.slow * 2.0 && row.slow > 0.1 && (row.slow >= slowest || row.slow >= goes_on * 0.7)
    }

    /// Returns whether the workload may count as a culprit: it is one over some span, or nearly, or if a faster one does not count, or one that
    /// has just started. The agent takes up to `noise` off the fall.
    pub fn may_be_culprit(&self, row: &Row, plan: &Plan) -> bool {
        // The agent takes nothing off the fall over ten seconds, or since its start.
        let jump = plan.error * 2.0 / self.at.clamp(1.0, 10.0);
        let least = (self.fall * 0.5).min(self.slow_fall).min(self.fall - plan.noise()).max(1e-6);
        let most = (self.fall * 1.3).max(self.fall + jump).max(1e-6);
        let growths: [fn(&Row) -> f64; 2] = [|row| row.slow, |row| if row.is_new { 0.0 } else { row.slow }];
        let slowest = growths.into_iter().filter_map(|growth| self.slowest_within(growth, least, most));
        let slowest = slowest.fold(f64::INFINITY, f64::min);
        let slowest = if slowest.is_finite() { slowest } else { self.fall * 0.02 };
        let is_rising = self.slow_fall <= 0.0;
        row.excess > 0.0 && row.fast > 0.0 && (is_rising || row.fast >= slowest * 0.33)
    }

    /// Returns the least growth of a culprit, whichever of these the fall is.
    fn slowest_within(&self, growth: fn(&Row) -> f64, least: f64, most: f64) -> Option<f64> {
        // The larger the fall, the more of them it takes, up to all.
        let all: f64 = self.rows.iter().map(growth).filter(|growth| *growth > 0.0).sum();
        let fall = most.min(all * 2.0 * (1.0 - 1e-9));
        (fall >= least).then(|| self.slowest_culprit(growth, fall))
    }

    /// The culprits are the smallest set, in the order of their growth, that causes at least half of the fall.
    fn slowest_culprit(&self, growth: impl Fn(&Row) -> f64, fall: f64) -> f64 {
        let mut growing: Vec<f64> = self.rows.iter().map(growth).filter(|growth| *growth > 0.0).collect();
        growing.sort_unstable_by(|a, b| b.total_cmp(a));
        let mut sum = 0.0;
        let last = growing.into_iter().find(|growth| {
            sum += growth;
            sum >= fall / 2.0
        });
        if fall <= 0.0 { f64::INFINITY } else { last.unwrap_or(f64::INFINITY) }
    }

    /// Returns how long the node would last, measured by the fall, with what the end of this workload gives back.
    pub fn buys(&self, row: &Row) -> f64 {
        let left = self.fall - row.slow.max(0.0);
        if left <= 0.0 { f64::INFINITY } else { row.gain / left }
    }
}
