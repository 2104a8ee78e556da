//! Reads how fast the kernel swaps out, for the rule of swap.

use std::time::Duration;

use crate::eviction::decider::SwapOut;
use crate::node::CgroupVersion;
use crate::units::Monotonic;

use super::Sensors;
use super::reclaimable::room_in_swap;
use super::swap_out::Reading;

/// The least time between two readings.
const EVERY: Duration = Duration::from_millis(100);

const CGROUP_V1: &str = "cgroup v1 does not show how much swap a workload may use; boot with cgroup v2";
const NO_PSI: &str = "there is no PSI; boot with psi=1 on Linux 4.20 or later";
const NO_COUNTER: &str = "/proc/vmstat has no pswpout";

impl Sensors {
    /// Looks whether the node has swap that may delay an eviction. `is_wanted` tells whether the rule is in force.
    pub fn look_for_swap(&mut self, is_wanted: bool) {
        let is_v1 = self.workloads.tree().hierarchy().version == CgroupVersion::V1;
        let swap = &mut self.swap;
        let has_swap = is_wanted && swap.usable().is_some();
        swap.missing = match has_swap {
            true if is_v1 => Some(CGROUP_V1),
            true if self.pressure.memory_stalled().is_none() => Some(NO_PSI),
            true if self.counts.swapped_out().is_some_and(|(_, written)| written.is_none()) => Some(NO_COUNTER),
            _ => None,
        };
        swap.is_there = has_swap && swap.missing.is_none();
    }

    /// Reads how fast the kernel swaps out, if a threshold on memory may be met soon. Otherwise forgets it.
    pub fn watch_swap(&mut self, is_near: bool, now: Monotonic) {
        if !is_near || !self.swap.is_there {
            return self.swap.forget();
        }
        let is_recent = |at: Monotonic| now.since(at) < EVERY;
        if self.counts.swapped_out().is_none_or(|(at, _)| !is_recent(at)) {
            self.read_counts();
        }
        let read = self.swap.reading.map(|reading| reading.at);
        let counted = self.counts.swapped_out().filter(|(at, _)| Some(*at) != read);
        let Some((at, Some(written))) = counted.filter(|(at, _)| read.is_none_or(|read| at.since(read) >= EVERY / 2))
        else {
            return;
        };
        let Some(free) = self.swap.usable() else { return self.swap.forget() };
        let stalled = self.node_stalled();
        let tree = self.workloads.tree();
        self.swap.growers.observe(self.growth.growing(), now);
        let growing = self.swap.growers.ids().filter_map(|id| tree.find(id));
        let room = growing.map(|tracked| room_in_swap(tracked.directory())).min();
        self.swap.take_in(Reading { at, written, stalled }, (free, room));
    }

    /// Returns the last reading.
    pub fn swap_out(&self) -> Option<SwapOut> {
        self.swap.latest
    }

    /// Returns why an eviction does not wait for swap on a node that has swap.
    pub(super) fn swap_missing(&self) -> Option<&str> {
        self.swap.missing
    }
}
