//! Runs a world and lets the checkers judge it.

use crate::checkers::{CHECKERS, Checker, Verdict, World};
use crate::plan::Plan;
use crate::run::{Options, run};

/// The judgement of one world.
#[derive(Debug, Clone, Default)]
pub struct Judgement {
    pub turns: usize,
    pub kills: usize,
    pub oom_kills: usize,
    /// In the order of [`CHECKERS`].
    pub verdicts: Vec<Verdict>,
}

pub fn judge(plan: &Plan) -> Judgement {
    let world = played(plan);
    Judgement {
        turns: world.history.turns,
        kills: world.history.decisions.len(),
        oom_kills: usize::from(world.history.oom.is_some()),
        verdicts: CHECKERS.iter().map(|checker| (checker.check)(&world)).collect(),
    }
}

pub fn judge_one(plan: &Plan, checker: Checker) -> Verdict {
    (checker.check)(&played(plan))
}

pub fn played(plan: &Plan) -> World<'_> {
    let (history, truth) = run(plan, Options::default());
    World { plan, history, truth }
}
