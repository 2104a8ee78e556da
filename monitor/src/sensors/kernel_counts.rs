//! `/proc/vmstat`: refaults, swap rates, and the kernel's own counts of OOM kills and direct reclaims.

use std::path::Path;
use std::time::Duration;

use crate::eviction::exhaustion::SmoothRate;
use crate::eviction::refaulting::Refaulting;
use crate::node::meminfo::MemDetails;
use crate::node::vmstat::{VmStat, VmStatReader, VmStatSample};
use crate::units::{Bytes, Monotonic, page_size};

use super::figure_report::SwapReport;

/// The shortest time between two reads.
const NEAR_AGE: Duration = Duration::from_millis(100);
/// A threshold that may be reached this soon counts as near. Near a threshold, refaulting file pages matter.
const NEAR: Duration = Duration::from_secs(1);
/// The time between two reads after a kernel event, far from a threshold.
const EVENT_AGE: Duration = Duration::from_secs(1);
/// The time between two reads without events, equal to that of housekeeping.
const CALM_AGE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct KernelCounts {
    reader: Option<VmStatReader>,
    sample: Option<VmStatSample>,
    refaulting: Refaulting,
    swap_in: SmoothRate,
    swap_out: SmoothRate,
    missing: Option<String>,
}

impl KernelCounts {
    pub fn open(proc_root: &Path) -> Self {
        let (reader, missing) = match VmStatReader::open(proc_root) {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            reader,
            sample: None,
            refaulting: Refaulting::default(),
            swap_in: SmoothRate::default(),
            swap_out: SmoothRate::default(),
            missing,
        }
    }

    pub fn is_known(&self) -> bool {
        self.sample.is_some()
    }

    /// Returns the reason why the file cannot be read.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Returns whether to read the file now. `until_next` returns how soon a threshold may be reached.
    pub fn is_due(&self, has_event: bool, until_next: impl FnOnce() -> Duration, now: Monotonic) -> bool {
        let age = self.sample.map_or(Duration::MAX, |sample| now.since(sample.at));
        age >= CALM_AGE || has_event && age >= EVENT_AGE || age >= NEAR_AGE && until_next() <= NEAR
    }

    /// Returns whether a report must read the file first.
    pub(super) fn is_old(&self, now: Monotonic) -> bool {
        self.sample.is_none_or(|sample| now.since(sample.at) >= NEAR_AGE)
    }

    /// Reads the file. If that fails, the previous content is discarded.
    pub(super) fn read(&mut self) -> Option<VmStat> {
        let before = self.sample.take();
        let sample = match self.reader.as_mut()?.sample() {
            Ok(sample) => sample,
            Err(error) => {
                self.missing = Some(error.to_string());
                self.refaulting = Refaulting::default();
                return None;
            }
        };
        self.missing = None;
        self.sample = Some(sample);
        self.refaulting.observe(&sample);
        let swapped = |of: fn(&VmStat) -> Option<u64>| {
            let pages = of(&sample.stat)?.saturating_sub(of(&before?.stat)?);
            Some(Bytes(pages.saturating_mul(page_size())).as_f64())
        };
        let (read, written) = (swapped(|stat| stat.swapped_in), swapped(|stat| stat.swapped_out));
        self.swap_in.observe(read.unwrap_or(0.0), sample.at);
        self.swap_out.observe(written.unwrap_or(0.0), sample.at);
        Some(sample.stat)
    }

    /// Returns the memory that refaulted recently, without the cap of active file memory.
    pub(super) fn refaulted(&self) -> Bytes {
        self.refaulting.bytes(page_size(), Bytes::MAX)
    }

    pub(super) fn knows_refaults(&self) -> bool {
        self.sample.is_some_and(|sample| sample.stat.activated_file.is_some())
    }

    pub(super) fn forget_refaults(&mut self) {
        self.refaulting.forget();
    }

    /// Returns the pages that were swapped out since boot, if the kernel counts them, and when they were counted.
    /// Returns how often a task entered direct reclaim for the node.
    pub(super) fn direct_reclaims(&self) -> Option<u64> {
        self.sample?.stat.allocstall
    }

    pub(super) fn swapped_out(&self) -> Option<(Monotonic, Option<u64>)> {
        self.sample.map(|sample| (sample.at, sample.stat.swapped_out))
    }

    pub(super) fn swap(&self, details: &MemDetails) -> Option<SwapReport> {
        let stat = self.sample?.stat;
        let bytes = |pages: Option<u64>| Bytes(pages.unwrap_or(0).saturating_mul(page_size()));
        Some(SwapReport {
            total: details.swap_total?,
            free: details.swap_free?,
            read: bytes(stat.swapped_in),
            written: bytes(stat.swapped_out),
            read_per_second: self.swap_in.per_second(),
            written_per_second: self.swap_out.per_second(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_counts_are_missing_until_read_again() {
        let root = tempfile::tempdir().unwrap();
        let vmstat = root.path().join("vmstat");
        std::fs::write(&vmstat, "pswpin 1\noom_kill 2\n").unwrap();
        let mut counts = KernelCounts::open(root.path());
        assert_eq!(counts.read().and_then(|stat| stat.oom_kills), Some(2));
        std::fs::write(&vmstat, [0xff]).unwrap();
        assert_eq!(counts.read(), None);
        assert!(counts.missing().is_some() && !counts.is_known() && counts.refaulted().is_zero());
        std::fs::write(&vmstat, "oom_kill 3\n").unwrap();
        assert_eq!(counts.read().and_then(|stat| stat.oom_kills), Some(3));
        assert_eq!(counts.missing(), None);
        let nowhere = KernelCounts::open(&root.path().join("nowhere"));
        assert!(nowhere.missing().is_some_and(|reason| reason.contains("vmstat")));
    }

    #[test]
    fn the_file_is_read_more_often_near_a_threshold() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("vmstat"), "oom_kill 2\n").unwrap();
        let mut counts = KernelCounts::open(root.path());
        let far = || Duration::from_secs(10);
        assert!(counts.is_due(false, far, Monotonic(0)), "never read");
        counts.read();
        let read = counts.sample.unwrap().at;
        let due =
            |has_event, until: Duration, ms| counts.is_due(has_event, || until, read.after(Duration::from_millis(ms)));
        for (has_event, until, ms, expected) in [
            (false, far(), 19_999, false),
            (false, far(), 20_000, true),
            (true, far(), 999, false),
            (true, far(), 1_000, true),
            (false, NEAR, 99, false),
            (false, NEAR, 100, true),
        ] {
            assert_eq!(due(has_event, until, ms), expected, "event {has_event}, {until:?}, after {ms} ms");
        }
    }
}
