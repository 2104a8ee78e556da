//! Walks over the cgroup tree. Finds the workloads, and the cgroups that are part of them.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, AtFlags};

use crate::node::CgroupVersion;
use crate::node::pinned_file::{Buffer, FileError, PinnedFile, is_gone, keyed_value};
use crate::units::{Bytes, CgroupId, Monotonic, kernel_text};

use super::candidacy::is_kubepods;
use super::cgroup_path::QosClass;
use super::cgroup_processes::{self, DEPTH_LIMIT, MOST_IN_ALL, MOST_IN_WORKLOAD, has_processes, is_inhabited, names};
use super::enclosing_workload::{Enclosing, kind, protection, trusted_role};
use super::managers::{self, Managers};
use super::memory_limits;
use super::oomd_marks::Marks;
use super::protection::Protection;
use super::tracked_workload::Tracked;
use super::workload::{Kind, Workload, qos_class};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Everything,
    /// Not the cgroups inside pods and containers, which are no workloads. A decision needs no more.
    Workloads,
}

/// A cgroup whose contents are visited after root's cgroups outside workloads: the outermost workload, a pod, or the outermost cgroup that
/// is not the root user's. Its owner may make any number of cgroups in it, so each region has a share of the scan.
struct Region {
    directory: OwnedFd,
    children: Vec<CString>,
    path: String,
    enclosing: Option<Enclosing>,
    precedence: Precedence,
    /// A smaller share than [`MOST_IN_WORKLOAD`] was not enough.
    is_repeated: bool,
}

/// The order in which regions are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    /// A workload of root's that may contain other workloads.
    MayHoldWorkloads,
    /// A pod or a container. Its contents are no workloads.
    Whole,
    OfUser,
}

/// The number of cgroups that may still be visited in the present region.
struct Allowance {
    left: usize,
    is_cut: bool,
}

/// The lengths of a walk's lists before a region.
struct Mark {
    found: usize,
    ended: usize,
    unreadable: usize,
    regions: usize,
}

/// The part of [`MOST_IN_ALL`] that is kept for regions.
const KEPT_FOR_REGIONS: usize = MOST_IN_ALL / 4;
/// A workload's request, limit and marks are read again when they are older than this.
const MAX_FACTS_AGE: Duration = Duration::from_secs(60);
const ROOT: &str = "/";
/// Part of the names of the kubelet's cgroups.
const KUBE: &[u8] = b"kube";

pub(super) struct Owned {
    pub(super) id: CgroupId,
    pub(super) workload: Arc<str>,
    pub(super) path: Arc<str>,
}

/// The result of the scan before.
pub(super) struct Before {
    pub(super) known: HashMap<CgroupId, Tracked>,
    /// When it began; `None` if it did not see the whole tree.
    pub(super) began: Option<Monotonic>,
}

pub(super) struct Walk<'t> {
    version: CgroupVersion,
    root: PathBuf,
    before: Before,
    pub(super) found: Vec<Tracked>,
    pub(super) owned: Vec<Owned>,
    pub(super) appeared: Vec<CgroupId>,
    /// Pods without processes: the kubelet removes the cgroup of a pod after its volumes.
    pub(super) ended: Vec<Tracked>,
    pub(super) unreadable: Vec<String>,
    /// The cgroups whose contents were not visited completely, with the limits.
    pub(super) cut: Vec<String>,
    extent: Extent,
    left: usize,
    allowance: Allowance,
    is_in_region: bool,
    /// The regions that are not yet visited.
    regions: Vec<Region>,
    /// The names of the cgroups that are known workloads or contain some, by the path of the cgroup above.
    known_children: HashMap<String, HashSet<CString>>,
    /// The kubepods tree was found.
    pub(super) has_kubepods: bool,
    pub(super) managers: Managers,
    buffer: &'t mut Buffer,
}

