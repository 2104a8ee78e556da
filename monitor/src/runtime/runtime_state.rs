//! The state that the runtime thread shares with the loop.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::units::{Monotonic, lock};

use super::runtime_snapshot::{Snapshot, Stores};

/// Name of the runtime among the missing capabilities.
pub const CAPABILITY: &str = "container runtime";

/// Whether the runtime answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// The first observation is not finished yet.
    #[default]
    Looking,
    /// The configuration switches the runtime off.
    Off,
    Absent,
    Up {
        /// Name and version: `containerd 1.6.20`.
        runtime: String,
        socket: PathBuf,
    },
    Down {
        /// The failure, and what the operator can do about it.
        reason: String,
        since: Monotonic,
    },
}

impl State {
    /// Returns whether this machine has a runtime, whether it answers or not.
    pub const fn is_there(&self) -> bool {
        match self {
            Self::Up { .. } | Self::Down { .. } => true,
            Self::Looking | Self::Off | Self::Absent => false,
        }
    }

    /// Returns the degradation if the runtime is down.
    pub fn degradation(&self) -> Option<String> {
        match self {
            Self::Looking | Self::Off | Self::Absent | Self::Up { .. } => None,
            Self::Down { reason, .. } => Some(format!(
                "{CAPABILITY}: {reason}; until it answers, workloads are known by their cgroups alone, no garbage is \
                 collected, and pods are stopped by signals"
            )),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct View {
    pub state: State,
    /// The snapshot; `None` unless the runtime is up.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The stores. They are kept while the runtime is down.
    pub stores: Stores,
}

/// The view under a lock. The lock is held only while pointers are copied.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<View>);

impl Shared {
    pub(super) fn view(&self) -> View {
        lock(&self.0).clone()
    }

    pub(super) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        lock(&self.0).snapshot.clone()
    }

    pub(super) fn set_snapshot(&self, snapshot: Snapshot) {
        let mut view = lock(&self.0);
        view.stores = snapshot.stores.clone();
        view.snapshot = Some(Arc::new(snapshot));
    }

    pub(super) fn forget_snapshot(&self) {
        lock(&self.0).snapshot = None;
    }

    /// Sets the state. Returns whether it is a new state. Another reason of the same outage does not count as new.
    pub(super) fn set_state(&self, state: State) -> bool {
        match (&mut lock(&self.0).state, state) {
            (State::Down { reason, since: _ }, State::Down { reason: newer, .. }) => {
                *reason = newer;
                false
            }
            (before, now) if *before == now => false,
            (before, now) => {
                *before = now;
                true
            }
        }
    }

    /// Returns why an order cannot be carried out.
    pub(super) fn why_down(&self) -> String {
        match &lock(&self.0).state {
            State::Down { reason, .. } => reason.clone(),
            State::Off | State::Absent => "there is none".to_owned(),
            State::Looking | State::Up { .. } => "it is being looked for".to_owned(),
        }
    }
}
