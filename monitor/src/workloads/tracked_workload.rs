//! A workload, and the open files from which its usage is read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};

use crate::node::CgroupVersion;
use crate::node::pinned_file::{Buffer, FileError, PinnedFile, keyed_value};
use crate::units::{Bytes, CgroupId, Monotonic};

use super::essential::Examined;
use super::outlook::Outlook;
use super::pod::Pod;
use super::protection::Protection;
use super::workload::{Workload, WorkloadUsage};

#[derive(Debug)]
pub struct Tracked {
    pub(super) workload: Arc<Workload>,
    pub(super) directory: OwnedFd,
    usage: PinnedFile,
    stat: PinnedFile,
    /// The open file `cgroup.kill`; absent on v1 and before Linux 5.14.
    kill: Option<OwnedFd>,
    read: Monotonic,
    /// The beginning of the last complete scan that did not find it. The workload appeared since.
    pub(super) absent: Option<Monotonic>,
    /// The protection by the cgroup tree alone.
    pub(super) tree_protection: Option<Protection>,
    /// The owner of the cgroup's directory. A user that owns it has named the cgroups in it.
    pub(super) owner_uid: u32,
    /// Whether the node needs the workload, by its processes; `None` until they are examined.
    pub(super) examined: Option<Examined>,
    /// Whether the workload is protected by its name; `None` until the name is looked up.
    pub(super) is_named: Option<bool>,
    /// The pod that the request comes from.
    pub(super) joined: Option<Arc<Pod>>,
}

impl Tracked {
    /// Opens the files of a workload's cgroup; `path` is for messages.
    pub(super) fn open(
        workload: Arc<Workload>,
        directory: &OwnedFd,
        path: &Path,
        version: CgroupVersion,
    ) -> Result<Self, FileError> {
        let usage_name = match version {
            CgroupVersion::V1 => "memory.usage_in_bytes",
            CgroupVersion::V2 => "memory.current",
        };
        let usage = PinnedFile::open_at(directory, path, usage_name)?;
        let stat = PinnedFile::open_at(directory, path, "memory.stat")?;
        let directory = directory.try_clone().map_err(|source| FileError::Open { path: path.to_owned(), source })?;
        let kill = rustix::fs::openat(&directory, "cgroup.kill", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        Ok(Self {
            workload,
            directory,
            usage,
            stat,
            kill,
            read: Monotonic::now(),
            absent: None,
            tree_protection: None,
            owner_uid: 0,
            examined: None,
            is_named: None,
            joined: None,
        })
    }

    /// Takes the owner of the cgroup, which may change after its creation.
    pub(super) fn set_owner(&mut self, owner_uid: u32) {
        if self.owner_uid != owner_uid {
            (self.owner_uid, self.is_named) = (owner_uid, None);
        }
    }

    pub(super) fn age(&self) -> Duration {
        Monotonic::now().since(self.read)
    }

    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Returns the cgroup's directory in the memory hierarchy. The directory belongs to this cgroup even if its path is reused.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Returns the open `cgroup.kill`, if the kernel has it.
    pub fn kill_file(&self) -> Option<BorrowedFd<'_>> {
        self.kill.as_ref().map(AsFd::as_fd)
    }

    /// Reads the usage, an upper bound of the working set.
    pub(super) fn upper_bound(&self, buffer: &mut Buffer) -> Option<WorkloadUsage> {
        let (usage, outlook) = (self.usage(buffer)?, Outlook::default());
        Some(WorkloadUsage { workload: self.workload.clone(), working_set: usage, exact: false, other: None, outlook })
    }

    pub(super) fn listed(&self, buffer: &mut Buffer) -> Option<Listed> {
        Some(Listed { id: self.workload.id, usage: self.usage(buffer)?, absent: self.absent })
    }

    fn usage(&self, buffer: &mut Buffer) -> Option<Bytes> {
        bytes_in(&self.usage, buffer)
    }

    /// Reads how many file pages this cgroup has read back soon after their reclaim, since it was made. v2 has the counter since Linux
    /// 5.9 by this name, before that by the second; v1 counts all refaults.
    pub(super) fn refaulted_file(&self, version: CgroupVersion, buffer: &mut Buffer) -> Option<u64> {
        let keys = match version {
            CgroupVersion::V1 => ["total_workingset_refault_file", "total_workingset_refault"],
            CgroupVersion::V2 => ["workingset_activate_file", "workingset_activate"],
        };
        let stat = self.stat.read_whole(buffer).ok()?;
        keys.iter().find_map(|key| keyed_value(stat, key))
    }

