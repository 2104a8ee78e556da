//! Inodes: how many are free on each local filesystem, how fast they are used up, and which workloads create them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::eviction::exhaustion::{SmoothRate, seconds_until};
use crate::kernel::{DeviceId, InodeCounters};
use crate::node::mountinfo::{Filesystems, Inodes, Mounted};
use crate::units::{CgroupId, Monotonic, float, kernel_text};

use super::disk_measurement::Made;
use super::figure_report::FilesystemReport;
use super::inode_thread::{InodeThread, MountedInodes};

/// The shortest time between two rounds, however often a report is made.
const INODES_AGE: Duration = Duration::from_secs(1);
/// The number of workloads that are named for a filesystem.
const MAKERS_SHOWN: usize = 3;

/// The inodes of all local filesystems. The thread calls statfs only for reports.
#[derive(Debug)]
pub struct InodeCounts {
    thread: InodeThread,
    /// The round that the fields below are derived from.
    latest: Arc<MountedInodes>,
    /// When a round was last ordered.
    ordered: Option<Monotonic>,
    /// The counts of the eBPF programs by cgroup. A sum over all cgroups would fall when a cgroup is removed.
    cgroups: HashMap<(CgroupId, DeviceId), Counted>,
    counted: Option<Monotonic>,
    /// Growth by device, from the eBPF programs' counters.
    growth: HashMap<String, SmoothRate>,
    /// The reason why the number of free inodes is unknown.
    missing: Option<String>,
    /// Used inodes and growth by device, from the count of the filesystem itself, for filesystems without eBPF counters.
    used: HashMap<String, (u64, SmoothRate)>,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    counters: InodeCounters,
    rate: SmoothRate,
}

impl InodeCounts {
    pub fn new(proc_root: &std::path::Path) -> Self {
        Self {
            thread: InodeThread::start(Filesystems::new(proc_root)),
            latest: Arc::default(),
            ordered: None,
            cgroups: HashMap::new(),
            counted: None,
            growth: HashMap::new(),
            missing: None,
            used: HashMap::new(),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.latest.mounted.iter().any(|(_, inodes)| inodes.is_some())
    }

    /// Takes the counters of the programs for a report. Orders a round, which runs while the rest of the report is gathered.
    pub(super) fn observe_for_report(&mut self, inodes: &[(CgroupId, DeviceId, InodeCounters)], now: Monotonic) {
        self.observe(inodes, now);
        if self.ordered.is_some_and(|ordered| now.since(ordered) < INODES_AGE) {
            return;
        }
        self.ordered = Some(now);
        // For a new device the thread reads the mounts again.
        let is_new = |device: &String| !self.latest.mounted.iter().any(|(mounted, _)| mounted.device == *device);
        self.thread.order(self.growth.keys().any(is_new));
    }

    /// Takes the counters of the eBPF programs.
    pub(super) fn observe(&mut self, inodes: &[(CgroupId, DeviceId, InodeCounters)], now: Monotonic) {
        let since = self.counted.replace(now).unwrap_or(now);
        let mut grown: HashMap<String, f64> = HashMap::new();
        let mut cgroups = HashMap::with_capacity(inodes.len());
        for (id, device, counters) in inodes {
            let before = self.cgroups.get(&(*id, *device)).copied();
            let mut counted =
                before.unwrap_or(Counted { counters: InodeCounters::default(), rate: SmoothRate::starting(since) });
            let rise = |now: u64, before: u64| float(now.saturating_sub(before));
            let net =
                rise(counters.created, counted.counters.created) - rise(counters.removed, counted.counters.removed);
            counted.counters = *counters;
            counted.rate.observe(net, now);
            *grown.entry(device.to_string()).or_default() += net;
            cgroups.insert((*id, *device), counted);
        }
        self.cgroups = cgroups;
        for device in grown.keys() {
            self.growth.entry(device.clone()).or_insert_with(|| SmoothRate::starting(since));
        }
        for (device, rate) in &mut self.growth {
            rate.observe(grown.get(device).copied().unwrap_or(0.0), now);
        }
    }

    /// Takes the thread's latest round without waiting. A round that is still running is for the next report.
    fn refresh(&mut self, now: Monotonic) {
        let latest = self.thread.latest();
        let missing = self.thread.hangs(now).or_else(|| latest.failure.clone());
        self.missing = missing.map(|reason| format!("{reason}: inodes left are not known"));
        if latest.at == self.latest.at {
            return;
        }
        let are_read_anew = latest.mounts_read != self.latest.mounts_read;
        self.latest = latest;
        let mounted = &self.latest.mounted;
        if are_read_anew {
            let is_mounted = |device: &String| mounted.iter().any(|(mounted, _)| mounted.device == *device);
            self.used.retain(|device, _| is_mounted(device));
            self.growth.retain(|device, rate| is_mounted(device) || rate.per_second().abs() > 0.1);
        }
        for (mounted, inodes) in mounted {
            let Some(Inodes { total, free }) = *inodes else { continue };
            let used = total.saturating_sub(free);
            let (before, rate) =
                self.used.entry(mounted.device.clone()).or_insert_with(|| (used, SmoothRate::default()));
            rate.observe(float(used) - float(*before), self.latest.at);
            *before = used;
        }
    }

    /// Returns the devices on which inodes are created, and how many per second.
    pub(super) fn growing(&self) -> Vec<(String, f64)> {
        let grows = |rate: &SmoothRate| rate.per_second() >= 1.0;
        self.growth
            .iter()
            .filter(|(_, rate)| grows(rate))
            .map(|(device, rate)| (device.clone(), rate.per_second()))
            .collect()
    }

    pub(super) fn growing_cgroups(&self) -> impl Iterator<Item = CgroupId> + '_ {
        self.cgroups.iter().filter(|(_, counted)| counted.rate.per_second() >= 1.0).map(|((id, _), _)| *id)
    }

