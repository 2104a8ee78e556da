//! `memory.available` under both semantics, its rate of fall, and the amounts that `MemAvailable` counts wrongly.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{Policy, Quirk, Quirks, Semantics};
use crate::eviction::SignalValue;
use crate::eviction::deadline::FallRate;
use crate::eviction::exhaustion::Slope;
use crate::node::available_memory::{Miscounted, MiscountedReader};
use crate::node::meminfo::MemDetails;
use crate::node::pinned_file::FileError;
use crate::node::zoneinfo::ZoneInfo;
use crate::node::{Hierarchy, MemoryReader, MemorySample, RootUsage};
use crate::units::{Bytes, CgroupId, Monotonic, Signal, page_size};

use super::figure_report::MemoryReport;

/// Watermarks change only when a sysctl is written. On a large machine reading them takes long.
const WATERMARKS_AGE: Duration = Duration::from_secs(5);

/// ZFS keeps about its reserve free, so a node may stay close to it. There it is sampled no more often than this.
const ABOVE_RESERVE: Duration = Duration::from_millis(50);

/// The sample of the last turn, kept while a report shows a new one.
#[derive(Debug, Clone, Copy)]
pub struct DecidedBy {
    sample: Option<MemorySample>,
    root_usage: RootUsage,
}

/// The node's memory in the last sample.
#[derive(Debug)]
pub struct Memory {
    reader: MemoryReader,
    sample: Option<MemorySample>,
    /// Read with each sample under kubelet semantics, and otherwise only for reports.
    root_usage: RootUsage,
    details: MemDetails,
    /// Whether the kubelet's figure has the pools of huge pages in it.
    counts_huge_pages: bool,
    /// The size of refaulting file pages, which `MemAvailable` counts as available.
    correction: Bytes,
    miscounted: MiscountedReader,
    /// Which of the corrections are switched off.
    quirks: Quirks,
    rate: FallRate,
    slope: Slope,
    /// Samples not yet passed to the slope and the incident recorder; at most two per turn.
    new_samples: Vec<(Monotonic, Bytes)>,
    watermarks: Watermarks,
    /// By how much the last sample that was due was late.
    late: Option<Duration>,
}

impl Memory {
    /// Creates the reader. `rate` is the fastest fall that is possible on this machine.
    pub fn new(
        reader: MemoryReader,
        rate: FallRate,
        (proc_root, hierarchy): (&Path, &Hierarchy),
        policy: &Policy,
    ) -> Self {
        Self {
            reader,
            sample: None,
            root_usage: RootUsage::default(),
            details: MemDetails::default(),
            counts_huge_pages: true,
            correction: Bytes::ZERO,
            miscounted: MiscountedReader::new(proc_root, hierarchy),
            quirks: policy.quirks,
            rate,
            slope: Slope::default(),
            new_samples: Vec::new(),
            watermarks: Watermarks { zoneinfo: proc_root.join("zoneinfo"), last: None },
            late: None,
        }
    }

    /// Follows the kubelet of the policy.
    pub fn follow(&mut self, policy: &Policy) {
        self.counts_huge_pages = policy.quirks.has(Quirk::HugePagesAvailable) || policy.semantics != Semantics::Kubelet;
        if !self.counts_huge_pages {
            self.read_details();
        }
    }

    /// Reads a new sample with its own time. After an error there is no sample.
    pub(super) fn read(&mut self, semantics: Semantics) -> Result<MemorySample, FileError> {
        self.sample = None;
        if semantics == Semantics::Corrected {
            self.miscounted.renew_before_sample(Monotonic::now());
        }
        let sample = self.reader.sample()?;
        if semantics == Semantics::Kubelet {
            self.root_usage = self.reader.root_usage()?;
        }
        self.sample = Some(sample);
        self.rate.observe(self.uncorrected(sample, semantics), sample.at);
        self.new_samples.extend(self.value(semantics).map(|value| (sample.at, value.available_bytes())));
        Ok(sample)
    }

    pub fn sample(&self) -> Option<MemorySample> {
        self.sample
    }

    /// Notes when a sample was due that is taken now.
    pub(super) fn note_due(&mut self, due: Monotonic, now: Monotonic) {
        if now >= due {
            self.late = Some(now.since(due));
        }
    }

    pub fn take_lateness(&mut self) -> Option<Duration> {
        self.late.take()
    }

