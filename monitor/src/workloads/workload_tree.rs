//! The cgroup tree as a list of workloads, and the workload of every cgroup in it.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::kubernetes_options::PodProtection;
use crate::config::{CandidateOptions, NamePattern, Quirk, Quirks, RuntimeEndpoint, patterns};
use crate::node::Hierarchy;
use crate::node::mountinfo::NodeMounts;
use crate::node::pinned_file::{Buffer, FileError};
use crate::node::zram::{Zram, ZramShare};
use crate::units::{Bytes, CgroupId, Monotonic, Pid, Resource, kernel_text};

use super::among_own::{self, AmongOwn, OwnPlace};
use super::candidacy::{Candidacy, is_in_session_slice, is_mount_unit, is_of_sessions, is_outside_pods, is_session_id};
use super::cgroup_path::{self, PodUid};
use super::cgroup_walk::{Before, Extent, Owned, Walk, open_root};
use super::essential::{Essential, Essentials, Examined};
use super::gain::{Counting, GainFiles};
use super::managers::Managers;
use super::oomd_marks::Preference;
use super::outliving_memory::{Outliving, Places};
use super::own_limit::AtLimit;
use super::pattern_reach::{self, Named, PatternReach};
use super::pod_specs::PodSpecs;
use super::protection::Protection;
use super::reach::Reach;
use super::signs::Signs;
use super::tracked_workload::{Listed, Tracked};
use super::workload::{Kind, Workload, WorkloadUsage};
use super::{essential, membership, oom_kill_counter};

/// The workloads of this machine in the last scan.
#[derive(Debug)]
pub struct WorkloadTree {
    hierarchy: Hierarchy,
    proc_root: PathBuf,
    protected: Vec<NamePattern>,
    pods: Pods,
    candidacy: Candidacy,
    essentials: Essentials,
    /// The service managers that the last scan found.
    managers: Managers,
    /// The name of the agent's process in procfs.
    agent: Option<String>,
    tracked: Vec<Tracked>,
    /// The pods without processes whose cgroup still exists.
    ended: Vec<Tracked>,
    /// When the last scan began, if it saw the whole tree.
    last_complete_scan: Option<Monotonic>,
    owners: HashMap<CgroupId, Owner>,
    /// The OOM kills of each workload at the last call. They are not in [`Tracked`], which is replaced from time to time.
    oom_kills: HashMap<CgroupId, u64>,
    zram: Zram,
    /// The memory that swap takes, if all swap is zram, as of the last scan that looked.
    zram_share: (Option<ZramShare>, Option<Monotonic>),
    /// Whether huge pages that a workload is charged with are part of its usage.
    are_huge_pages_usage: bool,
    /// The page cache of workloads that counts as available only once they are gone.
    withheld: HashMap<CgroupId, Bytes>,
    buffer: Buffer,
}

/// The known pods, and the rules that protect some of them.
#[derive(Debug)]
struct Pods {
    specs: Arc<PodSpecs>,
    rules: PodProtection,
    quirks: Quirks,
    /// The API server has not listed the pods yet.
    is_list_awaited: bool,
}

/// The workload of a cgroup. It is kept for some time after the removal of the cgroup, for late events.
#[derive(Debug, Clone)]
struct Owner {
    workload: Arc<str>,
    path: Arc<str>,
    seen: Monotonic,
}

/// The most workloads whose own limit is looked at.
const MOST_AT_LIMIT: usize = 1024;
/// The share of memory that zram takes changes slowly.
const ZRAM_AGE: Duration = Duration::from_secs(1);
/// How long the owner of a removed cgroup is kept.
const OWNER_RETENTION: Duration = Duration::from_secs(60);

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Cgroups that no scan has seen for [`OWNER_RETENTION`]. Their counters can be dropped.
    pub forgotten: Vec<CgroupId>,
    /// Workloads that the previous scan did not find.
    pub appeared: Vec<CgroupId>,
    /// Pods that have no process any more, and had some in the previous scan. In the first scan all without processes.
    pub ended: Vec<CgroupId>,
    /// Directories that could not be read, with the reasons.
    pub unreadable: Vec<String>,
    /// Cgroups whose contents are known only in part, because there are too many, with the effect.
    pub cut: Vec<String>,
}

