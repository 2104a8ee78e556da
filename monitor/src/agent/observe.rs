//! How the loop uses the sensors: observation, armed thresholds, control of the measuring threads, degradations.

use crate::eviction::decider::{Pace, Rules};
use crate::eviction::{Layout, NodeCondition, Observation};
use crate::node::Role;
use crate::report::record::Record;
use crate::sensors::Observed;
use crate::sensors::disk_measurement::DiskDemand;
use crate::sensors::sources::SourceChange;
use crate::units::{Monotonic, Resource};

use super::{Agent, Wakeup};

/// Name of the capability of sampling memory.
const SAMPLING: &str = "sampling";

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
                    self.arm_layout(layout);
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
        let recorder = &mut self.reporter.recorder;
        self.sensors.memory.pass_on_samples(|at, available| recorder.add_sample(at, available));
    }

    fn arm_layout(&mut self, layout: Layout) {
        self.arm_anew(layout);
        let device = |role| self.sensors.signals.filesystems.place(role).map(|place| place.device.as_str());
        tracing::info!(
            event = "filesystems",
            layout = layout.as_str(),
            nodefs = device(Role::Node),
            imagefs = device(Role::Image),
            containerfs = device(Role::Container),
            "filesystems were found to be laid out so"
        );
    }

    /// Arms the configured thresholds for this layout. Thresholds that stay keep their state.
    pub(super) fn arm_anew(&mut self, layout: Layout) {
        self.decision.arm(Rules { policy: &self.config.policy, pace: Pace::Kubelet }, layout);
        self.reporter.rearm(self.decision.armed());
    }

    /// Reads the figures that are not urgent, at a low rate.
    pub(super) fn refresh_figures(&mut self, wakeup: Wakeup, now: Monotonic) {
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

    /// Passes the loop's state to the threads that measure disks.
    pub(super) fn steer_disks(&mut self, now: Monotonic) {
        let is_armed = |is_wanted: fn(Resource) -> bool| {
            self.decision.armed().iter().any(|armed| is_wanted(armed.threshold.signal.resource()))
        };
        let is_of_disk_armed = is_armed(Resource::is_on_disk);
        let is_inodes_armed = is_armed(|resource| resource == Resource::Inodes);
        self.sensors.steer_filesystems(is_inodes_armed, now);
        let assessment = self.decision.assessment();
        let is_met = assessment.met.iter().any(|met| met.threshold.signal.resource().is_on_disk());
        let is_pressed = assessment.conditions.contains(&NodeCondition::DiskPressure);
        let has_changed = self.sensors.disk.set_pressure(is_pressed);
        if has_changed {
            // Without a runtime no request rate can be raised.
            let _no_runtime = self.actions.runtime.set_pressure(is_pressed);
        }
        if has_changed || !is_met {
            self.decision.reset_renewal();
        }
        let demand = DiskDemand {
            is_needed: self.sensors.pods.has_any() || is_of_disk_armed,
            is_urgent: is_pressed && self.decision.renewal().is_urgent(),
        };
        self.sensors.steer_disk_measurement(demand, self.config.disk_usage.project_quotas, now);
    }

    /// Sets every capability of the sensors, and reports each change of a source.
    pub(super) fn report_capabilities(&mut self, now: Monotonic) {
        let reporter = &mut self.reporter;
        self.sensors.capabilities(|capability, reason| {
            reporter.set_capability(capability.name, reason, capability.effect, now);
        });
        for SourceChange { signal, from, to, reason } in self.sensors.sources.take_changes() {
            reporter.report(&Record::SourceChanged { signal, from, to, reason: &reason }, now);
        }
    }
}
