//! The cgroup tree as a list of workloads, each held by open files, and the owner of every cgroup in it.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags};

use crate::config::{Bytes, CgroupId, NamePattern};
use crate::node::file::{Buffer, FileError, PinnedFile, keyed_value, number_or_max};
use crate::node::{CgroupVersion, Hierarchy};

use super::path::{Role, role};
use super::{Kind, Preference, Protection, QosClass, Workload, WorkloadUsage, marks, membership, qos_class};

/// A workload and the open files that read it.
#[derive(Debug)]
pub struct Tracked {
    workload: Workload,
    directory: OwnedFd,
    usage: PinnedFile,
    stat: PinnedFile,
    /// `cgroup.kill`, open before it is needed; v1 has none, nor have kernels before 5.14.
    kill: Option<OwnedFd>,
}

impl Tracked {
    /// The workload.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Its cgroup directory in the memory hierarchy: this very cgroup, whatever happens to its path.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Its `cgroup.kill`, where the kernel has it.
    #[must_use]
    pub fn kill_file(&self) -> Option<BorrowedFd<'_>> {
        self.kill.as_ref().map(AsFd::as_fd)
    }

    fn usage(&self, buffer: &mut Buffer) -> Option<Bytes> {
        self.usage.read(buffer).ok()?.trim().parse().ok().map(Bytes)
    }

    fn measure(&self, version: CgroupVersion, buffer: &mut Buffer) -> Option<WorkloadUsage> {
        let key = match version {
            CgroupVersion::V1 => "total_inactive_file",
            CgroupVersion::V2 => "inactive_file",
        };
        let usage = self.usage(buffer)?;
        let inactive_file = keyed_value(self.stat.read(buffer).ok()?, key)?;
        let working_set = usage.saturating_sub(Bytes(inactive_file));
        Some(WorkloadUsage { workload: self.workload.clone(), working_set, exact: true })
    }
}

/// The workloads of this machine, as of the last scan.
#[derive(Debug)]
pub struct WorkloadTree {
    hierarchy: Hierarchy,
    proc_root: PathBuf,
    protected: Vec<NamePattern>,
    tracked: Vec<Tracked>,
    owners: HashMap<CgroupId, Owner>,
    generation: u64,
    buffer: Buffer,
}

/// To which workload a cgroup belongs; kept for some scans after it is gone, for events that come late.
#[derive(Debug, Clone)]
struct Owner {
    workload: Arc<str>,
    seen: u64,
}

/// Scans after which a cgroup that is gone is forgotten.
const REMEMBERED_SCANS: u64 = 6;

/// What a scan found changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Cgroups not seen for some scans; what is kept about them can go.
    pub forgotten: Vec<CgroupId>,
    /// Directories that could not be read, with the reason.
    pub unreadable: Vec<String>,
}

impl WorkloadTree {
    /// An empty tree over `hierarchy`.
    #[must_use]
    pub fn new(hierarchy: Hierarchy, proc_root: PathBuf, protected: Vec<NamePattern>) -> Self {
        Self {
            hierarchy,
            proc_root,
            protected,
            tracked: Vec::new(),
            owners: HashMap::new(),
            generation: 0,
            buffer: Buffer::new(),
        }
    }

    /// Walks the tree. Workloads known already keep their open files.
    ///
    /// # Errors
    /// When the root itself cannot be read.
    pub fn scan(&mut self) -> Result<Changes, FileError> {
        self.generation += 1;
        let root = self.hierarchy.memory.clone();
        let directory = open_directory(&root, rustix::fs::CWD, &root)?;
        let entries = list(&directory, &root)?;
        let known =
            std::mem::take(&mut self.tracked).into_iter().map(|tracked| (tracked.workload.id, tracked)).collect();
        let mut walk = Walk {
            version: self.hierarchy.version,
            root,
            known,
            found: Vec::new(),
            owned: Vec::new(),
            unreadable: Vec::new(),
            buffer: &mut self.buffer,
        };
        walk.descend(entries, "", None);
        let Walk { found, owned, unreadable, .. } = walk;
        self.tracked = found;
        self.protect();
        Ok(Changes { forgotten: self.remember(owned), unreadable })
    }

