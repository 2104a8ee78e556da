//! The cgroup tree as a list of workloads, each held by open files, and the owner of every cgroup in it.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::config::kubernetes_options::PodProtection;
use crate::config::{NamePattern, Quirks};
use crate::node::pinned_file::{Buffer, FileError, PinnedFile, keyed_value};
use crate::node::{CgroupVersion, Hierarchy};
use crate::units::Monotonic;
use crate::units::{Bytes, CgroupId, Pid, Resource};

use super::walk::{Owned, Walk, open_root};
use super::{Pod, PodSpecs, Preference, Protection, Workload, WorkloadUsage, membership, oom_kills};

/// A workload and the open files that read it.
#[derive(Debug)]
pub struct Tracked {
    pub(super) workload: Workload,
    directory: OwnedFd,
    usage: PinnedFile,
    stat: PinnedFile,
    /// `cgroup.kill`, open before it is needed; v1 has none, nor have kernels before 5.14.
    kill: Option<OwnedFd>,
    /// When the workload's facts were read.
    read: Monotonic,
    /// Why it is no candidate by where it is, before anything else is looked at.
    by_the_walk: Option<Protection>,
    /// Whether it is protected by its name, once that was looked up.
    is_named: Option<bool>,
    /// From which pod its request was taken.
    joined: Option<Arc<Pod>>,
}

impl Tracked {
    /// Opens the files of a workload's cgroup; `path` is for messages.
    pub(super) fn open(
        workload: Workload,
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
            by_the_walk: None,
            is_named: None,
            joined: None,
        })
    }

    /// How long ago its facts were read.
    pub(super) fn age(&self) -> Duration {
        Monotonic::now().since(self.read)
    }

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
        Some(WorkloadUsage { workload: self.workload.clone(), working_set, exact: true, other: None })
    }
}

/// The workloads of this machine, as of the last scan.
#[derive(Debug)]
pub struct WorkloadTree {
    hierarchy: Hierarchy,
    proc_root: PathBuf,
    protected: Vec<NamePattern>,
    pods: Pods,
    /// The agent's process, as procfs names it.
    agent: Option<String>,
    tracked: Vec<Tracked>,
    owners: HashMap<CgroupId, Owner>,
    /// OOM kills of each workload when they were last looked at. Not beside its open files: these are opened anew from time to time.
    oom_kills: HashMap<CgroupId, u64>,
    buffer: Buffer,
}

/// What is known of pods beside their cgroups, and which of them are protected by that.
#[derive(Debug)]
struct Pods {
    specs: Arc<PodSpecs>,
    rules: PodProtection,
    quirks: Quirks,
}

impl Default for Pods {
    fn default() -> Self {
        Self { specs: Arc::default(), rules: PodProtection::default(), quirks: Quirks::NONE }
    }
}

/// To which workload a cgroup belongs; kept for some time after it is gone, for events that come late.
#[derive(Debug, Clone)]
struct Owner {
    workload: Arc<str>,
    /// The cgroup itself, which is the workload or part of it.
    path: Arc<str>,
    seen: Monotonic,
}

/// How long the name of a cgroup that is gone is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What a scan found changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Cgroups not seen for some time; what is kept about them can go.
    pub forgotten: Vec<CgroupId>,
    /// Workloads that the scan before did not find.
    pub appeared: Vec<CgroupId>,
    /// Directories that could not be read, with the reason.
    pub unreadable: Vec<String>,
}

impl WorkloadTree {
    /// An empty tree over `hierarchy`.
    #[must_use]
    pub fn new(hierarchy: Hierarchy, proc_root: PathBuf, protected: Vec<NamePattern>) -> Self {
        let (owners, oom_kills) = (HashMap::new(), HashMap::new());
        let (agent, tracked) = (Some("self".to_owned()), Vec::new());
        let (pods, buffer) = (Pods::default(), Buffer::new());
        Self { hierarchy, proc_root, protected, pods, agent, tracked, owners, oom_kills, buffer }
    }

