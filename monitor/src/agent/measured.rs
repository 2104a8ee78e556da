//! The thread that measures disks: whom it is to measure, whom first, and what it found in the shapes that decisions want.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{CgroupId, Resource};
use crate::disk::{Held, Part, Source, Usage, Usages, Walker, WorkloadPlaces};
use crate::eviction::footprint::Taken;
use crate::eviction::{DiskUsage, DiskUsages, NodeCondition};
use crate::node::Monotonic;
use crate::report::{DiskUsageReport, KeptReport};
use crate::workloads::statistics::PodStats;
use crate::workloads::{PodUid, Workload};

use super::Agent;
use super::local_storage::PodUsages;

/// The thread, as the loop sees it.
#[derive(Debug, Clone)]
pub struct Measured(Arc<Walker>);

/// Before somebody goes because a disk is full everybody is measured once more, for so long at most: nothing tells of files that grow, and
/// what is known may be a minute old.
const RENEWAL: Duration = Duration::from_secs(5);
/// Whoever makes inodes is measured all the time, and they may be gone sooner.
const RENEWAL_OF_INODES: Duration = Duration::from_secs(2);
/// Whether that is done is asked this often.
const ASKED_AGAIN: Duration = Duration::from_millis(50);
/// What was measured so long ago is measured again before the next one goes.
const FRESH: Duration = Duration::from_secs(10);

/// What the loop has told it last.
#[derive(Debug, Default)]
pub(super) struct Steered {
    wanted: Vec<CgroupId>,
    is_pressed: bool,
    /// Since when what is known has to be.
    renewed: Option<Monotonic>,
}

impl Measured {
    /// What this thread measures.
    #[must_use]
    pub const fn by(walker: Arc<Walker>) -> Self {
        Self(walker)
    }
}

impl DiskUsages for Measured {
    fn usage(&self, workload: &str) -> Option<DiskUsage> {
        let usages = self.0.usages();
        usages.by_workload.get(workload).map(|usage| disk_usage(usage))
    }
}

impl PodUsages for Measured {
    fn stats(
        &self,
        pod: &PodUid,
        workload: &str,
        id: CgroupId,
        name_of: &dyn Fn(&str) -> Option<String>,
    ) -> Option<(PodStats, Monotonic)> {
        let usages = self.0.usages();
        usages.get(workload, id).map(|usage| (usage.statistics(&pod.0, name_of), usage.at))
    }

    fn hurry(&self, workload: &str) {
        self.0.hurry(workload);
    }
}

fn disk_usage(usage: &Usage) -> DiskUsage {
    let taken = |Held { bytes, inodes }| Taken { bytes, inodes };
    let is_logs = |part: &Part| matches!(part, Part::Logs { .. });
    let is_layer = |part: &Part| matches!(part, Part::WritableLayer { .. });
    DiskUsage {
        layers: taken(usage.of(is_layer)),
        logs: taken(usage.of(is_logs)),
        volumes: taken(usage.of(|part| part.is_on_disk() && !is_logs(part) && !is_layer(part))),
        at: usage.at,
    }
}

fn report(usages: &Usages, now: Monotonic) -> DiskUsageReport {
    let mut workloads: Vec<_> = usages.by_workload.iter().collect();
    workloads.sort_unstable_by_key(|(name, _)| *name);
    let of_workload = |(name, usage): (&Arc<str>, &Arc<Usage>)| -> Vec<KeptReport> {
        let of_source = |source: Source| {
            let parts = || usage.parts.iter().filter(move |part| part.source == source && part.part.is_on_disk());
            let oldest = parts().map(|part| part.at).min()?;
            let Held { bytes, inodes } = parts().map(|part| part.held).sum();
            let (workload, source) = (name.to_string(), source.as_str());
            Some(KeptReport { workload, source, bytes, inodes, age: now.since(oldest) })
        };
        Source::ALL.into_iter().filter_map(of_source).collect()
    };
    DiskUsageReport {
        kept: workloads.into_iter().flat_map(of_workload).collect(),
        walked: usages.effort.entries,
        recounts: usages.effort.recounts,
        cpu: usages.effort.cpu,
    }
}

impl Agent {
    /// What is known of the disks, for others to see.
    pub(super) fn disk_usage_report(&self) -> DiskUsageReport {
        let Some(Measured(walker)) = &self.measured else { return DiskUsageReport::default() };
        report(&walker.usages(), Monotonic::now())
    }

