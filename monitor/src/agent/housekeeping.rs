//! Periodic work: the tree, the kernel's aggregates, `oom_score_adj`, and the full report.

use std::time::Duration;

use crate::actions::kept_state;
use crate::cluster::ledger;
use crate::config::Semantics;
use crate::units::Monotonic;

use super::Agent;

/// Interval of full reports that no client requested.
const FULL_REPORT_EVERY: Duration = Duration::from_secs(60);
/// After this time the start is over.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

impl Agent {
    pub(super) fn until_housekeeping(&self, now: Monotonic) -> Duration {
        let since = self.last.housekeeping.map(|last| now.since(last));
        since.map_or(Duration::ZERO, |since| self.sensors.workloads.pause().saturating_sub(since))
    }

    /// Performs all periodic work once.
    pub(super) fn do_housekeeping(&mut self) {
        let started = Monotonic::now();
        self.last.housekeeping = Some(started);
        if self.last.full_report.is_some_and(|last| started.since(last) >= FULL_REPORT_EVERY) && !self.is_near() {
            self.sensors.workloads.tree_mut().recheck_essentials();
        }
        self.sensors.workloads.scan();
        self.sensors.read_manifests(&self.config.proc_root, !self.is_near());
        self.sensors.forget_living_victims(&self.config.proc_root);
        self.actions.hint_stores(&mut self.sensors);
        self.sensors.look_at_kubelet(&self.config.proc_root, !self.is_near(), started);
        let is_corrected = self.config.policy.semantics == Semantics::Corrected;
        self.sensors.look_for_swap(is_corrected && self.config.evictions.wait_for_swap);
        self.tidy_ledger();
        let reason = self.kept.degradation();
        self.reporter.set_capability(kept_state::CAPABILITY, reason.as_deref(), kept_state::EFFECT, Monotonic::now());
        let now = Monotonic::now();
        self.reporter.report_api_server(&self.sensors, now);
        self.reporter.report_daemons(self.sensors.daemons(&self.config.policy).as_ref(), now);
        self.reporter.note_counters(&mut self.sensors);
        self.reporter.check_journal(now);
        self.reporter.check_notifications(now);
        self.reporter.note_oom_counters(&mut self.sensors, Monotonic::now());
        // The kernel reports every write, but not a process that never had the right value.
        self.actions.audits.request_all();
        self.audit_if_due();
        if self.last.full_report.is_none_or(|last| now.since(last) >= FULL_REPORT_EVERY) {
            // Diagnostics of the programs: rare, and slow to fetch.
            self.sensors.events.flush_logs();
            self.publish_digest();
            // The counters of removed cgroups must be in a publication before they are dropped.
            if self.publish(true) {
                self.last.full_report = Some(now);
                self.actions.audits.forget(&self.sensors.drop_removed());
            }
        }
        // Runs after the report, which finds the filesystems: a source found for the first time is not a change.
        self.sensors.update_sources();
    }

    /// Gives back once more what only the start needed: the first connections, requests and reports came after the first time. Not near a
    /// threshold, where the agent would have to read its code again.
    pub(super) fn settle(&mut self, now: Monotonic) {
        let is_due = self.last.first_sample.is_some_and(|first| now.since(first) >= SETTLED_AFTER);
        if self.last.is_settled || !is_due || self.is_near() {
            return;
        }
        self.last.is_settled = true;
        self.give_back();
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
        let Self { config, sensors, actions, reporter, .. } = self;
        let (own_score, audit) = actions.audits.advance(sensors, config, now);
        if let Some(own_score) = own_score {
            reporter.report_own_score(own_score, now);
        }
        if let Some(audit) = audit {
            let reach = sensors.workloads.tree().reach();
            reporter.report_audit(&audit, &mut actions.audits, reach, config.mode, now);
        }
    }
}
