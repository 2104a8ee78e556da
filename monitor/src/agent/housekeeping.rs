//! Periodic work: the tree, the kernel's aggregates, `oom_score_adj`, and the full report.

use std::time::Duration;

use crate::actions::oom_score::{Audit, Extent, Rules};
use crate::actions::self_protection;
use crate::report::record::Record;
use crate::units::{CgroupId, Monotonic, Pid};
use crate::workloads::membership;

use super::Agent;

/// Shortest time between audits of `oom_score_adj`: limits the effect of a process that writes it all the time.
const AUDIT_PAUSE: Duration = Duration::from_secs(1);
/// Otherwise the pause is this many times the duration of an audit: half a per cent of a CPU.
const AUDIT_SHARE: u32 = 200;
/// Upper bound of the pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Duration of one piece of an audit.
const AUDIT_SLICE: Duration = Duration::from_millis(2);
/// Interval of full reports that no client requested.
const LET_GO_EVERY: Duration = Duration::from_secs(60);
const SCORE_NOT_SET: &str = "oom_score_adj cannot be set (lowering it needs CAP_SYS_RESOURCE)";

impl Agent {
    pub(super) fn until_housekeeping(&self, now: Monotonic) -> Duration {
        let since = self.last.housekeeping.map(|last| now.since(last));
        since.map_or(Duration::ZERO, |since| self.sensors.workloads.pause().saturating_sub(since))
    }

    pub(super) fn is_housekeeping_due(&self) -> bool {
        self.until_housekeeping(Monotonic::now()).is_zero()
    }

    /// Performs all periodic work once.
    pub(super) fn do_housekeeping(&mut self) {
        self.last.housekeeping = Some(Monotonic::now());
        self.sensors.workloads.scan();
        self.hint_stores();
        self.tidy_ledger();
        self.confirm_cluster();
        let now = Monotonic::now();
        self.note_counters();
        self.reporter.check_journal(now);
        self.note_oom_counters();
        // The kernel reports every write, but not a process that never had the right value.
        self.actions.audits.due = Extent::All;
        self.audit_if_due();
        if self.last.let_go.is_none_or(|last| now.since(last) >= LET_GO_EVERY) {
            // Diagnostics of the programs: rare, and slow to fetch.
            self.sensors.events.flush_logs();
            // The counters of removed cgroups must be in a publication before they are dropped.
            if self.publish() {
                self.last.let_go = Some(now);
                self.let_go();
            }
        }
        // Runs after the report, which finds the filesystems: a source found for the first time is not a change.
        self.sensors.update_sources();
    }

    /// Audits `oom_score_adj` for one slice, if an audit is due. A longer slice would delay the next sample.
    pub(super) fn audit_if_due(&mut self) {
        let now = Monotonic::now();
        self.actions.audits.due.add(self.sensors.workloads.take_appeared());
        if !self.actions.auditor.is_busy() {
            let pause = self.actions.audits.took.saturating_mul(AUDIT_SHARE).clamp(AUDIT_PAUSE, LONGEST_PAUSE);
            let rested = self.actions.audits.at.is_none_or(|last| now.since(last) >= pause);
            if !self.actions.audits.are_due() || !rested {
                return;
            }
            self.actions.audits.took = Duration::ZERO;
            self.keep_own_score();
            let extent = self.audit_extent();
            self.actions.auditor.begin(self.sensors.workloads.tree(), extent);
        }
        let Some(sample) = self.sensors.memory.sample() else { return };
        let rules = Rules {
            proc_root: &self.config.proc_root,
            capacity: sample.meminfo.total,
            scores: self.config.policy.oom_scores,
            mode: self.config.mode,
        };
        let until_sample = self.sensors.until_sample(&self.config, now).unwrap_or_default();
        let until = now.after(until_sample.min(AUDIT_SLICE));
        let audit = self.actions.auditor.step(self.sensors.workloads.tree(), rules, until);
        let stepped = Monotonic::now();
        self.actions.audits.took = self.actions.audits.took.saturating_add(stepped.since(now));
        if let Some(audit) = audit {
            self.actions.audits.at = Some(stepped);
            self.report_audit(&audit, stepped);
        }
    }

    /// Returns the workloads whose scores may be wrong.
    fn audit_extent(&mut self) -> Extent {
        let mut extent = std::mem::take(&mut self.actions.audits.due);
        let version = self.sensors.workloads.tree().hierarchy().version;
        for Pid(pid) in std::mem::take(&mut self.actions.audits.written) {
            // The process is gone.
            let Some(path) = membership::of(&self.config.proc_root, &pid.to_string(), version) else { continue };
            match self.sensors.workloads.tree().enclosing_workload(&path) {
                Some(id) => extent.add([id]),
                // A process on its way to its own cgroup may join any workload.
                None => return Extent::All,
            }
        }
        extent
    }

    /// Drops the counters of cgroups that are gone.
    fn let_go(&mut self) {
        let removed = self.sensors.drop_removed();
        self.actions.audits.reported.retain(|id| !removed.contains(id));
    }

    /// Reports an audit of `oom_score_adj`. Drift that the rate limit suppresses is reported after the next audit.
    fn report_audit(&mut self, audit: &Audit, now: Monotonic) {
        // A workload that has its value again may be reported again.
        let is_wrong = |id: &CgroupId| audit.workloads.iter().any(|drift| drift.id == *id);
        self.actions.audits.reported.retain(|id| !audit.extent.holds(*id) || is_wrong(id));
        let mode = self.config.mode;
        for drift in &audit.workloads {
            if !self.actions.audits.reported.contains(&drift.id)
                && self.reporter.report(&Record::OomScoreDrift { drift, mode }, now)
            {
                self.actions.audits.reported.insert(drift.id);
            }
        }
        if audit.refused.is_some() || audit.repaired > 0 {
            let reason = audit.refused.as_deref();
            self.reporter.set_capability(self_protection::SCORES, reason, SCORE_NOT_SET, now);
        }
        self.reporter.report(&Record::OomScoresAudited(audit), now);
        self.actions.audits.drifted = audit.drifted;
    }

    fn keep_own_score(&mut self) {
        let now = Monotonic::now();
        match self_protection::keep_own_score(&self.config.proc_root) {
            Ok(None) => {}
            Ok(Some(found)) => {
                self.reporter.set_capability(self_protection::OWN_SCORE, None, "", now);
                self.reporter.report(&Record::OwnOomScore { found }, now);
            }
            Err(reason) => {
                self.reporter.set_capability(self_protection::OWN_SCORE, Some(&reason), SCORE_NOT_SET, now);
            }
        }
    }
}
