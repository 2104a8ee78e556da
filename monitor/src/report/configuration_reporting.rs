//! Reports the reload of the configuration, and the pool of the node.

use node_pressure_state::Degradation;

use crate::config::MonitorConfig;
use crate::node::pool_choice::{self, PoolChoice};
use crate::units::Monotonic;

use super::Reporter;
use super::configuration_state::{ConfigState, ReloadOutcome};
use super::record::Record;

impl Reporter {
    pub fn report_configuration_warning(&mut self, warning: &str, now: Monotonic) {
        self.report(&Record::ConfigurationWarning { file: None, fields: None, warning }, now);
    }

    /// Reports the outcome of a reload, and the state after it.
    pub fn report_reload(&mut self, outcome: ReloadOutcome, state: &ConfigState, file: &str, now: Monotonic) {
        if let Some(reason) = state.refused.as_ref().filter(|_| outcome == ReloadOutcome::Refused) {
            self.report(&Record::ConfigurationRefused { file, reason }, now);
        }
        let (reason, message) = state.words();
        let trouble = (reason != "InForce").then_some(message);
        self.set_capability(
            Degradation::CONFIGURATION,
            trouble.as_deref(),
            "the configuration file is not in force",
            now,
        );
        self.outlets.metrics.configuration.observe(state, Some(outcome));
    }

    /// Reports the configuration that is in force now, the fields that have changed, and those that keep their values until a restart.
    pub fn report_applied(
        &mut self,
        config: &MonitorConfig,
        file: &str,
        changed: &[&str],
        needs_restart: &[&str],
        now: Monotonic,
    ) {
        let (mode, pool) = (config.mode, config.pool.as_deref());
        self.report(&Record::ConfigurationApplied { file, changed: &changed.join(", "), mode, pool }, now);
        if !needs_restart.is_empty() {
            let (file, fields) = (Some(file), needs_restart.join(", "));
            let warning = "these fields keep their values until the agent restarts";
            self.report(&Record::ConfigurationWarning { file, fields: Some(&fields), warning }, now);
        }
    }

    /// Shows the pool in force, and whether it is known.
    pub fn show_pool(&mut self, choice: &PoolChoice, name: Option<&str>, now: Monotonic) {
        let is_known = choice.is_known();
        let shown = (choice.has_pools() && is_known).then_some(name.unwrap_or_default());
        self.outlets.metrics.configuration.set_pool(shown);
        let reason = (!is_known).then_some("the API server has not sent the labels of this node");
        self.set_capability(pool_choice::CAPABILITY, reason, pool_choice::EFFECT, now);
    }
}
