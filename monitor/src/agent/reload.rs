//! Reload of the configuration while the loop runs. A rejected configuration changes nothing; a valid one applies from
//! the next turn on.

use std::time::SystemTime;

use crate::actions::{Restored, self_protection};
use crate::cluster::ledger::Unfinished;
use crate::config::adopted::Adopted;
use crate::config::config_watch::{ConfigUpdate, ConfigWatch};
use crate::config::kubernetes_options::EvictionMethod;
use crate::config::{Loaded, Mode, MonitorConfig, Policy, Quirk};
use crate::node::PoolChoice;
use crate::report::configuration_state::{ConfigState, ReloadOutcome};
use crate::report::hang_limit;
use crate::report::record::Record;
use crate::sensors::counter_error::CounterError;
use crate::units::{Monotonic, split_degradation};

use super::Agent;

/// Name of reclaim in the list of degraded capabilities.
const RECLAIM: &str = "memory.reclaim";

/// The source of new configurations, and the state of the present one.
#[derive(Debug)]
pub struct Reload {
    file: Option<ConfigWatch>,
    state: ConfigState,
    pool: PoolChoice,
}

impl Reload {
    /// Reloads from this file; without a file the configuration never changes.
    pub fn of(file: Option<ConfigWatch>, state: ConfigState, pool: PoolChoice) -> Self {
        Self { file, state, pool }
    }

    pub(super) fn state(&self) -> &ConfigState {
        &self.state
    }

    pub(super) fn pool(&self) -> &PoolChoice {
        &self.pool
    }

    fn file_name(&self) -> String {
        self.file.as_ref().map(|file| file.path().display().to_string()).unwrap_or_default()
    }

    /// Waits for the next update of the file; pends forever without a file. Cancel-safe.
    pub(super) async fn update(&self) -> ConfigUpdate {
        match &self.file {
            Some(file) => file.update().await,
            None => std::future::pending().await,
        }
    }
}

pub(super) fn for_the_loop(mut config: MonitorConfig) -> MonitorConfig {
    // The kubelet samples every ten seconds, so one good sample counts. The agent may sample a thousand times per second.
    config.policy.quirks.set(Quirk::GraceRestartsAtOnce, false);
    config
}

impl Agent {
    /// Requests a reload on SIGHUP.
    pub(super) fn request_reload(&mut self) {
        match &self.reload.file {
            Some(file) => file.request(),
            None => {
                let warning = "SIGHUP: the agent was started without --config, there is no file to read again";
                self.reporter.report_configuration_warning(warning, Monotonic::now());
            }
        }
    }

    /// Handles an update of the file.
    pub(super) fn take_configuration(&mut self, update: ConfigUpdate) {
        let now = Monotonic::now();
        let file = self.reload.file_name();
        let outcome = match update.read {
            Err(reason) => {
                (self.reload.state.refused, self.reload.state.since) = (Some(reason), SystemTime::now());
                ReloadOutcome::Refused
            }
            Ok(wanted) => {
                let Loaded { config, warnings, .. } = *wanted;
                for warning in warnings.iter().filter(|_| !update.is_same) {
                    self.reporter.report_configuration_warning(&warning.to_string(), now);
                }
                let was_known = self.reload.pool.is_known();
                self.reload.pool.set_wanted(config);
                let adopted = self.compare_wanted();
                let (is_changed, needs_restart) = self.apply_wanted(adopted, &file);
                self.give_up_leftovers(was_known);
                let (since, fingerprint) = (SystemTime::now(), update.fingerprint);
                let file = self.reload.state.file.take();
                self.reload.state = ConfigState { refused: None, needs_restart, since, fingerprint, file };
                if is_changed { ReloadOutcome::Applied } else { ReloadOutcome::Unchanged }
            }
        };
        self.reporter.report_reload(outcome, &self.reload.state, &file, now);
    }

    /// Compares the configuration of this node in the file with the one in force.
    fn compare_wanted(&mut self) -> Adopted {
        let wanted = for_the_loop(self.reload.pool.choose());
        self.reporter.show_pool(&self.reload.pool, wanted.pool.as_deref(), Monotonic::now());
        Adopted::by(&self.config, wanted)
    }

    /// Puts the configuration of this node in force. Returns whether that changes anything, and which fields need a restart.
    fn apply_wanted(&mut self, adopted: Adopted, file: &str) -> (bool, Vec<&'static str>) {
        let now = Monotonic::now();
        let Adopted { config, changed, needs_restart } = adopted;
        if !changed.is_empty() {
            self.adopt(config);
        }
        self.reporter.report_applied(&self.config, file, &changed, &needs_restart, now);
        (!changed.is_empty(), needs_restart)
    }

    /// Puts the configuration of another pool or kubelet in force if the node's labels or version have changed.
    pub(super) fn follow_pool(&mut self) {
        let node = self.sensors.platform.cluster.view().node;
        if node.uid.is_empty() {
            return;
        }
        let is_new_kubelet = self.reload.pool.learn_kubelet(node.kubelet);
        if !self.reload.pool.has_pools() && !is_new_kubelet {
            return;
        }
        let was_known = self.reload.pool.is_known();
        self.reload.pool.learn(&node.labels);
        let adopted = self.compare_wanted();
        if !adopted.changed.is_empty() {
            let file = self.reload.file_name();
            (_, self.reload.state.needs_restart) = self.apply_wanted(adopted, &file);
        }
        self.give_up_leftovers(was_known);
    }