impl WorkloadTree {
    pub fn new(hierarchy: Hierarchy, proc_root: PathBuf, protected: Vec<NamePattern>) -> Self {
        let (owners, oom_kills) = (HashMap::new(), HashMap::new());
        let (agent, tracked, ended) = (Some("self".to_owned()), Vec::new(), Vec::new());
        let pods = Pods {
            specs: Arc::default(),
            rules: PodProtection::default(),
            quirks: Quirks::NONE,
            is_list_awaited: false,
        };
        let essentials = Essentials::new(&proc_root, None);
        let candidacy = Candidacy::default();
        let zram = Zram::new(&proc_root);
        let buffer = Buffer::new();
        Self {
            hierarchy,
            proc_root,
            protected,
            pods,
            candidacy,
            essentials,
            managers: Managers::default(),
            agent,
            tracked,
            ended,
            last_complete_scan: None,
            owners,
            oom_kills,
            zram,
            zram_share: (None, None),
            are_huge_pages_usage: false,
            withheld: HashMap::new(),
            buffer,
        }
    }

    /// Protects the cgroup of this agent process instead of the calling process.
    #[must_use]
    pub fn with_agent(self, agent: Option<Pid>) -> Self {
        Self { agent: agent.map(|Pid(pid)| pid.to_string()), ..self }
    }

    /// Applies these rules about candidates. `has_api_server`: an API server is configured.
    #[must_use]
    pub fn with_candidates(self, options: CandidateOptions, has_api_server: bool, runtime: &RuntimeEndpoint) -> Self {
        let socket = match runtime {
            RuntimeEndpoint::Unix(socket) => Some(socket.clone()),
            RuntimeEndpoint::Auto | RuntimeEndpoint::Off => None,
        };
        let essentials = Essentials::new(&self.proc_root, socket);
        Self { candidacy: Candidacy { options, has_api_server, ..self.candidacy }, essentials, ..self }
    }

    /// Replaces the rules about candidates. The next scan applies them.
    pub fn set_candidates(&mut self, options: CandidateOptions) {
        self.candidacy.options = options;
    }

    /// Applies the quirks to how usage is counted.
    pub fn set_usage_quirks(&mut self, quirks: Quirks) {
        self.are_huge_pages_usage = quirks.has(Quirk::HugePagesAreUsage);
    }

    /// Replaces the page cache of workloads that counts as available only once they are gone.
    pub fn set_withheld(&mut self, withheld: HashMap<CgroupId, Bytes>) {
        self.withheld = withheld;
    }

    pub fn reach(&self) -> Reach {
        let (is_pods_only, has_workloads) = (self.candidacy.is_pods_only(), !self.tracked.is_empty());
        let mut reach = Reach { is_pods_only, has_workloads, ..Reach::default() };
        for workload in self.workloads() {
            if is_outside_pods(workload) {
                reach.others.count(workload);
            } else {
                reach.has_pods = true;
                reach.pods.count(workload);
            }
        }
        reach
    }

    pub fn candidacy(&self) -> &Candidacy {
        &self.candidacy
    }

    /// Has the processes of all workloads outside pods examined again by the next scan: a daemon may have begun to listen.
    pub fn recheck_essentials(&mut self) {
        self.tracked.iter_mut().for_each(|tracked| tracked.examined = None);
    }

    /// Returns why the workload must not be evicted, by its processes as they are now. For a workload outside pods. The work does not grow
    /// with the workload: what the last scan has examined is not read again.
    pub fn essential_now(&self, id: CgroupId) -> Option<Protection> {
        self.essential_by(id, &self.signs())
    }

    /// Reads which sockets and locks mark a daemon that the node depends on.
    pub fn signs(&self) -> Signs {
        self.essentials.signs()
    }

