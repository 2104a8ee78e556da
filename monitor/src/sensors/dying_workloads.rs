//! The memory of workloads that were killed, by the agent or by another program, until it has come back. A workload whose grace period
//! ends soon counts as well.

use std::time::Duration;

use crate::eviction::decider::DyingMemory;
use crate::node::pinned_file::Buffer;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::{GainFiles, Tracked, WorkloadTree};

/// For this long after a kill the pages of the victim may be on the lists of the CPUs, from which the kernel takes at most an eighth a second
/// (mm/page_alloc.c, `decay_pcp_high`, Linux 6.12), and nothing while the CPU is idle. A later shortage is another one.
const ON_CPU_LISTS: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct DyingWorkloads {
    all: Vec<Dying>,
    /// The latest kill.
    latest: Option<Monotonic>,
    /// When the last look for victims of other programs began.
    others_noted: Option<Monotonic>,
    buffer: Buffer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KilledBy {
    Agent,
    /// Another program, which has killed all processes of the workload.
    Other,
    /// The same, known from processes that are still dying. This is seen again and again.
    SeenDying,
    /// The kernel's OOM killer. Other processes of the workload may live on.
    OomKiller,
    /// No program has killed it yet. Its grace period ends at this time.
    EndOfGrace(Monotonic),
}

#[derive(Debug)]
struct Dying {
    memory: DyingMemory,
    /// The memory that the workload held when `memory.expected` was expected.
    held: Bytes,
    /// Whether it may have processes that cannot exit.
    may_be_stuck: bool,
    files: GainFiles,
}

impl DyingWorkloads {
    /// Notes that a workload was killed, with the memory that is expected from it and its growth until then. Without an expectation it is
    /// what the workload holds now. A workload whose kill is noted already stays as it is.
    pub fn note(
        &mut self,
        (tracked, tree): (&Tracked, &WorkloadTree),
        (expected, growth): (Option<Bytes>, i64),
        killed_by: KilledBy,
        now: Monotonic,
    ) {
        let id = tracked.workload().id;
        let grace_ends = if let KilledBy::EndOfGrace(ends) = killed_by { Some(ends) } else { None };
        self.all.retain(|Dying { memory, .. }| {
            let gives_way = match killed_by {
                KilledBy::EndOfGrace(_) => false,
                KilledBy::OomKiller => memory.grace_ends.is_some(),
                // The OOM killer may have taken one process of many.
                KilledBy::Other | KilledBy::SeenDying => !memory.is_whole,
                KilledBy::Agent => !memory.is_whole || !memory.is_recent(now),
            };
            memory.id != id || !gives_way
        });
        if self.all.iter().any(|dying| dying.memory.id == id) {
            return;
        }
        let Some(files) = tree.gain_files(tracked) else { return };
        let left = files.read(&mut self.buffer).unwrap_or(Bytes::ZERO);
        let expected = expected.unwrap_or(left);
        let is_own = killed_by == KilledBy::Agent;
        let is_whole = matches!(killed_by, KilledBy::Agent | KilledBy::Other | KilledBy::SeenDying);
        // The agent reads what its victim holds before the kill. Of another program's victim only processes may have been killed.
        let held = if is_own { expected } else { left };
        let (left, is_populated) = (expected, is_own);
        let memory =
            DyingMemory { id, expected, left, killed: now, grace_ends, growth, is_own, is_whole, is_populated };
        if killed_by == KilledBy::SeenDying && memory.is_back() {
            return;
        }
        if grace_ends.is_none() {
            self.latest = self.latest.max(Some(now));
        }
        let may_be_stuck = matches!(killed_by, KilledBy::Agent | KilledBy::SeenDying);
        self.all.push(Dying { memory, held, may_be_stuck, files });
    }

    /// Forgets the victims of other programs that live on, and own ones that do so long after. Their end was seen too early, or they were
    /// started again.
    pub(super) fn forget_living(&mut self, lives_on: impl Fn(CgroupId) -> bool, now: Monotonic) {
        self.all.retain(|Dying { memory, .. }| {
            let may_live = !memory.is_whole || memory.is_own && memory.is_recent(now);
            may_live || !lives_on(memory.id)
        });
    }

    /// Takes in that a look for victims of other programs begins.
    pub(super) fn note_others_at(&mut self, now: Monotonic) {
        self.others_noted = Some(now);
    }

    /// Returns whether the last look for victims of other programs began within `age`.
    pub(super) fn are_others_noted_since(&self, age: Duration, now: Monotonic) -> bool {
        self.others_noted.is_some_and(|noted| now.since(noted) < age)
    }

    /// Returns whether a workload was killed so recently that its pages may be on the lists of the CPUs.
    pub(super) fn is_recent(&self, now: Monotonic) -> bool {
        self.latest.is_some_and(|latest| now.since(latest) < ON_CPU_LISTS)
    }

    /// Returns whether a kill of the whole workload is noted.
    pub(super) fn is_killed(&self, id: CgroupId) -> bool {
        self.all.iter().any(|dying| dying.memory.id == id && dying.memory.is_whole)
    }

    /// Returns what is left of each. `is_populated` tells whether an own victim has processes.
    pub fn read(&mut self, is_populated: impl Fn(CgroupId) -> bool, now: Monotonic) -> Vec<DyingMemory> {
        let buffer = &mut self.buffer;
        self.all.retain_mut(|Dying { memory, held, may_be_stuck, files }| {
            let Some(holds) = files.read(buffer) else { return false };
            let came = held.saturating_sub(holds);
            memory.left = memory.left.min(memory.expected.saturating_sub(came));
            memory.is_populated = memory.is_own && is_populated(memory.id);
            // A workload that was restarted holds memory again, and that is not what was expected.
            let is_awaited = memory.is_populated || !memory.is_back();
            // A victim that cannot exit stays noted: killing it again would not help, and it would be seen as a new one.
            is_awaited && (*may_be_stuck || memory.is_recent(now))
        });
        self.all.iter().map(|dying| dying.memory).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::node::CgroupVersion;
    use crate::node::Hierarchy;
    use crate::workloads::WorkloadTree;
    use crate::workloads::fixtures::populate;

    #[test]
    fn a_kill_takes_the_place_of_a_grace_that_ends_soon() {
        let root = tempfile::tempdir().unwrap();
        let tree = tree_of_one(root.path(), 8 << 20);
        let tracked = &tree.tracked()[0];
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        let mut dying = DyingWorkloads::default();
        let mut noted = |by, seconds| {
            dying.note((tracked, &tree), (None, 0), by, at(seconds));
            let all = dying.read(|_| true, at(seconds));
            assert_eq!(all.len(), 1, "{by:?}");
            (all[0].grace_ends, all[0].killed, all[0].expected, all[0].is_own, all[0].is_whole)
        };
        let grace = (Some(at(3)), at(1), Bytes::from_mib(8), false, false);
        assert_eq!(noted(KilledBy::EndOfGrace(at(3)), 1), grace);
        assert_eq!(noted(KilledBy::EndOfGrace(at(9)), 2), grace, "it is noted once");
        fs::write(root.path().join("web.service/memory.current"), format!("{}\n", 6 << 20)).unwrap();
        let killed = (None, at(3), Bytes::from_mib(6), false, true);
        assert_eq!(noted(KilledBy::Other, 3), killed);
        for by in [KilledBy::EndOfGrace(at(9)), KilledBy::Agent] {
            assert_eq!(noted(by, 4), killed, "a kill stays");
        }
        dying.forget_living(|_| false, at(4));
        assert_eq!(dying.all.len(), 1);
        dying.forget_living(|_| true, at(4));
        assert!(dying.all.is_empty(), "it lives on");
        for by in [KilledBy::Agent, KilledBy::OomKiller, KilledBy::EndOfGrace(at(9))] {
            dying.note((tracked, &tree), (None, 0), by, at(5));
            dying.forget_living(|_| true, at(5));
            assert_eq!(dying.all.len(), 1, "{by:?}: it may have processes");
            dying.all.clear();
        }
        assert!(dying.is_recent(at(14)) && !dying.is_recent(at(15)), "the latest kill was at 5");
    }

    #[test]
    fn a_look_for_victims_of_others_counts_for_its_age() {
        let (age, at) = (Duration::from_millis(250), |milliseconds: u64| Monotonic(milliseconds * 1_000_000));
        let mut dying = DyingWorkloads::default();
        assert!(!dying.are_others_noted_since(age, at(1_000)), "no look yet");
        dying.note_others_at(at(1_000));
        assert!(dying.are_others_noted_since(age, at(1_249)) && !dying.are_others_noted_since(age, at(1_250)));
    }

    #[test]
    fn a_victim_that_cannot_exit_is_one_kill() {
        let (root, at) = (tempfile::tempdir().unwrap(), |seconds: u64| Monotonic(seconds * 1_000_000_000));
        let tree = tree_of_one(root.path(), 8 << 20);
        let tracked = (&tree.tracked()[0], &tree);
        let mut dying = DyingWorkloads::default();
        let mut noted = |by, seconds| {
            dying.note(tracked, (None, 0), by, at(seconds));
            let killed = dying.read(|_| true, at(seconds)).first().map(|memory| memory.killed);
            (killed, dying.is_recent(at(seconds)))
        };
        assert_eq!(noted(KilledBy::Agent, 1), (Some(at(1)), true));
        for (seconds, is_recent) in [(2, true), (11, false), (13, false)] {
            assert_eq!(noted(KilledBy::SeenDying, seconds), (Some(at(1)), is_recent), "still dying after {seconds} s");
        }
        assert_eq!(noted(KilledBy::Agent, 14), (Some(at(14)), true), "it was killed again");
        assert!(dying.is_killed(tracked.0.workload().id));
        dying.forget_living(|_| true, at(25));
        assert_eq!(dying.all.len(), 1);
        dying.forget_living(|_| true, at(26));
        assert!(dying.all.is_empty(), "it was started again");
        for by in [KilledBy::OomKiller, KilledBy::Agent] {
            dying.note(tracked, (None, 0), by, at(30));
        }
        assert!(dying.read(|_| true, at(30))[0].is_whole, "the OOM killer took one process, and the agent all");
        dying.note(tracked, (None, 0), KilledBy::OomKiller, at(60));
        assert!(dying.read(|_| true, at(60))[0].is_whole, "the OOM killer marks it too");
        for (by, stays) in [(KilledBy::OomKiller, 0), (KilledBy::Other, 0), (KilledBy::SeenDying, 1)] {
            dying.all.clear();
            dying.note(tracked, (None, 0), by, at(70));
            assert_eq!(dying.read(|_| true, at(82)).len(), stays, "{by:?}");
        }
        fs::write(root.path().join("web.service/memory.current"), "0\n").unwrap();
        dying.all.clear();
        dying.note(tracked, (None, 0), KilledBy::SeenDying, at(90));
        assert!(dying.all.is_empty() && !dying.is_recent(at(90)), "it has given its memory back");
    }

    /// Returns the tree of a workload that uses so many bytes.
    fn tree_of_one(root: &Path, bytes: u64) -> WorkloadTree {
        let directory = root.join("web.service");
        populate(&directory, "7\n");
        fs::write(directory.join("memory.current"), format!("{bytes}\n")).unwrap();
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false };
        let mut tree = WorkloadTree::new(hierarchy, "/nonexistent".into(), Vec::new());
        tree.scan().unwrap();
        tree
    }
}