    /// Gives up what an earlier agent began, if this node turns out to observe only. It was kept while the pool was not known. An eviction
    /// whose pod has ended at the API server is told to the end.
    fn give_up_leftovers(&mut self, was_known: bool) {
        if was_known || !self.reload.pool.is_known() || self.config.mode == Mode::Enforce {
            return;
        }
        let restored = self.actions.audits.restore(&self.config.proc_root);
        // An earlier agent may have left none.
        if restored != Restored::default() {
            self.reporter.report(&Record::OomScoresRestored(&restored), Monotonic::now());
        }
        self.call_off(|it| !it.progress.removed, "observe mode");
    }

    /// Puts a configuration in force. The loop reads most settings directly; this function renews the state derived
    /// from them.
    fn adopt(&mut self, config: MonitorConfig) {
        let before = std::mem::replace(&mut self.config, config);
        if before.policy != self.config.policy || before.sampling != self.config.sampling {
            self.follow_policy(&before);
        }
        if before.mode != self.config.mode {
            self.follow_mode();
        }
        if (before.mode, before.evictions.reclaim_deadline)
            != (self.config.mode, self.config.evictions.reclaim_deadline)
        {
            self.follow_reclaim();
        }
        if before.pressure_conditions != self.config.pressure_conditions {
            for gone in self.sensors.pressure.reconfigure(&self.config.pressure_conditions) {
                self.reporter.forget_condition(&gone);
            }
        }
        if (&before.protected, &before.candidates) != (&self.config.protected, &self.config.candidates) {
            self.sensors.workloads.tree_mut().set_candidates(self.config.candidates.clone());
            self.sensors.workloads.tree_mut().set_protected(self.config.protected.clone());
            // The tree must be rescanned before the next victim is chosen under the new protection rules.
            self.sensors.workloads.scan();
            self.log_patterns();
        }
        let is_off = |config: &MonitorConfig| config.kubernetes.evictions.hard == EvictionMethod::Off;
        if is_off(&self.config) && !is_off(&before) {
            self.call_off(|it| it.intent.is_hard(), "kubernetes.evictions.hard is off");
        }
        if before.kubernetes != self.config.kubernetes {
            self.actions.cluster.reload(self.config.kubernetes.clone());
        }
        if (&before.kubernetes.protect, before.policy.quirks)
            != (&self.config.kubernetes.protect, self.config.policy.quirks)
        {
            self.sensors.join_pods(&self.config);
        }
        if before.notifications != self.config.notifications {
            self.reporter.follow_notifications(&self.config.notifications, Monotonic::now());
        }
        if (before.mode, before.policy.oom_scores) != (self.config.mode, self.config.policy.oom_scores) {
            self.actions.audits.request_all();
            self.actions.audits.forget_reports();
        }
    }

    fn follow_policy(&mut self, before: &MonitorConfig) {
        let (policy, sampling) = (&self.config.policy, &self.config.sampling);
        let now = Monotonic::now();
        let error = CounterError::read(&self.config.proc_root);
        let without_effect = |policy: &Policy| {
            let uncertain = error.as_ref().and_then(|error| error.degradation(policy));
            uncertain.into_iter().collect::<Vec<_>>()
        };
        self.reporter.replace_missing(&without_effect(&before.policy), &without_effect(policy), now);
        if let Some(rate) = sampling.fastest_rate.filter(|_| before.sampling.fastest_rate != sampling.fastest_rate) {
            self.sensors.memory.assume_rate(rate);
        }
        self.reporter.outlets.health.set_limit(hang_limit(sampling.ceiling));
        self.sensors.memory.follow(&self.config.policy);
        self.sensors.signals.reconfigure(&self.config);
        self.sensors.memory.reconfigure(policy);
        self.sensors.workloads.tree_mut().set_usage_quirks(policy.quirks);
        self.arm_anew(self.sensors.signals.filesystems.layout());
        self.decision.reconsider();
    }

    fn follow_mode(&mut self) {
        let enforces = self.config.mode == Mode::Enforce;
        let scores = self_protection::missing_for_scores(&self.config.proc_root).filter(|_| enforces);
        let scores = scores.as_deref().map(|text| split_degradation(text).1);
        let now = Monotonic::now();
        self.reporter.set_capability(self_protection::SCORES, scores, "oom_score_adj is not set", now);
        self.reporter.forget_dry_runs();
        if !enforces {
            let restored = self.actions.audits.restore(&self.config.proc_root);
            self.reporter.report(&Record::OomScoresRestored(&restored), now);
            for workload in self.actions.evictor.stand_down() {
                self.reporter.report(&Record::EvictionCalledOff { workload: &workload }, now);
            }
            self.call_off(|_| true, "observe mode");
        }
    }

    /// Cancels the evictions that are not settled at the API server: its answer may come in hours, and would then evict
    /// the pod.
    fn call_off(&mut self, is_meant: impl Fn(&Unfinished) -> bool, reason: &str) {
        for intent in self.actions.call_off(is_meant) {
            let record = Record::EvictionAbandoned { pod: &intent.pod(), pod_uid: &intent.uid, reason };
            self.reporter.report(&record, Monotonic::now());
        }
    }

    fn follow_reclaim(&mut self) {
        let missing = self.actions.follow_reclaim(&self.config, &self.sensors);
        let effect = "no workload is asked to give back memory";
        self.reporter.set_capability(RECLAIM, missing.as_deref(), effect, Monotonic::now());
        self.decision.forget_reclaim();
        self.reporter.forget_reclaim_dry_runs();
    }
}