    /// Returns the processes in the first cgroups of the workload, those that a look concerns.
    pub fn first_processes(&self, id: CgroupId) -> Option<Vec<Pid>> {
        self.find(id).map(essential::processes_to_look_at)
    }

    /// As [`Self::essential_now`], by signs that were read before.
    pub fn essential_by(&self, id: CgroupId, signs: &Signs) -> Option<Protection> {
        let tracked = self.find(id).filter(|tracked| is_outside_pods(&tracked.workload))?;
        let found = self.essentials.look(tracked, signs).filter(|found| self.exempts(tracked, found.protection));
        let place = |pid| membership::of(&self.proc_root, pid, self.hierarchy.version);
        let holds = |pid| place(pid).is_some_and(|path| membership::is_within(&path, &tracked.workload.name));
        found
            .map(|essential| essential.protection)
            .or_else(|| holds("1").then_some(Protection::Init))
            .or_else(|| self.agent.as_deref().is_some_and(holds).then_some(Protection::Agent))
    }

    /// Returns the workloads outside pods that the node depends on, whatever else protects them.
    pub fn essentials(&self) -> Vec<(String, Essential)> {
        let signs = Arc::new(self.essentials.signs());
        let outside = self.tracked.iter().filter(|tracked| is_outside_pods(&tracked.workload));
        let named = |tracked: &Tracked| {
            let found = self.essentials.examine(tracked, &signs).essential;
            let found = found.filter(|found| self.exempts(tracked, found.protection))?;
            Some((tracked.workload.name.clone(), found))
        };
        outside.filter_map(named).collect()
    }

    /// Returns the sockets of daemons that no process holds, as far as this program sees; `None` if the sockets are not known.
    pub fn unheld_sockets(&self) -> Option<Vec<String>> {
        self.essentials.unheld()
    }

    /// Returns whether what a process serves exempts its workload: a mount does not exempt one that the configuration lists, and what a
    /// user serves counts only among the workloads of that user.
    fn exempts(&self, Tracked { workload, owner_uid, .. }: &Tracked, protection: Protection) -> bool {
        let place = self.managers.place(&workload.name);
        match protection {
            Protection::ServesUser => false,
            Protection::Mount => {
                among_own::user(place, *owner_uid).is_none() && !self.candidacy.is_listed(&workload.name, place)
            }
            _ => true,
        }
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
        let began = Monotonic::now();
        if self.zram_share.1.is_none_or(|at| began.since(at) >= ZRAM_AGE) {
            self.zram_share = (self.zram.share(), Some(began));
        }
        let ended_before: Vec<CgroupId> = self.ended.iter().map(|tracked| tracked.workload.id).collect();
        let known = self.tracked.drain(..).map(|tracked| (tracked.workload.id, tracked)).collect();
        let before = Before { known, began: self.last_complete_scan.take() };
        let walk = Walk::over((&directory, root), self.hierarchy.version, before, extent, &mut self.buffer);
        let Walk { found, owned, appeared, ended, unreadable, cut, has_kubepods, managers, .. } = walk;
        self.managers = managers;
        self.candidacy.has_kubepods |= has_kubepods;
        self.last_complete_scan = (unreadable.is_empty() && cut.is_empty()).then_some(began);
        (self.tracked, self.ended) = (found, ended);
        for tracked in &mut self.tracked {
            tracked.tree_protection = tracked.workload.protection;
        }
        self.join();
        if extent == Extent::Everything {
            self.examine();
        }
        self.protect(|_| true);
        let forgotten = self.update_owners(owned, extent);
        let ended =
            self.ended.iter().map(|tracked| tracked.workload.id).filter(|id| !ended_before.contains(id)).collect();
        Ok(Changes { forgotten, appeared, ended, unreadable, cut })
    }

