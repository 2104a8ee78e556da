//! Setting `oom_score_adj` of workloads' processes, or reporting where it differs.

use std::collections::HashMap;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::config::{Bytes, CgroupId, Mode as AgentMode, OomScores, Pid};
use crate::eviction::oom_score::oom_score_adj;
use crate::node::CgroupVersion;
use crate::workloads::tree::Tracked;
use crate::workloads::{Kind, QosClass, Workload, WorkloadTree, membership, processes};

/// A process for good: ids are given out anew, not at the same tick of the clock.
type Process = (Pid, u64);

/// Looks at `oom_score_adj`, and remembers what it found wrong, so that each wrong value counts once.
#[derive(Debug, Default)]
pub struct Auditor {
    drifted: HashMap<Process, i16>,
}

/// What one audit found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Processes whose value differs from their workload's and was left so.
    pub drifted: usize,
    /// Processes that the audit before did not find to differ, or with another value.
    pub newly_drifted: usize,
    /// Processes whose value was set.
    pub repaired: usize,
    /// Workloads with differing processes, each with an example, for the log.
    pub workloads: Vec<Drift>,
    /// The first refusal of the kernel.
    pub refused: Option<String>,
}

/// A workload some of whose processes have another value than its class asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The workload's cgroup.
    pub id: CgroupId,
    /// The workload.
    pub workload: String,
    /// What its class asks for.
    pub expected: i16,
    /// One process and its value.
    pub example: (Pid, i16),
    /// How many there are.
    pub processes: usize,
}

/// Values this low are somebody's own decision: -1000 exempts from the OOM killer, -999 and -998 are what node agents and
/// runtimes give themselves and their sandboxes, -997 is what the kubelet gives to node-critical pods of any class.
const LEFT_ALONE: i16 = -997;

/// Values that the kubelet gives to Burstable pods, by their request.
const BURSTABLE: std::ops::RangeInclusive<i16> = 3..=999;

/// Whether the value may stand. The request of a Burstable pod is known here only when the kubelet sets `memory.min`, its MemoryQoS
/// feature: without it, the kubelet's own value, which rests on the request, is better than ours.
fn is_right(workload: &Workload, value: i16, expected: i16) -> bool {
    let unknown_request =
        matches!(workload.kind, Kind::Pod(_)) && workload.qos == QosClass::Burstable && workload.request.is_zero();
    value == expected || value <= LEFT_ALONE || (unknown_request && BURSTABLE.contains(&value))
}

/// Whether a process of this pod has the value that the kubelet gives to node-critical pods only, Guaranteed ones aside.
#[must_use]
pub fn is_node_critical(tracked: &Tracked, proc_root: &Path) -> bool {
    let workload = tracked.workload();
    let is_candidate = matches!(workload.kind, Kind::Pod(_)) && workload.qos != QosClass::Guaranteed;
    // It gives it to every container of such a pod, and runs no process there before: a few processes tell.
    is_candidate && values(tracked, proc_root, 4).into_iter().any(|(_, value)| value == LEFT_ALONE)
}

impl Auditor {
    /// Compares every process of every candidate workload with what its class asks for; sets it when enforcing.
    #[must_use]
    pub fn audit(
        &mut self,
        tree: &WorkloadTree,
        proc_root: &Path,
        capacity: Bytes,
        scores: OomScores,
        mode: AgentMode,
    ) -> Audit {
        let mut audit = Audit::default();
        let before = std::mem::take(&mut self.drifted);
        let version = tree.hierarchy().version;
        for tracked in tree.tracked().iter().filter(|tracked| tracked.workload().protection.is_none()) {
            let workload = tracked.workload();
            let expected = oom_score_adj(workload.qos, workload.request, capacity, scores);
            let differing = differing(tracked, proc_root, expected);
            let Some(example) = differing.first().copied() else { continue };
            let processes = differing.len();
            audit.workloads.push(Drift {
                id: workload.id,
                workload: workload.name.clone(),
                expected,
                example,
                processes,
            });
            for (pid, value) in differing {
                // Gone meanwhile: it was found wrong all the same.
                let process = (pid, started(proc_root, pid).unwrap_or(0));
                audit.newly_drifted += usize::from(before.get(&process) != Some(&value));
                if mode == AgentMode::Enforce {
                    match set(pid, proc_root, &workload.name, version, expected) {
                        Ok(was_set) => {
                            audit.repaired += usize::from(was_set);
                            continue;
                        }
                        Err(error) => {
                            let say = || format!("cannot set oom_score_adj of process {}: {error}", pid.0);
                            audit.refused.get_or_insert_with(say);
                        }
                    }
                }
                self.drifted.insert(process, value);
            }
        }
        audit.drifted = self.drifted.len();
        audit
    }
}

/// When a process was started, in ticks since boot: the 22nd field, the 20th after its name, which may hold anything.
fn started(proc_root: &Path, pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(proc_root.join(pid.0.to_string()).join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn differing(tracked: &Tracked, proc_root: &Path, expected: i16) -> Vec<(Pid, i16)> {
    let mut values = values(tracked, proc_root, usize::MAX);
    values.retain(|(_, value)| !is_right(tracked.workload(), *value, expected));
    values
}

/// Processes of the workload, at most so many, each with its `oom_score_adj`.
fn values(tracked: &Tracked, proc_root: &Path, at_most: usize) -> Vec<(Pid, i16)> {
    let mut pids = Vec::new();
    if processes::collect(tracked.directory(), &mut pids).is_err() {
        return Vec::new();
    }
    let value = |pid: Pid| {
        let text = std::fs::read_to_string(proc_root.join(pid.0.to_string()).join("oom_score_adj")).ok()?;
        Some((pid, text.trim().parse().ok()?))
    };
    pids.into_iter().take(at_most).filter_map(value).collect()
}

/// Writes through the open directory of the process, after checking that it is still of this workload: a reused pid is another
/// process, and its directory another directory. False when it is gone or elsewhere by now.
fn set(pid: Pid, proc_root: &Path, workload: &str, version: CgroupVersion, value: i16) -> std::io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let written = rustix::fs::open(proc_root.join(pid.0.to_string()), flags, Mode::empty()).and_then(|directory| {
        if !membership::is_in(proc_root, pid, version, workload) {
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
