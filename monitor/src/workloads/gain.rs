//! What the end of a workload gives back, read from its cgroup.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use crate::node::CgroupVersion;
use crate::node::pinned_file::{Buffer, PinnedFile, keyed_value};
use crate::node::zram::ZramShare;
use crate::units::{Bytes, CgroupId};

use super::outliving_memory::Outliving;

/// How the memory of workloads is counted.
#[derive(Debug, Clone, Copy)]
pub struct Counting {
    pub version: CgroupVersion,
    /// The memory that swap takes, if all swap is zram.
    pub zram: Option<ZramShare>,
    /// Whether huge pages are usage.
    pub huge_pages: bool,
    /// The workload's file pages that do not count as available while it is there (`memory.min`).
    pub withheld: Bytes,
}

impl Counting {
    /// Returns how the memory of this workload is counted.
    pub(super) fn of(self, id: CgroupId, withheld: &HashMap<CgroupId, Bytes>) -> Self {
        Self { withheld: withheld.get(&id).copied().unwrap_or(Bytes::ZERO), ..self }
    }
}

/// The figures of `memory.stat` that the gain follows from, with the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figures {
    /// What the end gives back of the memory that the cgroup counts, if no shared memory outlives it.
    counted: Bytes,
    shared: Bytes,
    /// Swap by `memory.stat` (v1).
    swap: Bytes,
    /// The part of the swap that zswap holds (v2). Its compressed pages are part of the usage (Linux 5.19, `obj_cgroup_charge_zswap`).
    zswapped: Bytes,
}

impl Figures {
    /// Anonymous, shared and kernel memory is given back, the compressed pages of zswap among it. File pages and reclaimable slab count as
    /// available already, but those that `memory.min` protects only after the end of the cgroup. `file` and `cache` include shared memory and
    /// tmpfs. File pages that a process has locked (`mlock`) are available only after its end: they are on the list of unevictable pages, and
    /// not on those of file pages. Huge pages that the cgroup is charged
    /// with (`hugetlb`, Linux 6.13, mount option `memory_hugetlb_accounting`) return to their pool.
    pub(super) fn of(usage: Bytes, stat: &str, counting: Counting) -> Self {
        let version = counting.version;
        let value = |key| keyed_value(stat, key).map(Bytes);
        let huge = value("hugetlb").filter(|_| !counting.huge_pages).unwrap_or(Bytes::ZERO);
        let [file, shared, slab, unevictable, swap, zswapped] = match version {
            CgroupVersion::V1 => {
                ["total_cache", "total_shmem", "slab_reclaimable", "total_unevictable", "total_swap", "zswapped"]
            }
            CgroupVersion::V2 => ["file", "shmem", "slab_reclaimable", "unevictable", "swap", "zswapped"],
        }
        .map(|key| value(key).unwrap_or(Bytes::ZERO));
        let [inactive, active] = match version {
            CgroupVersion::V1 => ["total_inactive_file", "total_active_file"],
            CgroupVersion::V2 => ["inactive_file", "active_file"],
        }
        .map(value);
        let file = file.saturating_sub(shared);
        // Locked anonymous and shared memory is unevictable as well.
        let locked = inactive.zip(active).map_or(Bytes::ZERO, |(inactive, active)| {
            file.saturating_sub(inactive.saturating_add(active)).min(unevictable)
        });
        let withheld = counting.withheld.min(file.saturating_sub(locked));
        let there = file.saturating_sub(locked).saturating_sub(withheld);
        let counted = usage.saturating_sub(there).saturating_sub(slab).saturating_sub(huge);
        Self { counted, shared, swap, zswapped }
    }
}

/// What the cgroup's usage does not tell: compressed swap in zram, and shared memory that outlives the workload.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside<'f> {
    /// The memory of zram, if all swap is there.
    pub(super) zram: Option<ZramShare>,
    /// `memory.swap.current`, which v2 has where the kernel accounts swap.
    pub(super) swap: Option<&'f PinnedFile>,
    pub(super) outliving: Option<&'f Outliving>,
}