    /// Who the agent is, for somebody else who looks at the same tree: its cgroup is protected, that of this process is not.
    #[must_use]
    pub fn of_agent(self, agent: Option<Pid>) -> Self {
        Self { agent: agent.map(|Pid(pid)| pid.to_string()), ..self }
    }

    /// Others are protected by name, from the next scan on.
    pub fn set_protected(&mut self, protected: Vec<NamePattern>) {
        self.protected = protected;
        self.tracked.iter_mut().for_each(|tracked| tracked.is_named = None);
    }

    /// Walks the tree. Workloads known already keep their open files.
    ///
    /// # Errors
    /// When the root itself cannot be read.
    pub fn scan(&mut self) -> Result<Changes, FileError> {
        let root = self.hierarchy.memory.clone();
        let directory = open_root(&root)?;
        let known = self.tracked.drain(..).map(|tracked| (tracked.workload.id, tracked)).collect();
        let walk = Walk::over((&directory, root), self.hierarchy.version, known, &mut self.buffer);
        let Walk { found, owned, appeared, unreadable, .. } = walk;
        self.tracked = found;
        for tracked in &mut self.tracked {
            tracked.by_the_walk = tracked.workload.protection;
        }
        self.join();
        self.protect(|_| true);
        Ok(Changes { forgotten: self.remember(owned), appeared, unreadable })
    }

