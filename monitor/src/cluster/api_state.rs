//! The state that the two API threads share with the loop, and the events by which they wake it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use crate::config::KubeletVersion;
use crate::units::{CapabilityChange, Degradations, Monotonic, lock};
use crate::workloads::PodSpecs;

use super::evictions::exchange::EvictionUpdate;

/// Name of the API server among the missing capabilities.
pub const CAPABILITY: &str = "API server";

/// Whether the API server answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// No request was answered or failed yet.
    #[default]
    Looking,
    /// The machine has no kubeconfig and no service account, or the configuration switches the API server off.
    Off,
    Up,
    Down {
        /// The failure, and what to do about it.
        reason: String,
        since: Monotonic,
    },
}

impl State {
    /// Returns the degradation while the API server is down.
    pub fn degradation(&self) -> Option<String> {
        match self {
            Self::Looking | Self::Off | Self::Up => None,
            Self::Down { reason, .. } => Some(format!("{CAPABILITY}: {reason}")),
        }
    }
}

/// The fields of the node's object that the agent uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// Empty until the object was read.
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet: Option<KubeletVersion>,
    /// Why the node is in maintenance, for the log; none: it is not.
    pub maintenance: Option<String>,
    /// Why the object cannot be read now; the other fields keep their last values.
    pub degradation: Option<String>,
}

/// The API server's objects as the threads last read them.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub state: State,
    /// Empty when there is no API server.
    pub node_name: Arc<str>,
    pub pods: Arc<PodSpecs>,
    /// When the API server last confirmed the pods; none: they were never read.
    pub pods_as_of: Option<Monotonic>,
    pub node: Arc<NodeFacts>,
    /// When the API server last confirmed the node's object; none: it was never read.
    pub node_as_of: Option<Monotonic>,
    pub counts: WatchCounts,
    /// An [`Event::Pods`] waits in the loop's queue.
    is_pods_queued: bool,
    /// An [`Event::Node`] waits in the loop's queue.
    is_node_queued: bool,
}

/// Lists and changes of pods since the agent started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchCounts {
    pub lists: u64,
    pub changes: u64,
}

/// A message of the API threads to the loop.
#[derive(Debug)]
pub enum Event {
    State(State),
    /// The pods in the view have changed. Changes within a second are one event.
    Pods,
    /// The node's facts in the view have changed.
    Node,
    Eviction(EvictionUpdate),
    /// A capability is missing, or restored.
    Degradation {
        capability: &'static str,
        /// The failure and what to do about it; none: the capability is restored.
        reason: Option<String>,
    },
}

/// The view under its lock, which is held only while pointers are copied.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<View>);

impl Shared {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut View) -> T) -> T {
        act(&mut lock(&self.0))
    }

    /// Returns the mark "an event of this kind waits in the queue", if the kind has one.
    fn queued<'v>(view: &'v mut View, event: &Event) -> Option<&'v mut bool> {
        match event {
            Event::Pods => Some(&mut view.is_pods_queued),
            Event::Node => Some(&mut view.is_node_queued),
            Event::State(_) | Event::Eviction(_) | Event::Degradation { .. } => None,
        }
    }

    /// Notes that the loop has taken the event: the next one of its kind is sent again.
    pub(super) fn taken(&self, event: Event) -> Event {
        self.with(|view| Self::queued(view, &event).map(|queued| *queued = false));
        event
    }
}

/// The API threads' end: writes the view and sends events to the loop.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    pub(super) shared: Arc<Shared>,
    pub(super) events: mpsc::UnboundedSender<Event>,
}

impl Reporter {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut View) -> T) -> T {
        self.shared.with(act)
    }

    /// Sends an event to the loop, unless an equal one of [`Event::Pods`] or [`Event::Node`] still waits there.
    pub(super) fn report(&self, event: Event) {
        let is_queued =
            self.with(|view| Shared::queued(view, &event).is_some_and(|queued| std::mem::replace(queued, true)));
        if !is_queued {
            // Without a loop this thread is about to end.
            let _no_loop = self.events.send(event);
        }
    }

    /// Sets why a capability is missing, or that it is there. Reports a change.
    pub(super) fn set_capability(
        &self,
        degradations: &mut Degradations,
        capability: &'static str,
        reason: Option<String>,
    ) {
        if degradations.set(capability, reason.as_deref()) != CapabilityChange::Unchanged {
            self.report(Event::Degradation { capability, reason });
        }
    }

    /// Sets the state. Reports it unless only the reason of an outage has changed.
    pub(super) fn set_state(&self, state: State) {
        let is_new = self.with(|view| match (&mut view.state, &state) {
            (State::Down { reason, .. }, State::Down { reason: newer, .. }) => {
                reason.clone_from(newer);
                false
            }
            (before, now) if before == now => false,
            (before, now) => {
                before.clone_from(now);
                true
            }
        });
        if is_new {
            self.report(Event::State(state));
        }
    }
}