    /// The workloads.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.tracked.iter().map(Tracked::workload)
    }

    /// The workload of that identity, with its open files.
    #[must_use]
    pub fn find(&self, id: CgroupId) -> Option<&Tracked> {
        self.tracked.iter().find(|tracked| tracked.workload.id == id)
    }

    /// All of them with their open files.
    #[must_use]
    pub fn tracked(&self) -> &[Tracked] {
        &self.tracked
    }

    /// Name of the workload that the cgroup `id` is, or is part of.
    #[must_use]
    pub fn owner(&self, id: CgroupId) -> Option<Arc<str>> {
        self.owners.get(&id).map(|owner| Arc::clone(&owner.workload))
    }

    /// Reads every workload's memory now. Those that are gone are left out.
    pub fn usages(&mut self) -> Vec<WorkloadUsage> {
        let (version, buffer) = (self.hierarchy.version, &mut self.buffer);
        self.tracked.iter().filter_map(|tracked| tracked.measure(version, buffer)).collect()
    }

    /// Reads every workload's usage now, which bounds its working set. Those that are gone are left out.
    pub fn usages_at_most(&mut self) -> Vec<WorkloadUsage> {
        let buffer = &mut self.buffer;
        let at_most = |tracked: &Tracked| {
            let working_set = tracked.usage(buffer)?;
            Some(WorkloadUsage { workload: tracked.workload.clone(), working_set, exact: false })
        };
        self.tracked.iter().filter_map(at_most).collect()
    }

    /// Reads one workload's memory now; `None` when it is gone.
    pub fn measure(&mut self, id: CgroupId) -> Option<WorkloadUsage> {
        let tracked = self.tracked.iter().find(|tracked| tracked.workload.id == id)?;
        tracked.measure(self.hierarchy.version, &mut self.buffer)
    }

    /// Where memory is accounted.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Marks those that are never candidates, unless the walk has marked them already.
    fn protect(&mut self) {
        let holder = |pid| membership::of(&self.proc_root, pid, self.hierarchy.version);
        let (init, agent) = (holder("1"), holder("self"));
        let holds =
            |name: &str, path: &Option<String>| path.as_deref().is_some_and(|path| membership::is_within(path, name));
        for Tracked { workload, .. } in &mut self.tracked {
            let holds_others = workload.protection.filter(|protection| *protection == Protection::HoldsOthers);
            workload.protection = if holds(&workload.name, &init) {
                Some(Protection::Init)
            } else if holds(&workload.name, &agent) {
                Some(Protection::Agent)
            } else if self.protected.iter().any(|pattern| pattern.matches(&workload.name)) {
                Some(Protection::Named)
            } else if workload.preference == Preference::Omit {
                Some(Protection::Omit)
            } else {
                holds_others
            };
        }
    }

    fn remember(&mut self, owned: Vec<(CgroupId, Arc<str>)>) -> Vec<CgroupId> {
        let seen = self.generation;
        self.owners.extend(owned.into_iter().map(|(id, workload)| (id, Owner { workload, seen })));
        let mut forgotten = Vec::new();
        self.owners.retain(|id, owner| {
            let keep = owner.seen + REMEMBERED_SCANS > seen;
            if !keep {
                forgotten.push(*id);
            }
            keep
        });
        forgotten
    }
}

/// One walk over the tree.
struct Walk<'t> {
    version: CgroupVersion,
    root: PathBuf,
    known: HashMap<CgroupId, Tracked>,
    found: Vec<Tracked>,
    owned: Vec<(CgroupId, Arc<str>)>,
    unreadable: Vec<String>,
    buffer: &'t mut Buffer,
}