impl<'t> Walk<'t> {
    /// Walks everything below `root`, an open directory and its path. The workloads that are known from `before` keep their open files.
    pub(super) fn over(
        (directory, root): (&OwnedFd, PathBuf),
        version: CgroupVersion,
        before: Before,
        extent: Extent,
        buffer: &'t mut Buffer,
    ) -> Self {
        let (found, mut owned, appeared) = (Vec::new(), Vec::new(), Vec::new());
        let (ended, unreadable, cut) = (Vec::new(), Vec::new(), Vec::new());
        // Processes outside every workload are in the root cgroup: kernel threads, and processes that were never moved.
        if let Ok(stat) = rustix::fs::fstat(directory) {
            owned.push(Owned { id: CgroupId(stat.st_ino), workload: ROOT.into(), path: ROOT.into() });
        }
        let (left, has_kubepods) = (MOST_IN_ALL, false);
        let allowance = Allowance { left: MOST_IN_ALL - KEPT_FOR_REGIONS, is_cut: false };
        let known_children = by_parent(before.known.values().map(|tracked| tracked.workload.name.as_str()));
        let mut walk = Self {
            version,
            root,
            before,
            found,
            owned,
            appeared,
            ended,
            unreadable,
            has_kubepods,
            managers: Managers::default(),
            cut,
            extent,
            left,
            allowance,
            is_in_region: false,
            regions: Vec::new(),
            known_children,
            buffer,
        };
        let children = walk.names(directory, "");
        walk.descend(directory, &children, "", None);
        if walk.allowance.is_cut {
            let most = MOST_IN_ALL - KEPT_FOR_REGIONS;
            walk.cut.push(format!("root has more than {most} cgroups outside workloads: the rest is not known"));
        }
        walk.is_in_region = true;
        walk.visit_regions();
        walk
    }

    /// Visits the `children` of a directory; `within` is the workload that contains them, if any.
    fn descend(&mut self, directory: &OwnedFd, children: &[CString], path: &str, within: Option<&Enclosing>) {
        for name in children {
            if !self.may_visit() {
                return;
            }
            let child_path = joined(path, &kernel_text::name(name.to_bytes()));
            match open_directory(directory, name, &self.root.join(&child_path)) {
                Ok(child) => self.visit(child, &child_path, within),
                Err(error) => self.record(&error),
            }
        }
    }

    /// Counts one cgroup. Returns false at a limit.
    fn may_visit(&mut self) -> bool {
        let left = self.allowance.left.checked_sub(1);
        self.allowance = Allowance { left: left.unwrap_or(0), is_cut: self.allowance.is_cut || left.is_none() };
        self.left = self.left.saturating_sub(usize::from(left.is_some()));
        left.is_some()
    }

    /// Visits the contents of all regions. Each may use an equal share of what is left, and what it does not use is left to the others.
    fn visit_regions(&mut self) {
        while !self.regions.is_empty() {
            let mut regions = std::mem::take(&mut self.regions);
            regions.sort_by_key(|region| region.precedence);
            let waiting = (1..=regions.len()).rev();
            for (waiting, region) in waiting.zip(regions) {
                let share = self.left / (waiting + self.regions.len());
                self.visit_region(region, share.min(MOST_IN_WORKLOAD));
            }
        }
    }

    /// Visits at most `share` cgroups in a region. One that has more is visited again after the others, which may leave more to it.
    fn visit_region(&mut self, region: Region, share: usize) {
        let (found, appeared) = (self.found.len(), self.appeared.len());
        let (ended, unreadable, regions) = (self.ended.len(), self.unreadable.len(), self.regions.len());
        self.allowance = Allowance { left: share, is_cut: false };
        self.descend(&region.directory, &region.children, &region.path, region.enclosing.as_ref());
        if !self.allowance.is_cut {
            return;
        }
        if share == MOST_IN_WORKLOAD || region.is_repeated {
            self.note_cut(&region, share, found, appeared);
            return;
        }
        self.undo(&Mark { found, ended, unreadable, regions });
        self.regions.push(Region { is_repeated: true, ..region });
    }

