//! Inodes: how many are left, how fast they go, and who makes them.

mod looker;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::eviction::exhaustion::{SmoothRate, seconds_until};
use crate::kernel::{DeviceId, InodeCounters};
use crate::node::mountinfo::{Filesystems, Inodes, Mounted};
use crate::report::FilesystemReport;
use crate::units::{CgroupId, Monotonic, float};

use self::looker::{Looked, Looker};

use super::Agent;

/// However often somebody asks, the filesystems are asked this often.
const INODES_AGE: Duration = Duration::from_secs(1);
/// The workloads named for a filesystem.
const MAKERS_SHOWN: usize = 3;

/// What is known of the filesystems. Looked at only when a report is made.
#[derive(Debug)]
pub(super) struct Disks {
    looker: Looker,
    /// What was taken from there last.
    looked: Arc<Looked>,
    /// When a look was asked for.
    asked: Option<Monotonic>,
    /// What the kernel's programs counted, by cgroup: a sum over cgroups falls when one of them goes.
    cgroups: HashMap<(CgroupId, DeviceId), Counted>,
    counted: Option<Monotonic>,
    /// By device, from the programs' counters.
    growth: HashMap<String, SmoothRate>,
    /// Why the inodes that are left are not known.
    trouble: Option<String>,
    /// That was said.
    /// By device, from the filesystem's own count where the programs do not count.
    used: HashMap<String, (u64, SmoothRate)>,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    counters: InodeCounters,
    rate: SmoothRate,
}

impl Disks {
    pub(super) fn new(proc_root: &std::path::Path) -> Self {
        Self {
            looker: Looker::start(Filesystems::new(proc_root)),
            looked: Arc::default(),
            asked: None,
            cgroups: HashMap::new(),
            counted: None,
            growth: HashMap::new(),
            trouble: None,
            used: HashMap::new(),
        }
    }

    /// Whether there is a filesystem that counts its inodes.
    pub(super) fn knows_any(&self) -> bool {
        self.looked.mounted.iter().any(|(_, inodes)| inodes.is_some())
    }

    /// For a report that is about to be made: the filesystems are asked while the rest of it is gathered.
    pub(super) fn count(&mut self, inodes: &[(CgroupId, DeviceId, InodeCounters)], now: Monotonic) {
        self.take_in(inodes, now);
        if self.asked.is_some_and(|asked| now.since(asked) < INODES_AGE) {
            return;
        }
        self.asked = Some(now);
        // New devices are looked for at once, unless they were just looked for.
        let is_new = |device: &String| !self.looked.mounted.iter().any(|(mounted, _)| mounted.device == *device);
        self.looker.look(self.growth.keys().any(is_new));
    }

    /// Takes in what the kernel's programs have counted until now.
    pub(super) fn take_in(&mut self, inodes: &[(CgroupId, DeviceId, InodeCounters)], now: Monotonic) {
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

    /// Takes what was found last. Nothing is waited for: what is not found yet is in the next report.
    fn refresh(&mut self, now: Monotonic) {
        let looked = self.looker.looked();
        let hangs = self.looker.hangs(now);
        self.trouble = hangs.or_else(|| looked.trouble.clone());
        if looked.at == self.looked.at {
            return;
        }
        let are_read_anew = looked.mounts_read != self.looked.mounts_read;
        self.looked = looked;
        let mounted = &self.looked.mounted;
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
            rate.observe(float(used) - float(*before), self.looked.at);
            *before = used;
        }
    }

    /// The devices whose inodes go, and how many a second.
    pub(super) fn growing(&self) -> Vec<(String, f64)> {
        let grows = |rate: &SmoothRate| rate.per_second() >= 1.0;
        self.growth
            .iter()
            .filter(|(_, rate)| grows(rate))
            .map(|(device, rate)| (device.clone(), rate.per_second()))
            .collect()
    }

    /// The cgroups in which inodes are made.
    pub(super) fn at_work(&self) -> impl Iterator<Item = CgroupId> + '_ {
        self.cgroups.iter().filter(|(_, counted)| counted.rate.per_second() >= 1.0).map(|((id, _), _)| *id)
    }

    /// The workloads whose inodes on a device grow most, with the growth a second.
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
}

