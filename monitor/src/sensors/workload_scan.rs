//! The workload tree and its scans, and the cgroups in the kernel's maps that no scan has found.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::eviction::decider::DyingMemory;
use crate::kernel::OomKill;
use crate::units::{CgroupId, Monotonic};
use crate::workloads::WorkloadTree;
use crate::workloads::workload_tree::Changes;

/// How often the tree is scanned near a threshold.
pub const LIST_AGE: Duration = Duration::from_millis(250);
/// On a large tree a list of workloads may be this many times as old as its scan took.
const SCAN_SHARE: u32 = 10;
/// How often the tree is scanned without another reason.
pub const EVERY: Duration = Duration::from_secs(20);
/// With many workloads the pause between scans is this many times as long as a scan takes.
const PAUSE_SHARE: u32 = 600;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The counters of a cgroup that no scan has found are dropped after this many full reports.
const UNKNOWN_ROUNDS: u32 = 3;
/// The name for cgroups that are in no workload, or were removed before any scan.
pub const NO_WORKLOAD: &str = "(none)";

#[derive(Debug)]
pub struct Workloads {
    tree: WorkloadTree,
    scanned: Option<Monotonic>,
    took: Duration,
    /// When the workloads were listed, by a scan or without the cgroups in pods, and how long that took.
    listed: Option<Monotonic>,
    listing_took: Duration,
    /// The reason why part of the tree cannot be read.
    missing: Option<String>,
    /// The cgroups that are too many to be visited.
    cut: Option<String>,
    /// The workloads found since the last [`Self::take_appeared`].
    appeared: Vec<CgroupId>,
    appeared_ever: u64,
    /// Pods that have ended since the last [`Self::take_ended`], and when that was found.
    ended: Vec<(CgroupId, Monotonic)>,
    /// Removed cgroups, whose counters are dropped at the next housekeeping.
    removed: HashSet<CgroupId>,
    /// Cgroups that the kernel counts for and that no scan has found yet.
    unowned: HashSet<CgroupId>,
    /// The same cgroups, with the number of full reports since.
    unknown: HashMap<CgroupId, u32>,
}

impl Workloads {
    pub fn new(tree: WorkloadTree) -> Self {
        Self {
            tree,
            scanned: None,
            took: Duration::ZERO,
            listed: None,
            listing_took: Duration::ZERO,
            missing: None,
            cut: None,
            appeared: Vec::new(),
            appeared_ever: 0,
            ended: Vec::new(),
            removed: HashSet::new(),
            unowned: HashSet::new(),
            unknown: HashMap::new(),
        }
    }

    pub fn tree(&self) -> &WorkloadTree {
        &self.tree
    }

    pub fn tree_mut(&mut self) -> &mut WorkloadTree {
        &mut self.tree
    }

    /// Returns the name of a cgroup's workload, or [`NO_WORKLOAD`].
    pub fn owner(&self, id: CgroupId) -> Arc<str> {
        self.tree.owner(id).unwrap_or_else(|| NO_WORKLOAD.into())
    }

    /// Returns the reason why part of the tree cannot be read. The last known workloads are kept.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Returns which cgroups are left out because there are too many.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Scans the tree. The scan takes its own time and duration.
    pub fn scan(&mut self) {
        let started = Monotonic::now();
        match self.tree.scan() {
            Ok(Changes { forgotten, appeared, ended, unreadable, cut }) => {
                self.removed.extend(forgotten);
                self.note_appeared(appeared);
                self.note_ended(ended);
                (self.missing, self.cut) = (first_of(&unreadable), first_of(&cut));
            }
            Err(error) => self.missing = Some(error.to_string()),
        }
        let now = Monotonic::now();
        (self.scanned, self.took) = (Some(now), now.since(started));
        (self.listed, self.listing_took) = (self.scanned, self.took);
    }

    /// Scans if the last scan is older than `age`. On a large tree it may be older.
    pub fn scan_if_older(&mut self, age: Duration, now: Monotonic) {
        let allowed = age.max(self.took.saturating_mul(SCAN_SHARE));
        if self.scanned.is_none_or(|at| now.since(at) > allowed) {
            self.scan();
        }
    }

