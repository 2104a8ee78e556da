//! Builds the agent, and takes the first turn.

use crate::actions::{Actions, KeptState, self_protection};
use crate::config::MonitorConfig;
use crate::eviction::Layout;
use crate::eviction::decider::{Decider, Memory, Pace, Rules};
use crate::node::other_killers::{Killer, OtherKiller};
use crate::report::Reporter;
use crate::sensors::Sensors;
use crate::units::Monotonic;
use crate::workloads::PatternReach;

use super::reload::{self, Reload};
use super::{Agent, LastTimes, Wakeup};

impl Agent {
    /// `kept` is the file with the decider's memory over a restart, and the memory that it had.
    pub fn new(
        config: MonitorConfig,
        sensors: Sensors,
        actions: Actions,
        reporter: Reporter,
        (kept, memory): (KeptState, Memory),
        reload: Reload,
    ) -> Self {
        let config = reload::for_the_loop(config);
        let mut decision = Decider::remembering(memory);
        decision.arm(Rules { policy: &config.policy, pace: Pace::Kubelet }, Layout::default());
        Self { config, sensors, decision, actions, reporter, reload, kept, last: LastTimes::default() }
    }

    /// Observes once and describes the node: as text on stdout for an interactive reader, else as one log record. Then
    /// gives back the memory that only the start needed.
    pub fn start(&mut self, text: bool, degradations: &[String], others: &[OtherKiller]) {
        // The first turn may find more degradations.
        self.reporter.set_missing(degradations, Monotonic::now());
        self.reporter.outlets.metrics.configuration.observe(self.reload.state(), None);
        self.reporter.show_pool(self.reload.pool(), self.config.pool.as_deref(), Monotonic::now());
        self.sensors.remember_pods(&self.config);
        let has_kubelet = others.iter().any(|other| other.killer == Killer::Kubelet);
        self.sensors.look_at_kubelet(&self.config.proc_root, has_kubelet, Monotonic::now());
        self.run_turn(Wakeup::Housekeeping);
        let drifted = self.actions.audits.drifted() as u64;
        let (reporter, mut state) = self.reporting();
        reporter.report_start(&mut state, drifted, text, others);
        self.log_patterns();
        self.give_back();
    }

    /// Gives back what only the start needed.
    pub(super) fn give_back(&mut self) {
        let missing = self_protection::give_back(&self.config.proc_root);
        self.reporter.set_missing(missing.as_slice(), Monotonic::now());
        self.rehearse();
    }

    /// Logs what each pattern matches, and warns of those that match no workload: a name with a mistake protects nothing.
    pub(super) fn log_patterns(&self) {
        for reach in self.sensors.workloads.tree().configured_patterns() {
            let matching = reach.sentence();
            let PatternReach { field, pattern, matches, hint, .. } = reach;
            if matches == 0 {
                tracing::warn!(
                    event = "pattern_matches_nothing",
                    field,
                    pattern,
                    hint,
                    "no workload of this machine matches the pattern now"
                );
            } else {
                tracing::info!(event = "pattern", field, pattern, matches, "\"{pattern}\" {matching}");
            }
        }
    }
}
