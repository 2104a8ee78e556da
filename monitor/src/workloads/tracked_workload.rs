//! A workload, and the open files from which its usage is read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};

use crate::node::CgroupVersion;
use crate::node::pinned_file::{Buffer, FileError, PinnedFile, keyed_value};
use crate::node::zram::ZramShare;
use crate::units::{Bytes, CgroupId, Monotonic};

use super::among_own::OwnPlace;
use super::essential::Examined;
use super::gain::{Beside, Counting, Figures, GainFiles, open_swap};
use super::outliving_memory::{Outliving, Places};
use super::outlook::Outlook;
use super::pod::Pod;
use super::protection::Protection;
use super::workload::{Workload, WorkloadUsage};

/// Whether the kubelet has marked a pod as critical to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Yes,
    No,
    /// No container runs, or each has just been started: the runtime writes the mark after the first process is there.
    NotYet,
}

#[derive(Debug)]
pub struct Tracked {
    pub(super) workload: Arc<Workload>,
    pub(super) directory: Arc<OwnedFd>,
    usage: PinnedFile,
    stat: PinnedFile,
    /// The open file `cgroup.kill`; absent on v1 and before Linux 5.14.
    kill: Option<Arc<OwnedFd>>,
    /// The open file `cgroup.events`; absent on v1.
    events: Option<Arc<PinnedFile>>,
    read: Monotonic,
    /// The beginning of the last complete scan that did not find it. The workload appeared since.
    pub(super) absent: Option<Monotonic>,
    /// The protection by the cgroup tree alone.
    pub(super) tree_protection: Option<Protection>,
    /// The owner of the cgroup's directory. A user that owns it has named the cgroups in it.
    pub(super) owner_uid: u32,
    /// What its user says about it, if the cgroup belongs to a user.
    pub(super) own_place: OwnPlace,
    /// Whether the node needs the workload, by its processes; `None` until they are examined.
    pub(super) examined: Option<Examined>,
    /// Whether the workload is protected by its name; `None` until the name is looked up.
    pub(super) is_named: Option<bool>,
    /// Whether the kubelet has marked its containers as critical to the node, once that is known: it does so for all or for none.
    is_node_critical: OnceLock<bool>,
    /// The pod that the request comes from.
    pub(super) joined: Option<Arc<Pod>>,
    /// Where the pod can leave shared memory behind, and what tells how much.
    pub(super) places: Places,
    pub(super) outliving: Option<Arc<Outliving>>,
    /// `memory.swap.current`, opened when all swap is zram; `None` where it does not exist.
    swap: OnceLock<Option<PinnedFile>>,
    /// The compressed swap in bytes at the last exact measurement. It is part of the upper bound, for which no further file is read.
    compressed: AtomicU64,
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
        let kill = rustix::fs::openat(&directory, "cgroup.kill", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        let is_v2 = version == CgroupVersion::V2;
        let events = is_v2.then(|| PinnedFile::open_at(&directory, path, "cgroup.events").ok()).flatten();
        Ok(Self {
            workload,
            directory: Arc::new(directory),
            usage,
            stat,
            kill: kill.ok().map(Arc::new),
            events: events.map(Arc::new),
            read: Monotonic::now(),
            absent: None,
            tree_protection: None,
            owner_uid: 0,
            own_place: OwnPlace::default(),
            examined: None,
            is_named: None,
            is_node_critical: OnceLock::new(),
            joined: None,
            places: Places::default(),
            outliving: None,
            swap: OnceLock::new(),
            compressed: AtomicU64::new(0),
        })
    }

    /// Takes the owner of the cgroup, which may change after its creation.
    pub(super) fn set_owner(&mut self, owner_uid: u32) {
        if self.owner_uid != owner_uid {
            (self.owner_uid, self.is_named) = (owner_uid, None);
        }
    }

    /// Returns whether the kubelet has marked the containers as critical to the node. `look` finds out, as long as that is not known.
    pub fn is_node_critical(&self, look: impl FnOnce() -> Mark) -> bool {
        if let Some(known) = self.is_node_critical.get() {
            return *known;
        }
        let found = look();
        if found != Mark::NotYet {
            let _set = self.is_node_critical.set(found == Mark::Yes);
        }
        found == Mark::Yes
    }

    /// Returns a number that changes with the number of cgroups in this one; `None` if it cannot be read.
    pub fn children(&self) -> Option<libc::nlink_t> {
        rustix::fs::fstat(&self.directory).ok().map(|stat| stat.st_nlink)
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

    /// Returns the open directory for a holder that may outlive the list of workloads.
    pub fn shared_directory(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.directory)
    }

