//! Estimates how many file pages count as available but are not, because they are read back as soon as they are dropped.

use std::time::Duration;

use crate::node::vmstat::VmStatSample;
use crate::units::{Bytes, Monotonic, float};

/// The time in which the weight of past activity falls to a third.
const MEMORY: Duration = Duration::from_secs(10);

/// Returns the weight of activity that is this old.
pub fn faded(age: Duration) -> f64 {
    (-age.as_secs_f64() / MEMORY.as_secs_f64()).exp()
}

/// The part of the file cache that is a working set too large for the node.
///
/// The kernel counts a dropped file page that is soon read again as activated (`workingset_activate_file`). It does not count a file
/// that is read once from end to end. But it also counts pages that a memory cgroup drops at its own limit, which say nothing about the
/// node. The estimate is therefore at most what reclaim for the node itself dropped in the same time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Refaulting {
    last: Option<(u64, u64, Monotonic)>,
    activated: f64,
    stolen: f64,
}

impl Refaulting {
    /// Takes in a sample of the counters. If the kernel lacks them, the estimate is zero.
    pub fn observe(&mut self, sample: &VmStatSample) {
        let (Some(activated), Some(stolen)) = (sample.stat.activated_file, sample.stat.stolen()) else {
            *self = Self::default();
            return;
        };
        if let Some((activated_before, stolen_before, then)) = self.last {
            let faded = faded(sample.at.since(then));
            self.activated = self.activated * faded + float(activated.saturating_sub(activated_before));
            self.stolen = self.stolen * faded + float(stolen.saturating_sub(stolen_before));
        }
        self.last = Some((activated, stolen, sample.at));
    }

    /// Forgets past activity after an eviction has freed memory. Otherwise the next workload would be evicted for refaults that the victim
    /// caused.
    pub fn forget(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }

    /// Returns the memory that was read back as fast as it was dropped, at most the active file memory.
    pub fn bytes(&self, page_size: u64, active_file: Bytes) -> Bytes {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and saturating is right"
        )]
        let pages = self.activated.min(self.stolen) as u64;
        Bytes(pages.saturating_mul(page_size)).min(active_file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::vmstat::VmStat;

    const SECOND: u64 = 1_000_000_000;
    const MIB: u64 = 256;

    /// Returns the estimate in MiB after `seconds` seconds with this many MiB activated and stolen in each.
    fn after(seconds: u64, activated: u64, stolen: u64, active_file: u64) -> u64 {
        let mut refaulting = Refaulting::default();
        for second in 0..=seconds {
            refaulting.observe(&VmStatSample {
                stat: VmStat {
                    activated_file: Some(1_000_000 + second * activated * MIB),
                    stolen_direct: Some(77),
                    stolen_kswapd: Some(second * stolen * MIB),
                    ..VmStat::default()
                },
                at: Monotonic(second * SECOND),
            });
        }
        refaulting.bytes(4096, Bytes::from_mib(active_file)).0 >> 20
    }

    #[test]
    fn refaults_count_up_to_what_the_node_reclaimed() {
        for (name, activated, stolen, active_file, expected) in [
            ("hot cache, no refaults", 0, 0, 800, 0..=0),
            ("a file read once from end to end: dropped, never active again", 0, 200, 800, 0..=0),
            ("thrashing", 20, 30, 800, 195..=215),
            ("a container thrashes at its own limit", 200, 0, 800, 0..=0),
            ("the same while the node drops a little", 200, 5, 800, 45..=55),
            ("never more than is active", 100, 100, 60, 60..=60),
        ] {
            let found = after(120, activated, stolen, active_file);
            assert!(expected.contains(&found), "{name}: {found} MiB");
        }
        assert_eq!(after(0, 50, 50, 800), 0, "counts from before the first sample do not count");
    }

    #[test]
    fn the_estimate_fades_and_can_be_forgotten() {
        let at = |second: u64, pages: u64| VmStatSample {
            stat: VmStat {
                activated_file: Some(pages),
                stolen_direct: Some(pages),
                stolen_kswapd: Some(0),
                ..VmStat::default()
            },
            at: Monotonic(second * SECOND),
        };
        let mut refaulting = Refaulting::default();
        refaulting.observe(&at(0, 0));
        refaulting.observe(&at(1, 1000));
        let bytes = |refaulting: &Refaulting| refaulting.bytes(4096, Bytes::MAX).0 / 4096;
        assert_eq!(bytes(&refaulting), 1000);
        refaulting.observe(&at(11, 1000));
        assert_eq!(bytes(&refaulting), 367, "a third after ten seconds");
        refaulting.observe(&at(61, 1000));
        assert_eq!(bytes(&refaulting), 2);
        let mut forgetful = refaulting;
        forgetful.observe(&at(62, 2000));
        forgetful.forget();
        assert_eq!(bytes(&forgetful), 0);
        forgetful.observe(&at(63, 2500));
        assert_eq!(bytes(&forgetful), 500, "new refaults count");
        // The counters restart, and then they are missing.
        refaulting.observe(&at(62, 5));
        assert!(bytes(&refaulting) <= 2);
        refaulting.observe(&VmStatSample { stat: VmStat::default(), at: Monotonic(63 * SECOND) });
        assert_eq!(bytes(&refaulting), 0);
    }
}
