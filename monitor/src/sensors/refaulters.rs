//! Finds the workload that reads back file pages that the kernel dropped.

use std::collections::HashMap;
use std::time::Duration;

use crate::eviction::refaulting::faded;
use crate::units::{Bytes, CgroupId, Monotonic, float, page_size};
use crate::workloads::WorkloadTree;

/// The shortest time between two counts.
const EVERY: Duration = Duration::from_secs(1);
/// With many workloads the pause is this many times as long as a count takes.
const PAUSE_SHARE: u32 = 100;

/// The refaults of each workload, which fade as those of the node do. Nothing is read while the node has none.
#[derive(Debug, Default)]
pub struct Refaulters {
    /// The kernel's counter, and the faded sum of its growth.
    counts: HashMap<CgroupId, (u64, f64)>,
    read: Option<Monotonic>,
    took: Duration,
    /// Whether the counters were read twice.
    is_known: bool,
}

impl Refaulters {
    /// Counts if it is time, while the node's available memory is corrected.
    pub(super) fn follow(&mut self, correction: Bytes, tree: &mut WorkloadTree) {
        if correction.is_zero() {
            return self.clear();
        }
        let now = Monotonic::now();
        let pause = self.took.saturating_mul(PAUSE_SHARE).max(EVERY);
        if self.read.is_some_and(|at| now.since(at) < pause) {
            return;
        }
        let counted = tree.refaulted_files();
        self.took = Monotonic::now().since(now);
        self.take_in(counted, now);
    }

    fn take_in(&mut self, counted: Vec<(CgroupId, u64)>, now: Monotonic) {
        let fade = self.read.map_or(0.0, |at| faded(now.since(at)));
        let before = std::mem::take(&mut self.counts);
        self.is_known = self.read.is_some();
        self.counts = counted
            .into_iter()
            .map(|(id, count)| {
                let sum = before.get(&id).map_or(0.0, |(last, sum)| sum * fade + float(count.saturating_sub(*last)));
                (id, (count, sum))
            })
            .collect();
        self.read = Some(now);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the workload with most refaults; `None` until they were counted twice, and without refaults.
    pub(super) fn largest(&self) -> Option<(CgroupId, Bytes)> {
        let sums = self.counts.iter().filter(|_| self.is_known).map(|(id, (_, sum))| (*id, *sum));
        let (id, sum) = sums.filter(|(_, sum)| *sum > 0.0).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and saturating is right"
        )]
        let pages = sum as u64;
        Some((id, Bytes(pages.saturating_mul(page_size()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: CgroupId = CgroupId(1);
    const B: CgroupId = CgroupId(2);

    #[test]
    fn the_workload_whose_counter_grows_most_is_the_largest() {
        let mut refaulters = Refaulters::default();
        let at = |second: u64| Monotonic(second * 1_000_000_000);
        let pages = |refaulters: &Refaulters| refaulters.largest().map(|(id, bytes)| (id, bytes.0 / page_size()));
        refaulters.take_in(vec![(A, 1_000_000), (B, 0)], at(0));
        assert_eq!(pages(&refaulters), None, "what was counted before says nothing");
        refaulters.take_in(vec![(A, 1_000_010), (B, 500)], at(1));
        assert_eq!(pages(&refaulters), Some((B, 500)));
        refaulters.take_in(vec![(A, 1_000_710), (B, 500)], at(11));
        assert_eq!(pages(&refaulters), Some((A, 703)), "the earlier ones fade to a third in ten seconds");
        refaulters.take_in(vec![(B, 600), (CgroupId(3), 9_000)], at(12));
        assert_eq!(pages(&refaulters), Some((B, 266)), "a workload that is new, or gone, does not count");
        refaulters.clear();
        assert_eq!(pages(&refaulters), None);
    }
}