impl Beside<'_> {
    /// Returns the compressed swap of the workload. Reads one file, only where all swap is zram.
    pub(super) fn compressed(self, figures: Figures, buffer: &mut Buffer) -> Bytes {
        let Some(zram) = self.zram else { return Bytes::ZERO };
        let read = self.swap.and_then(|file| file.read_number(buffer)).map(Bytes);
        zram.of(read.unwrap_or(figures.swap).saturating_sub(figures.zswapped))
    }

    /// Returns the shared memory that the end does not give back. Nothing is read of a workload without shared memory.
    fn outliving(self, figures: Figures, buffer: &mut Buffer) -> Bytes {
        let most = self.outliving.filter(|_| !figures.shared.is_zero()).map(|outliving| outliving.most(buffer));
        most.map_or(Bytes::ZERO, |most| most.min(figures.shared))
    }

    /// Returns what the end gives back, with this much compressed swap.
    pub(super) fn gain(self, figures: Figures, compressed: Bytes, buffer: &mut Buffer) -> Bytes {
        figures.counted.saturating_sub(self.outliving(figures, buffer)).saturating_add(compressed)
    }
}

/// Opens `memory.swap.current` of a cgroup.
pub(super) fn open_swap(directory: impl AsFd, path: &Path, version: CgroupVersion) -> Option<PinnedFile> {
    let is_there = version == CgroupVersion::V2;
    is_there.then(|| PinnedFile::open_at(directory, path, "memory.swap.current").ok()).flatten()
}

/// The open files of a workload from which its gain is read.
#[derive(Debug)]
pub struct GainFiles {
    pub(super) usage: PinnedFile,
    pub(super) stat: PinnedFile,
    pub(super) counting: Counting,
    pub(super) swap: Option<PinnedFile>,
    pub(super) outliving: Option<Arc<Outliving>>,
}

