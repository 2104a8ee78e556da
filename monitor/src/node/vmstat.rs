//! `/proc/vmstat`: the kernel's counters of reclaim, refaults and swapping since boot.

use std::path::Path;

use super::pinned_file::{Buffer, FileError, PinnedFile};
use crate::units::Monotonic;

/// The counters that the agent uses, in pages unless stated. Counters that this kernel lacks are absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VmStat {
    /// How often tasks entered direct reclaim for the node (`allocstall_*`, the sum of all zones). Reclaim of memory cgroups does not count.
    pub allocstall: Option<u64>,
    pub stolen_direct: Option<u64>,
    pub stolen_kswapd: Option<u64>,
    pub swapped_in: Option<u64>,
    pub swapped_out: Option<u64>,
    /// Processes that the OOM killer has chosen (Linux 4.13).
    pub oom_kills: Option<u64>,
    /// File pages that were read again soon after their reclaim and were therefore activated as part of the working set.
    pub activated_file: Option<u64>,
}

impl VmStat {
    pub fn parse(text: &str) -> Self {
        let mut stat = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(' ') else { continue };
            let counter = match key {
                "pgsteal_direct" => &mut stat.stolen_direct,
                "pgsteal_kswapd" => &mut stat.stolen_kswapd,
                "pswpin" => &mut stat.swapped_in,
                "pswpout" => &mut stat.swapped_out,
                "oom_kill" => &mut stat.oom_kills,
                // Before Linux 5.9 only file memory could refault.
                "workingset_activate_file" | "workingset_activate" => &mut stat.activated_file,
                // One line per zone since Linux 4.10.
                _ if key == "allocstall" || key.starts_with("allocstall_") => &mut stat.allocstall,
                _ => continue,
            };
            let Ok(value) = value.trim().parse::<u64>() else { continue };
            *counter = Some(counter.unwrap_or(0).saturating_add(value));
        }
        stat
    }

    /// Returns the pages that reclaim for the node freed. Reclaim at the limits of memory cgroups does not count.
    pub fn stolen(&self) -> Option<u64> {
        Some(self.stolen_direct?.saturating_add(self.stolen_kswapd?))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmStatSample {
    pub stat: VmStat,
    /// The time just before the read.
    pub at: Monotonic,
}

#[derive(Debug)]
pub struct VmStatReader {
    file: PinnedFile,
    buffer: Buffer,
}

impl VmStatReader {
    pub fn open(proc_root: &Path) -> Result<Self, FileError> {
        Ok(Self { file: PinnedFile::open(proc_root.join("vmstat"))?, buffer: Buffer::new() })
    }

    /// Reads the file, for which the kernel sums the counters of all CPUs.
    pub fn sample(&mut self) -> Result<VmStatSample, FileError> {
        let at = Monotonic::now();
        Ok(VmStatSample { stat: VmStat::parse(self.file.read_whole(&mut self.buffer)?), at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.12 (Debian 13's cloud kernel), shortened to the parsed lines and their neighbours.
    const LINUX_6_12: &str = "nr_free_pages 46611\nworkingset_nodes 1163\nworkingset_refault_anon 12\nworkingset_refault_file 20764\n\
        workingset_activate_anon 3\nworkingset_activate_file 15432\nworkingset_restore_file 9000\npswpin 12\npswpout 512\n\
        allocstall_dma 0\nallocstall_dma32 7\nallocstall_normal 9\nallocstall_movable 25\nallocstall_device 0\n\
        pgsteal_kswapd 88123\npgsteal_direct 1041\npgsteal_khugepaged 0\npgscan_kswapd 120044\npgscan_direct 2090\n\
        pgscan_khugepaged 0\npgscan_direct_throttle 4\npgscan_anon 15\noom_kill 2\n";
    /// The same lines of Linux 5.4 and 4.19, whose working set is that of files only.
    const LINUX_5_4: &str = "workingset_refault 20764\nworkingset_activate 15432\nworkingset_restore 9000\npswpin 12\npswpout 512\n\
        allocstall_dma 0\nallocstall_dma32 7\nallocstall_normal 9\nallocstall_movable 25\n\
        pgsteal_kswapd 88123\npgsteal_direct 1041\npgscan_kswapd 120044\npgscan_direct 2090\npgscan_direct_throttle 4\noom_kill 2\n";

    #[test]
    fn old_and_new_names_are_parsed() {
        let expected = VmStat {
            allocstall: Some(41),
            stolen_direct: Some(1041),
            stolen_kswapd: Some(88_123),
            swapped_in: Some(12),
            swapped_out: Some(512),
            oom_kills: Some(2),
            activated_file: Some(15_432),
        };
        for text in [LINUX_6_12, LINUX_5_4] {
            assert_eq!(VmStat::parse(text), expected, "{text}");
        }
        assert_eq!(expected.stolen(), Some(89_164));
    }

    #[test]
    fn missing_and_malformed_counters_are_absent() {
        assert_eq!(VmStat::parse(""), VmStat::default());
        // A kernel without swap, a line without a value, an invalid number.
        let stat = VmStat::parse("pgsteal_direct 5\npgsteal_kswapd x\noom_kill\n");
        assert_eq!(stat, VmStat { stolen_direct: Some(5), ..VmStat::default() });
        assert_eq!(stat.stolen(), None);
    }

    #[test]
    fn this_machine_has_the_counters() {
        let stat = VmStatReader::open(Path::new("/proc")).unwrap().sample().unwrap().stat;
        assert!(stat.allocstall.is_some() && stat.stolen().is_some() && stat.activated_file.is_some(), "{stat:?}");
    }
}