    /// Takes back what was found since `mark`.
    fn undo(&mut self, mark: &Mark) {
        let found = self.found.drain(mark.found..);
        self.before.known.extend(found.map(|tracked| (tracked.workload.id, tracked)));
        self.ended.truncate(mark.ended);
        self.unreadable.truncate(mark.unreadable);
        self.regions.truncate(mark.regions);
    }

    /// Notes that a region has cgroups beyond the limit, which are unknown. `begin` and `appeared` are the lengths of the lists before it. An
    /// unknown workload could not be evicted, so the enclosing workload is a candidate as a whole, unless it holds pods. The manager of a
    /// user's services is exempt, so the workloads found in it stay candidates of their own.
    fn note_cut(&mut self, Region { path, enclosing, .. }: &Region, share: usize, begin: usize, appeared: usize) {
        let is_pod = |tracked: &Tracked| matches!(tracked.workload.kind, Kind::Pod(_));
        let holds_pods = self.found.get(begin..).is_some_and(|inside| inside.iter().any(is_pod));
        let whole = enclosing.as_ref().filter(|outer| !holds_pods && !outer.is_manager);
        let whole = whole.and_then(|outer| self.found.get_mut(outer.index?));
        let effect = match whole {
            Some(whole) => {
                let protection = protection(&whole.workload.kind);
                Arc::make_mut(&mut whole.workload).protection = protection;
                self.found.truncate(begin);
                self.appeared.truncate(appeared);
                "it counts as one workload"
            }
            None => "the workloads in the rest are not known",
        };
        self.cut.push(format!(
            "{path} has more than {share} cgroups, or nests them more than {DEPTH_LIMIT} deep: {effect}"
        ));
    }

    fn names(&mut self, directory: &OwnedFd, path: &str) -> Vec<CString> {
        let mut names = names(directory).unwrap_or_else(|errno| {
            self.record(&FileError::Read { path: self.root.join(path), source: errno.into() });
            Vec::new()
        });
        let known = self.known_children.get(path);
        if let Some(known) = known.filter(|_| names.len() > MOST_IN_ALL) {
            // The list is cut. A known cgroup that is gone cannot be opened.
            names.retain(|name| !known.contains(name));
            names.extend(known.iter().cloned());
        }
        // A limit cuts off the last: the kubelet's cgroups come first, then those of known workloads, then units, and then cgroups without
        // a name of their own. Inside a region the owner chooses the names.
        let may_be_kubelets = !self.is_in_region;
        names.sort_by_cached_key(|name| {
            let is_kubelets = may_be_kubelets && name.to_bytes().windows(KUBE.len()).any(|part| part == KUBE);
            let is_known = known.is_some_and(|known| known.contains(name));
            (!is_kubelets, !is_known, !name.as_bytes().contains(&b'.'))
        });
        names
    }