    /// Takes a new sample for a report. Returns the sample that the loop decides by; the caller restores it afterwards.
    pub fn show_fresh(&mut self, semantics: Semantics) -> DecidedBy {
        let decided_by = DecidedBy { sample: self.sample, root_usage: self.root_usage };
        if self.sample.is_some() && self.take_fresh(semantics).is_err() {
            self.restore(decided_by);
        }
        decided_by
    }

    fn take_fresh(&mut self, semantics: Semantics) -> Result<(), FileError> {
        let fresh = self.reader.sample()?;
        if semantics == Semantics::Kubelet {
            self.root_usage = self.reader.root_usage()?;
        }
        self.sample = Some(fresh);
        let available = self.value(semantics).map(|value| value.available_bytes());
        available.iter().for_each(|available| self.slope.observe(available.as_f64(), fresh.at));
        Ok(())
    }

    pub fn restore(&mut self, decided_by: DecidedBy) {
        (self.sample, self.root_usage) = (decided_by.sample, decided_by.root_usage);
    }

    /// Returns the value of `memory.available` that thresholds are compared with.
    pub fn value(&self, semantics: Semantics) -> Option<SignalValue> {
        let sample = self.sample?;
        let available = match semantics {
            Semantics::Corrected => self.corrected(sample),
            Semantics::Kubelet => self.uncorrected(sample, semantics),
        };
        Some(SignalValue::now(Signal::MemoryAvailable, available, self.capacity(sample, semantics)))
    }

    /// Returns the capacity. A kubelet takes what is available and the working set for it (1.37).
    fn capacity(&self, sample: MemorySample, semantics: Semantics) -> Bytes {
        match semantics {
            Semantics::Corrected => sample.meminfo.total,
            Semantics::Kubelet => sample.meminfo.total.saturating_sub(self.left_out()),
        }
    }

    /// Returns the pools of huge pages, unless the kubelet's figure has them in it.
    fn left_out(&self) -> Bytes {
        self.details.huge_pages.filter(|_| !self.counts_huge_pages).unwrap_or(Bytes::ZERO)
    }

    fn corrected(&self, sample: MemorySample) -> Bytes {
        self.miscounted.last().available(&sample.meminfo, self.quirks).saturating_sub(self.correction)
    }

    /// Returns the figure that falls only when memory is allocated. It ignores the corrections, which change in steps and so have no
    /// rate.
    fn uncorrected(&self, sample: MemorySample, semantics: Semantics) -> Bytes {
        match semantics {
            Semantics::Corrected => sample.meminfo.available,
            Semantics::Kubelet => self.root_usage.available(self.capacity(sample, semantics)),
        }
    }

    pub(super) fn working_set(&mut self) -> Option<Bytes> {
        self.reader.root_usage().ok().map(RootUsage::working_set)
    }

    pub fn rate(&self) -> &FallRate {
        &self.rate
    }

    /// Returns the fastest fall of the figure that thresholds are compared with, and the longest time for which that is true. Below ZFS's
    /// reserve its cache counts less and less, so the figure falls many times as fast as `MemAvailable`.
    pub(super) fn fastest_fall(&self, semantics: Semantics) -> (FallRate, Option<Duration>) {
        let counts = semantics == Semantics::Corrected && !self.quirks.has(Quirk::ArcIsUsed);
        let arc = self.miscounted.last().arc.filter(|arc| counts && !arc.evictable.is_zero());
        let Some((arc, MemorySample { meminfo, .. })) = arc.zip(self.sample) else { return (self.rate, None) };
        let above = meminfo.available.saturating_sub(arc.reserve(&meminfo));
        if above.is_zero() {
            return (self.rate.times(arc.steepness(&meminfo)), None);
        }
        let until = Duration::try_from_secs_f64(above.as_f64() / self.rate.bytes_per_second());
        (self.rate, until.ok().map(|until| until.max(ABOVE_RESERVE)))
    }

    /// Switches the corrections as the policy says.
    pub fn reconfigure(&mut self, policy: &Policy) {
        self.quirks = policy.quirks;
    }

    /// Reads the figures behind the corrections that take too long for a sample.
    pub(super) fn renew_corrections(&mut self) {
        self.miscounted.renew_after_decision();
    }

