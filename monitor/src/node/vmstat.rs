//! `/proc/vmstat`: what the kernel counted of reclaim, refaults and swapping since it booted.

use std::path::Path;

use super::pinned_file::{Buffer, FileError, PinnedFile};
use crate::units::Monotonic;

/// The counters that the agent uses, in pages where nothing else is said. What this kernel does not count is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VmStat {
    /// Times that a task entered direct reclaim for the node (`allocstall_*`, all zones together); a memory cgroup's own reclaim is not in it.
    pub allocstall: Option<u64>,
    /// Pages that tasks took back in direct reclaim.
    pub stolen_direct: Option<u64>,
    /// Pages that kswapd took back.
    pub stolen_kswapd: Option<u64>,
    /// Pages read from swap.
    pub swapped_in: Option<u64>,
    /// Pages written to swap.
    pub swapped_out: Option<u64>,
    /// Processes that the OOM killer chose (Linux 4.13).
    pub oom_kills: Option<u64>,
    /// File pages that were read again soon after they had been dropped, found to belong to the working set, and made active.
    pub activated_file: Option<u64>,
}

impl VmStat {
    /// Parses the text of `/proc/vmstat`.
    #[must_use]
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
                // Before 5.9 there was no other memory that could refault than that of files.
                "workingset_activate_file" | "workingset_activate" => &mut stat.activated_file,
                // One a zone since 4.10.
                _ if key == "allocstall" || key.starts_with("allocstall_") => &mut stat.allocstall,
                _ => continue,
            };
            let Ok(value) = value.trim().parse::<u64>() else { continue };
            *counter = Some(counter.unwrap_or(0).saturating_add(value));
        }
        stat
    }

    /// Pages that reclaim for the node took back. What memory cgroups take back at their own limits is not in it.
    #[must_use]
    pub fn stolen(&self) -> Option<u64> {
        Some(self.stolen_direct?.saturating_add(self.stolen_kswapd?))
    }
}

/// One read of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmStatSample {
    /// The counters.
    pub stat: VmStat,
    /// When they were true: the moment before the read.
    pub at: Monotonic,
}

/// The open file.
#[derive(Debug)]
pub struct VmStatReader {
    file: PinnedFile,
    buffer: Buffer,
}

impl VmStatReader {
    /// Opens it, once.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(proc_root: &Path) -> Result<Self, FileError> {
        Ok(Self { file: PinnedFile::open(proc_root.join("vmstat"))?, buffer: Buffer::new() })
    }

    /// Reads it. The kernel adds up the counters of all CPUs for that.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn sample(&mut self) -> Result<VmStatSample, FileError> {
        let at = Monotonic::now();
        Ok(VmStatSample { stat: VmStat::parse(self.file.read_whole(&mut self.buffer)?), at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.12 (Debian 13's cloud kernel), the lines around those that are read.
    const LINUX_6_12: &str = "nr_free_pages 46611\nworkingset_nodes 1163\nworkingset_refault_anon 12\nworkingset_refault_file 20764\n\
        workingset_activate_anon 3\nworkingset_activate_file 15432\nworkingset_restore_file 9000\npswpin 12\npswpout 512\n\
        allocstall_dma 0\nallocstall_dma32 7\nallocstall_normal 9\nallocstall_movable 25\nallocstall_device 0\n\
        pgsteal_kswapd 88123\npgsteal_direct 1041\npgsteal_khugepaged 0\npgscan_kswapd 120044\npgscan_direct 2090\n\
        pgscan_khugepaged 0\npgscan_direct_throttle 4\npgscan_anon 15\noom_kill 2\n";
    /// The same lines as 5.4 and 4.19 have them: no other working set than that of files.
    const LINUX_5_4: &str = "workingset_refault 20764\nworkingset_activate 15432\nworkingset_restore 9000\npswpin 12\npswpout 512\n\
        allocstall_dma 0\nallocstall_dma32 7\nallocstall_normal 9\nallocstall_movable 25\n\
        pgsteal_kswapd 88123\npgsteal_direct 1041\npgscan_kswapd 120044\npgscan_direct 2090\npgscan_direct_throttle 4\noom_kill 2\n";

    #[test]
    fn counters_of_both_ages() {
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
    fn what_is_not_counted_is_absent() {
        assert_eq!(VmStat::parse(""), VmStat::default());
        // No swap in this kernel, a line cut off, a number that is none.
        let stat = VmStat::parse("pgsteal_direct 5\npgsteal_kswapd x\noom_kill\n");
        assert_eq!(stat, VmStat { stolen_direct: Some(5), ..VmStat::default() });
        assert_eq!(stat.stolen(), None);
    }

    #[test]
    fn this_machine_counts_them() {
        let stat = VmStatReader::open(Path::new("/proc")).unwrap().sample().unwrap().stat;
        assert!(stat.allocstall.is_some() && stat.stolen().is_some() && stat.activated_file.is_some(), "{stat:?}");
    }
}