    fn visit(&mut self, directory: OwnedFd, path: &str, within: Option<&Enclosing>) {
        if path.matches('/').count() >= DEPTH_LIMIT {
            self.allowance.is_cut |= self.is_in_region;
            return self
                .unreadable
                .push(format!("{path} is nested more than {DEPTH_LIMIT} deep: the cgroups below it are ignored"));
        }
        let Ok(stat) = rustix::fs::fstat(&directory) else { return };
        let id = CgroupId(stat.st_ino);
        // A user could make a cgroup of that name below a cgroup of that user, or in a container.
        let is_trusted = stat.st_uid == 0 && !within.is_some_and(|outer| outer.is_whole);
        self.has_kubepods |= is_trusted && is_kubepods(path);
        let kind = kind(trusted_role(path, stat.st_uid), within);
        // Only root's cgroups are pods: the owner of a region cannot make more regions in it.
        let is_pod = matches!(kind, Some((Kind::Pod(_), _)));
        // A cgroup without processes is not a workload, but its counters keep its name.
        let own: Arc<str> = path.into();
        let name = match (&kind, within) {
            (None, Some(outer)) => Arc::clone(&outer.name),
            _ => Arc::clone(&own),
        };
        self.owned.push(Owned { id, workload: Arc::clone(&name), path: own });
        let mut enclosing = match (&kind, within) {
            (Some((Kind::Cgroup, _)), _) => None,
            (Some((kind, _)), _) => Some(Enclosing::of(kind, name, stat.st_uid, &self.managers, None)),
            (None, within) => within.cloned(),
        };
        let is_leaf = self.extent == Extent::Workloads && enclosing.as_ref().is_some_and(|own| own.is_whole);
        // On v1 the names are needed to find the processes.
        let children =
            if is_leaf && self.version == CgroupVersion::V2 { Vec::new() } else { self.names(&directory, path) };
        let has_processes = kind.as_ref().is_some_and(|(kind, _)| self.is_workload(kind, &directory, &children, path));
        if !has_processes && let Some((kind @ Kind::Pod(_), qos)) = &kind {
            self.note_ended(&directory, path, (id, stat.st_uid), (kind.clone(), *qos));
        }
        if let Some((kind, qos)) = kind.filter(|_| has_processes) {
            let tracked_as = Enclosing::of(&kind, path.into(), stat.st_uid, &self.managers, Some(self.found.len()));
            match self.track(&directory, path, id, stat.st_uid, kind, qos) {
                Ok(tracked) => {
                    if let Some(outer) = within.and_then(|outer| self.found.get_mut(outer.index?)) {
                        Arc::make_mut(&mut outer.workload).protection = Some(Protection::HoldsOthers);
                    }
                    enclosing = Some(tracked_as);
                    self.found.push(tracked);
                }
                Err(FileError::Open { path, source })
                    if source.kind() == ErrorKind::NotFound && is_alive(&directory) =>
                {
                    self.unreadable.push(format!(
                        "{} is missing: enable the memory controller in cgroup.subtree_control above it",
                        path.display()
                    ));
                }
                Err(error) => self.record(&error),
            }
        }
        if is_leaf || children.is_empty() {
            return;
        }
        let may_manage = stat.st_uid == 0 && !enclosing.as_ref().is_some_and(|own| own.is_whole);
        if may_manage && children.iter().any(|name| name.to_bytes() == managers::OWN_CGROUP.as_bytes()) {
            self.managers.note(path);
        }
        let is_outermost = !self.is_in_region && (enclosing.is_some() || stat.st_uid != 0);
        if !is_outermost && !is_pod {
            return self.descend(&directory, &children, path, enclosing.as_ref());
        }
        let is_whole = enclosing.as_ref().is_some_and(|own| own.is_whole);
        let precedence = match (stat.st_uid, is_whole) {
            (0, false) => Precedence::MayHoldWorkloads,
            (0, true) => Precedence::Whole,
            _ => Precedence::OfUser,
        };
        let path = path.to_owned();
        self.regions.push(Region { directory, children, path, enclosing, precedence, is_repeated: false });
    }

    /// Returns whether the cgroup contains the processes that make it a workload. They may be in it or below it. For a cgroup
    /// without a name of its own they must be in it.
    fn is_workload(&mut self, kind: &Kind, directory: &OwnedFd, children: &[CString], path: &str) -> bool {
        match (kind, self.version) {
            (Kind::Cgroup, _) => has_processes(directory.as_fd()),
            (_, CgroupVersion::V1) => is_inhabited(directory.as_fd(), children),
            (_, CgroupVersion::V2) => self.is_populated(directory, path),
        }
    }

