//! Sets `oom_score_adj` of workloads' processes, or reports where it differs.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::config::{Mode as AgentMode, OomScores};
use crate::eviction::oom_score::oom_score_adj;
use crate::node::CgroupVersion;
use crate::node::process_facts::{parent, started};
use crate::sensors::standing::NODE_CRITICAL_SCORE;
use crate::units::{Bytes, CgroupId, Monotonic, Pid};
use crate::workloads::cgroup_processes::Monitors;
use crate::workloads::{Kind, QosClass, Workload, WorkloadTree, cgroup_processes, membership};

use super::score_record::{Process, Restored, ScoreRecord};

/// The workloads whose processes are audited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// The processes of these workloads.
    Some(HashSet<CgroupId>),
    /// The processes of every candidate.
    All,
}

impl Default for Extent {
    fn default() -> Self {
        Self::Some(HashSet::new())
    }
}

impl Extent {
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Some(ids) if ids.is_empty())
    }

    pub fn add(&mut self, more: impl IntoIterator<Item = CgroupId>) {
        if let Self::Some(ids) = self {
            ids.extend(more);
        }
    }

    /// Whether the processes of this workload are included.
    pub fn holds(&self, id: CgroupId) -> bool {
        match self {
            Self::Some(ids) => ids.contains(&id),
            Self::All => true,
        }
    }
}

/// Audits `oom_score_adj` a few processes at a time, since a node may have ten thousand processes and the loop has more
/// urgent work. Remembers each wrong value, so that it counts once.
#[derive(Debug, Default)]
pub struct Auditor {
    /// Wrong values as of the last round that audited their workload.
    drifted: HashMap<Process, Found>,
    round: Option<Round>,
    /// Where replaced values are noted. Without it they cannot be restored.
    record: Option<ScoreRecord>,
}

/// The expected values, and the mode that decides whether to set them.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Where procfs is mounted.
    pub proc_root: &'a Path,
    /// The node's memory, from which the score of a Burstable pod is computed.
    pub capacity: Bytes,
    pub scores: OomScores,
    /// Only enforce mode sets values.
    pub mode: AgentMode,
}

/// A wrong value and its workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    value: i16,
    workload: CgroupId,
}

/// One round over the candidates.
#[derive(Debug)]
struct Round {
    workloads: Vec<CgroupId>,
    /// Remaining processes of the present workload.
    pids: Vec<Pid>,
    in_hand: Option<(CgroupId, i16)>,
    drifted: HashMap<Process, Found>,
    audit: Audit,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Audit {
    pub extent: Extent,
    /// Processes of all workloads whose wrong value was left.
    pub drifted: usize,
    /// Processes that the previous audit did not find wrong, or found with another value.
    pub newly_drifted: usize,
    /// Processes whose value was set.
    pub repaired: usize,
    /// Workloads with differing processes, each with an example, for the log.
    pub workloads: Vec<Drift>,
    /// The kernel's first refusal.
    pub refused: Option<String>,
}

/// A workload with processes whose value differs from that of its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The workload's cgroup.
    pub id: CgroupId,
    pub workload: String,
    /// The value of its class.
    pub expected: i16,
    /// One process and its value.
    pub example: (Pid, i16),
    pub processes: usize,
}

/// Values that the kubelet sets for Burstable pods, by their request.
const BURSTABLE: std::ops::RangeInclusive<i16> = 3..=999;

/// Whether the value is acceptable. The kubelet sets each container's value by what that container had been allocated when it started, and
/// adds the memory of its resource claims (1.37), so any Burstable value may be right for a Burstable pod.
/// Values as low as that of node-critical pods are deliberate: -1000 exempts from the OOM killer, node agents and
/// runtimes set -999 and -998 for themselves and their sandboxes.
fn is_right(workload: &Workload, value: i16, expected: i16) -> bool {
    let is_burstable_pod = matches!(workload.kind, Kind::Pod(_)) && workload.qos == QosClass::Burstable;
    value == expected || value <= NODE_CRITICAL_SCORE || (is_burstable_pod && BURSTABLE.contains(&value))
}

/// Returns whether a process has chosen this value, which is above that of its class. Such a process offers itself to the OOM killer, as
/// Ray's workers and Chromium's renderers do, and keeps its value. A value that the agent itself has written is no offer. The kernel's
/// default, 0, is chosen only if the agent has set the process before, or if its parent in the same workload had another value when it was
/// forked. Otherwise nothing has set the value yet.
fn is_offer(
    (pid, value): (Pid, i16),
    workload: &str,
    version: CgroupVersion,
    record: Option<&ScoreRecord>,
    proc_root: &Path,
) -> bool {
    let recorded = |pid| record?.values((pid, started(proc_root, pid)?));
    let parent = parent(proc_root, pid)
        .filter(|parent| membership::is_in(proc_root, *parent, version, workload).unwrap_or(false));
    let (own, of_parent) = (recorded(pid), parent.and_then(recorded));
    // The agent has written this value for an earlier class, to this process or to the one that forked it.
    if [own, of_parent].into_iter().flatten().any(|(_, written)| written == value) {
        return false;
    }
    if value != 0 || own.is_some() {
        return true;
    }
    let before = of_parent.map(|(before, _)| before);
    let inherited = before.or_else(|| cgroup_processes::oom_score(proc_root, parent?));
    inherited.is_some_and(|value| value != 0)
}

impl Auditor {
    /// Notes each value in this record before it is replaced.
    #[must_use]
    pub fn recorded_in(self, record: ScoreRecord) -> Self {
        Self { record: Some(record), ..self }
    }

    pub fn restore(&mut self, proc_root: &Path) -> Restored {
        self.record.as_mut().map(|record| record.restore(proc_root)).unwrap_or_default()
    }

