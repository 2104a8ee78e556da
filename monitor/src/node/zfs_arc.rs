//! `/proc/spl/kstat/zfs/arcstats`: the file cache of ZFS (ARC). The kernel counts it as used, although ZFS drops it on demand.

use std::path::Path;

use crate::units::{Bytes, kernel_text};

use super::meminfo::MemInfo;

/// Below the root of procfs.
const ARCSTATS: &str = "spl/kstat/zfs/arcstats";
/// The lines of the memory that ZFS can drop: its lists hold also what is referenced or dirty.
const CLEAN: [&str; 4] =
    ["mru_evictable_data", "mru_evictable_metadata", "mfu_evictable_data", "mfu_evictable_metadata"];
/// ZFS keeps this part of the memory free by shrinking its cache, if `arcstats` does not say how much (`zfs_arc_sys_free`).
const RESERVE_PART: u64 = 64;
/// A larger reserve, which an operator may set, is no sign that the cache does not shrink.
const LARGEST_RESERVE_PART: u64 = 16;
/// With less than this part of its reserve available, ZFS has not shrunk its cache in time.
const LATE_PART: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZfsArc {
    /// What ZFS reports to the kernel as reclaimable (`arc_evictable_memory`, OpenZFS 2.0 to 2.3): what is clean, down to `c_min`.
    pub evictable: Bytes,
    /// `arc_sys_free`: below this much free memory ZFS shrinks its cache by itself.
    reserve: Option<Bytes>,
}

impl ZfsArc {
    /// Reads the figures; `None` without ZFS.
    pub fn read(proc_root: &Path) -> Option<Self> {
        Self::parse(&kernel_text::read(proc_root.join(ARCSTATS)).ok()?)
    }

    /// Parses lines of a name, a type and a value. Before OpenZFS 0.7 the clean part is not reported, and all above `c_min` counts.
    pub fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            text.lines().find_map(|line| {
                let mut fields = line.split_ascii_whitespace();
                (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok().map(Bytes)).flatten()
            })
        };
        let above_minimum = value("size")?.saturating_sub(value("c_min")?);
        let clean: Option<Vec<Bytes>> = CLEAN.into_iter().map(value).collect();
        let clean = clean.map(|parts| parts.into_iter().fold(Bytes::ZERO, Bytes::saturating_add));
        Some(Self {
            evictable: clean.map_or(above_minimum, |clean| clean.min(above_minimum)),
            reserve: value("arc_sys_free"),
        })
    }

    /// Returns how much of the cache counts as available. ZFS frees its cache more slowly than the kernel file pages. While less than its
    /// reserve is available, less of the cache counts, and nothing below a quarter: the OOM killer acts there beside a full cache
    /// (openzfs/zfs#14686).
    pub fn credit(self, meminfo: &MemInfo) -> Bytes {
        let reserve = self.reserve(meminfo).0;
        let late = reserve / LATE_PART;
        let above = meminfo.available.0.saturating_sub(late);
        match u128::from(self.evictable.0) * u128::from(above) / u128::from((reserve - late).max(1)) {
            _ if meminfo.available.0 >= reserve => self.evictable,
            part => Bytes(u64::try_from(part).unwrap_or(u64::MAX)),
        }
    }

    /// Returns how much must be available for all of the cache to count.
    pub fn reserve(self, meminfo: &MemInfo) -> Bytes {
        let told = self.reserve.filter(|reserve| !reserve.is_zero());
        let reserve = told.unwrap_or(Bytes(meminfo.total.0 / RESERVE_PART));
        reserve.min(Bytes(meminfo.total.0 / LARGEST_RESERVE_PART))
    }

    /// Returns by how many bytes available memory falls for each byte of `MemAvailable` below the reserve.
    pub fn steepness(self, meminfo: &MemInfo) -> f64 {
        let reserve = self.reserve(meminfo).0;
        1.0 + self.evictable.as_f64() / Bytes((reserve - reserve / LATE_PART).max(1)).as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// OpenZFS 2.2, shortened to the lines that are read and their neighbours.
    fn arcstats(size: u64, minimum: u64, more: &str) -> String {
        format!(
            "12 1 0x01 147 39984 1920163911 654183491814\nname                            type data\nhits                            4    7\n\
             c                               4    9\nc_min                           4    {minimum}\nc_max                           4    99\n\
             size                            4    {size}\nuncompressed_size               4    1\n{more}"
        )
    }

    fn meminfo(available: u64) -> MemInfo {
        MemInfo { total: Bytes(64 * GIB), available: Bytes(available), cma_free: Bytes::ZERO }
    }

    #[test]
    fn what_is_clean_above_the_minimum_is_evictable() {
        let lines = |clean: u64| {
            format!(
                "mru_evictable_data              4    {clean}\nmru_evictable_metadata          4    5\n\
                 mfu_evictable_data              4    0\nmfu_evictable_metadata          4    0\n"
            )
        };
        for (text, expected) in [
            // Case 05: an installation without the lines of clean memory.
            (arcstats(28 * GIB, 2 * GIB, ""), Some(26 * GIB)),
            (arcstats(28 * GIB, 2 * GIB, &lines(40 * GIB)), Some(26 * GIB)),
            (arcstats(28 * GIB, 2 * GIB, &lines(10 * GIB)), Some(10 * GIB + 5)),
            (arcstats(GIB, 2 * GIB, ""), Some(0)),
            (arcstats(GIB, 2 * GIB, "").replace("c_min", "c_mean"), None),
            (String::new(), None),
        ] {
            assert_eq!(ZfsArc::parse(&text).map(|arc| arc.evictable.0), expected, "{text}");
        }
    }

    /// openzfs/zfs#14686: 100 MiB are left of 3 GiB beside a cache that does not shrink, and the OOM killer acts.
    #[test]
    fn a_cache_that_does_not_shrink_in_time_is_not_available() {
        let arc = ZfsArc { evictable: Bytes(16 * GIB), reserve: None };
        for (available, expected) in [
            (6 * GIB, 16 * GIB),
            (GIB, 16 * GIB),
            (GIB - 1, 16 * GIB - 22),
            (640 << 20, 8 * GIB),
            (256 << 20, 0),
            (100 << 20, 0),
            (0, 0),
        ] {
            assert_eq!(arc.credit(&meminfo(available)).0, expected, "{available}");
        }
        assert!((arc.steepness(&meminfo(GIB)) - (1.0 + 16.0 / 0.75)).abs() < 1e-6);
        let told = ZfsArc { reserve: Some(Bytes(2 * GIB)), ..arc };
        assert_eq!(told.credit(&meminfo(GIB)).0, 16 * GIB / 3);
        // An operator may set any reserve.
        let set = ZfsArc { reserve: Some(Bytes(60 * GIB)), ..arc };
        assert_eq!(set.credit(&meminfo(5 * GIB)).0, 16 * GIB);
    }
}