    /// Notes a pod without processes. Its cgroup may be removed meanwhile.
    fn note_ended(
        &mut self,
        directory: &OwnedFd,
        path: &str,
        (id, owner_uid): (CgroupId, u32),
        (kind, qos): (Kind, Option<QosClass>),
    ) {
        let appeared = self.appeared.len();
        if let Ok(tracked) = self.track(directory, path, id, owner_uid, kind, qos) {
            self.ended.push(tracked);
        }
        self.appeared.truncate(appeared);
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
        let known = self.before.known.remove(&id);
        if known.is_none() {
            self.appeared.push(id);
        }
        let (pod, examined, absent) = match known {
            Some(mut known) if known.age() < MAX_FACTS_AGE => {
                known.set_owner(owner_uid);
                // The set of nested workloads may have changed.
                let protection = protection(&known.workload.kind);
                if protection != known.workload.protection {
                    Arc::make_mut(&mut known.workload).protection = protection;
                }
                return Ok(known);
            }
            Some(known) => (known.workload.pod.clone(), known.examined, known.absent),
            None => (None, None, self.before.began),
        };
        let full_path = self.root.join(path);
        let (request, limit) = memory_limits::read(self.version, (directory, &full_path), self.buffer)?;
        // The user of a delegated cgroup can set memory.min and memory.low, so these guarantee nothing.
        let request = if owner_uid == 0 { request } else { Bytes(0) };
        let qos = qos.unwrap_or_else(|| qos_class(request, limit));
        // Kubernetes does not set memory.min without its MemoryQoS feature, so the limit of a Guaranteed pod is taken as its request.
        let request = if qos == QosClass::Guaranteed { limit.unwrap_or(request) } else { request };
        let marks = match self.version {
            CgroupVersion::V1 => Marks::default(),
            CgroupVersion::V2 => Marks::read(directory),
        };
        let preference = marks.preference(owner_uid);
        let protection = protection(&kind);
        let name = path.to_owned();
        let (only_as_leaker, is_unlisted) = (false, false);
        let workload = Arc::new(Workload {
            name,
            id,
            kind,
            qos,
            request,
            preference,
            among_own: None,
            protection,
            only_as_leaker,
            is_unlisted,
            pod,
        });
        let mut tracked = Tracked::open(workload, directory, &full_path, self.version)?;
        (tracked.owner_uid, tracked.examined, tracked.absent) = (owner_uid, examined, absent);
        tracked.own_place = marks.own_place(owner_uid);
        Ok(tracked)
    }

    /// Returns whether a process is in this cgroup or below it, on v2.
    fn is_populated(&mut self, directory: &OwnedFd, path: &str) -> bool {
        let events = PinnedFile::open_at(directory, &self.root.join(path), "cgroup.events");
        match events.and_then(|events| Ok(keyed_value(events.read(self.buffer)?, "populated"))) {
            Ok(populated) => populated.is_some_and(|populated| populated != 0),
            Err(error) => {
                self.record(&error);
                false
            }
        }
    }

    /// Records an error of reading. The error of a cgroup that is removed meanwhile is not recorded.
    fn record(&mut self, error: &FileError) {
        let gone = matches!(error, FileError::Open { source, .. } | FileError::Read { source, .. } if is_gone(source));
        if !gone {
            self.unreadable.push(error.to_string());
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// Returns the names of these cgroups and of the cgroups above them, by the path of the next one above.
fn by_parent<'p>(paths: impl Iterator<Item = &'p str>) -> HashMap<String, HashSet<CString>> {
    let mut children: HashMap<String, HashSet<CString>> = HashMap::new();
    for mut path in paths {
        while !path.is_empty() {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let Ok(name) = CString::new(kernel_text::path(name).into_os_string().into_vec()) else { break };
            if !children.entry(parent.to_owned()).or_default().insert(name) {
                break;
            }
            path = parent;
        }
    }
    children
}

fn is_alive(directory: &OwnedFd) -> bool {
    rustix::fs::accessat(directory, "cgroup.procs", Access::EXISTS, AtFlags::empty()).is_ok()
}

pub(super) fn open_root(root: &Path) -> Result<OwnedFd, FileError> {
    open_directory(rustix::fs::CWD, root, root)
}

/// Opens the directory `name` in another directory; `path` is for messages.
fn open_directory(at: impl AsFd, name: impl rustix::path::Arg, path: &Path) -> Result<OwnedFd, FileError> {
    cgroup_processes::open(at, name).map_err(|errno| FileError::Open { path: path.to_owned(), source: errno.into() })
}

#[cfg(test)]
#[path = "cgroup_walk_tests.rs"]
pub(super) mod tests;