    /// Replaces the known pods and the rules that protect them. A workload whose pod is missing keeps its last known pod: the
    /// object of a deleted pod still describes the running cgroup.
    pub fn set_pods(&mut self, specs: Arc<PodSpecs>, rules: PodProtection, quirks: Quirks) {
        if self.pods.quirks != quirks {
            // The quirks affect how the request is computed.
            self.tracked.iter_mut().for_each(|tracked| tracked.joined = None);
        }
        let rules_changed = self.pods.rules != rules;
        self.pods = Pods { specs, rules, quirks, ..self.pods };
        let changed = self.join();
        self.protect(|id| rules_changed || changed.contains(&id));
    }

    /// Sets whether the API server's list of pods is awaited. Meanwhile a pod that is not known is marked as unlisted.
    pub fn await_list(&mut self, is_awaited: bool) {
        self.pods.is_list_awaited = is_awaited;
        self.protect(|_| true);
    }

    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.tracked.iter().map(Tracked::workload)
    }

    /// Returns what each of these patterns of `protected`, and each of `evictions.services`, matches.
    pub fn reach_of_patterns(&self, protected: &[NamePattern], services: &[NamePattern]) -> Vec<PatternReach> {
        let named = self.tracked.iter().map(|tracked| {
            let name = tracked.workload.name.as_str();
            Named { name, place: self.managers.place(name), owner_uid: tracked.owner_uid }
        });
        let mut reach = pattern_reach::reach_of("protected", protected, &named, pattern_reach::matches);
        reach.extend(pattern_reach::reach_of("evictions.services", services, &named, Candidacy::lists));
        reach
    }

    /// Returns what each pattern that the configuration adds to the built-in ones matches.
    pub fn configured_patterns(&self) -> Vec<PatternReach> {
        self.reach_of_patterns(&patterns::configured(&self.protected), &self.candidacy.options.services)
    }

    pub fn find(&self, id: CgroupId) -> Option<&Tracked> {
        self.tracked.iter().find(|tracked| tracked.workload.id == id)
    }

    /// Returns the pods without processes whose cgroup still existed at the last scan.
    pub fn ended(&self) -> &[Tracked] {
        &self.ended
    }

    /// Returns a pod without processes whose cgroup still exists.
    pub fn find_ended(&self, id: CgroupId) -> Option<&Tracked> {
        self.ended.iter().find(|tracked| tracked.workload.id == id)
    }

    /// Returns the cgroup of a pod that had one at the last scan.
    pub fn cgroup_of(&self, pod: &PodUid) -> Option<PathBuf> {
        let mut all = self.tracked.iter().chain(&self.ended);
        let found = all.find(|tracked| tracked.workload.kind.pod_uid() == Some(pod))?;
        Some(self.hierarchy.memory.join(kernel_text::path(&found.workload.name)))
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
        let (counting, withheld, buffer) = (self.counting(), &self.withheld, &mut self.buffer);
        let measure = |tracked: &Tracked| tracked.measure(counting.of(tracked.workload.id, withheld), buffer);
        self.tracked.iter().filter_map(measure).collect()
    }

    /// Reads the usage of every workload, an upper bound of its working set. Removed workloads are omitted.
    pub fn usage_upper_bounds(&mut self) -> Vec<WorkloadUsage> {
        self.tracked.iter().filter_map(|tracked| tracked.upper_bound(&mut self.buffer)).collect()
    }

    /// Reads the usage of every workload that holds no others, and since when it may be there.
    pub fn listed(&mut self) -> Vec<Listed> {
        holding_no_others(&self.tracked).filter_map(|tracked| tracked.listed(&mut self.buffer)).collect()
    }

    /// Reads how many file pages each workload has read back. Leaves out workloads that hold others, whose counters include those of the
    /// others.
    pub fn refaulted_files(&mut self) -> Vec<(CgroupId, u64)> {
        let (version, buffer) = (self.hierarchy.version, &mut self.buffer);
        holding_no_others(&self.tracked)
            .filter_map(|it| Some((it.workload.id, it.refaulted_file(version, buffer)?)))
            .collect()
    }

    /// Reads of each workload that holds no others whether it is at its own limit, and how long its tasks have waited. Of many workloads
    /// the first ones are read.
    pub fn at_limits(&self) -> impl Iterator<Item = (CgroupId, AtLimit)> {
        let version = self.hierarchy.version;
        holding_no_others(&self.tracked)
            .take(MOST_AT_LIMIT)
            .map(move |tracked| (tracked.workload.id, AtLimit::read(tracked.directory(), version)))
    }

    /// As [`Self::at_limits`], of the cgroups that hold workloads outside pods. The limit of all pods is left out: it is the node's.
    pub fn groups_at_limits(&self) -> Vec<(CgroupId, AtLimit)> {
        let outside = self.tracked.iter().filter(|tracked| is_outside_pods(&tracked.workload));
        let groups: BTreeSet<&str> = outside.flat_map(|tracked| cgroup_path::above(&tracked.workload.name)).collect();
        let read = |path: &str| {
            let directory = std::fs::File::open(self.hierarchy.memory.join(kernel_text::path(path))).ok()?;
            let id = CgroupId(rustix::fs::fstat(&directory).ok()?.st_ino);
            Some((id, AtLimit::of_group(directory, self.hierarchy.version)?))
        };
        groups.into_iter().take(MOST_AT_LIMIT).filter_map(read).collect()
    }

    /// Reads the working set of one workload; `None` when it has been removed.
    pub fn measure(&mut self, id: CgroupId) -> Option<WorkloadUsage> {
        let counting = self.counting().of(id, &self.withheld);
        let tracked = self.tracked.iter().find(|tracked| tracked.workload.id == id)?;
        tracked.measure(counting, &mut self.buffer)
    }

    fn counting(&self) -> Counting {
        Counting {
            version: self.hierarchy.version,
            zram: self.zram_share.0,
            huge_pages: self.are_huge_pages_usage,
            withheld: Bytes::ZERO,
        }
    }

    /// Returns the OOM kills of each workload since the last call, by the kernel's counters. On the `first` call the counters so far are
    /// the baseline.
    pub fn new_oom_kills(&mut self, first: bool) -> Vec<(String, u64)> {
        let version = self.hierarchy.version;
        let before = std::mem::take(&mut self.oom_kills);
        let mut new = Vec::new();
        for tracked in &self.tracked {
            let holds_others = tracked.tree_protection == Some(Protection::HoldsOthers);
            let Some(kills) = oom_kill_counter::of(&tracked.directory, version, !holds_others) else { continue };
            self.oom_kills.insert(tracked.workload.id, kills);
            let before = before.get(&tracked.workload.id).copied().unwrap_or(if first { kills } else { 0 });
            if kills > before {
                new.push((tracked.workload.name.clone(), kills - before));
            }
        }
        new
    }

    /// Opens the files from which the gain of a workload of this tree is read again after its kill.
    pub fn gain_files(&self, tracked: &Tracked) -> Option<GainFiles> {
        tracked.gain_files(self.counting().of(tracked.workload.id, &self.withheld))
    }

    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Attaches the known pods to their cgroups. Returns the cgroups whose pod has changed.
    fn join(&mut self) -> HashSet<CgroupId> {
        let Pods { specs, quirks, .. } = &self.pods;
        let mut changed = HashSet::new();
        let mounts = OnceCell::new();
        for Tracked { workload, joined, places, outliving, .. } in &mut self.tracked {
            if let Some(pod) = workload.kind.pod_uid().and_then(|uid| specs.find_shared(uid))
                && workload.pod.as_ref().is_none_or(|known| !Arc::ptr_eq(known, pod))
            {
                Arc::make_mut(workload).pod = Some(Arc::clone(pod));
            }
            let Some(pod) = workload.pod.clone() else { continue };
            if joined.as_ref().is_none_or(|joined| !Arc::ptr_eq(joined, &pod)) {
                Arc::make_mut(workload).request = pod.request(Resource::Memory, *quirks).bytes();
                let now = Places::of(&pod);
                if now != *places {
                    let mounts = mounts.get_or_init(|| NodeMounts::read(&self.proc_root));
                    *outliving = Outliving::open(&now, mounts, &self.proc_root).map(Arc::new);
                    *places = now;
                }
                *joined = Some(pod);
                changed.insert(workload.id);
            }
        }
        changed
    }

    /// Examines the processes of the workloads outside pods that have not been examined.
    fn examine(&mut self) {
        // Where only pods are candidates, these processes need not be examined.
        if self.candidacy.is_pods_only() {
            return;
        }
        let mut signs: Option<Arc<Signs>> = None;
        let is_due = |it: &&mut Tracked| !it.examined.as_ref().is_some_and(|examined| examined.is_whole);
        for tracked in self.tracked.iter_mut().filter(|it| is_outside_pods(&it.workload)).filter(is_due) {
            let signs = signs.get_or_insert_with(|| Arc::new(self.essentials.signs()));
            tracked.examined = Some(self.essentials.examine(tracked, signs));
        }
    }

    /// Recomputes the protection of the workloads for which `is_wanted` holds.
    fn protect(&mut self, is_wanted: impl Fn(CgroupId) -> bool) {
        self.look_at_new(&is_wanted);
        let cgroup_of = |pid| membership::of(&self.proc_root, pid, self.hierarchy.version);
        let (init, agent) = (cgroup_of("1"), self.agent.as_deref().and_then(cgroup_of));
        let mut tracked = std::mem::take(&mut self.tracked);
        for tracked in tracked.iter_mut().filter(|it| is_wanted(it.workload.id)) {
            let now = self.judge(tracked, init.as_deref(), agent.as_deref());
            if now != Judgement::of(&tracked.workload) {
                now.write(Arc::make_mut(&mut tracked.workload));
            }
        }
        self.tracked = tracked;
    }

    /// Looks at the workloads outside pods that have appeared in the list of a decision, which must not wait for all their processes, and at
    /// those that the node no longer needs for what was found.
    fn look_at_new(&mut self, is_wanted: &impl Fn(CgroupId) -> bool) {
        if self.candidacy.is_pods_only() {
            return;
        }
        let mut signs: Option<Arc<Signs>> = None;
        let is_looked_at = |it: &Tracked| {
            is_outside_pods(&it.workload)
                && !it.examined.as_ref().is_some_and(|examined| self.essentials.stands(it, examined))
        };
        for tracked in self.tracked.iter_mut().filter(|it| is_wanted(it.workload.id)).filter(|it| is_looked_at(it)) {
            let signs = signs.get_or_insert_with(|| Arc::new(self.essentials.signs()));
            tracked.examined = Some(self.essentials.look_at_new(tracked, signs));
        }
    }

    /// Returns why the workload is exempt, and what else depends on the other workloads and the configuration. `init` and `agent` are the
    /// cgroups of these processes.
    fn judge(&self, tracked: &mut Tracked, init: Option<&str>, agent: Option<&str>) -> Judgement {
        let place = self.managers.place(&tracked.workload.name);
        let holds = |path: Option<&str>| path.is_some_and(|path| membership::is_within(path, &tracked.workload.name));
        let (name, owner_uid) = (&tracked.workload.name, tracked.owner_uid);
        let is_named = *tracked.is_named.get_or_insert_with(|| self.is_named(Named { name, place, owner_uid }));
        let is_outside = is_outside_pods(&tracked.workload);
        let protection = if holds(init) {
            Some(Protection::Init)
        } else if holds(agent) {
            Some(Protection::Agent)
        } else if is_named {
            Some(Protection::Named)
        } else if tracked.workload.preference == Preference::Omit {
            Some(Protection::Omit)
        } else if is_outside {
            self.protection_outside(tracked, place)
        } else {
            tracked.tree_protection.or_else(|| tracked.workload.pod.as_ref()?.protection(&self.pods.rules))
        };
        let serves_mount = is_outside && is_mount(tracked);
        Judgement {
            protection,
            only_as_leaker: serves_mount || self.candidacy.is_only_as_leaker(&tracked.workload.kind, name, place),
            is_unlisted: self.pods.is_list_awaited && !is_outside && tracked.workload.pod.is_none(),
            among_own: among_own(tracked, place).filter(|_| is_outside),
        }
        .for_user()
    }

    fn is_named(&self, named: Named<'_>) -> bool {
        self.protected.iter().any(|pattern| pattern_reach::matches(pattern, named))
    }

    /// Returns whether the cgroup is a session of elogind's, which has its number for a name: at the root or below `elogind`, or wherever the
    /// process is that began the session.
    fn is_elogind_session(&self, Tracked { workload, owner_uid, .. }: &Tracked, place: &str) -> bool {
        let (above, id) = place.rsplit_once('/').unwrap_or(("", place));
        if *owner_uid != 0 || workload.kind != Kind::Cgroup || !is_session_id(id) {
            return false;
        }
        let leader = self.essentials.session_leader(id);
        let path = leader.and_then(|pid| membership::of(&self.proc_root, &pid.0.to_string(), self.hierarchy.version));
        let is_of_leader = path.is_some_and(|path| membership::is_within(&path, &workload.name));
        is_of_leader || matches!(above, "" | "elogind") && self.essentials.may_have_session(id)
    }

    /// Returns why a workload outside pods is exempt, by its place and its processes.
    fn protection_outside(&self, tracked: &Tracked, place: &str) -> Option<Protection> {
        let session = (is_of_sessions(place) || self.is_elogind_session(tracked, place)).then_some(Protection::Session);
        let serves_mount = is_mount(tracked).then_some(Protection::Mount);
        let essential = tracked.examined.as_ref().and_then(Examined::protection).filter(|it| !it.is_weak());
        let serving = essential.or(serves_mount).filter(|protection| self.exempts(tracked, *protection));
        let other = self.candidacy.is_pods_only().then_some(Protection::NotAPod);
        session.or(serving).or(tracked.tree_protection).or(other)
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

/// What a judgement of a workload depends on beside its own cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Judgement {
    protection: Option<Protection>,
    only_as_leaker: bool,
    is_unlisted: bool,
    among_own: Option<AmongOwn>,
}