    /// Returns the page cache of each cgroup that counts as available only once the cgroup is gone, after a new reading.
    pub(super) fn take_withheld(&mut self) -> Option<HashMap<CgroupId, Bytes>> {
        self.miscounted.take_withheld(self.quirks)
    }

    /// Makes the next reading of these figures due.
    pub(super) fn expire_corrections(&mut self) {
        self.miscounted.expire();
    }

    pub fn assume_rate(&mut self, fastest: Bytes) {
        self.rate = FallRate::assuming(fastest);
    }

    pub(super) fn slope(&self) -> &Slope {
        &self.slope
    }

    /// Passes each new sample to `each`. The receivers may touch memory for the first time, which is slow when no memory is free.
    /// The caller therefore calls this after an eviction, not before.
    pub fn pass_on_samples(&mut self, mut each: impl FnMut(Monotonic, Bytes)) {
        for (at, available) in self.new_samples.drain(..) {
            self.slope.observe(available.as_f64(), at);
            each(at, available);
        }
    }

    /// Reads the lines of `/proc/meminfo` that no decision needs. Keeps the previous lines if that fails.
    pub fn read_details(&mut self) -> Option<MemDetails> {
        self.details = self.reader.details().ok()?;
        Some(self.details)
    }

    pub(super) fn details(&self) -> &MemDetails {
        &self.details
    }

    /// Sets how much memory refaulted recently, capped by the active file memory. The cap is read only if any memory refaults.
    pub(super) fn correct(&mut self, refaulted: Bytes) {
        if !refaulted.is_zero() {
            self.read_details();
        }
        self.correction = refaulted.min(self.details.active_file.unwrap_or(Bytes::ZERO));
    }

    pub(super) fn correction(&self) -> Bytes {
        self.correction
    }

    pub(super) fn clear_correction(&mut self) {
        self.correction = Bytes::ZERO;
    }

    /// Returns the amounts that a figure of available memory counts wrongly, by name.
    pub(super) fn corrections(&mut self, knows_refaults: bool, now: Monotonic) -> Vec<(&'static str, Bytes)> {
        let Miscounted { arc, protected } = *self.miscounted.last();
        let meminfo = self.sample.map(|sample| sample.meminfo);
        let all = [
            ("hugepages", self.details.huge_pages),
            ("watermarks", self.watermarks.read(now)),
            ("refaulting_file", knows_refaults.then_some(self.correction)),
            ("zfs_arc", arc.zip(meminfo).map(|(arc, meminfo)| arc.credit(&meminfo))),
            ("cma_free", meminfo.map(|meminfo| meminfo.cma_free).filter(|free| !free.is_zero())),
            ("protected_file_min", protected.map(|protected| protected.min)),
            ("protected_file_low", protected.map(|protected| protected.low)),
            ("charged_hugepages", self.root_usage.charged_huge_pages),
        ];
        all.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect()
    }

