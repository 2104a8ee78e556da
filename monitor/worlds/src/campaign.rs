//! Runs many worlds on all CPUs, and sums up what the checkers found.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::checkers::CHECKERS;
use crate::generate::world;
use crate::judge::{Judgement, judge};

/// Failing worlds of one invariant that are kept.
const KEPT: usize = 3;

#[derive(Debug, Clone, Default)]
pub struct Sum {
    pub worlds: u64,
    pub turns: usize,
    pub kills: usize,
    pub oom_kills: usize,
    /// In the order of [`CHECKERS`].
    pub tallies: [Tally; CHECKERS.len()],
}

/// The sum of one invariant.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub checked: usize,
    /// The number of worlds in which the invariant was put to the test.
    pub worlds: u64,
    pub broken: u64,
    /// The numbers of the first worlds that break it.
    pub failing: Vec<u64>,
}

impl Sum {
    fn add(&mut self, number: u64, judgement: &Judgement) {
        self.worlds += 1;
        self.turns += judgement.turns;
        self.kills += judgement.kills;
        self.oom_kills += judgement.oom_kills;
        for (tally, verdict) in self.tallies.iter_mut().zip(&judgement.verdicts) {
            tally.checked += verdict.checked;
            tally.worlds += u64::from(verdict.checked > 0);
            if !verdict.findings.is_empty() {
                tally.broken += 1;
                tally.failing.push(number);
            }
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.worlds += other.worlds;
        self.turns += other.turns;
        self.kills += other.kills;
        self.oom_kills += other.oom_kills;
        for (tally, other) in self.tallies.iter_mut().zip(other.tallies) {
            tally.checked += other.checked;
            tally.worlds += other.worlds;
            tally.broken += other.broken;
            tally.failing.extend(other.failing);
            tally.failing.sort_unstable();
            tally.failing.truncate(KEPT);
        }
        self
    }
}

impl Tally {
    /// Returns the number of the first world that breaks the invariant.
    pub fn first(&self) -> Option<u64> {
        self.failing.first().copied()
    }
}

/// Runs the worlds from `first` on, all of them, or until one breaks an invariant.
pub fn run(series: u64, first: u64, count: u64, until_broken: bool) -> Sum {
    let is_over = AtomicBool::new(false);
    let (next, width) = (AtomicU64::new(first), thread::available_parallelism().map_or(1, NonZero::get));
    let worker = || {
        let mut sum = Sum::default();
        while !is_over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= first + count {
                break;
            }
            let judgement = judge(&world(series, number));
            if until_broken && judgement.verdicts.iter().any(|verdict| !verdict.findings.is_empty()) {
                is_over.store(true, Ordering::Relaxed);
            }
            sum.add(number, &judgement);
        }
        sum
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..width).map(|_| scope.spawn(worker)).collect();
        let sums = workers.into_iter().map(|worker| worker.join().unwrap_or_default());
        sums.fold(Sum::default(), Sum::merge)
    })
}