    pub(super) fn measure(&self, version: CgroupVersion, buffer: &mut Buffer) -> Option<WorkloadUsage> {
        let key = match version {
            CgroupVersion::V1 => "total_inactive_file",
            CgroupVersion::V2 => "inactive_file",
        };
        let usage = self.upper_bound(buffer)?;
        let stat = self.stat.read(buffer).ok()?;
        let inactive_file = keyed_value(stat, key)?;
        Some(WorkloadUsage {
            working_set: usage.working_set.saturating_sub(Bytes(inactive_file)),
            exact: true,
            outlook: Outlook { gain: Some(gain_of(usage.working_set, stat, version)), ..Outlook::default() },
            ..usage
        })
    }

    /// Returns how old the workload's memory is, in seconds: the time since a child of the cgroup was made or removed. A pod gets its cgroup's
    /// children when it starts. The clock may have been set meanwhile, but the workload is no older than the last scan that did not find it.
    pub fn age_in_seconds(&self) -> Option<u64> {
        let by_clock = || {
            let stat = rustix::fs::fstat(&self.directory).ok()?;
            let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).ok()?);
            SystemTime::now().duration_since(changed).ok()
        };
        let at_most = self.absent.map(|absent| Monotonic::now().since(absent));
        by_clock().into_iter().chain(at_most).min().map(|age| age.as_secs())
    }

    /// Opens the files from which the gain is read again after the kill, also once the workload is in no list any more.
    pub fn gain_files(&self, version: CgroupVersion) -> Option<GainFiles> {
        let open = |name| PinnedFile::open_at(&self.directory, Path::new(&self.workload.name), name).ok();
        let usage = match version {
            CgroupVersion::V1 => "memory.usage_in_bytes",
            CgroupVersion::V2 => "memory.current",
        };
        Some(GainFiles { usage: open(usage)?, stat: open("memory.stat")?, version })
    }
}

/// A workload as the list has it.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    pub id: CgroupId,
    /// `memory.current`.
    pub usage: Bytes,
    /// When it was not there yet; `None` if that is not known.
    pub absent: Option<Monotonic>,
}

/// The open files of a workload from which its gain is read.
#[derive(Debug)]
pub struct GainFiles {
    usage: PinnedFile,
    stat: PinnedFile,
    version: CgroupVersion,
}

impl GainFiles {
    /// Reads what the end of the workload would give back. Fails once the cgroup is removed.
    pub fn read(&self, buffer: &mut Buffer) -> Option<Bytes> {
        let usage = bytes_in(&self.usage, buffer)?;
        Some(gain_of(usage, self.stat.read(buffer).ok()?, self.version))
    }
}

fn bytes_in(file: &PinnedFile, buffer: &mut Buffer) -> Option<Bytes> {
    Some(Bytes(file.read(buffer).ok()?.trim().parse().ok()?))
}

/// Returns what the end of a workload with this usage gives back: anonymous, shared and kernel memory. File pages and reclaimable slab count
/// as available already. `file` and `cache` include shared memory and tmpfs. File pages that a process has locked (`mlock`) are available
/// only after its end: they are on the list of unevictable pages, and not on those of file pages.
fn gain_of(usage: Bytes, stat: &str, version: CgroupVersion) -> Bytes {
    let bytes = |key| keyed_value(stat, key).map(Bytes);
    let [file, shared, slab, unevictable] = match version {
        CgroupVersion::V1 => ["total_cache", "total_shmem", "slab_reclaimable", "total_unevictable"],
        CgroupVersion::V2 => ["file", "shmem", "slab_reclaimable", "unevictable"],
    }
    .map(|key| bytes(key).unwrap_or(Bytes::ZERO));
    let [inactive, active] = match version {
        CgroupVersion::V1 => ["total_inactive_file", "total_active_file"],
        CgroupVersion::V2 => ["inactive_file", "active_file"],
    }
    .map(bytes);
    let file = file.saturating_sub(shared);
    // Locked anonymous and shared memory is unevictable as well.
    let locked = inactive.zip(active).map_or(Bytes::ZERO, |(inactive, active)| {
        file.saturating_sub(inactive.saturating_add(active)).min(unevictable)
    });
    usage.saturating_sub(file.saturating_sub(locked)).saturating_sub(slab)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(gain_of(Bytes(1_000), stat, version), Bytes(expected), "{stat}");
        }
    }
}