    /// Returns the figures of both semantics; reads the root cgroup's usage.
    pub fn report(&mut self) -> Option<MemoryReport> {
        let meminfo = self.sample?.meminfo;
        if let Ok(usage) = self.reader.root_usage() {
            self.root_usage = usage;
        }
        let (root, sample) = (self.root_usage, self.sample?);
        let [added, subtracted] = self.miscounted.last().corrections(&meminfo, self.quirks);
        let subtracted =
            [("refaulting file pages", self.correction), ("CMA pages and protected file pages", subtracted)];
        let present = |all: &[(&'static str, Bytes)]| all.iter().filter(|(_, it)| !it.is_zero()).copied().collect();
        Some(MemoryReport {
            capacity: meminfo.total,
            mem_total: meminfo.total,
            mem_available: meminfo.available,
            additions: present(&[("ZFS's cache (ARC)", added)]),
            corrections: present(&subtracted),
            corrected: self.corrected(sample),
            usage: root.usage,
            inactive_file: root.inactive_file,
            working_set: root.working_set(),
            kubelet: root.available(meminfo.total.saturating_sub(self.left_out())),
        })
    }
}

/// The memory that the kernel keeps free for itself.
#[derive(Debug)]
struct Watermarks {
    zoneinfo: PathBuf,
    last: Option<(Bytes, Monotonic)>,
}

impl Watermarks {
    fn read(&mut self, now: Monotonic) -> Option<Bytes> {
        if self.last.is_none_or(|(_, at)| now.since(at) >= WATERMARKS_AGE) {
            let text = std::fs::read_to_string(&self.zoneinfo).ok()?;
            self.last = Some((Bytes(ZoneInfo::parse(&text).reserved.saturating_mul(page_size())), now));
        }
        self.last.map(|(bytes, _)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::CgroupVersion;

    fn memory(root: &Path) -> Memory {
        std::fs::write(root.join("meminfo"), "MemTotal: 1000 kB\nMemAvailable: 600 kB\nActive(file): 100 kB\n")
            .unwrap();
        std::fs::write(root.join("memory.stat"), "anon 204800\nfile 307200\ninactive_file 102400\n").unwrap();
        let hierarchy = hierarchy(root);
        let reader = MemoryReader::open(root, &hierarchy).unwrap();
        Memory::new(reader, FallRate::assuming(Bytes(1 << 30)), (root, &hierarchy), &Policy::default())
    }

    fn hierarchy(root: &Path) -> Hierarchy {
        Hierarchy { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false }
    }

    fn available(memory: &Memory, semantics: Semantics) -> Option<i64> {
        memory.value(semantics).map(|value| value.available)
    }

    /// kubernetes/kubernetes#137984 and #99356.
    #[test]
    fn a_later_kubelet_leaves_huge_pages_out() {
        let root = tempfile::tempdir().unwrap();
        for (pools, before, since) in
            [("Hugetlb: 300 kB", 600, 300), ("HugePages_Total: 4\nHugepagesize: 100 kB", 600, 200), ("", 600, 600)]
        {
            let mut memory = memory(root.path());
            let meminfo = format!("MemTotal: 1000 kB\nMemAvailable: 500 kB\n{pools}\n");
            std::fs::write(root.path().join("meminfo"), meminfo).unwrap();
            let mut policy = Policy { semantics: Semantics::Kubelet, quirks: Quirks::ALL, ..Policy::default() };
            for (quirk, expected) in [(true, before), (false, since)] {
                policy.quirks.set(Quirk::HugePagesAvailable, quirk);
                memory.follow(&policy);
                memory.read(Semantics::Kubelet).unwrap();
                let value = memory.value(Semantics::Kubelet).unwrap();
                assert_eq!(value.available, expected * 1024, "{pools} {quirk}");
                assert_eq!(value.capacity - value.available, 400 * 1024, "the working set");
                assert_eq!(memory.value(Semantics::Corrected).unwrap().available, 500 * 1024);
            }
        }
    }

    #[test]
    fn each_semantics_has_its_own_figure() {
        let root = tempfile::tempdir().unwrap();
        let mut memory = memory(root.path());
        assert_eq!(available(&memory, Semantics::Corrected), None);
        memory.read(Semantics::Kubelet).unwrap();
        memory.correct(Bytes(1 << 30));
        assert_eq!(available(&memory, Semantics::Corrected), Some(500 << 10), "refaults are capped by the active file");
        assert_eq!(available(&memory, Semantics::Kubelet), Some(600 << 10), "capacity minus working set");
        memory.clear_correction();
        assert_eq!(available(&memory, Semantics::Corrected), Some(600 << 10));
    }

    /// Case 05 (openzfs/zfs#10255): the cache of ZFS grows, and what the kernel could hand out stays.
    #[test]
    fn a_growing_arc_takes_nothing_away() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("spl/kstat/zfs")).unwrap();
        let mut memory = memory(root.path());
        for (arc, left) in [(100, 600), (300, 400)] {
            let stats = format!("c_min 4 10240\nsize 4 {}\n", (arc + 10) << 10);
            std::fs::write(root.path().join("spl/kstat/zfs/arcstats"), stats).unwrap();
            std::fs::write(root.path().join("meminfo"), format!("MemTotal: 1000 kB\nMemAvailable: {left} kB\n"))
                .unwrap();
            memory.miscounted = MiscountedReader::new(root.path(), &hierarchy(root.path()));
            memory.read(Semantics::Corrected).unwrap();
            assert_eq!(available(&memory, Semantics::Corrected), Some(700 << 10));
            assert_eq!(memory.report().unwrap().additions, [("ZFS's cache (ARC)", Bytes::from_kib(arc))]);
        }
        memory.quirks.set(Quirk::ArcIsUsed, true);
        assert_eq!(available(&memory, Semantics::Corrected), Some(400 << 10));
    }

    /// A burst takes memory faster than ZFS drops its cache.
    #[test]
    fn a_sample_is_due_before_the_arc_counts_less() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("spl/kstat/zfs")).unwrap();
        let mut memory = memory(root.path());
        memory.rate = FallRate::assuming(Bytes::from_kib(1_000));
        let stats = format!("c_min 4 0\nsize 4 {}\narc_sys_free 4 {}\n", 600 << 10, 40 << 10);
        std::fs::write(root.path().join("spl/kstat/zfs/arcstats"), stats).unwrap();
        for (left, per_second, until) in
            [(540, 1_000, Some(500)), (60, 1_000, Some(50)), (40, 21_000, None), (20, 21_000, None)]
        {
            std::fs::write(root.path().join("meminfo"), format!("MemTotal: 1000 kB\nMemAvailable: {left} kB\n"))
                .unwrap();
            memory.read(Semantics::Corrected).unwrap();
            memory.rate = FallRate::assuming(Bytes::from_kib(1_000));
            let (rate, found) = memory.fastest_fall(Semantics::Corrected);
            assert!((rate.bytes_per_second() / 1024.0 - f64::from(per_second)).abs() < 1.0, "{left}: {rate:?}");
            assert_eq!(found.map(|found| found.as_millis()), until, "{left}");
        }
        assert_eq!(memory.fastest_fall(Semantics::Kubelet).1, None);
    }

