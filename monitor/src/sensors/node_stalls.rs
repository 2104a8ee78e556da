//! The time for which all tasks waited for memory that the node lacked. The kernel's figure for the whole system (PSI) rises also when one
//! workload reclaims at its own limit, while the node has memory left (siderolabs/talos#13746).

use std::collections::HashMap;
use std::time::Duration;

use crate::units::{CgroupId, Monotonic};
use crate::workloads::AtLimit;

use super::Sensors;

/// The least time between two readings.
const EVERY: Duration = Duration::from_millis(100);
/// A workload that has just started must not count as the node until the next list.
const LISTED_WITHIN: Duration = Duration::from_millis(250);
/// A workload counts as at its limit for so long after it has hit it. One hit frees dozens of pages, and above `memory.high` a task sleeps for up
/// to 2 s (mm/memcontrol.c, `MEMCG_MAX_HIGH_DELAY_JIFFIES`).
const AT_LIMIT_FOR: Duration = Duration::from_millis(2_500);

/// What is known at one time.
#[derive(Debug, Default)]
struct Reading {
    /// The time for which all tasks of the system waited since boot.
    system: Duration,
    /// How often a task entered direct reclaim for the node. `None` if that is unknown.
    direct_reclaims: Option<u64>,
    workloads: HashMap<CgroupId, AtLimit>,
    /// The cgroups that hold workloads, such as slices.
    groups: HashMap<CgroupId, AtLimit>,
}

#[derive(Debug, Default)]
pub(super) struct NodeStalls {
    total: Duration,
    at: Option<Monotonic>,
    before: Reading,
    /// When each workload or group was last seen to have hit its limit.
    hit: HashMap<CgroupId, Monotonic>,
}

impl NodeStalls {
    /// Takes in a reading. Returns the node's part of the stalls since the first reading.
    fn observe(&mut self, now: Monotonic, reading: Reading) -> Duration {
        self.note_hits(now, &reading);
        if self.at.replace(now).is_some() {
            let of_node = of_node(&self.before, &reading, |id| self.hit.contains_key(&id));
            self.total = self.total.saturating_add(of_node);
        }
        self.before = reading;
        self.total
    }

    fn note_hits(&mut self, now: Monotonic, reading: &Reading) {
        self.hit.retain(|_, at| now.since(*at) <= AT_LIMIT_FOR);
        let pairs = [(&self.before.workloads, &reading.workloads), (&self.before.groups, &reading.groups)];
        for (before, all) in pairs {
            let hit = all.iter().filter(|(id, at)| before.get(id).is_some_and(|before| at.since(*before)));
            self.hit.extend(hit.map(|(id, _)| (*id, now)));
        }
    }
}

/// Returns for how long of the system's stalls between two readings the node was the reason. What workloads at their own limit waited is
/// theirs. If tasks reclaimed for the node meanwhile, what another workload waited is the node's in any case.
fn of_node(before: &Reading, now: &Reading, is_at_limit: impl Fn(CgroupId) -> bool) -> Duration {
    let system = now.system.saturating_sub(before.system);
    let reclaims = now.direct_reclaims.zip(before.direct_reclaims).is_some_and(|(now, before)| now > before);
    let (mut own, mut others) = (Duration::ZERO, Duration::ZERO);
    let of_workloads = now.workloads.iter().filter_map(|(id, at)| Some((*id, at, before.workloads.get(id)?, reclaims)));
    // The stalls of a group include those of workloads at their limit, so a group never speaks for the node.
    let of_groups = now.groups.iter().filter_map(|(id, at)| Some((*id, at, before.groups.get(id)?, false)));
    for (id, at, known, is_witness) in of_workloads.chain(of_groups) {
        let stalled = at.stalled.zip(known.stalled).map(|(now, before)| now.saturating_sub(before));
        match (is_at_limit(id), stalled) {
            (true, Some(stalled)) => own = own.saturating_add(stalled),
            // Without PSI for cgroups all is taken for its own, unless the node reclaims too.
            (true, None) if !reclaims => return Duration::ZERO,
            (true, None) => {}
            (false, stalled) => others = others.max(stalled.filter(|_| is_witness).unwrap_or_default()),
        }
    }
    system.saturating_sub(own).max(others.min(system))
}