    /// Returns the open `cgroup.kill`, if the kernel has it.
    pub fn kill_file(&self) -> Option<Arc<OwnedFd>> {
        self.kill.clone()
    }

    /// Returns the open `cgroup.events` of cgroup v2.
    pub fn events_file(&self) -> Option<Arc<PinnedFile>> {
        self.events.clone()
    }

    /// Reads the usage, an upper bound of the working set.
    pub(super) fn upper_bound(&self, buffer: &mut Buffer) -> Option<WorkloadUsage> {
        let usage = self.usage(buffer)?;
        let compressed = Bytes(self.compressed.load(Relaxed));
        let gain = (!compressed.is_zero()).then(|| usage.saturating_add(compressed));
        let outlook = Outlook { gain, ..Outlook::default() };
        Some(WorkloadUsage { workload: self.workload.clone(), working_set: usage, exact: false, other: None, outlook })
    }

    pub(super) fn listed(&self, buffer: &mut Buffer) -> Option<Listed> {
        Some(Listed { id: self.workload.id, usage: self.usage(buffer)?, absent: self.absent })
    }

    fn usage(&self, buffer: &mut Buffer) -> Option<Bytes> {
        self.usage.read_number(buffer).map(Bytes)
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

    /// Reads the working set and the gain.
    pub(super) fn measure(&self, counting: Counting, buffer: &mut Buffer) -> Option<WorkloadUsage> {
        let Counting { version, zram, .. } = counting;
        let key = match version {
            CgroupVersion::V1 => "total_inactive_file",
            CgroupVersion::V2 => "inactive_file",
        };
        let usage = self.upper_bound(buffer)?;
        let stat = self.stat.read(buffer).ok()?;
        let inactive_file = keyed_value(stat, key)?;
        let figures = Figures::of(usage.working_set, stat, counting);
        let beside = self.beside(version, zram);
        let compressed = beside.compressed(figures, buffer);
        self.compressed.store(compressed.0, Relaxed);
        let gain = Some(beside.gain(figures, compressed, buffer));
        Some(WorkloadUsage {
            working_set: usage.working_set.saturating_sub(Bytes(inactive_file)),
            exact: true,
            outlook: Outlook { gain, ..Outlook::default() },
            ..usage
        })
    }

    fn beside(&self, version: CgroupVersion, zram: Option<ZramShare>) -> Beside<'_> {
        let open = || open_swap(&self.directory, Path::new(&self.workload.name), version);
        let swap = zram.and_then(|_| self.swap.get_or_init(open).as_ref());
        Beside { zram, swap, outliving: self.outliving.as_deref() }
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
    pub fn gain_files(&self, counting: Counting) -> Option<GainFiles> {
        let Counting { version, zram, .. } = counting;
        let path = Path::new(&self.workload.name);
        let open = |name| PinnedFile::open_at(&self.directory, path, name).ok();
        let usage = match version {
            CgroupVersion::V1 => "memory.usage_in_bytes",
            CgroupVersion::V2 => "memory.current",
        };
        Some(GainFiles {
            usage: open(usage)?,
            stat: open("memory.stat")?,
            counting,
            swap: zram.and_then(|_| open_swap(&self.directory, path, version)),
            outliving: self.outliving.clone(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::fixtures;

    /// For the upper bound no further file is read.
    #[test]
    fn the_upper_bound_has_the_compressed_swap_of_the_last_measurement() {
        let root = tempfile::tempdir().unwrap();
        fixtures::populate(root.path(), "");
        std::fs::write(root.path().join("memory.swap.current"), "8000\n").unwrap();
        let directory = std::fs::File::open(root.path()).unwrap().into();
        let (version, mut buffer) = (CgroupVersion::V2, Buffer::new());
        let tracked = Tracked::open(fixtures::workload("a.service").into(), &directory, root.path(), version).unwrap();
        let counting = |zram: Option<u64>| Counting {
            version,
            zram: zram.map(ZramShare::thousandths),
            huge_pages: false,
            withheld: Bytes::ZERO,
        };
        let mut gain = |zram: Option<u64>| {
            let exact = tracked.measure(counting(zram), &mut buffer).unwrap();
            (exact.outlook.gain, tracked.upper_bound(&mut buffer).unwrap().outlook.gain)
        };
        assert_eq!(gain(None), (Some(Bytes(4096)), None));
        assert_eq!(gain(Some(500)), (Some(Bytes(8096)), Some(Bytes(8096))));
        assert_eq!(gain(None), (Some(Bytes(4096)), None));
    }
}