impl Agent {
    /// Each local filesystem as it stands now.
    pub(super) fn filesystem_reports(&mut self) -> Vec<FilesystemReport> {
        let has = |name| self.sensors.kernel.report().has(name);
        let (ext4, xfs) = (has("ext4:ext4_allocate_inode"), has("xfs:xfs_create"));
        self.sensors.disks.refresh(Monotonic::now());
        self.tell_inodes();
        let disks = &self.sensors.disks;
        let report = |(mounted, inodes): &(Mounted, Option<Inodes>)| {
            let Mounted { device, mount_point, kind } = mounted;
            // What was true before a filesystem began to hang says nothing of now.
            let inodes = inodes.filter(|_| disks.trouble.is_none());
            let by_programs = kind == "ext4" && ext4 || kind == "xfs" && xfs;
            let growth = match by_programs {
                true => Some(disks.growth.get(device).map_or(0.0, SmoothRate::per_second)),
                false => disks.used.get(device).map(|(_, rate)| rate.per_second()),
            };
            FilesystemReport {
                device: device.clone(),
                mount_point: mount_point.display().to_string(),
                kind: kind.clone(),
                inodes: inodes.map(|Inodes { total, free }| (total, free)),
                growth,
                seconds: inodes.zip(growth).map(|(inodes, growth)| seconds_until(float(inodes.free), growth)),
                makers: disks.makers(device, |id| self.owner_known(id).to_string()),
            }
        };
        disks.looked.mounted.iter().map(report).collect()
    }

    /// Says once that the inodes that are left are not known, and once that they are again.
    fn tell_inodes(&mut self) {
        const CAPABILITY: &str = "inodes";
        let reason = self.sensors.disks.trouble.as_ref().map(|reason| format!("{reason}: inodes left are not known"));
        self.reporter.set_capability(CAPABILITY, reason.as_deref(), "free inodes are not observed", Monotonic::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const DISK: DeviceId = DeviceId(0x0080_0001);

    fn disks() -> Disks {
        Disks::new(std::path::Path::new("/nonexistent"))
    }

    fn counted(id: u64, created: u64, removed: u64) -> (CgroupId, DeviceId, InodeCounters) {
        (CgroupId(id), DISK, InodeCounters { created, removed, evicted: 0 })
    }

    /// On a busy machine the first answer may be late.
    fn refresh_until(disks: &mut Disks, is_so: impl Fn(&Disks) -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        disks.refresh(Monotonic::now());
        while !is_so(disks) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(5));
            disks.refresh(Monotonic::now());
        }
    }

    #[test]
    fn a_report_takes_what_was_found_and_waits_for_nothing() {
        let mut disks = Disks::new(std::path::Path::new("/proc"));
        refresh_until(&mut disks, |disks| !disks.looked.mounted.is_empty());
        let filesystems = Filesystems::new(std::path::Path::new("/proc"));
        let found = |disks: &Disks| disks.looked.mounted.iter().map(|(mounted, _)| mounted.clone()).collect::<Vec<_>>();
        assert_eq!(found(&disks), filesystems.mounted().unwrap(), "at the first report already");
        assert_eq!(disks.trouble, None);
        let first = disks.looked.at;
        disks.count(&[], Monotonic::now());
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while disks.looked.at == first {
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
            disks.refresh(Monotonic::now());
        }
        // However often somebody asks.
        let asked = disks.asked;
        disks.count(&[], asked.unwrap().after(INODES_AGE / 2));
        assert_eq!(disks.asked, asked);
    }

    #[test]
    fn mounts_that_cannot_be_read_are_said() {
        let mut disks = disks();
        refresh_until(&mut disks, |disks| disks.trouble.is_some());
        assert!(disks.trouble.unwrap().contains("/nonexistent"));
    }

    #[test]
    fn growth_is_what_is_made_less_what_is_removed() {
        let mut disks = disks();
        for second in 0..60 {
            let of = |made: u64, removed: u64| (second * made, second * removed);
            let (hog, churn) = (of(100, 10), of(500, 500));
            disks.take_in(&[counted(7, hog.0, hog.1), counted(8, churn.0, churn.1)], Monotonic(second * SECOND));
        }
        let growth = disks.growth["8:1"].per_second();
        assert!((growth - 90.0).abs() < 1.0, "{growth}");
        let makers = disks.makers("8:1", |id| format!("w{}", id.0));
        assert_eq!(makers.len(), 1, "who removes as many as it makes is none: {makers:?}");
        assert!(makers[0].0 == "w7" && (makers[0].1 - 90.0).abs() < 1.0, "{makers:?}");
        assert!(disks.makers("8:2", |id| format!("w{}", id.0)).is_empty());
    }

    #[test]
    fn a_cgroup_that_goes_takes_nothing_with_it() {
        let mut disks = disks();
        disks.take_in(&[counted(7, 0, 0)], Monotonic(0));
        disks.take_in(&[counted(7, 1000, 0)], Monotonic(SECOND));
        let before = disks.growth["8:1"].per_second();
        disks.take_in(&[], Monotonic(2 * SECOND));
        let after = disks.growth["8:1"].per_second();
        assert!(after > 0.0 && after < before, "{before} {after}");
        // A new one counts from its first inode on.
        disks.take_in(&[counted(9, 500, 0)], Monotonic(3 * SECOND));
        assert!(disks.growth["8:1"].per_second() > after, "{:?}", disks.growth);
    }
}