impl Sensors {
    /// Returns the time for which all tasks waited for memory that the node lacked, since the agent first looked, and when that was read.
    /// `None` without PSI. Reads two files of each workload if tasks have waited since the last reading.
    pub(super) fn node_stalled(&mut self) -> Option<(Duration, Monotonic)> {
        let now = Monotonic::now();
        if let Some(at) = self.stalls.at.filter(|at| now.since(*at) < EVERY) {
            return Some((self.stalls.total, at));
        }
        let system = self.pressure.memory_stalled()?;
        if self.stalls.at.is_some() && system == self.stalls.before.system {
            self.stalls.at = Some(now);
            return Some((self.stalls.total, now));
        }
        if self.counts.is_old(now) {
            self.counts.read();
        }
        // What is not in the list explains no stalls.
        self.workloads.list_if_older(LISTED_WITHIN, now);
        let direct_reclaims = self.counts.direct_reclaims();
        let tree = self.workloads.tree();
        let (workloads, groups) = (tree.at_limits().collect(), tree.groups_at_limits().into_iter().collect());
        Some((self.stalls.observe(now, Reading { system, direct_reclaims, workloads, groups }), now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::fixtures::at_limit;

    /// A workload's hits and stalled milliseconds, if they are known, before and after.
    type Given = ((Option<u64>, Option<u64>), (Option<u64>, Option<u64>));

    fn node(system: u64, reclaims: Option<(u64, u64)>, workloads: &[Given]) -> u128 {
        let reading = |system: u64, reclaims: Option<u64>, of: fn(&Given) -> (Option<u64>, Option<u64>)| Reading {
            system: Duration::from_millis(system),
            direct_reclaims: reclaims,
            workloads: (1..).map(CgroupId).zip(workloads.iter().map(of).map(|(hits, ms)| at_limit(hits, ms))).collect(),
            groups: HashMap::new(),
        };
        let before = reading(0, reclaims.map(|(before, _)| before), |given| given.0);
        let now = reading(system, reclaims.map(|(_, now)| now), |given| given.1);
        let mut stalls = NodeStalls::default();
        stalls.observe(Monotonic(0), before);
        stalls.observe(Monotonic(1), now).as_millis()
    }

    #[test]
    fn stalls_at_a_workloads_own_limit_are_not_the_nodes() {
        let quiet = ((Some(3), Some(10)), (Some(3), Some(10)));
        let at_limit = |stalled: u64| ((Some(3), Some(10)), (Some(9), Some(10 + stalled)));
        let calm = Some((5, 5));
        for (name, system, reclaims, workloads, expected) in [
            ("no workload at its limit", 90, calm, &[quiet][..], 90),
            ("talos#13746: one container at its limit", 90, calm, &[quiet, at_limit(92)], 0),
            ("two containers in turn", 90, calm, &[at_limit(45), at_limit(45)], 0),
            ("talos#12526: a part of the stalls", 90, calm, &[at_limit(30)], 60),
            ("a cgroup without PSI", 90, calm, &[((Some(3), None), (Some(9), None))], 0),
            (
                "a cgroup without PSI beside reclaim for the node",
                90,
                Some((5, 6)),
                &[((Some(3), None), (Some(9), None))],
                90,
            ),
            ("neither PSI nor counters: by usage", 90, None, &[((None, None), (None, None))], 0),
            (
                "a workload waits for the node beside one at its limit",
                90,
                Some((5, 9)),
                &[at_limit(90), ((Some(1), Some(0)), (Some(1), Some(70)))],
                70,
            ),
            (
                "one waits, but nobody reclaims for the node",
                90,
                calm,
                &[at_limit(90), ((Some(1), Some(0)), (Some(1), Some(70)))],
                0,
            ),
        ] {
            assert_eq!(node(system, reclaims, workloads), expected, "{name}");
        }
    }

    /// systemd's `MemoryMax=` on a slice: none of its services has a limit.
    #[test]
    fn a_slice_at_its_limit_explains_its_stalls() {
        let reading = |system, hits, stalled| Reading {
            system: Duration::from_millis(system),
            direct_reclaims: Some(system),
            workloads: HashMap::from([(CgroupId(1), at_limit(Some(0), Some(0)))]),
            groups: HashMap::from([(CgroupId(2), at_limit(Some(hits), Some(stalled)))]),
        };
        for (hits, stalled, expected) in [(9, 95, 0), (9, 40, 50), (0, 95, 90)] {
            let mut stalls = NodeStalls::default();
            stalls.observe(Monotonic(0), reading(0, 0, 0));
            let found = stalls.observe(Monotonic(1), reading(90, hits, stalled));
            assert_eq!(found, Duration::from_millis(expected), "{hits} {stalled}");
        }
    }

    #[test]
    fn a_new_workload_explains_nothing() {
        let mut stalls = NodeStalls::default();
        let reading = |system, workloads: HashMap<CgroupId, AtLimit>| Reading {
            system: Duration::from_millis(system),
            direct_reclaims: None,
            workloads,
            groups: HashMap::new(),
        };
        stalls.observe(Monotonic(0), reading(500, HashMap::new()));
        let new = HashMap::from([(CgroupId(1), at_limit(Some(9), Some(90)))]);
        assert_eq!(stalls.observe(Monotonic(1), reading(590, new)), Duration::from_millis(90));
    }
}
