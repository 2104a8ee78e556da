//! Reports which sources of facts have come, gone or changed: the container runtime, the API server, the pods, and the sensors.

use crate::cluster::{CAPABILITY as CLUSTER, State};
use crate::eviction::Layout;
use crate::node::Role;
use crate::runtime::{CAPABILITY as RUNTIME, Event, State as RuntimeState};
use crate::sensors::Sensors;
use crate::sensors::control_plane::{last_known, pods_age};
use crate::sensors::filesystem_signals::FilesystemSignals;
use crate::sensors::pod_source::PodsRead;
use crate::sensors::sources::SourceChange;
use crate::units::{Monotonic, split_degradation};

use super::Reporter;
use super::record::{KnownPods, Record};

/// Name of the pods file in the list of degraded capabilities.
const PODS: &str = "pods";

impl Reporter {
    pub fn report_runtime_event(&mut self, event: &Event, now: Monotonic) {
        match event {
            Event::State(state) => self.report_runtime_state(state, now),
            Event::Collected(collected) => {
                self.report(&Record::GarbageCollected(collected), now);
            }
            Event::Stopped(stopped) => {
                self.report(&Record::PodStopped(stopped), now);
            }
        }
    }

    fn report_runtime_state(&mut self, state: &RuntimeState, now: Monotonic) {
        let degradation = state.degradation();
        let reason = degradation.as_deref().map(|text| split_degradation(text).1);
        self.set_capability(RUNTIME, reason, "the container runtime does not answer", now);
        match state {
            RuntimeState::Up { runtime, socket } => {
                self.report(&Record::RuntimeFound { runtime, socket }, now);
            }
            RuntimeState::Absent => {
                self.report(&Record::RuntimeAbsent, now);
            }
            RuntimeState::Looking | RuntimeState::Off | RuntimeState::Down { .. } => {}
        }
    }

    /// Updates the degradation of the API server, with the age of the known pods.
    pub fn report_api_server(&mut self, sensors: &Sensors, now: Monotonic) {
        let view = sensors.platform.cluster.view();
        let reason = match &view.state {
            State::Down { reason, .. } => Some(format!("{reason}; {}", last_known(&view))),
            State::Looking | State::Off | State::Up => None,
        };
        let known = KnownPods { pods: Some(view.pods.pods().len()), age: pods_age(&view), of_file: None };
        self.set_pod_source(CLUSTER, reason.as_deref(), "the API server does not answer", known, now);
    }

    /// Reports that the pods file was read. `pods` is the number of pods known now.
    pub fn report_pods_file(&mut self, read: PodsRead, pods: usize, now: Monotonic) {
        match read {
            PodsRead::Ignored => self.set_capability(PODS, None, "", now),
            PodsRead::Replaced => {
                self.report(&Record::PodsRead { pods, age: None }, now);
                self.set_capability(PODS, None, "", now);
            }
            PodsRead::Failed(reason) => {
                let effect = "the pods of this node cannot be read: those read before stay known";
                let known = KnownPods { of_file: Some(pods), ..KnownPods::default() };
                self.set_pod_source(PODS, Some(&reason), effect, known, now);
            }
        }
    }

    /// Sets every capability of the sensors, and reports each change of a source.
    pub fn report_capabilities(&mut self, sensors: &mut Sensors, now: Monotonic) {
        sensors.capabilities(|capability, reason| self.set_capability(capability.name, reason, capability.effect, now));
        for SourceChange { signal, from, to, reason } in sensors.sources.take_changes() {
            self.report(&Record::SourceChanged { signal, from, to, reason: &reason }, now);
        }
    }
}

/// Logs the layout of the filesystems, with the device of each.
pub fn log_layout(layout: Layout, filesystems: &FilesystemSignals) {
    let device = |role| filesystems.place(role).map(|place| place.device.as_str());
    tracing::info!(
        event = "filesystems",
        layout = layout.as_str(),
        nodefs = device(Role::Node),
        imagefs = device(Role::Image),
        containerfs = device(Role::Container),
        "filesystems were found to be laid out so"
    );
}