    /// Returns how many inodes each workload has created and not removed while the programs counted. One container of a workload may
    /// remove what another has created.
    pub(super) fn made(&self, owner: impl Fn(CgroupId) -> Option<Arc<str>>) -> Made {
        let mut counts: HashMap<Arc<str>, HashMap<DeviceId, (u64, u64)>> = HashMap::new();
        for ((id, device), Counted { counters, .. }) in &self.cgroups {
            let Some(workload) = owner(*id) else { continue };
            let (created, removed) = counts.entry(workload).or_default().entry(*device).or_default();
            *created = created.saturating_add(counters.created);
            *removed = removed.saturating_add(counters.removed);
        }
        let net = |(device, (created, removed)): (DeviceId, (u64, u64))| (device, created.saturating_sub(removed));
        counts.into_iter().map(|(workload, by_device)| (workload, by_device.into_iter().map(net).collect())).collect()
    }

    /// Returns the workloads that create the most inodes on a device, and how many per second.
    fn makers(&self, device: &str, owner: impl Fn(CgroupId) -> String) -> Vec<(String, f64)> {
        let mut makers: HashMap<String, f64> = HashMap::new();
        let grows = |counted: &Counted| counted.rate.per_second() >= 0.5;
        for ((id, _), counted) in
            self.cgroups.iter().filter(|((_, of), counted)| grows(counted) && of.to_string() == device)
        {
            *makers.entry(owner(*id)).or_default() += counted.rate.per_second();
        }
        let mut makers: Vec<_> = makers.into_iter().collect();
        makers.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        makers.truncate(MAKERS_SHOWN);
        makers
    }

