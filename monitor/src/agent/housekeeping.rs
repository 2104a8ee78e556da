//! Periodic work: the tree, the kernel's aggregates, `oom_score_adj`, and the full report.

use std::time::Duration;

use crate::actions::oom_score::{Audit, Rules};
use crate::actions::{kept_state, self_protection};
use crate::cluster::ledger;
use crate::config::Semantics;
use crate::report::record::Record;
use crate::units::Monotonic;

use super::Agent;

/// Interval of full reports that no client requested.
const LET_GO_EVERY: Duration = Duration::from_secs(60);
/// System daemons that have kept to their reservation for this long are reported again when they exceed it.
const DAEMONS_WITHIN: Duration = Duration::from_secs(300);
const SCORE_NOT_SET: &str = "oom_score_adj cannot be set (lowering it needs CAP_SYS_RESOURCE)";

impl Agent {
    pub(super) fn until_housekeeping(&self, now: Monotonic) -> Duration {
        let since = self.last.housekeeping.map(|last| now.since(last));
        since.map_or(Duration::ZERO, |since| self.sensors.workloads.pause().saturating_sub(since))
    }

    /// Performs all periodic work once.
    pub(super) fn do_housekeeping(&mut self) {
        let started = Monotonic::now();
        self.last.housekeeping = Some(started);
        if self.last.let_go.is_some_and(|last| started.since(last) >= LET_GO_EVERY) && !self.is_near() {
            self.sensors.workloads.tree_mut().recheck_essentials();
        }
        self.sensors.workloads.scan();
        self.actions.hint_stores(&mut self.sensors);
        self.look_for_swap();
        self.tidy_ledger();
        let reason = self.kept.degradation();
        self.reporter.set_capability(kept_state::CAPABILITY, reason.as_deref(), kept_state::EFFECT, Monotonic::now());
        self.confirm_cluster();
        self.report_daemons(Monotonic::now());
        let now = Monotonic::now();
        self.reporter.note_counters(&mut self.sensors);
        self.reporter.check_journal(now);
        self.reporter.note_oom_counters(&mut self.sensors, Monotonic::now());
        // The kernel reports every write, but not a process that never had the right value.
        self.actions.audits.request_all();
        self.audit_if_due();
        if self.last.let_go.is_none_or(|last| now.since(last) >= LET_GO_EVERY) {
            // Diagnostics of the programs: rare, and slow to fetch.
            self.sensors.events.flush_logs();
            self.publish_digest();
            // The counters of removed cgroups must be in a publication before they are dropped.
            if self.publish() {
                self.last.let_go = Some(now);
                self.let_go();
            }
        }
        // Runs after the report, which finds the filesystems: a source found for the first time is not a change.
        self.sensors.update_sources();
    }

    /// Looks whether the node has swap that may delay an eviction.
    fn look_for_swap(&mut self) {
        let is_corrected = self.config.policy.semantics == Semantics::Corrected;
        self.sensors.look_for_swap(is_corrected && self.config.evictions.wait_for_swap);
    }

    /// Reports that system daemons exceed their reservation, once until they have kept to it for a while.
    fn report_daemons(&mut self, now: Monotonic) {
        let Some(daemons) = self.sensors.daemons(&self.config.policy).filter(|daemons| !daemons.above.is_zero()) else {
            return;
        };
        let before = self.last.daemons_above.replace(now);
        if before.is_none_or(|before| now.since(before) >= DAEMONS_WITHIN) {
            self.reporter.report(&Record::DaemonsAboveReservation(&daemons), now);
        }
    }

    /// Tidies the ledger and reports its degradation, unless a threshold is near.
    fn tidy_ledger(&mut self) {
        if self.actions.cluster.is_there() && !self.is_near() {
            self.actions.cluster.ledger().tidy();
            let reason = self.actions.cluster.ledger().degradation();
            let effect = "an agent that ends in mid-eviction may leave it unfinished";
            self.reporter.set_capability(ledger::CAPABILITY, reason.as_deref(), effect, Monotonic::now());
        }
    }

    /// Audits `oom_score_adj` for one slice, if an audit is due.
    pub(super) fn audit_if_due(&mut self) {
        let now = Monotonic::now();
        self.actions.audits.request(self.sensors.workloads.take_appeared());
        if self.actions.audits.begin_if_due(self.sensors.workloads.tree(), &self.config.proc_root, now) {
            self.keep_own_score(now);
        }
        let Some(sample) = self.sensors.memory.sample().filter(|_| self.actions.audits.is_busy()) else { return };
        let rules = Rules {
            proc_root: &self.config.proc_root,
            capacity: sample.meminfo.total,
            scores: self.config.policy.oom_scores,
            mode: self.config.mode,
        };
        let until_sample = self.sensors.until_sample(&self.config, now).unwrap_or_default();
        if let Some(audit) = self.actions.audits.step(self.sensors.workloads.tree(), rules, until_sample, now) {
            self.report_audit(&audit, now);
        }
    }

    /// Drops the counters of cgroups that are gone.
    fn let_go(&mut self) {
        let removed = self.sensors.drop_removed();
        self.actions.audits.forget(&removed);
    }

    /// Reports an audit of `oom_score_adj`. Drift that the rate limit suppresses is reported after the next audit.
    fn report_audit(&mut self, audit: &Audit, now: Monotonic) {
        let mode = self.config.mode;
        for drift in &audit.workloads {
            if !self.actions.audits.is_reported(drift.id)
                && self.reporter.report(&Record::OomScoreDrift { drift, mode }, now)
            {
                self.actions.audits.note_reported(drift.id);
            }
        }
        if audit.refused.is_some() || audit.repaired > 0 {
            let reason = audit.refused.as_deref();
            self.reporter.set_capability(self_protection::SCORES, reason, SCORE_NOT_SET, now);
        }
        self.reporter.report(&Record::OomScoresAudited(audit), now);
    }

    fn keep_own_score(&mut self, now: Monotonic) {
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
