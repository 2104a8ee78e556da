//! When `oom_score_adj` of which workloads is audited, one slice at a time.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use crate::config::MonitorConfig;
use crate::sensors::Sensors;
use crate::units::{CgroupId, Monotonic, Pid};
use crate::workloads::{WorkloadTree, membership};

use super::oom_score::{Audit, Auditor, Extent, Rules};
use super::score_record::{Restored, ScoreRecord};
use super::self_protection::{self, OwnScore};

/// Shortest time between audits of `oom_score_adj`: limits the effect of a process that writes it all the time.
const PAUSE: Duration = Duration::from_secs(1);
/// Otherwise the pause is this many times the duration of an audit: half a per cent of a CPU.
const SHARE: u32 = 200;
/// Upper bound of the pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Duration of one slice of an audit.
const SLICE: Duration = Duration::from_millis(2);
/// Above this number of written processes all processes are audited.
const MOST_WRITTEN: usize = 64;

/// Audits of `oom_score_adj`.
#[derive(Debug, Default)]
pub struct Audits {
    auditor: Auditor,
    /// Workloads in which a value may have changed.
    due: Extent,
    /// Processes whose value was written; few enough to be looked up one by one.
    written: HashSet<Pid>,
    /// When the last audit was.
    at: Option<Monotonic>,
    /// Duration of the last audit, or of the present one so far.
    took: Duration,
    /// Processes that the last audit left with a wrong value.
    drifted: usize,
    /// Workloads whose drift was reported.
    reported: HashSet<CgroupId>,
    /// The drift of a host without pods was reported.
    is_summed_up: bool,
    /// The agent does not set its own score.
    leaves_own_score: bool,
}

impl Audits {
    /// Returns audits that note each replaced value in this record.
    pub fn recorded_in(record: ScoreRecord) -> Self {
        Self { auditor: Auditor::default().recorded_in(record), ..Self::default() }
    }

    #[must_use]
    pub fn leaving_own_score(self, leaves_own_score: bool) -> Self {
        Self { leaves_own_score, ..self }
    }

    /// Restores the values from before the agent. The loop sets values only in enforce mode.
    pub fn restore(&mut self, proc_root: &Path) -> Restored {
        self.auditor.restore(proc_root)
    }

    /// Notes a write of the process's `oom_score_adj`.
    pub fn note_write(&mut self, pid: Pid) {
        if self.written.len() < MOST_WRITTEN {
            self.written.insert(pid);
        } else {
            self.due = Extent::All;
        }
    }

    /// Begins an audit if one is due, and audits for one slice. Returns the outcome of setting the agent's own score, which precedes an
    /// audit, and the audit once it is complete. Without a sample of memory no audit continues.
    pub fn advance(
        &mut self,
        sensors: &mut Sensors,
        config: &MonitorConfig,
        now: Monotonic,
    ) -> (Option<OwnScore>, Option<Audit>) {
        self.due.add(sensors.workloads.take_appeared());
        let has_begun = self.begin_if_due(sensors.workloads.tree(), &config.proc_root, now);
        let own_score =
            (has_begun && !self.leaves_own_score).then(|| self_protection::keep_own_score(&config.proc_root));
        let Some(sample) = sensors.memory.sample().filter(|_| self.is_busy()) else { return (own_score, None) };
        let rules = Rules {
            proc_root: &config.proc_root,
            capacity: sample.meminfo.total,
            scores: config.policy.oom_scores,
            mode: config.mode,
        };
        let until_sample = sensors.until_sample(config, now).unwrap_or_default();
        (own_score, self.step(sensors.workloads.tree(), rules, until_sample, now))
    }

    pub fn request_all(&mut self) {
        self.due = Extent::All;
    }

    pub fn is_busy(&self) -> bool {
        self.auditor.is_busy()
    }

    /// Returns the number of processes that the last audit left with a wrong value.
    pub fn drifted(&self) -> usize {
        self.drifted
    }

    /// Begins an audit if one is due and none is under way. Returns whether it has begun.
    fn begin_if_due(&mut self, tree: &WorkloadTree, proc_root: &Path, now: Monotonic) -> bool {
        let pause = self.took.saturating_mul(SHARE).clamp(PAUSE, LONGEST_PAUSE);
        let has_rested = self.at.is_none_or(|last| now.since(last) >= pause);
        let is_due = !self.due.is_empty() || !self.written.is_empty();
        if self.is_busy() || !is_due || !has_rested {
            return false;
        }
        self.took = Duration::ZERO;
        let extent = self.take_extent(tree, proc_root);
        self.auditor.begin(tree, extent);
        true
    }

    /// Returns the workloads whose scores may be wrong.
    fn take_extent(&mut self, tree: &WorkloadTree, proc_root: &Path) -> Extent {
        let mut extent = std::mem::take(&mut self.due);
        let version = tree.hierarchy().version;
        for Pid(pid) in std::mem::take(&mut self.written) {
            // The process is gone.
            let Some(path) = membership::of(proc_root, &pid.to_string(), version) else { continue };
            match tree.enclosing_workload(&path) {
                Some(id) => extent.add([id]),
                // A process on its way to its own cgroup may join any workload.
                None => return Extent::All,
            }
        }
        extent
    }

    /// Audits for one slice, at most `at_most`: a longer slice would delay the next sample. Returns the audit once it
    /// is complete.
    fn step(&mut self, tree: &WorkloadTree, rules: Rules<'_>, at_most: Duration, now: Monotonic) -> Option<Audit> {
        let audit = self.auditor.step(tree, rules, now.after(at_most.min(SLICE)));
        let stepped = Monotonic::now();
        self.took = self.took.saturating_add(stepped.since(now));
        let audit = audit?;
        self.at = Some(stepped);
        self.drifted = audit.drifted;
        // A workload that has its value again may be reported again.
        let is_wrong = |id: &CgroupId| audit.workloads.iter().any(|drift| drift.id == *id);
        self.reported.retain(|id| !audit.extent.holds(*id) || is_wrong(id));
        Some(audit)
    }

    /// Returns whether the workload's drift was reported.
    pub fn is_reported(&self, id: CgroupId) -> bool {
        self.reported.contains(&id)
    }

    pub fn note_reported(&mut self, id: CgroupId) {
        self.reported.insert(id);
    }

    pub fn is_summed_up(&self) -> bool {
        self.is_summed_up
    }

    pub fn note_summed_up(&mut self) {
        self.is_summed_up = true;
    }

    pub fn forget(&mut self, removed: &HashSet<CgroupId>) {
        self.reported.retain(|id| !removed.contains(id));
    }

    /// Forgets every report: the rules have changed.
    pub fn forget_reports(&mut self) {
        self.reported.clear();
        self.is_summed_up = false;
    }
}