impl Judgement {
    const fn of(workload: &Workload) -> Self {
        let Workload { protection, only_as_leaker, is_unlisted, among_own, .. } = *workload;
        Self { protection, only_as_leaker, is_unlisted, among_own }
    }

    /// What a user serves changes only the choice among the workloads of that user.
    fn for_user(self) -> Self {
        Self { only_as_leaker: self.only_as_leaker && self.among_own.is_none(), ..self }
    }

    const fn write(self, workload: &mut Workload) {
        (workload.protection, workload.only_as_leaker) = (self.protection, self.only_as_leaker);
        (workload.is_unlisted, workload.among_own) = (self.is_unlisted, self.among_own);
    }
}

/// Returns whether the workload serves a mount: a unit of root's for it, or a process with `/dev/fuse`.
fn is_mount(Tracked { workload, owner_uid, examined, .. }: &Tracked) -> bool {
    let is_unit = *owner_uid == 0 && workload.kind == Kind::Cgroup && is_mount_unit(&workload.name);
    is_unit || examined.as_ref().and_then(Examined::protection) == Some(Protection::Mount)
}

/// Returns the place of a user's workload among the others of that user.
fn among_own(tracked: &Tracked, place: &str) -> Option<AmongOwn> {
    let user = among_own::user(place, tracked.owner_uid)?;
    let serves = tracked.examined.as_ref().and_then(Examined::protection).is_some_and(Protection::is_weak);
    let serving = if serves || is_in_session_slice(place) { OwnPlace::Serving } else { OwnPlace::Ordinary };
    Some(AmongOwn { user, place: tracked.own_place.max(serving) })
}

fn holding_no_others(tracked: &[Tracked]) -> impl Iterator<Item = &Tracked> {
    tracked.iter().filter(|it| it.workload.protection != Some(Protection::HoldsOthers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::CgroupVersion;
    use crate::workloads::fixtures;

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
            let workload = Workload { id: CgroupId(7), ..fixtures::workload("a.service") };
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