    /// KEP 2570, kubernetes/kubernetes#126485: the cache of a Guaranteed pod is never handed out.
    #[test]
    fn protected_cache_and_cma_pages_are_not_available() {
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("pod");
        std::fs::create_dir(&pod).unwrap();
        for (name, text) in [
            ("memory.current", "307200\n"),
            ("memory.min", "307200\n"),
            ("memory.low", "0\n"),
            ("memory.stat", "inactive_file 204800\nactive_file 102400\n"),
        ] {
            std::fs::write(pod.join(name), text).unwrap();
        }
        let mut memory = memory(root.path());
        let text = "MemTotal: 1000 kB\nMemAvailable: 600 kB\nCmaTotal: 64 kB\nCmaFree: 50 kB\n";
        std::fs::write(root.path().join("meminfo"), text).unwrap();
        memory.read(Semantics::Corrected).unwrap();
        assert_eq!(available(&memory, Semantics::Corrected), Some((600 - 300 - 50) << 10));
        let corrections = memory.corrections(false, Monotonic(0));
        let expected = [("cma_free", 50), ("protected_file_min", 300), ("protected_file_low", 0)];
        assert_eq!(corrections, expected.map(|(name, kib)| (name, Bytes::from_kib(kib))));
    }

    #[test]
    fn samples_are_passed_on_once() {
        let root = tempfile::tempdir().unwrap();
        let mut memory = memory(root.path());
        memory.read(Semantics::Corrected).unwrap();
        memory.read(Semantics::Corrected).unwrap();
        let mut passed = Vec::new();
        memory.pass_on_samples(|_, available| passed.push(available.0 >> 10));
        memory.pass_on_samples(|_, available| passed.push(available.0 >> 10));
        assert_eq!(passed, [600, 600]);
    }

    #[test]
    fn a_failed_read_leaves_no_sample() {
        let root = tempfile::tempdir().unwrap();
        let mut memory = memory(root.path());
        memory.read(Semantics::Corrected).unwrap();
        std::fs::write(root.path().join("meminfo"), "MemTotal: 1000 kB\n").unwrap();
        memory.read(Semantics::Corrected).unwrap_err();
        assert_eq!(memory.sample(), None);
    }

    #[test]
    fn watermarks_are_read_every_five_seconds() {
        let root = tempfile::tempdir().unwrap();
        let zoneinfo = root.path().join("zoneinfo");
        let mut watermarks = Watermarks { zoneinfo: zoneinfo.clone(), last: None };
        assert_eq!(watermarks.read(Monotonic(0)), None, "no such file");
        std::fs::write(&zoneinfo, "Node 0, zone Normal\n").unwrap();
        assert_eq!(watermarks.read(Monotonic(0)), Some(Bytes::ZERO));
        std::fs::remove_file(&zoneinfo).unwrap();
        assert_eq!(watermarks.read(Monotonic(4_999_999_999)), Some(Bytes::ZERO));
        assert_eq!(watermarks.read(Monotonic(5_000_000_000)), None);
    }
}