    /// Lists the workloads, without the cgroups in pods and containers, if the list is older than `age`. On a large tree it may be older.
    pub fn list_if_older(&mut self, age: Duration, now: Monotonic) {
        let allowed = age.max(self.listing_took.saturating_mul(SCAN_SHARE));
        if self.listed.is_some_and(|at| now.since(at) <= allowed) {
            return;
        }
        let started = Monotonic::now();
        // Workloads that it does not read stay as the last scan found them.
        match self.tree.scan_workloads() {
            Ok(changes) => {
                self.note_appeared(changes.appeared);
                self.note_ended(changes.ended);
            }
            Err(error) => self.missing = Some(error.to_string()),
        }
        let now = Monotonic::now();
        (self.listed, self.listing_took) = (Some(now), now.since(started));
    }

    /// Makes the next [`Self::scan_if_older`] and [`Self::list_if_older`] scan whatever the age.
    pub fn expire(&mut self) {
        (self.scanned, self.took) = (None, Duration::ZERO);
        (self.listed, self.listing_took) = (None, Duration::ZERO);
    }

    /// Returns the pause between two scans without another reason.
    pub fn pause(&self) -> Duration {
        self.took.saturating_mul(PAUSE_SHARE).clamp(EVERY, LONGEST_PAUSE)
    }

    /// Scans if a process was killed in a cgroup that the tree lacks. A recent scan is enough if the kernel sent the cgroup's
    /// path, because the path names the workload: many kills in short-lived cgroups do not cause a scan each.
    pub fn scan_for(&mut self, kills: &[OomKill], now: Monotonic) {
        let is_unknown = |id: &CgroupId| id.0 != 0 && self.tree.owner(*id).is_none();
        let has_path = |kill: &OomKill, id: CgroupId| {
            kill.victim_path.as_ref().is_some_and(|path| path.levels().any(|(level, _)| level == id))
        };
        let unknown = |kill: &OomKill| {
            let concerned = [kill.victim_cgroup, Some(kill.trigger_cgroup)].into_iter().flatten().filter(is_unknown);
            concerned.map(|id| has_path(kill, id)).min()
        };
        // A cgroup that existed during the last scan and was not found no longer exists.
        let is_later =
            |kill: &&OomKill| self.scanned.is_none_or(|at| at.since(Monotonic(kill.marked_at_ns)) < self.took);
        match kills.iter().filter(is_later).filter_map(unknown).min() {
            Some(false) => self.scan_if_older(Duration::ZERO, now),
            Some(true) => self.scan_if_older(LIST_AGE, now),
            None => {}
        }
    }

    /// Notes the cgroups that the kernel counts for. Scans if one of them is not in the tree, because it may be newer than the
    /// tree.
    pub fn note_counted(&mut self, ids: &[CgroupId], now: Monotonic) {
        if ids.iter().any(|id| self.tree.owner(*id).is_none()) {
            self.scan_if_older(LIST_AGE, now);
        }
        self.unowned = ids.iter().copied().filter(|id| self.tree.owner(*id).is_none()).collect();
    }

    /// Returns whether a counted cgroup may get a name by the next scan. If it were counted without a name until then, its counts
    /// would stay without a name.
    pub fn is_too_young(&self, id: CgroupId) -> bool {
        self.tree.owner(id).is_none() && !self.unknown.contains_key(&id)
    }

    fn note_ended(&mut self, ended: Vec<CgroupId>) {
        let now = Monotonic::now();
        self.ended.retain(|(_, at)| now.since(*at) < DyingMemory::COUNTS_FOR);
        self.ended.extend(ended.into_iter().map(|id| (id, now)));
    }

    /// Returns the pods that have ended recently and whose cgroup still exists, each once.
    pub(super) fn take_ended(&mut self) -> Vec<(CgroupId, Monotonic)> {
        std::mem::take(&mut self.ended)
    }

