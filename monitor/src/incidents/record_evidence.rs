//! Figures about the node for a record, from what the agent has already read. Pure.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::model::{Consumer, InodeGrowth, Key, Memory, Place, Stalls};
use crate::eviction::rank::{Order, Ranked};
use crate::kernel::{CgroupCounters, DeviceId, InodeCounters};
use crate::node::pinned_file::keyed_value;
use crate::units::{CgroupId, Monotonic, Resource};
use crate::workloads::WorkloadUsage;

/// The most workloads in each list.
const SHOWN: usize = 10;
/// The most candidates in a ranking.
const RANKED: usize = 30;
/// Baselines kept: one about every 20 s, so that growth covers about the last minute.
const BASELINES: usize = 3;

pub fn memory(meminfo: &str) -> Memory {
    let get = |key: &str| keyed_value(meminfo, &format!("{key}:")).map(|kib| kib.saturating_mul(1024));
    Memory {
        total_bytes: get("MemTotal"),
        available_bytes: get("MemAvailable"),
        free_bytes: get("MemFree"),
        anon_bytes: get("AnonPages"),
        active_file_bytes: get("Active(file)"),
        inactive_file_bytes: get("Inactive(file)"),
        shmem_bytes: get("Shmem"),
        slab_reclaimable_bytes: get("SReclaimable"),
        slab_unreclaimable_bytes: get("SUnreclaim"),
        tables_and_stacks_bytes: get("PageTables").zip(get("KernelStack")).map(|(tables, stacks)| tables + stacks),
        unevictable_bytes: get("Unevictable"),
        hugetlb_bytes: get("Hugetlb"),
        swap_total_bytes: get("SwapTotal"),
        swap_free_bytes: get("SwapFree"),
    }
}

pub fn consumers(usages: &[WorkloadUsage]) -> Vec<Consumer> {
    largest(usages.iter()).map(consumer).collect()
}

/// Returns the workloads with the largest working sets, then by name.
fn largest<'a>(usages: impl Iterator<Item = &'a WorkloadUsage>) -> impl Iterator<Item = &'a WorkloadUsage> {
    let mut usages: Vec<&WorkloadUsage> = usages.collect();
    usages.sort_by(|a, b| b.working_set.cmp(&a.working_set).then_with(|| a.workload.name.cmp(&b.workload.name)));
    usages.into_iter().take(SHOWN)
}

/// Inserts the victim with its usage before the eviction: the current usage may lack it.
pub fn put_victim(consumers: &mut Vec<Consumer>, victim: &WorkloadUsage) {
    consumers.retain(|it| it.workload != victim.workload.name);
    let place = consumers.partition_point(|it| it.working_set_bytes >= victim.working_set.0);
    consumers.insert(place, consumer(victim));
    consumers.truncate(SHOWN);
}

fn consumer(usage: &WorkloadUsage) -> Consumer {
    Consumer {
        workload: usage.workload.name.clone(),
        name: None,
        qos_class: usage.workload.qos.as_str().to_owned(),
        working_set_bytes: usage.working_set.0,
        request_bytes: usage.workload.request.0,
    }
}

/// Returns the first places of a ranking with every key, and the number of candidates left out.
pub fn ranking(ranked: &[Ranked<WorkloadUsage>], order: Order<'_>, resource: Resource) -> (Vec<Place>, usize) {
    let place = |(index, ranked): (usize, &Ranked<WorkloadUsage>)| Place {
        place: Some(index + 1),
        workload: ranked.candidate.workload.name.clone(),
        name: None,
        protection: None,
        at_most: !ranked.candidate.exact,
        keys: order
            .keys()
            .iter()
            .zip(ranked.keys(order))
            .map(|(key, value)| Key { name: key.as_str().to_owned(), value: value.words(resource) })
            .collect(),
    };
    (ranked.iter().enumerate().take(RANKED).map(place).collect(), ranked.len().saturating_sub(RANKED))
}