    /// Tells the thread what the loop has learnt since: who is there, who is at work on the disks, and whether it is urgent.
    pub(super) fn steer_walker(&mut self) {
        let Some(Measured(walker)) = &self.measured else { return };
        let is_pressed = self.last.assessment.conditions.contains(&NodeCondition::DiskPressure);
        if is_pressed != self.steered.is_pressed {
            self.steered.is_pressed = is_pressed;
            walker.press(is_pressed);
            // Without a runtime there is nothing to look at more often.
            let _no_runtime = self.runtime.set_pressure(is_pressed);
        }
        let workloads = || self.tree.workloads().filter(|workload| workload.protection.is_none());
        if !workloads().map(|workload| workload.id).eq(self.steered.wanted.iter().copied()) {
            self.steered.wanted = workloads().map(|workload| workload.id).collect();
            let hierarchy = &self.tree.hierarchy().memory;
            walker.wanted(workloads().filter_map(|workload| WorkloadPlaces::of(workload, hierarchy)).collect());
        }
    }

    /// Whether everybody is being measured once more, which is worth waiting for.
    pub(super) fn measures_first(&mut self, resource: Resource, now: Monotonic) -> bool {
        let Some(Measured(walker)) = &self.measured else { return false };
        let asked = self.steered.renewed.filter(|since| now.since(*since) < FRESH);
        let since = asked.unwrap_or(now);
        if asked.is_none() {
            walker.renew(now);
            self.steered.renewed = Some(now);
        }
        let usages = walker.usages();
        let is_renewed = |workload: &Workload| {
            let usage = usages.get(&workload.name, workload.id);
            usage.is_some_and(|usage| usage.at >= since)
        };
        let is_measured = |workload: &&Workload| workload.protection.is_none() && WorkloadPlaces::has(workload);
        let limit = if resource == Resource::Inodes { RENEWAL_OF_INODES } else { RENEWAL };
        if now.since(since) >= limit || self.tree.workloads().filter(is_measured).all(is_renewed) {
            return false;
        }
        self.retry_at(Some(now.after(ASKED_AGAIN)));
        true
    }

    /// Somebody was chosen by it.
    pub(super) fn forget_renewal(&mut self) {
        self.steered.renewed = None;
    }

    /// Whoever makes inodes is measured first.
    pub(super) fn hurry_makers(&self) {
        let Some(Measured(walker)) = &self.measured else { return };
        let mut makers: Vec<Arc<str>> = self.disks.at_work().filter_map(|id| self.tree.owner(id)).collect();
        makers.sort_unstable();
        makers.dedup();
        makers.iter().for_each(|workload| walker.hurry(workload));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Bytes;
    use crate::disk::{PartUsage, Source};
    use crate::kernel::DeviceId;

    fn usage() -> Usage {
        let part = |part, bytes, inodes| PartUsage {
            part,
            device: DeviceId(1),
            held: Held { bytes: Bytes(bytes), inodes },
            at: Monotonic(7),
            source: Source::Walk,
            is_complete: true,
        };
        let name = |name: &str| name.to_owned();
        let parts = vec![
            part(Part::WritableLayer { container: name("id") }, 1000, 4),
            part(Part::Logs { container: name("app") }, 200, 3),
            part(Part::Volume { name: name("cache") }, 30, 2),
            part(Part::MemoryVolume { name: name("shm") }, 5000, 9),
            part(Part::PodFiles, 4, 1),
        ];
        Usage::new(CgroupId(1), parts, Monotonic(9), true)
    }

    #[test]
    fn parts_are_what_the_table_of_layouts_counts() {
        let taken = |bytes, inodes| Taken { bytes: Bytes(bytes), inodes };
        let expected =
            DiskUsage { layers: taken(1000, 4), logs: taken(200, 3), volumes: taken(34, 3), at: Monotonic(7) };
        assert_eq!(disk_usage(&usage()), expected);
    }

    #[test]
    fn what_is_kept_is_told_by_source() {
        let mut usage = usage();
        usage.parts[2].source = Source::Quota;
        usage.parts[2].at = Monotonic(2_000_000_007);
        let by_workload = [(Arc::from("w"), Arc::new(usage))].into();
        let found = report(&Usages { by_workload, ..Usages::default() }, Monotonic(3_000_000_007)).kept;
        let shown: Vec<_> = found.iter().map(|it| (it.source, it.bytes.0, it.inodes, it.age.as_secs())).collect();
        assert_eq!(shown, [("walk", 1204, 8, 3), ("quota", 30, 2, 1)], "memory is no disk");
    }
}
