//! The free pages on the lists of the CPUs. They are free, and `MemAvailable` does not count them.
//!
//! A CPU takes pages from a zone and gives them back in batches (`struct per_cpu_pages`). Since Linux 6.7 the size of its list follows the
//! load, up to an eighth of the zone for all CPUs together (mm/page_alloc.c, `zone_highsize`), so that the memory of a process that has just
//! ended may be missing in `MemAvailable` for seconds.

use std::path::Path;

use crate::units::{Bytes, page_size};

use super::pinned_file::{Buffer, FileError, PinnedFile};
use super::zoneinfo::ZoneInfo;

/// `/proc/zoneinfo`, with memory for its text. The text grows with the CPUs and the zones.
#[derive(Debug)]
pub struct CpuFreeLists {
    zoneinfo: PinnedFile,
    buffer: Buffer,
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
        Ok(Self { zoneinfo, buffer })
    }

    /// Returns the size of all lists; nothing if they cannot be read.
    pub fn read(&mut self) -> Bytes {
        let text = self.zoneinfo.read_whole(&mut self.buffer).unwrap_or_default();
        Bytes(ZoneInfo::parse(text).on_cpu_lists.saturating_mul(page_size()))
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
    fn this_machine_has_lists() {
        let mut lists = CpuFreeLists::open(Path::new("/proc")).unwrap();
        assert!(lists.read() < Bytes(1 << 40));
    }
}