/// Returns the protected workloads, largest first.
pub fn protected(usages: &[WorkloadUsage]) -> Vec<Place> {
    let place = |usage: &WorkloadUsage| Place {
        workload: usage.workload.name.clone(),
        protection: usage.workload.protection.map(|protection| protection.to_string()),
        keys: vec![Key { name: "usage".to_owned(), value: format!("uses {}", usage.working_set) }],
        ..Place::default()
    };
    largest(usages.iter().filter(|usage| usage.workload.protection.is_some())).map(place).collect()
}

/// The number of stalls and their nanoseconds.
type StallCount = (u64, u64);

/// The kernel's counters at one moment.
#[derive(Debug, Default, Clone)]
pub struct Counted {
    at: Monotonic,
    /// Direct and memory-cgroup reclaim.
    cgroups: Vec<(CgroupId, [StallCount; 2])>,
    /// Created and removed.
    inodes: Vec<((CgroupId, DeviceId), (u64, u64))>,
}

impl Counted {
    pub fn of(
        at: Monotonic,
        cgroups: &[(CgroupId, CgroupCounters)],
        inodes: &[(CgroupId, DeviceId, InodeCounters)],
    ) -> Self {
        let stalls = |counters: &CgroupCounters| {
            [&counters.direct, &counters.memcg].map(|reclaim| (reclaim.stalls, reclaim.stalled_ns))
        };
        Self {
            at,
            cgroups: cgroups.iter().map(|(id, counters)| (*id, stalls(counters))).collect(),
            inodes: inodes.iter().map(|(id, device, it)| ((*id, *device), (it.created, it.removed))).collect(),
        }
    }
}

/// Counters of the last minute.
#[derive(Debug, Default)]
pub struct Baselines {
    noted: VecDeque<Counted>,
}

/// The growth of the counters since the oldest baseline.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Growth {
    /// Longest first.
    pub stalls: Vec<Stalls>,
    /// Largest first.
    pub inodes: Vec<InodeGrowth>,
    pub span: Duration,
}

impl Baselines {
    /// Adds a baseline, and drops the oldest beyond the limit.
    pub fn note(&mut self, counted: Counted) {
        if self.noted.len() >= BASELINES {
            self.noted.pop_front();
        }
        self.noted.push_back(counted);
    }

    /// Returns the growth until `now`; `None` without a baseline. Counters missing from the baseline count from zero.
    pub fn growth(&self, now: &Counted, owner: impl Fn(CgroupId) -> Arc<str>) -> Option<Growth> {
        let before = self.noted.front()?;
        let span = now.at.since(before.at);
        Some(Growth { stalls: stalls(before, now, &owner), inodes: inodes(before, now, &owner), span })
    }
}