    /// Returns the reason why the number of free inodes is unknown.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Describes each local filesystem. `counted` returns whether the eBPF programs count inodes on filesystems of a type.
    /// `owner` returns the name of a cgroup's workload.
    pub(super) fn reports(
        &mut self,
        counted: impl Fn(&str) -> bool,
        owner: impl Fn(CgroupId) -> String,
        now: Monotonic,
    ) -> Vec<FilesystemReport> {
        self.refresh(now);
        let report = |(mounted, inodes): &(Mounted, Option<Inodes>)| {
            let Mounted { device, mount_point, kind } = mounted;
            // Counts from the time before a filesystem began to hang are out of date.
            let inodes = inodes.filter(|_| self.missing.is_none());
            let growth = match counted(kind) {
                true => Some(self.growth.get(device).map_or(0.0, SmoothRate::per_second)),
                false => self.used.get(device).map(|(_, rate)| rate.per_second()),
            };
            FilesystemReport {
                device: device.clone(),
                mount_point: kernel_text::of_path(mount_point).into_owned(),
                kind: kind.clone(),
                inodes: inodes.map(|Inodes { total, free }| (total, free)),
                growth,
                seconds: inodes.zip(growth).map(|(inodes, growth)| seconds_until(float(inodes.free), growth)),
                makers: self.makers(device, &owner),
            }
        };
        self.latest.mounted.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const DISK: DeviceId = DeviceId(0x0080_0001);

    fn counts() -> InodeCounts {
        InodeCounts::new(std::path::Path::new("/nonexistent"))
    }

    fn counted(id: u64, created: u64, removed: u64) -> (CgroupId, DeviceId, InodeCounters) {
        (CgroupId(id), DISK, InodeCounters { created, removed, evicted: 0 })
    }

    /// On a busy machine the first answer may arrive late.
    fn refresh_until(counts: &mut InodeCounts, is_so: impl Fn(&InodeCounts) -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        counts.refresh(Monotonic::now());
        while !is_so(counts) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(5));
            counts.refresh(Monotonic::now());
        }
    }

    #[test]
    fn a_report_takes_the_latest_round_without_waiting() {
        let mut counts = InodeCounts::new(std::path::Path::new("/proc"));
        refresh_until(&mut counts, |counts| !counts.latest.mounted.is_empty());
        let filesystems = Filesystems::new(std::path::Path::new("/proc"));
        let found =
            |counts: &InodeCounts| counts.latest.mounted.iter().map(|(mounted, _)| mounted.clone()).collect::<Vec<_>>();
        assert_eq!(found(&counts), filesystems.mounted().unwrap(), "the first report has the round");
        assert_eq!(counts.missing, None);
        let first = counts.latest.at;
        counts.observe_for_report(&[], Monotonic::now());
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while counts.latest.at == first {
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
            counts.refresh(Monotonic::now());
        }
        // The number of reports does not matter.
        let ordered = counts.ordered;
        counts.observe_for_report(&[], ordered.unwrap().after(INODES_AGE / 2));
        assert_eq!(counts.ordered, ordered);
    }

    #[test]
    fn unreadable_mounts_are_a_missing_capability() {
        let mut counts = counts();
        refresh_until(&mut counts, |counts| counts.missing.is_some());
        assert!(counts.missing.unwrap().contains("/nonexistent"));
    }

    #[test]
    fn growth_is_inodes_created_minus_inodes_removed() {
        let mut counts = counts();
        for second in 0..60 {
            let of = |made: u64, removed: u64| (second * made, second * removed);
            let (hog, churn) = (of(100, 10), of(500, 500));
            counts.observe(&[counted(7, hog.0, hog.1), counted(8, churn.0, churn.1)], Monotonic(second * SECOND));
        }
        let growth = counts.growth["8:1"].per_second();
        assert!((growth - 90.0).abs() < 1.0, "{growth}");
        let makers = counts.makers("8:1", |id| format!("w{}", id.0));
        assert_eq!(makers.len(), 1, "a workload that removes as many inodes as it creates is omitted: {makers:?}");
        assert!(makers[0].0 == "w7" && (makers[0].1 - 90.0).abs() < 1.0, "{makers:?}");
        assert!(counts.makers("8:2", |id| format!("w{}", id.0)).is_empty());
    }

    #[test]
    fn what_a_workload_has_made_is_the_sum_of_its_cgroups() {
        let mut counts = counts();
        counts.observe(&[counted(7, 100, 10), counted(8, 0, 60), counted(9, 5, 9)], Monotonic(0));
        let owner = |id: CgroupId| (id.0 != 9).then(|| Arc::from("pod"));
        assert_eq!(counts.made(owner), Made::from([(Arc::from("pod"), HashMap::from([(DISK, 30)]))]));
        assert_eq!(counts.made(|_| Some(Arc::from("removes"))), [(Arc::from("removes"), [(DISK, 26)].into())].into());
    }

    #[test]
    fn a_removed_cgroup_does_not_lower_the_growth() {
        let mut counts = counts();
        counts.observe(&[counted(7, 0, 0)], Monotonic(0));
        counts.observe(&[counted(7, 1000, 0)], Monotonic(SECOND));
        let before = counts.growth["8:1"].per_second();
        counts.observe(&[], Monotonic(2 * SECOND));
        let after = counts.growth["8:1"].per_second();
        assert!(after > 0.0 && after < before, "{before} {after}");
        // A new cgroup counts from its first inode.
        counts.observe(&[counted(9, 500, 0)], Monotonic(3 * SECOND));
        assert!(counts.growth["8:1"].per_second() > after, "{:?}", counts.growth);
    }
}