impl GainFiles {
    /// Reads what the end of the workload would give back. Fails once the cgroup is removed.
    pub fn read(&self, buffer: &mut Buffer) -> Option<Bytes> {
        let usage = Bytes(self.usage.read_number(buffer)?);
        let figures = Figures::of(usage, self.stat.read(buffer).ok()?, self.counting);
        let beside =
            Beside { zram: self.counting.zram, swap: self.swap.as_ref(), outliving: self.outliving.as_deref() };
        let compressed = beside.compressed(figures, buffer);
        Some(beside.gain(figures, compressed, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::mountinfo::NodeMounts;
    use crate::workloads::Pod;
    use crate::workloads::outliving_memory::Places;

    #[test]
    fn file_pages_are_no_gain_and_shared_memory_is() {
        for (version, stat, expected) in [
            (CgroupVersion::V2, "anon 500\nfile 400\nshmem 100\nslab_reclaimable 50\n", 650),
            (CgroupVersion::V1, "cache 1\nrss 1\ntotal_cache 400\ntotal_rss 600\ntotal_shmem 100\n", 700),
            (CgroupVersion::V2, "anon 1\nfile 4000\n", 0),
            (
                CgroupVersion::V2,
                "anon 500\nfile 450\nshmem 50\ninactive_file 60\nactive_file 40\nunevictable 300\nslab_reclaimable 50\n",
                850,
            ),
            (
                CgroupVersion::V2,
                "anon 500\nfile 450\nshmem 50\ninactive_file 300\nactive_file 100\nunevictable 500\n",
                600,
            ),
            (CgroupVersion::V2, "file 450\nshmem 50\ninactive_file 300\nactive_file 90\nunevictable 0\n", 600),
            (
                CgroupVersion::V1,
                "total_cache 400\ntotal_shmem 100\ntotal_inactive_file 0\ntotal_active_file 0\ntotal_unevictable 300\n",
                1_000,
            ),
            (CgroupVersion::V2, "", 1_000),
            (CgroupVersion::V2, "anon 200\nfile 0\nhugetlb 800\n", 200),
            (CgroupVersion::V2, "anon 200\nfile 0\nhugetlb 9000\n", 0),
        ] {
            assert_eq!(Figures::of(Bytes(1_000), stat, counting(version, None)).counted, Bytes(expected), "{stat}");
        }
    }

    fn counting(version: CgroupVersion, zram: Option<u64>) -> Counting {
        Counting { version, zram: zram.map(ZramShare::thousandths), huge_pages: false, withheld: Bytes::ZERO }
    }

    #[test]
    fn huge_pages_are_usage_only_where_the_switch_says_so() {
        let counted = |huge_pages| {
            let counting = Counting { huge_pages, ..counting(CgroupVersion::V2, None) };
            Figures::of(Bytes(1_000), "anon 200\nhugetlb 800\n", counting).counted
        };
        assert_eq!([counted(false), counted(true)], [Bytes(200), Bytes(1_000)]);
    }

    #[test]
    fn protected_cache_is_gain_as_it_is_not_available_before() {
        for (withheld, stat, expected) in [
            (0, "anon 500\nfile 400\ninactive_file 100\nactive_file 300\n", 600),
            (250, "anon 500\nfile 400\ninactive_file 100\nactive_file 300\n", 850),
            // The cache has shrunk since the protection was read.
            (250, "anon 500\nfile 100\ninactive_file 100\nactive_file 0\n", 1_000),
            // Locked pages are gain already.
            (250, "anon 0\nfile 1000\ninactive_file 100\nactive_file 0\nunevictable 900\n", 1_000),
        ] {
            let counting = counting(CgroupVersion::V2, None)
                .of(CgroupId(7), &HashMap::from([(CgroupId(7), Bytes(withheld)), (CgroupId(8), Bytes(9))]));
            assert_eq!(Figures::of(Bytes(1_000), stat, counting).counted, Bytes(expected), "{withheld} {stat}");
        }
    }

    const STAT: &str = "anon 500\nfile 300\nshmem 200\ninactive_file 60\nactive_file 40\nzswapped 1000\n";

    /// The files of a cgroup with a usage of 1,000 bytes, of which 100 are file pages.
    fn files(directory: &Path, zram: Option<u64>) -> GainFiles {
        for (name, text) in [("memory.current", "1000\n"), ("memory.stat", STAT), ("memory.swap.current", "5000\n")] {
            std::fs::write(directory.join(name), text).unwrap();
        }
        let open = |name: &str| PinnedFile::open(directory.join(name)).unwrap();
        let own = std::fs::File::open(directory).unwrap();
        let version = CgroupVersion::V2;
        GainFiles {
            usage: open("memory.current"),
            stat: open("memory.stat"),
            counting: counting(version, zram),
            swap: zram.and_then(|_| open_swap(own, directory, version)),
            outliving: None,
        }
    }

    #[test]
    fn swap_in_zram_is_gain_and_that_of_zswap_is_counted_already() {
        let (root, mut buffer) = (tempfile::tempdir().unwrap(), Buffer::new());
        assert_eq!(files(root.path(), None).read(&mut buffer), Some(Bytes(900)));
        // Of 5,000 bytes of swap zswap holds 1,000, and zram the rest at a quarter of their size.
        assert_eq!(files(root.path(), Some(250)).read(&mut buffer), Some(Bytes(1_900)));
        let unaccounted = GainFiles { swap: None, ..files(root.path(), Some(250)) };
        assert_eq!(unaccounted.read(&mut buffer), Some(Bytes(900)));
        let v1 = Figures::of(Bytes(1_000), "total_cache 0\ntotal_swap 4000\n", counting(CgroupVersion::V1, None));
        let beside = Beside { zram: Some(ZramShare::thousandths(500)), ..Beside::default() };
        assert_eq!(beside.compressed(v1, &mut buffer), Bytes(2_000));
    }

    /// What is in use of the node's tmpfs is more than the workload's shared memory here.
    #[test]
    fn shared_memory_that_others_hold_is_no_gain() {
        let (root, mut buffer) = (tempfile::tempdir().unwrap(), Buffer::new());
        std::fs::create_dir_all(root.path().join("1/root/dev/shm")).unwrap();
        std::fs::write(root.path().join("1/mountinfo"), "1 1 0:1 / /dev/shm rw - tmpfs shm rw\n").unwrap();
        let mounts = NodeMounts::read(root.path());
        for (spec, expected) in [
            (r#"{"hostIPC": true}"#, 700),
            (r#"{"volumes": [{"name": "a", "hostPath": {"path": "/dev/shm"}}]}"#, 700),
            (r#"{"volumes": [{"name": "a", "hostPath": {"path": "/var/log"}}]}"#, 900),
            (r#"{"volumes": [{"name": "a", "emptyDir": {"medium": "Memory"}}]}"#, 900),
        ] {
            let pod: Pod = serde_json::from_str(&format!(r#"{{"spec": {spec}}}"#)).unwrap();
            let outliving = Outliving::open(&Places::of(&pod), &mounts, root.path()).map(Arc::new);
            let files = GainFiles { outliving, ..files(root.path(), None) };
            assert_eq!(files.read(&mut buffer), Some(Bytes(expected)), "{spec}");
        }
    }
}