impl Walk<'_> {
    /// Visits the directories among `entries`; `within` is the index of the workload they belong to, if any.
    fn descend(&mut self, mut entries: Dir, path: &str, within: Option<usize>) {
        while let Some(entry) = entries.read() {
            let Ok(entry) = entry else { return };
            let name = entry.file_name().to_string_lossy();
            if entry.file_type() != FileType::Directory || name == "." || name == ".." {
                continue;
            }
            let child_path = if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") };
            let Ok(parent) = entries.fd() else { return };
            match open_directory(entry.file_name(), parent, &self.root.join(&child_path)) {
                Ok(child) => self.visit(&child, &child_path, within),
                Err(error) => self.skip(&error),
            }
        }
    }

    fn visit(&mut self, directory: &OwnedFd, path: &str, within: Option<usize>) {
        let Ok(stat) = rustix::fs::fstat(directory) else { return };
        let id = CgroupId(stat.st_ino);
        if self.version == CgroupVersion::V2 && !self.is_populated(directory, path) {
            return;
        }
        let kind = match (role(path), within) {
            // A pod's containers are its parts, not workloads; so is anything without a name of its own inside a workload.
            (_, Some(outer))
                if matches!(
                    self.found.get(outer),
                    Some(Tracked { workload: Workload { kind: Kind::Pod(_), .. }, .. })
                ) =>
            {
                None
            }
            (Role::Group, _) | (Role::Plain, Some(_)) => None,
            (Role::Plain, None) => self.has_processes(directory, path).then_some((Kind::Cgroup, None)),
            (Role::Pod(uid, qos), _) => Some((Kind::Pod(uid), Some(qos))),
            (Role::Service, _) => Some((Kind::Service, None)),
            (Role::Scope, _) => Some((Kind::Scope, None)),
            (Role::Container(container), _) => Some((Kind::Container(container), None)),
        };
        // The v1 tree does not tell in one file whether anything lives below: look.
        let kind = kind.filter(|_| self.version == CgroupVersion::V2 || self.is_inhabited(directory, path));
        let Some((kind, qos)) = kind else {
            if let Some(workload) = within.and_then(|outer| self.found.get(outer)) {
                self.owned.push((id, workload.workload.name.as_str().into()));
            }
            return self.descend_from(directory, path, within);
        };
        let entries = list(directory, &self.root.join(path));
        let is_alive = |directory: &OwnedFd| {
            rustix::fs::accessat(directory, "cgroup.procs", Access::EXISTS, AtFlags::empty()).is_ok()
        };
        match self.track(directory, path, id, stat.st_uid, kind, qos) {
            Ok(tracked) => {
                if let Some(outer) = within.and_then(|outer| self.found.get_mut(outer)) {
                    outer.workload.protection = Some(Protection::HoldsOthers);
                }
                self.owned.push((id, path.into()));
                self.found.push(tracked);
                let index = self.found.len() - 1;
                match entries {
                    Ok(entries) => self.descend(entries, path, Some(index)),
                    Err(error) => self.skip(&error),
                }
            }
            Err(FileError::Open { path, source }) if source.kind() == ErrorKind::NotFound && is_alive(directory) => {
                self.unreadable.push(format!(
                    "{} is missing: enable the memory controller in cgroup.subtree_control above it",
                    path.display()
                ));
            }
            Err(error) => self.skip(&error),
        }
    }

    fn descend_from(&mut self, directory: &OwnedFd, path: &str, within: Option<usize>) {
        match list(directory, &self.root.join(path)) {
            Ok(entries) => self.descend(entries, path, within),
            Err(error) => self.skip(&error),
        }
    }

    fn track(
        &mut self,
        directory: &OwnedFd,
        path: &str,
        id: CgroupId,
        owner_uid: u32,
        kind: Kind,
        qos: Option<QosClass>,
    ) -> Result<Tracked, FileError> {
        let full_path = self.root.join(path);
        let (request, limit) = self.request_and_limit(directory, &full_path)?;
        let qos = qos.unwrap_or_else(|| qos_class(request, limit));
        // Kubernetes sets no memory.min without its MemoryQoS feature; a Guaranteed pod's request is its limit.
        let request = if qos == QosClass::Guaranteed { limit.unwrap_or(request) } else { request };
        let preference = match self.version {
            CgroupVersion::V1 => Preference::None,
            CgroupVersion::V2 => marks::read(directory, owner_uid),
        };
        let workload = Workload { name: path.to_owned(), id, kind, qos, request, preference, protection: None };
        if let Some(known) = self.known.remove(&id) {
            return Ok(Tracked { workload, ..known });
        }
        let usage_name = match self.version {
            CgroupVersion::V1 => "memory.usage_in_bytes",
            CgroupVersion::V2 => "memory.current",
        };
        let usage = PinnedFile::open_at(directory, &full_path, usage_name)?;
        let stat = PinnedFile::open_at(directory, &full_path, "memory.stat")?;
        let directory = directory.try_clone().map_err(|source| FileError::Open { path: full_path, source })?;
        let kill = rustix::fs::openat(&directory, "cgroup.kill", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        Ok(Tracked { workload, directory, usage, stat, kill })
    }

    /// v2: the larger of `memory.min` and `memory.low`, and `memory.max`. v1: the soft limit and the limit.
    fn request_and_limit(&mut self, directory: &OwnedFd, path: &Path) -> Result<(Bytes, Option<Bytes>), FileError> {
        match self.version {
            CgroupVersion::V2 => {
                let min = self.number(directory, path, "memory.min")?;
                let low = self.number(directory, path, "memory.low")?;
                let limit = self.number(directory, path, "memory.max")?;
                // "max" in memory.min or memory.low protects everything.
                let request = min.zip(low).map_or(u64::MAX, |(min, low)| min.max(low));
                Ok((Bytes(request), limit.map(Bytes)))
            }
            CgroupVersion::V1 => {
                // v1 writes "no limit" as the largest page count; anything above 2^62 is none, as for the kubelet.
                let set = |number: Option<u64>| number.filter(|number| *number < 1 << 62);
                let request = set(self.number(directory, path, "memory.soft_limit_in_bytes")?);
                let limit = set(self.number(directory, path, "memory.limit_in_bytes")?);
                Ok((Bytes(request.unwrap_or(0)), limit.map(Bytes)))
            }
        }
    }

    fn number(&mut self, directory: &OwnedFd, path: &Path, name: &str) -> Result<Option<u64>, FileError> {
        let file = PinnedFile::open_at(directory, path, name)?;
        let text = file.read(self.buffer)?;
        number_or_max(text).map_err(|what| file.content(what))
    }

    /// v2: some process lives in this cgroup or below.
    fn is_populated(&mut self, directory: &OwnedFd, path: &str) -> bool {
        let events = PinnedFile::open_at(directory, &self.root.join(path), "cgroup.events");
        let populated = events.and_then(|events| Ok(keyed_value(events.read(self.buffer)?, "populated")));
        matches!(populated, Ok(Some(populated)) if populated != 0)
    }

    /// Some process lives in this very cgroup.
    fn has_processes(&mut self, directory: &OwnedFd, path: &str) -> bool {
        let file = PinnedFile::open_at(directory, &self.root.join(path), "cgroup.procs");
        file.is_ok_and(|file| file.read(self.buffer).is_ok_and(|text| !text.is_empty()))
    }

    /// v1: some process lives in this cgroup or below.
    fn is_inhabited(&mut self, directory: &OwnedFd, path: &str) -> bool {
        if self.has_processes(directory, path) {
            return true;
        }
        let Ok(entries) = Dir::read_from(directory) else { return false };
        entries.flatten().any(|entry| {
            let name = entry.file_name().to_string_lossy();
            if entry.file_type() != FileType::Directory || name == "." || name == ".." {
                return false;
            }
            let child_path = format!("{path}/{name}");
            open_directory(entry.file_name(), directory, &self.root.join(&child_path))
                .is_ok_and(|child| self.is_inhabited(&child, &child_path))
        })
    }

    /// Notes what could not be read. A cgroup removed while it is being read is no news.
    fn skip(&mut self, error: &FileError) {
        let gone = matches!(error, FileError::Open { source, .. } | FileError::Read { source, .. }
            if source.kind() == ErrorKind::NotFound || source.raw_os_error() == Some(libc::ENODEV));
        if !gone {
            self.unreadable.push(error.to_string());
        }
    }
}

/// Lists an open directory; `path` is for messages.
fn list(directory: &OwnedFd, path: &Path) -> Result<Dir, FileError> {
    Dir::read_from(directory).map_err(|errno| FileError::Read { path: path.to_owned(), source: errno.into() })
}

/// Opens the directory `name` below `at`; `path` is for messages.
fn open_directory(name: impl rustix::path::Arg, at: impl AsFd, path: &Path) -> Result<OwnedFd, FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(at, name, flags, Mode::empty())
        .map_err(|errno| FileError::Open { path: path.to_owned(), source: errno.into() })
}