    /// Returns the removed cgroups, whose counters can be dropped. They include a cgroup that was removed before any scan, after
    /// some rounds; otherwise its counters would fill the kernel's maps.
    pub fn take_removed(&mut self) -> HashSet<CgroupId> {
        let unowned = std::mem::take(&mut self.unowned);
        self.unknown.retain(|id, _| unowned.contains(id));
        for id in unowned {
            let rounds = self.unknown.entry(id).or_insert(0);
            *rounds += 1;
            if *rounds >= UNKNOWN_ROUNDS {
                self.removed.insert(id);
            }
        }
        std::mem::take(&mut self.removed)
    }

    /// Returns the workloads found since the last call.
    pub fn take_appeared(&mut self) -> Vec<CgroupId> {
        std::mem::take(&mut self.appeared)
    }

    /// Returns how many workloads have appeared since the start.
    pub(super) const fn appeared_ever(&self) -> u64 {
        self.appeared_ever
    }

    fn note_appeared(&mut self, appeared: Vec<CgroupId>) {
        self.appeared_ever += appeared.len() as u64;
        self.appeared.extend(appeared);
    }
}

/// Returns the first reason, and how many more there are.
fn first_of(reasons: &[String]) -> Option<String> {
    reasons.split_first().map(|(first, more)| match more.len() {
        0 => first.clone(),
        more => format!("{first}, and {more} more"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{CgroupVersion, Hierarchy};

    fn workloads(root: &std::path::Path) -> Workloads {
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false };
        Workloads::new(WorkloadTree::new(hierarchy, root.to_owned(), Vec::new()))
    }

    #[test]
    fn an_unreadable_tree_is_missing_until_the_next_scan() {
        let root = tempfile::tempdir().unwrap();
        let mut workloads = workloads(&root.path().join("cgroup"));
        workloads.scan();
        assert!(workloads.missing().is_some_and(|reason| reason.contains("cgroup")));
        std::fs::create_dir(root.path().join("cgroup")).unwrap();
        workloads.scan();
        assert_eq!(workloads.missing(), None);
    }

    #[test]
    fn a_scan_is_used_until_its_age_or_share_is_over() {
        let root = tempfile::tempdir().unwrap();
        let mut workloads = workloads(root.path());
        workloads.scan();
        let at = Monotonic(1 << 40);
        let scans = |workloads: &mut Workloads, took, after| {
            (workloads.scanned, workloads.took) = (Some(at), took);
            workloads.scan_if_older(LIST_AGE, at.after(after));
            workloads.scanned != Some(at)
        };
        assert!(!scans(&mut workloads, Duration::ZERO, LIST_AGE));
        assert!(scans(&mut workloads, Duration::ZERO, LIST_AGE * 2));
        assert!(!scans(&mut workloads, LIST_AGE, LIST_AGE * SCAN_SHARE), "the list of a slow scan is used for longer");
        (workloads.scanned, workloads.took) = (Some(at), LIST_AGE);
        assert_eq!(workloads.pause(), LONGEST_PAUSE);
        workloads.expire();
        assert_eq!(workloads.pause(), EVERY);
        workloads.scan_if_older(LIST_AGE, at);
        assert_ne!(workloads.scanned, None);
    }

    #[test]
    fn a_cgroup_that_no_scan_finds_is_given_up_after_three_rounds() {
        let root = tempfile::tempdir().unwrap();
        let mut workloads = workloads(root.path());
        let stranger = CgroupId(u64::MAX);
        let round = |workloads: &mut Workloads| {
            workloads.note_counted(&[stranger], Monotonic(0));
            (workloads.is_too_young(stranger), workloads.take_removed().contains(&stranger))
        };
        let rounds = [round(&mut workloads), round(&mut workloads), round(&mut workloads)];
        assert_eq!(rounds, [(true, false), (false, false), (false, true)]);
        workloads.note_counted(&[], Monotonic(0));
        assert_eq!(workloads.take_removed(), HashSet::new());
        assert!(workloads.unknown.is_empty(), "a cgroup that is not counted any more is forgotten");
    }
}
