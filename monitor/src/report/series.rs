//! Per-workload counters, fed from cumulative values. They never decrease, and their number is bounded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use prometheus::IntCounterVec;

use super::CgroupReport;
use super::reclaim_metrics::ReclaimSeries;
use super::register::{Registry, increase, metrics};
use crate::kernel::{CgroupCounters, DeviceId, InodeCounters, ReclaimCounters};
use crate::units::CgroupId;

/// Label value that sums the workloads beyond the limit of series.
pub const OTHER: &str = "(other)";

const KINDS: [&str; 2] = ["direct", "memcg"];

/// Limits on the number of series and on their lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesLimits {
    /// Maximum number of workloads with own series. Further ones are summed under `(other)`.
    pub workloads: usize,
    /// Lifetime of a series after its workload is gone. It must exceed the scrape interval: removal loses unscraped increments.
    pub keep: Duration,
}

impl Default for SeriesLimits {
    fn default() -> Self {
        Self { workloads: 1000, keep: Duration::from_secs(600) }
    }
}

metrics! {
    struct WorkloadCounters {
        /// Inodes that tasks of a workload made, by device (major:minor).
        inodes_created: IntCounterVec = "inodes_created_total"{workload, device},
        /// Inodes that tasks of a workload removed, by device (major:minor).
        inodes_removed: IntCounterVec = "inodes_removed_total"{workload, device},
        /// Processes of a workload that the kernel's OOM killer chose.
        oom_kills: IntCounterVec = "oom_kills_total"{workload},
    }
}

#[derive(Debug)]
pub struct WorkloadSeries {
    limits: SeriesLimits,
    reclaim: ReclaimSeries,
    counters: WorkloadCounters,
    /// The last cumulative values by cgroup. A sum over a workload's cgroups would fall when one of them is removed.
    last: HashMap<CgroupId, Last>,
    tracked: HashMap<String, Tracked>,
}

#[derive(Debug)]
struct Last {
    seen: Instant,
    counters: CgroupCounters,
    inodes: BTreeMap<DeviceId, InodeCounters>,
}

/// A workload with its own series, and the devices of these, for their removal.
#[derive(Debug)]
struct Tracked {
    seen: Instant,
    devices: BTreeSet<DeviceId>,
}

impl WorkloadSeries {
    pub(super) fn new(registry: &Registry, limits: SeriesLimits) -> prometheus::Result<Self> {
        Ok(Self {
            limits,
            reclaim: ReclaimSeries::new(registry)?,
            counters: WorkloadCounters::new(registry)?,
            last: HashMap::new(),
            tracked: HashMap::new(),
        })
    }

    /// Adds the increments of each cgroup since the last call, and removes expired series.
    pub fn observe(&mut self, cgroups: &[CgroupReport], now: Instant) {
        for cgroup in cgroups {
            self.add(cgroup, now);
        }
        self.expire(now);
    }

    fn add(&mut self, cgroup: &CgroupReport, now: Instant) {
        let workload = self.admit(&cgroup.workload, now);
        let none = CgroupCounters { direct: ReclaimCounters::ZERO, memcg: ReclaimCounters::ZERO, oom_kills: 0 };
        let new = Last { seen: now, counters: none, inodes: BTreeMap::new() };
        let Last { seen, counters: last, inodes } = self.last.entry(cgroup.cgroup).or_insert(new);
        *seen = now;
        let counters = cgroup.counters.as_ref().unwrap_or(&none);
        let kinds = [(&mut last.direct, &counters.direct), (&mut last.memcg, &counters.memcg)];
        for (kind, (last, current)) in KINDS.into_iter().zip(kinds) {
            if current.stalls > 0 {
                self.reclaim.add(workload, kind, last, current);
            }
        }
        for (device, current) in &cgroup.inodes {
            let last = inodes.entry(*device).or_default();
            let labels = [workload, &device.to_string()];
            let counters = &self.counters;
            counters.inodes_created.with_label_values(&labels).inc_by(increase(&mut last.created, current.created));
            counters.inodes_removed.with_label_values(&labels).inc_by(increase(&mut last.removed, current.removed));
            if let Some(tracked) = self.tracked.get_mut(workload) {
                tracked.devices.insert(*device);
            }
        }
        let kills = increase(&mut last.oom_kills, counters.oom_kills);
        self.counters.oom_kills.with_label_values(&[workload]).inc_by(kills);
    }

    pub fn oom_kills(&mut self, workload: &str, kills: u64, now: Instant) {
        let workload = self.admit(workload, now);
        self.counters.oom_kills.with_label_values(&[workload]).inc_by(kills);
    }

    /// Returns the label under which a workload is counted.
    fn admit<'w>(&mut self, workload: &'w str, now: Instant) -> &'w str {
        if let Some(tracked) = self.tracked.get_mut(workload) {
            tracked.seen = now;
            return workload;
        }
        if workload == OTHER || self.tracked.len() >= self.limits.workloads {
            return OTHER;
        }
        let tracked = Tracked { seen: now, devices: BTreeSet::new() };
        self.tracked.insert(workload.to_owned(), tracked);
        workload
    }

    fn expire(&mut self, now: Instant) {
        let keep = self.limits.keep;
        let gone = |seen: Instant| now.saturating_duration_since(seen) > keep;
        // Keep a cgroup's values as long as its series. Otherwise a returning cgroup would be counted twice.
        self.last.retain(|_, last| !gone(last.seen));
        let Self { reclaim, counters, tracked, .. } = self;
        tracked.retain(|workload, tracked| {
            if !gone(tracked.seen) {
                return true;
            }
            reclaim.remove(workload, KINDS);
            // Removal fails only for a series that does not exist.
            for device in &tracked.devices {
                let labels = [workload.as_str(), &device.to_string()];
                let _ = counters.inodes_created.remove_label_values(&labels);
                let _ = counters.inodes_removed.remove_label_values(&labels);
            }
            let _ = counters.oom_kills.remove_label_values(&[workload.as_str()]);
            false
        });
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;
