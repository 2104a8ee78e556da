//! The free pages on the lists of the CPUs. They are free, and `MemAvailable` does not count them.
//!
//! A CPU takes pages from a zone and gives them back in batches (`struct per_cpu_pages`). Since Linux 6.7 the size of its list follows the
//! load, up to an eighth of the zone for all CPUs together (mm/page_alloc.c, `zone_highsize`), so that the memory of a process that has just
//! ended may be missing in `MemAvailable` for seconds.

use std::path::Path;
use std::time::Duration;

use crate::units::{Bytes, Monotonic, page_size};

use super::pinned_file::{Buffer, FileError, PinnedFile};
use super::zoneinfo::ZoneInfo;

/// A figure is used for this long. The kernel takes an eighth a second from the lists.
const AGE: Duration = Duration::from_millis(100);
/// A figure that would let an eviction start is used for this long: a victim that exits fills the lists at once.
const AGE_IF_SHORT: Duration = Duration::from_millis(10);

/// `/proc/zoneinfo`, with memory for its text. The text grows with the CPUs and the zones.
#[derive(Debug)]
pub struct CpuFreeLists {
    zoneinfo: PinnedFile,
    buffer: Buffer,
    last: Option<(Bytes, Monotonic)>,
}

impl CpuFreeLists {
    /// # Errors
    /// When the file cannot be read.
    pub fn open(proc_root: &Path) -> Result<Self, FileError> {
        let zoneinfo = PinnedFile::open(proc_root.join("zoneinfo"))?;
        let mut buffer = Buffer::new();
        while zoneinfo.read_whole(&mut buffer)?.len() * 2 > buffer.capacity() {
            buffer = Buffer::of(buffer.capacity() * 2);
        }
        Ok(Self { zoneinfo, buffer, last: None })
    }

    /// Returns the size of all lists, at most [`AGE`] old; nothing if they cannot be read.
    pub fn read(&mut self) -> Bytes {
        self.read_at(Monotonic::now())
    }

    /// Has the next reading be a fresh one if less than `missing` was on the lists, unless the last one is of this moment.
    pub fn renew_below(&mut self, missing: Bytes, now: Monotonic) {
        self.last = self.last.filter(|(size, at)| *size >= missing || now.since(*at) < AGE_IF_SHORT);
    }

    fn read_at(&mut self, now: Monotonic) -> Bytes {
        if let Some((size, _)) = self.last.filter(|(_, at)| now.since(*at) < AGE) {
            return size;
        }
        let text = self.zoneinfo.read_whole(&mut self.buffer).unwrap_or_default();
        let size = Bytes(ZoneInfo::parse(text).on_cpu_lists.saturating_mul(page_size()));
        self.last = Some((size, now));
        size
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ZONE: &str = "Node 0, zone DMA32\n  pages free 741213\n  pagesets\n    cpu: 0\n              count:    7\n              high:     378\n    cpu: 1\n              count:    30\n  vm stats threshold: 24\n";

    #[test]
    fn the_lists_of_all_cpus_and_zones_are_summed() {
        let pages = |text: &str| ZoneInfo::parse(text).on_cpu_lists;
        assert_eq!(pages(ZONE), 37);
        assert_eq!(pages(&format!("{ZONE}{ZONE}")), 74);
        assert_eq!(pages("  count: many\n"), 0);
    }

    #[test]
    fn a_long_file_is_read_whole() {
        let root = tempfile::tempdir().unwrap();
        assert!(CpuFreeLists::open(root.path()).is_err());
        fs::write(root.path().join("zoneinfo"), ZONE.repeat(1_000)).unwrap();
        let mut lists = CpuFreeLists::open(root.path()).unwrap();
        assert_eq!(lists.read(), Bytes(37_000 * page_size()));
    }

    #[test]
    fn the_file_is_read_no_more_often_than_the_answer_changes() {
        let root = tempfile::tempdir().unwrap();
        let write = |zones: usize| fs::write(root.path().join("zoneinfo"), ZONE.repeat(zones)).unwrap();
        write(1);
        let mut lists = CpuFreeLists::open(root.path()).unwrap();
        let (one, two, at) = (Bytes(37 * page_size()), Bytes(74 * page_size()), |ms: u64| Monotonic(ms * 1_000_000));
        assert_eq!(lists.read_at(at(1000)), one);
        write(2);
        lists.renew_below(one, at(1099));
        assert_eq!(lists.read_at(at(1099)), one, "the eviction waits");
        assert_eq!(lists.read_at(at(1100)), two);
        write(1);
        lists.renew_below(Bytes(two.0 + 1), at(1109));
        assert_eq!(lists.read_at(at(1109)), two, "it is of this moment");
        lists.renew_below(Bytes(two.0 + 1), at(1110));
        assert_eq!(lists.read_at(at(1110)), one, "an eviction would start");
    }

    #[test]
    fn this_machine_has_lists() {
        let mut lists = CpuFreeLists::open(Path::new("/proc")).unwrap();
        assert!(lists.read() < Bytes(1 << 40));
    }
}
