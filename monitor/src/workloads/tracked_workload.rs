//! A workload, and the open files from which its usage is read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::node::CgroupVersion;
use crate::node::pinned_file::{Buffer, FileError, PinnedFile, keyed_value};
use crate::units::{Bytes, Monotonic};

use super::essential::Essential;
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
    /// The protection by the cgroup tree alone.
    pub(super) tree_protection: Option<Protection>,
    /// The owner of the cgroup's directory. A user that owns it has named the cgroups in it.
    pub(super) owner_uid: u32,
    /// What the node needs the workload for; `None` until its processes are examined.
    pub(super) essential: Option<Option<Essential>>,
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
            tree_protection: None,
            owner_uid: 0,
            essential: None,
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
        let usage = Bytes(self.usage.read(buffer).ok()?.trim().parse().ok()?);
        Some(WorkloadUsage { workload: self.workload.clone(), working_set: usage, exact: false, other: None })
    }

    pub(super) fn measure(&self, version: CgroupVersion, buffer: &mut Buffer) -> Option<WorkloadUsage> {
        let key = match version {
            CgroupVersion::V1 => "total_inactive_file",
            CgroupVersion::V2 => "inactive_file",
        };
        let usage = self.upper_bound(buffer)?;
        let inactive_file = keyed_value(self.stat.read(buffer).ok()?, key)?;
        Some(WorkloadUsage {
            working_set: usage.working_set.saturating_sub(Bytes(inactive_file)),
            exact: true,
            ..usage
        })
    }
}
