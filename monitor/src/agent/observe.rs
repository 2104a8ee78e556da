//! How the loop uses the sensors: observation, armed thresholds, and what is measured while a threshold is near.

use std::time::Duration;

use crate::eviction::decider::{Pace, Rules};
use crate::eviction::growth;
use crate::eviction::{Layout, Observation};
use crate::report::log_layout;
use crate::sensors::Observed;
use crate::sensors::memory_outlook::Near;
use crate::sensors::workload_scan::LIST_AGE;
use crate::units::Monotonic;

use super::{Agent, Wakeup};

/// Name of the capability of sampling memory.
const SAMPLING: &str = "sampling";
/// Time before the expected crossing of a threshold at which the list of workloads is prepared.
const PREPARE_WITHIN: Duration = Duration::from_millis(20);
/// After this time a rehearsal is repeated when a threshold is near.
const REHEARSE_EVERY: Duration = Duration::from_secs(60);

impl Agent {
    /// Returns a fresh observation and its sampling time; `None` if sampling failed, so that nothing is decided.
    pub(super) fn observe(&mut self) -> Option<(Monotonic, Observation)> {
        let had_sample = self.sensors.memory.sample().is_some();
        match self.sensors.observe(&self.config, self.decision.armed()) {
            Ok(Observed { sampled, observation, new_layout }) => {
                if !had_sample {
                    self.reporter.outlets.health.set_ready(Ok(()));
                    self.reporter.set_capability(SAMPLING, None, "", sampled);
                }
                if let Some(layout) = new_layout {
                    self.arm_anew(layout);
                    log_layout(layout, &self.sensors.signals.filesystems);
                }
                Some((sampled, observation))
            }
            Err(error) => {
                self.reporter.outlets.health.set_ready(Err(format!("cannot observe memory: {error}")));
                let effect = "memory cannot be observed: the agent decides nothing";
                self.reporter.set_capability(SAMPLING, Some(&error.to_string()), effect, Monotonic::now());
                None
            }
        }
    }

    /// Passes the turn's samples to the incident recorder. Called after an eviction: the receivers may touch memory for the first time,
    /// which is slow when none is left.
    pub(super) fn pass_on_samples(&mut self) {
        if let Some(late) = self.sensors.memory.take_lateness() {
            self.reporter.outlets.metrics.sampled_late(late);
        }
        let recorder = &mut self.reporter.recorder;
        self.sensors.memory.pass_on_samples(|at, available| recorder.add_sample(at, available));
    }

    /// Arms the configured thresholds for this layout. Thresholds that stay keep their state.
    pub(super) fn arm_anew(&mut self, layout: Layout) {
        self.decision.arm(Rules { policy: &self.config.policy, pace: Pace::Kubelet }, layout);
        self.reporter.rearm(self.decision.armed());
    }

    /// Reads the figures that are not urgent, at a low rate.
    pub(super) fn refresh_figures(&mut self, wakeup: Wakeup, now: Monotonic) {
        self.sensors.renew_corrections();
        let has_event = matches!(wakeup, Wakeup::KernelEvent | Wakeup::Psi);
        if self.sensors.counts.is_due(has_event, || self.next_event(now).0, now) {
            self.sensors.read_counts();
        }
        if self.sensors.pressure.sample_if_due(now) {
            for (condition, status) in self.sensors.pressure.statuses() {
                self.reporter.report_condition(condition, status, None, now);
            }
        }
    }

    /// Refreshes the list of workloads near a threshold, so that the decision need not wait for it.
    pub(super) fn prepare(&mut self) {
        if self.is_near() {
            self.sensors.workloads.list_if_older(LIST_AGE, Monotonic::now());
        }
    }

    /// Returns whether a threshold may be met soon. Slow work waits while this holds.
    pub(super) fn is_near(&self) -> bool {
        self.next_event(Monotonic::now()).0 <= PREPARE_WITHIN
    }

    /// Measures which workloads grow, and what is swapped out, while a threshold on memory may be met within half a minute. Clients that
    /// watch then get the state at once.
    pub(super) fn watch_growth(&mut self) {
        let now = Monotonic::now();
        let is_near = self.decision.is_memory_near(&self.config.policy, growth::HORIZON, now);
        let until_due = self.next_event(now).0;
        // Reading the workloads takes longer than a decision, which must not wait for it.
        let is_urgent = until_due <= PREPARE_WITHIN;
        if is_near && !is_urgent && self.last.rehearsed.is_none_or(|last| now.since(last) >= REHEARSE_EVERY) {
            self.rehearse();
        }
        if is_near || self.actions.evictor.next_poll(now).is_some() {
            self.reporter.outlets.publications.note_trouble();
        }
        let near = Near { is_near, is_urgent, due: now.after(until_due) };
        self.sensors.watch_growth(near, &self.config.proc_root, now);
        self.sensors.watch_swap(is_near, now);
    }

    /// Rehearses the decision before it is needed.
    pub(super) fn rehearse(&mut self) {
        let now = Monotonic::now();
        self.last.rehearsed = Some(now);
        self.sensors.rehearse(&self.config, now);
    }
}
