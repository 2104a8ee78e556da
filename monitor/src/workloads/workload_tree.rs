//! The cgroup tree as a list of workloads, and the workload of every cgroup in it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::kubernetes_options::PodProtection;
use crate::config::{NamePattern, Quirks};
use crate::node::Hierarchy;
use crate::node::pinned_file::{Buffer, FileError};
use crate::units::{CgroupId, Monotonic, Pid, Resource};

use super::cgroup_walk::{Extent, Owned, Walk, open_root};
use super::oomd_marks::Preference;
use super::pod_specs::PodSpecs;
use super::protection::Protection;
use super::tracked_workload::Tracked;
use super::workload::{Workload, WorkloadUsage};
use super::{membership, oom_kill_counter};

/// The workloads of this machine in the last scan.
#[derive(Debug)]
pub struct WorkloadTree {
    hierarchy: Hierarchy,
    proc_root: PathBuf,
    protected: Vec<NamePattern>,
    pods: Pods,
    /// The name of the agent's process in procfs.
    agent: Option<String>,
    tracked: Vec<Tracked>,
    owners: HashMap<CgroupId, Owner>,
    /// The OOM kills of each workload at the last call. They are not in [`Tracked`], which is replaced from time to time.
    oom_kills: HashMap<CgroupId, u64>,
    buffer: Buffer,
}

/// The known pods, and the rules that protect some of them.
#[derive(Debug)]
struct Pods {
    specs: Arc<PodSpecs>,
    rules: PodProtection,
    quirks: Quirks,
}

/// The workload of a cgroup. It is kept for some time after the removal of the cgroup, for late events.
#[derive(Debug, Clone)]
struct Owner {
    workload: Arc<str>,
    path: Arc<str>,
    seen: Monotonic,
}

/// How long the owner of a removed cgroup is kept.
const OWNER_RETENTION: Duration = Duration::from_secs(60);

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Cgroups that no scan has seen for [`OWNER_RETENTION`]. Their counters can be dropped.
    pub forgotten: Vec<CgroupId>,
    /// Workloads that the previous scan did not find.
    pub appeared: Vec<CgroupId>,
    /// Directories that could not be read, with the reasons.
    pub unreadable: Vec<String>,
    /// Cgroups whose contents are known only in part, because there are too many, with the effect.
    pub cut: Vec<String>,
}

impl WorkloadTree {
    pub fn new(hierarchy: Hierarchy, proc_root: PathBuf, protected: Vec<NamePattern>) -> Self {
        let (owners, oom_kills) = (HashMap::new(), HashMap::new());
        let (agent, tracked) = (Some("self".to_owned()), Vec::new());
        let pods = Pods { specs: Arc::default(), rules: PodProtection::default(), quirks: Quirks::NONE };
        Self { hierarchy, proc_root, protected, pods, agent, tracked, owners, oom_kills, buffer: Buffer::new() }
    }

    /// Protects the cgroup of this agent process instead of the calling process.
    #[must_use]
    pub fn with_agent(self, agent: Option<Pid>) -> Self {
        Self { agent: agent.map(|Pid(pid)| pid.to_string()), ..self }
    }

    /// Replaces the protected names. The next scan applies them.
    pub fn set_protected(&mut self, protected: Vec<NamePattern>) {
        self.protected = protected;
        self.tracked.iter_mut().for_each(|tracked| tracked.is_named = None);
    }

    /// Walks the tree. Known workloads keep their open files. Fails if the root itself cannot be read.
    pub fn scan(&mut self) -> Result<Changes, FileError> {
        self.walk(Extent::Everything)
    }

    /// As [`Self::scan`], but does not enter pods and containers. Nothing is forgotten.
    pub fn scan_workloads(&mut self) -> Result<Changes, FileError> {
        self.walk(Extent::Workloads)
    }

