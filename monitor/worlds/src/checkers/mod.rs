//! One checker per invariant. A checker sees the whole truth, and shares no rule with the agent. Where the agent cannot know the truth, since
//! it reads now and then and a sample has an error, a checker leaves a margin.

mod culprit;
mod escape;
mod fades;
mod help;
mod in_time;
mod kernel;
mod necessary;
mod order;
mod promise;
mod same_answer;
mod words;

use node_pressure_monitor::eviction::memory_benefit::Worth;

use crate::history::{Decision, History, Row};
use crate::plan::Plan;
use crate::run::{Options, run};
use crate::truth::Truth;

/// A world that was run.
#[derive(Debug)]
pub struct World<'p> {
    pub plan: &'p Plan,
    pub history: History,
    pub truth: Truth<'p>,
}

/// What a checker found in one world.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// How often the invariant was put to the test.
    pub checked: usize,
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone)]
pub struct Finding {
    pub at: f64,
    pub what: String,
    /// What would have been right.
    pub right: String,
}

impl Verdict {
    fn check(&mut self, finding: Option<Finding>) {
        self.checked += 1;
        self.findings.extend(finding);
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Checker {
    pub number: u32,
    pub name: &'static str,
    pub check: fn(&World<'_>) -> Verdict,
    /// At least one world of so many puts the invariant to the test.
    pub share: usize,
}

/// The checkers, in the order of `enforcing.md`.
pub const CHECKERS: [Checker; 11] = [
    Checker { number: 1, name: "promise", check: promise::check, share: 4 },
    Checker { number: 2, name: "help", check: help::check, share: 4 },
    Checker { number: 3, name: "culprit", check: culprit::check, share: 4 },
    Checker { number: 4, name: "kernel", check: kernel::check, share: 4 },
    Checker { number: 5, name: "necessary", check: necessary::check, share: 4 },
    Checker { number: 6, name: "fades", check: fades::check, share: 50 },
    Checker { number: 7, name: "order", check: order::check, share: 50 },
    Checker { number: 8, name: "escape", check: escape::check, share: 100 },
    Checker { number: 9, name: "same-answer", check: same_answer::check, share: 50 },
    Checker { number: 10, name: "in-time", check: in_time::check, share: 4 },
    Checker { number: 11, name: "true-words", check: words::check, share: 50 },
];

/// Returns whether this world is one of those whose neighbours are run too: that costs as much as the world itself.
fn is_sampled(plan: &Plan, one_of: u64) -> bool {
    plan.seed.is_multiple_of(one_of)
}

/// Returns whether the first victim is a culprit with doubt, or depends on the moment at which the agent happens to look. Then another one is no
/// wrong answer.
fn is_close_call(world: &World<'_>) -> bool {
    let is_doubtful = |decision: &Decision| {
        let is_certain = |row: &Row| decision.is_certain_culprit(row, world.plan.noise());
        decision.worth == Some(Worth::Leaks) && !decision.victim().is_some_and(is_certain)
    };
    if world.history.decisions.first().is_some_and(is_doubtful) {
        return true;
    }
    let first = |history: &History| history.decisions.first().map(|decision| decision.victim);
    [0.013, 0.05, 0.11].into_iter().any(|begins| {
        let (history, _) = run(world.plan, Options { until_first: true, begins, ..Options::default() });
        first(&history) != first(&world.history)
    })
}

/// Returns whether the agent has just begun, or stood still, so that it knows no growth yet. It reads some dozens of workloads at a time.
fn is_blind(plan: &Plan, at: f64) -> bool {
    const NEEDS: f64 = 3.5;
    const IN_A_SECOND: u32 = 100;
    let needs = NEEDS + f64::from(u32::try_from(plan.pods.len()).unwrap_or(u32::MAX)) / f64::from(IN_A_SECOND);
    let ended = plan.standstills.iter().chain(&plan.restarts).map(|(from, lasts)| (*from, from + lasts));
    at < needs || ended.into_iter().any(|(from, until)| at >= from && at < until + needs)
}