    /// Starts a round over the candidates in `extent`, unless a round is under way.
    pub fn begin(&mut self, tree: &WorkloadTree, extent: Extent) {
        if self.is_busy() {
            return;
        }
        let is_wanted = |workload: &&Workload| workload.protection.is_none() && extent.holds(workload.id);
        let workloads = tree.workloads().filter(is_wanted).map(|workload| workload.id).collect();
        let audit = Audit { extent, ..Audit::default() };
        self.round = Some(Round { workloads, pids: Vec::new(), in_hand: None, drifted: HashMap::new(), audit });
    }

    /// Whether a round is under way.
    pub fn is_busy(&self) -> bool {
        self.round.is_some()
    }

    /// Audits processes until the given time or the end of the round, but at least one process. Enforce mode sets wrong
    /// values. Returns the audit at the end of the round.
    pub fn step(&mut self, tree: &WorkloadTree, rules: Rules<'_>, until: Monotonic) -> Option<Audit> {
        let round = self.round.as_mut()?;
        while round.check_next(&self.drifted, self.record.as_mut(), tree, rules) {
            if Monotonic::now() >= until {
                return None;
            }
        }
        let Round { mut audit, drifted, .. } = self.round.take()?;
        self.drifted.retain(|_, found| !audit.extent.holds(found.workload));
        self.drifted.extend(drifted);
        audit.drifted = self.drifted.len();
        Some(audit)
    }
}

impl Round {
    /// Checks one process, or takes up the next workload. Returns false when no workload is left.
    fn check_next(
        &mut self,
        before: &HashMap<Process, Found>,
        record: Option<&mut ScoreRecord>,
        tree: &WorkloadTree,
        rules: Rules<'_>,
    ) -> bool {
        let Some(pid) = self.pids.pop() else { return self.take_next(tree, rules) };
        let Some((id, expected)) = self.in_hand else { return true };
        // The workload has gone since the round began.
        let Some(tracked) = tree.find(id) else {
            self.pids.clear();
            return true;
        };
        let (workload, version) = (tracked.workload(), tree.hierarchy().version);
        let is_offer = |value| is_offer((pid, value), &workload.name, version, record.as_deref(), rules.proc_root);
        let is_wrong = |value: &i16| !is_right(workload, *value, expected) && (*value < expected || !is_offer(*value));
        if let Some(value) = cgroup_processes::oom_score(rules.proc_root, pid).filter(is_wrong) {
            self.differs((before, record), tree, rules, (tracked.workload(), expected), (pid, value));
        }
        true
    }

    fn take_next(&mut self, tree: &WorkloadTree, rules: Rules<'_>) -> bool {
        let Some(id) = self.workloads.pop() else { return false };
        self.in_hand = None;
        if let Some(tracked) = tree.find(id)
            && cgroup_processes::collect(tracked.directory(), Monitors::of(&tracked.workload().kind), &mut self.pids)
                .is_ok()
        {
            let Workload { qos, request, ref kind, .. } = *tracked.workload();
            let expected = oom_score_adj(qos, request, rules.capacity, rules.scores);
            // Outside pods a lower value would exempt the workload from eviction.
            let least = if kind.pod_uid().is_some() { i16::MIN } else { NODE_CRITICAL_SCORE };
            self.in_hand = Some((id, expected.max(least)));
        }
        true
    }

    fn differs(
        &mut self,
        (before, record): (&HashMap<Process, Found>, Option<&mut ScoreRecord>),
        tree: &WorkloadTree,
        rules: Rules<'_>,
        (workload, expected): (&Workload, i16),
        (pid, value): (Pid, i16),
    ) {
        let Rules { proc_root, mode, .. } = rules;
        match self.audit.workloads.last_mut().filter(|drift| drift.id == workload.id) {
            Some(drift) => drift.processes += 1,
            None => self.audit.workloads.push(Drift {
                id: workload.id,
                workload: workload.name.clone(),
                expected,
                example: (pid, value),
                processes: 1,
            }),
        }
        // The process has gone meanwhile, but its value counts as wrong.
        let process = (pid, started(proc_root, pid).unwrap_or(0));
        let found = Found { value, workload: workload.id };
        self.audit.newly_drifted += usize::from(before.get(&process) != Some(&found));
        if mode == AgentMode::Enforce {
            let noted = record.map_or(Ok(()), |record| record.note(process, workload.id, (value, expected), proc_root));
            let set = || set(pid, proc_root, &workload.name, tree.hierarchy().version, expected);
            match noted.and_then(|()| set().map_err(|error| error.to_string())) {
                Ok(was_set) => {
                    self.audit.repaired += usize::from(was_set);
                    return;
                }
                Err(error) => {
                    let say = || format!("cannot set oom_score_adj of process {}: {error}", pid.0);
                    self.audit.refused.get_or_insert_with(say);
                }
            }
        }
        self.drifted.insert(process, found);
    }
}

/// Writes the value through the open directory of the process, after checking its cgroup: a reused pid has another
/// directory. Returns false if the process is gone or in another workload.
fn set(pid: Pid, proc_root: &Path, workload: &str, version: CgroupVersion, value: i16) -> std::io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let written = rustix::fs::open(proc_root.join(pid.0.to_string()), flags, Mode::empty()).and_then(|directory| {
        if !membership::is_in(proc_root, pid, version, workload)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?
        {
            return Ok(false);
        }
        let file = rustix::fs::openat(&directory, "oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, value.to_string().as_bytes())?;
        Ok(true)
    });
    match written {
        Ok(written) => Ok(written),
        Err(Errno::NOENT | Errno::SRCH) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
#[path = "oom_score_tests.rs"]
mod tests;