fn stalls(before: &Counted, now: &Counted, owner: impl Fn(CgroupId) -> Arc<str>) -> Vec<Stalls> {
    let known: HashMap<CgroupId, [StallCount; 2]> = before.cgroups.iter().copied().collect();
    let mut grown: BTreeMap<(Arc<str>, &str), StallCount> = BTreeMap::new();
    for (id, counts) in &now.cgroups {
        let then = known.get(id).copied().unwrap_or_default();
        for (kind, (now, then)) in ["direct", "memcg"].into_iter().zip(counts.iter().zip(then)) {
            let (count, nanos) = (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
            if count > 0 {
                let sum = grown.entry((owner(*id), kind)).or_default();
                *sum = (sum.0 + count, sum.1 + nanos);
            }
        }
    }
    let mut stalls: Vec<Stalls> = grown
        .into_iter()
        .map(|((workload, kind), (count, nanos))| Stalls {
            workload: workload.to_string(),
            name: None,
            kind: kind.to_owned(),
            count,
            seconds: Duration::from_nanos(nanos).as_secs_f64(),
        })
        .collect();
    stalls.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    stalls.truncate(SHOWN);
    stalls
}

fn inodes(before: &Counted, now: &Counted, owner: impl Fn(CgroupId) -> Arc<str>) -> Vec<InodeGrowth> {
    let known: HashMap<(CgroupId, DeviceId), (u64, u64)> = before.inodes.iter().copied().collect();
    let mut grown: BTreeMap<(Arc<str>, DeviceId), (u64, u64)> = BTreeMap::new();
    for ((id, device), (created, removed)) in &now.inodes {
        let then = known.get(&(*id, *device)).copied().unwrap_or_default();
        let sum = grown.entry((owner(*id), *device)).or_default();
        sum.0 += created.saturating_sub(then.0);
        sum.1 += removed.saturating_sub(then.1);
    }
    let mut inodes: Vec<InodeGrowth> = grown
        .into_iter()
        .filter(|(_, (created, removed))| created > removed)
        .map(|((workload, device), (created, removed))| InodeGrowth {
            workload: workload.to_string(),
            name: None,
            device: device.to_string(),
            created,
            removed,
        })
        .collect();
    inodes.sort_by_key(|it| std::cmp::Reverse(it.created - it.removed));
    inodes.truncate(SHOWN);
    inodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use crate::workloads::fixtures;

    #[test]
    fn missing_lines_of_meminfo_are_unknown() {
        let text =
            "MemTotal: 100 kB\nMemFree: 7 kB\nActive(file): 3 kB\nHugePages_Total:       0\nSwapTotal: many kB\n";
        let memory = memory(text);
        assert_eq!(memory.total_bytes, Some(102_400));
        assert_eq!(memory.active_file_bytes, Some(3072));
        assert_eq!((memory.swap_total_bytes, memory.tables_and_stacks_bytes), (None, None));
    }

    #[test]
    fn the_victim_is_inserted_by_its_usage() {
        let usage = |name: &str, mib| fixtures::usage(fixtures::workload(name), Bytes::from_mib(mib));
        let usages: Vec<_> = (0..20).map(|number| usage(&number.to_string(), 100 - number)).collect();
        for (victim, used, expected) in [("19", 99, 2), ("gone", 200, 0), ("3", 97, 3), ("gone", 1, SHOWN)] {
            let mut consumers = consumers(&usages);
            put_victim(&mut consumers, &usage(victim, used));
            assert_eq!(consumers.len(), SHOWN);
            assert!(consumers.is_sorted_by_key(|it| std::cmp::Reverse(it.working_set_bytes)));
            let place = consumers.iter().position(|it| it.workload == victim);
            assert_eq!(place.unwrap_or(SHOWN), expected, "{victim}");
        }
    }

    #[test]
    fn growth_is_summed_by_workload_since_the_oldest() {
        let counted = |seconds: u64, of: &[(u64, u64)]| Counted {
            at: Monotonic(seconds * 1_000_000_000),
            cgroups: of.iter().map(|(id, stalls)| (CgroupId(*id), [(*stalls, *stalls), (0, 0)])).collect(),
            inodes: of.iter().map(|(id, made)| ((CgroupId(*id), DeviceId(8 << 20)), (*made, 3))).collect(),
        };
        let owner = |id: CgroupId| if id.0 == 9 { "other".into() } else { "pod".into() };
        let mut baselines = Baselines::default();
        let now = counted(100, &[(1, 12), (2, 5), (9, 40), (3, 7)]);
        assert_eq!(baselines.growth(&now, owner), None);
        for seconds in [10, 50, 70, 90] {
            baselines.note(counted(seconds, &[(1, seconds / 10), (9, 38), (3, 7)]));
        }
        let growth = baselines.growth(&now, owner).unwrap();
        let stalls: Vec<_> =
            growth.stalls.iter().map(|it| (it.workload.as_str(), it.kind.as_str(), it.count)).collect();
        assert_eq!(stalls, [("pod", "direct", 12), ("other", "direct", 2)]);
        let inodes: Vec<_> =
            growth.inodes.iter().map(|it| (it.workload.as_str(), it.device.as_str(), it.created)).collect();
        assert_eq!(inodes, [("pod", "8:0", 12), ("other", "8:0", 2)]);
        assert_eq!(growth.span, Duration::from_secs(50));
    }
}
