//! `memory.available` under both semantics, its rate of fall, and the amounts that `MemAvailable` counts wrongly.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{Policy, Quirk, Semantics};
use crate::eviction::SignalValue;
use crate::eviction::deadline::FallRate;
use crate::eviction::exhaustion::Slope;
use crate::node::meminfo::MemDetails;
use crate::node::pinned_file::FileError;
use crate::node::zoneinfo::ZoneInfo;
use crate::node::{MemoryReader, MemorySample, RootUsage};
use crate::units::{Bytes, Monotonic, Signal, page_size};

use super::figure_report::MemoryReport;

/// Watermarks change only when a sysctl is written. On a large machine reading them takes long.
const WATERMARKS_AGE: Duration = Duration::from_secs(5);

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
    pub fn new(reader: MemoryReader, rate: FallRate, proc_root: &Path) -> Self {
        Self {
            reader,
            sample: None,
            root_usage: RootUsage::default(),
            details: MemDetails::default(),
            counts_huge_pages: true,
            correction: Bytes::ZERO,
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
        let correction = match semantics {
            Semantics::Corrected => self.correction,
            Semantics::Kubelet => Bytes::ZERO,
        };
        let available = self.uncorrected(sample, semantics).saturating_sub(correction);
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

    /// Returns the figure that falls only when memory is allocated. It ignores refaulting file pages, which change in steps and
    /// so have no rate.
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

    /// Returns the memory that `MemTotal` counts and that the kernel cannot hand out, by name.
    pub(super) fn corrections(&mut self, knows_refaults: bool, now: Monotonic) -> Vec<(&'static str, Bytes)> {
        let all = [
            ("hugepages", self.details.huge_pages),
            ("watermarks", self.watermarks.read(now)),
            ("refaulting_file", knows_refaults.then_some(self.correction)),
        ];
        all.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect()
    }

    /// Returns the figures of both semantics; reads the root cgroup's usage.
    pub fn report(&mut self) -> Option<MemoryReport> {
        let meminfo = self.sample?.meminfo;
        if let Ok(usage) = self.reader.root_usage() {
            self.root_usage = usage;
        }
        let (root, correction) = (self.root_usage, self.correction);
        let corrections = (!correction.is_zero()).then_some(("refaulting file pages", correction));
        Some(MemoryReport {
            capacity: meminfo.total,
            mem_total: meminfo.total,
            mem_available: meminfo.available,
            corrections: corrections.into_iter().collect(),
            corrected: meminfo.available.saturating_sub(correction),
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
    use crate::config::Quirks;
    use crate::node::{CgroupVersion, Hierarchy};

    fn memory(root: &Path) -> Memory {
        std::fs::write(root.join("meminfo"), "MemTotal: 1000 kB\nMemAvailable: 600 kB\nActive(file): 100 kB\n")
            .unwrap();
        std::fs::write(root.join("memory.stat"), "anon 204800\nfile 307200\ninactive_file 102400\n").unwrap();
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false };
        Memory::new(MemoryReader::open(root, &hierarchy).unwrap(), FallRate::assuming(Bytes(1 << 30)), root)
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