    /// What is known of the pods from now on, and which of them are protected. A pod that is not among them keeps what was known of it
    /// for as long as its cgroup lives: that the API server has forgotten it makes it no other pod.
    pub fn set_pods(&mut self, specs: Arc<PodSpecs>, rules: PodProtection, quirks: Quirks) {
        if self.pods.quirks != quirks {
            // What was requested is computed by other rules.
            self.tracked.iter_mut().for_each(|tracked| tracked.joined = None);
        }
        let are_others = self.pods.rules != rules;
        self.pods = Pods { specs, rules, quirks };
        let changed = self.join();
        self.protect(|id| are_others || changed.contains(&id));
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

    /// The workload that holds the cgroup of this path, or is it.
    #[must_use]
    pub fn workload_around(&self, path: &str) -> Option<CgroupId> {
        let around = self.workloads().filter(|workload| membership::is_within(path, &workload.name));
        around.max_by_key(|workload| workload.name.len()).map(|workload| workload.id)
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

    /// Path of the cgroup `id` below the hierarchy's root, as it was when it was last seen.
    #[must_use]
    pub fn path(&self, id: CgroupId) -> Option<Arc<str>> {
        self.owners.get(&id).map(|owner| Arc::clone(&owner.path))
    }

    /// Takes down what somebody else saw of a cgroup that came and went between two scans, so that what is counted for it has a name.
    pub fn learn(&mut self, id: CgroupId, path: Arc<str>, workload: Arc<str>) {
        self.owners.entry(id).or_insert_with(|| Owner { workload, path, seen: Monotonic::now() });
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
            Some(WorkloadUsage { workload: tracked.workload.clone(), working_set, exact: false, other: None })
        };
        self.tracked.iter().filter_map(at_most).collect()
    }

    /// Reads one workload's memory now; `None` when it is gone.
    pub fn measure(&mut self, id: CgroupId) -> Option<WorkloadUsage> {
        let tracked = self.tracked.iter().find(|tracked| tracked.workload.id == id)?;
        tracked.measure(self.hierarchy.version, &mut self.buffer)
    }

    /// OOM kills of each workload since the last call, by the kernel's own counters; where it is the `first`, what has been counted
    /// so far is not new.
    pub fn new_oom_kills(&mut self, first: bool) -> Vec<(String, u64)> {
        let version = self.hierarchy.version;
        let before = std::mem::take(&mut self.oom_kills);
        let mut new = Vec::new();
        for tracked in &self.tracked {
            let holds_others = tracked.workload.protection == Some(Protection::HoldsOthers);
            let Some(kills) = oom_kills::of(&tracked.directory, version, !holds_others) else { continue };
            self.oom_kills.insert(tracked.workload.id, kills);
            let before = before.get(&tracked.workload.id).copied().unwrap_or(if first { kills } else { 0 });
            if kills > before {
                new.push((tracked.workload.name.clone(), kills - before));
            }
        }
        new
    }

    /// Where memory is accounted.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Puts what is known of the pods to their cgroups. Returns those of which other things are known than before.
    fn join(&mut self) -> HashSet<CgroupId> {
        let Pods { specs, quirks, .. } = &self.pods;
        let mut changed = HashSet::new();
        for Tracked { workload, joined, .. } in &mut self.tracked {
            if let Some(pod) = workload.kind.pod_uid().and_then(|uid| specs.share(uid)) {
                workload.pod = Some(Arc::clone(pod));
            }
            let Some(pod) = &workload.pod else { continue };
            if joined.as_ref().is_none_or(|joined| !Arc::ptr_eq(joined, pod)) {
                workload.request = pod.request(Resource::Memory, *quirks).bytes();
                *joined = Some(Arc::clone(pod));
                changed.insert(workload.id);
            }
        }
        changed
    }

    /// Marks those that are never candidates, among the ones to look at.
    fn protect(&mut self, is_wanted: impl Fn(CgroupId) -> bool) {
        let holder = |pid| membership::of(&self.proc_root, pid, self.hierarchy.version);
        let (init, agent) = (holder("1"), self.agent.as_deref().and_then(holder));
        let holds =
            |name: &str, path: &Option<String>| path.as_deref().is_some_and(|path| membership::is_within(path, name));
        let rules = &self.pods.rules;
        let is_protected = |name: &str| self.protected.iter().any(|pattern| pattern.matches(name));
        for Tracked { workload, by_the_walk, is_named, .. } in
            self.tracked.iter_mut().filter(|it| is_wanted(it.workload.id))
        {
            workload.protection = if holds(&workload.name, &init) {
                Some(Protection::Init)
            } else if holds(&workload.name, &agent) {
                Some(Protection::Agent)
            } else if *is_named.get_or_insert_with(|| is_protected(&workload.name)) {
                Some(Protection::Named)
            } else if workload.preference == Preference::Omit {
                Some(Protection::Omit)
            } else {
                by_the_walk.or_else(|| workload.pod.as_ref()?.protection(rules))
            };
        }
    }

    fn remember(&mut self, owned: Vec<Owned>) -> Vec<CgroupId> {
        let seen = Monotonic::now();
        let owner = |Owned { id, workload, path }| (id, Owner { workload, path, seen });
        self.owners.extend(owned.into_iter().map(owner));
        let mut forgotten = Vec::new();
        self.owners.retain(|id, owner| {
            let keep = seen.since(owner.seen) < REMEMBERED;
            if !keep {
                forgotten.push(*id);
            }
            keep
        });
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{Kind, QosClass};

    #[test]
    fn a_kill_is_new_once_although_the_files_are_opened_anew() {
        let root = tempfile::tempdir().unwrap();
        let counted =
            |kills| std::fs::write(root.path().join("memory.oom_control"), format!("oom_kill {kills}\n")).unwrap();
        for file in ["memory.usage_in_bytes", "memory.stat"] {
            std::fs::write(root.path().join(file), "").unwrap();
        }
        let version = CgroupVersion::V1;
        let memory = root.path().to_owned();
        let mut tree = WorkloadTree::new(
            Hierarchy { version, memory, freezer: None, hybrid: false },
            PathBuf::from("/proc"),
            Vec::new(),
        );
        let open = || {
            let workload = Workload {
                name: "a.service".to_owned(),
                id: CgroupId(7),
                kind: Kind::Service,
                qos: QosClass::BestEffort,
                request: Bytes::ZERO,
                preference: Preference::None,
                protection: None,
                pod: None,
            };
            let directory = std::fs::File::open(root.path()).unwrap().into();
            vec![Tracked::open(workload, &directory, root.path(), version).unwrap()]
        };
        counted(5);
        tree.tracked = open();
        assert_eq!(tree.new_oom_kills(true), [], "what was before is not new");
        counted(7);
        tree.tracked = open();
        assert_eq!(tree.new_oom_kills(false), [("a.service".to_owned(), 2)]);
        tree.tracked = open();
        assert_eq!(tree.new_oom_kills(false), []);
    }
}