    fn walk(&mut self, extent: Extent) -> Result<Changes, FileError> {
        let root = self.hierarchy.memory.clone();
        let directory = open_root(&root)?;
        let known = self.tracked.drain(..).map(|tracked| (tracked.workload.id, tracked)).collect();
        let walk = Walk::over((&directory, root), self.hierarchy.version, known, extent, &mut self.buffer);
        let Walk { found, owned, appeared, unreadable, cut, .. } = walk;
        self.tracked = found;
        for tracked in &mut self.tracked {
            tracked.tree_protection = tracked.workload.protection;
        }
        self.join();
        self.protect(|_| true);
        let forgotten = self.update_owners(owned, extent);
        Ok(Changes { forgotten, appeared, unreadable, cut })
    }

    /// Replaces the known pods and the rules that protect them. A workload whose pod is missing keeps its last known pod: the
    /// object of a deleted pod still describes the running cgroup.
    pub fn set_pods(&mut self, specs: Arc<PodSpecs>, rules: PodProtection, quirks: Quirks) {
        if self.pods.quirks != quirks {
            // The quirks affect how the request is computed.
            self.tracked.iter_mut().for_each(|tracked| tracked.joined = None);
        }
        let rules_changed = self.pods.rules != rules;
        self.pods = Pods { specs, rules, quirks };
        let changed = self.join();
        self.protect(|id| rules_changed || changed.contains(&id));
    }

    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.tracked.iter().map(Tracked::workload)
    }

    pub fn find(&self, id: CgroupId) -> Option<&Tracked> {
        self.tracked.iter().find(|tracked| tracked.workload.id == id)
    }

    /// Returns the innermost workload that contains the cgroup at `path`, or is it.
    pub fn enclosing_workload(&self, path: &str) -> Option<CgroupId> {
        let around = self.workloads().filter(|workload| membership::is_within(path, &workload.name));
        around.max_by_key(|workload| workload.name.len()).map(|workload| workload.id)
    }

    pub fn tracked(&self) -> &[Tracked] {
        &self.tracked
    }

    /// Returns the name of the workload that the cgroup `id` is, or is part of.
    pub fn owner(&self, id: CgroupId) -> Option<Arc<str>> {
        self.owners.get(&id).map(|owner| Arc::clone(&owner.workload))
    }

    /// Returns the last known path of the cgroup `id` below the hierarchy's root.
    pub fn path(&self, id: CgroupId) -> Option<Arc<str>> {
        self.owners.get(&id).map(|owner| Arc::clone(&owner.path))
    }

    /// Records the owner of a cgroup that existed only between two scans, so that its counters can be attributed.
    pub fn add_owner(&mut self, id: CgroupId, path: Arc<str>, workload: Arc<str>) {
        self.owners.entry(id).or_insert_with(|| Owner { workload, path, seen: Monotonic::now() });
    }

    /// Reads the working set of every workload. Removed workloads are omitted.
    pub fn usages(&mut self) -> Vec<WorkloadUsage> {
        let (version, buffer) = (self.hierarchy.version, &mut self.buffer);
        self.tracked.iter().filter_map(|tracked| tracked.measure(version, buffer)).collect()
    }

    /// Reads the usage of every workload, an upper bound of its working set. Removed workloads are omitted.
    pub fn usage_upper_bounds(&mut self) -> Vec<WorkloadUsage> {
        self.tracked.iter().filter_map(|tracked| tracked.upper_bound(&mut self.buffer)).collect()
    }

    /// Reads the working set of one workload; `None` when it has been removed.
    pub fn measure(&mut self, id: CgroupId) -> Option<WorkloadUsage> {
        let tracked = self.tracked.iter().find(|tracked| tracked.workload.id == id)?;
        tracked.measure(self.hierarchy.version, &mut self.buffer)
    }

    /// Returns the OOM kills of each workload since the last call, by the kernel's counters. On the `first` call the counters so far are
    /// the baseline.
    pub fn new_oom_kills(&mut self, first: bool) -> Vec<(String, u64)> {
        let version = self.hierarchy.version;
        let before = std::mem::take(&mut self.oom_kills);
        let mut new = Vec::new();
        for tracked in &self.tracked {
            let holds_others = tracked.workload.protection == Some(Protection::HoldsOthers);
            let Some(kills) = oom_kill_counter::of(&tracked.directory, version, !holds_others) else { continue };
            self.oom_kills.insert(tracked.workload.id, kills);
            let before = before.get(&tracked.workload.id).copied().unwrap_or(if first { kills } else { 0 });
            if kills > before {
                new.push((tracked.workload.name.clone(), kills - before));
            }
        }
        new
    }

    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Attaches the known pods to their cgroups. Returns the cgroups whose pod has changed.
    fn join(&mut self) -> HashSet<CgroupId> {
        let Pods { specs, quirks, .. } = &self.pods;
        let mut changed = HashSet::new();
        for Tracked { workload, joined, .. } in &mut self.tracked {
            if let Some(pod) = workload.kind.pod_uid().and_then(|uid| specs.find_shared(uid))
                && workload.pod.as_ref().is_none_or(|known| !Arc::ptr_eq(known, pod))
            {
                Arc::make_mut(workload).pod = Some(Arc::clone(pod));
            }
            let Some(pod) = workload.pod.clone() else { continue };
            if joined.as_ref().is_none_or(|joined| !Arc::ptr_eq(joined, &pod)) {
                Arc::make_mut(workload).request = pod.request(Resource::Memory, *quirks).bytes();
                *joined = Some(pod);
                changed.insert(workload.id);
            }
        }
        changed
    }

    /// Recomputes the protection of the workloads for which `is_wanted` holds.
    fn protect(&mut self, is_wanted: impl Fn(CgroupId) -> bool) {
        let cgroup_of = |pid| membership::of(&self.proc_root, pid, self.hierarchy.version);
        let (init, agent) = (cgroup_of("1"), self.agent.as_deref().and_then(cgroup_of));
        let holds =
            |name: &str, path: &Option<String>| path.as_deref().is_some_and(|path| membership::is_within(path, name));
        let rules = &self.pods.rules;
        let is_protected = |name: &str| self.protected.iter().any(|pattern| pattern.matches(name));
        for Tracked { workload, tree_protection, is_named, .. } in
            self.tracked.iter_mut().filter(|it| is_wanted(it.workload.id))
        {
            let protection = if holds(&workload.name, &init) {
                Some(Protection::Init)
            } else if holds(&workload.name, &agent) {
                Some(Protection::Agent)
            } else if *is_named.get_or_insert_with(|| is_protected(&workload.name)) {
                Some(Protection::Named)
            } else if workload.preference == Preference::Omit {
                Some(Protection::Omit)
            } else {
                tree_protection.or_else(|| workload.pod.as_ref()?.protection(rules))
            };
            if protection != workload.protection {
                Arc::make_mut(workload).protection = protection;
            }
        }
    }

    /// Takes the owners from a scan. Returns the cgroups that are forgotten.
    fn update_owners(&mut self, owned: Vec<Owned>, extent: Extent) -> Vec<CgroupId> {
        let seen = Monotonic::now();
        let owner = |Owned { id, workload, path }| (id, Owner { workload, path, seen });
        self.owners.extend(owned.into_iter().map(owner));
        // A scan of the workloads alone does not see the cgroups in them.
        let is_old =
            |_: &CgroupId, owner: &mut Owner| extent == Extent::Everything && seen.since(owner.seen) >= OWNER_RETENTION;
        self.owners.extract_if(is_old).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::CgroupVersion;
    use crate::units::Bytes;
    use crate::workloads::{Kind, QosClass};

    #[test]
    fn a_kill_is_reported_once_when_files_are_reopened() {
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
            vec![Tracked::open(Arc::new(workload), &directory, root.path(), version).unwrap()]
        };
        counted(5);
        tree.tracked = open();
        assert_eq!(tree.new_oom_kills(true), [], "the first call sets the baseline");
        counted(7);
        tree.tracked = open();
        assert_eq!(tree.new_oom_kills(false), [("a.service".to_owned(), 2)]);
        tree.tracked = open();
        assert_eq!(tree.new_oom_kills(false), []);
    }
}
