//! The orders that the loop gives the runtime thread, and their results.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::units::Bytes;
use crate::workloads::cgroup_path::PodUid;

use super::cri_client::CallError;
use super::garbage_plan::{Garbage, Step, Target};
use super::runtime_state::State;

/// Limit of listed items of a collection. The other items are only counted.
const LISTED: usize = 64;

/// A message of the runtime thread to the loop.
#[derive(Debug)]
pub enum Event {
    State(State),
    Collected(Collected),
    Stopped(Stopped),
}

#[derive(Debug)]
pub(super) enum Order {
    Observe,
    Pressure(bool),
    Collect(CollectOrder),
    Stop(StopOrder),
}

/// Measures again. Returns true if enough is free. Called on a thread that may block, before the first removal and after each.
pub type IsEnough = Box<dyn FnMut() -> bool + Send>;

pub struct CollectOrder {
    /// Containers are removed before images.
    pub what: Vec<Garbage>,
    /// Whether to list the garbage without removing it.
    pub dry_run: bool,
    /// Whether the space of an image has to be free before it is measured again.
    pub awaits_space: bool,
    pub is_enough: IsEnough,
}

impl fmt::Debug for CollectOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, dry_run, awaits_space, is_enough: _ } = self;
        f.debug_struct("CollectOrder")
            .field("what", what)
            .field("dry_run", dry_run)
            .field("awaits_space", awaits_space)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CollectEnd {
    Enough,
    /// All garbage is collected, and still not enough is free.
    #[default]
    Exhausted,
    Listed,
    /// The runtime or a disk does not answer. The text is the reason.
    Interrupted(String),
}

impl CollectEnd {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Enough => "enough",
            Self::Exhausted => "exhausted",
            Self::Listed => "listed",
            Self::Interrupted(_) => "interrupted",
        }
    }
}

/// The result of a collection, or of its dry run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    pub end: CollectEnd,
    /// The first 64 items that were removed, in order.
    pub steps: Vec<Step>,
    pub counts: Counts,
    /// The estimated space that was freed.
    pub frees: Bytes,
    /// The first 64 items that the runtime did not remove, and why.
    pub refused: Vec<(Step, String)>,
    /// The number of all items that the runtime did not remove.
    pub refusals: usize,
    pub took: Duration,
}

/// The number of items removed, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub containers: usize,
    pub sandboxes: usize,
    pub images: usize,
}

impl Collected {
    /// Returns the result of an order that could not be started.
    pub(crate) fn interrupted(reason: String) -> Self {
        Self { end: CollectEnd::Interrupted(reason), ..Self::default() }
    }

    pub(super) fn refuse(&mut self, step: Step, reason: String) {
        self.refusals += 1;
        if self.refused.len() < LISTED {
            self.refused.push((step, reason));
        }
    }

    pub(super) fn note(&mut self, step: Step) {
        let count = match step.target {
            Target::Container { .. } => &mut self.counts.containers,
            Target::Sandbox { .. } => &mut self.counts.sandboxes,
            Target::Image { .. } => &mut self.counts.images,
        };
        *count += 1;
        self.frees = self.frees.saturating_add(step.frees.unwrap_or_default());
        if self.steps.len() < LISTED {
            self.steps.push(step);
        }
    }
}

/// The program that tears down a pod that ends. If the kubelet and the runtime are both at one sandbox, the calls of one fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TearDown {
    /// The kubelet, which learns of the end from the API server. The rest is removed once it is through, or late.
    Kubelet,
    Runtime,
}

impl TearDown {
    /// How long the kubelet may take until what the pod has left is removed for it. A kubelet needs some seconds, but beside a slow containerd it
    /// was still stopping the containers after 20 s, and did not see the end of those that were removed (`cluster-disk`, 1.36).
    pub const fn patience(self) -> Duration {
        match self {
            Self::Kubelet => Duration::from_secs(60),
            Self::Runtime => Duration::ZERO,
        }
    }
}

/// The kubelet removes a pod's cgroup once it has seen the containers' end and has unmounted the volumes (1.36).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletWait {
    pub cgroup: PathBuf,
    pub at_most: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopOrder {
    pub uid: PodUid,
    pub by: TearDown,
    /// Only for a removal, which waits for this first.
    pub wait: Option<KubeletWait>,
    /// The time between SIGTERM and SIGKILL. With zero the runtime sends SIGKILL at once.
    pub grace: Duration,
    /// Whether to remove its sandboxes with their writable layers and logs as well. By the runtime: those that do not run, and those that
    /// the pod had when it was last ordered to stop. By the kubelet: those that do not run, and those in which all containers have
    /// exited. Sandboxes that the kubelet has created since are kept. While the runtime is down the removal is pending; another
    /// [`Stopped`] follows when it is done.
    pub remove: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error("the runtime knows no pod of this UID")]
    Unknown,
    /// The pod comes from a file on the node.
    #[error("it is a static pod")]
    Static,
    #[error("the container runtime cannot be asked: {0}")]
    Down(String),
    #[error(transparent)]
    Failed(#[from] CallError),
}

/// The result of an order to stop a pod.
#[derive(Debug)]
pub struct Stopped {
    pub uid: PodUid,
    pub remove: bool,
    /// The number of stopped containers, or the reason of the failure.
    pub result: Result<usize, StopError>,
    pub took: Duration,
}
