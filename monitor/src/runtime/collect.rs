//! Collecting garbage: one thing at a time, each looked at once more before it goes, until there is enough.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::client::{CallError, Client};
use super::find::Found;
use super::plan::{self, Ages, Garbage, Step, Target};
use super::snapshot::{Snapshot, container_state};
use super::watch::{Watcher, is_among, used_images};
use super::{ContainerState, cri, logs, snapshot};
use crate::config::Bytes;
use crate::node::Monotonic;

/// Told by name at most; all are counted.
const TOLD: usize = 64;
/// A runtime may give the space of an image back a moment after it says that it is gone.
const SETTLING: Duration = Duration::from_millis(100);

/// Measures once more; true when nothing more has to go. Called on the runtime's thread, before the first removal and after each.
pub type IsEnough = Box<dyn FnMut() -> bool + Send>;

/// An order to collect.
pub struct CollectOrder {
    /// What. Containers go before images.
    pub what: Vec<Garbage>,
    /// Only list it.
    pub dry_run: bool,
    /// When to stop.
    pub is_enough: IsEnough,
}

impl fmt::Debug for CollectOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, dry_run, is_enough: _ } = self;
        f.debug_struct("CollectOrder").field("what", what).field("dry_run", dry_run).finish_non_exhaustive()
    }
}

/// How a collection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectEnd {
    /// There is enough.
    Enough,
    /// Nothing is left to collect, and there is not enough.
    Exhausted,
    /// It was only to be listed.
    Listed,
    /// The runtime is gone; why.
    Interrupted(String),
}

impl CollectEnd {
    /// Returns the name used in metrics and logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Enough => "enough",
            Self::Exhausted => "exhausted",
            Self::Listed => "listed",
            Self::Interrupted(_) => "interrupted",
        }
    }
}

/// What a collection did, or would have done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// How it ended.
    pub end: CollectEnd,
    /// What was removed, or would be, in order: the first 64 of them.
    pub steps: Vec<Step>,
    /// Containers, sandboxes and images that were removed, or would be.
    pub counts: Counts,
    /// About how much that frees, as far as it is known.
    pub frees: Bytes,
    /// What the runtime would not remove, and why: the first 64 of them.
    pub refused: Vec<(Step, String)>,
    /// How long it took.
    pub took: Duration,
}

/// How many of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Dead containers.
    pub containers: usize,
    /// Dead sandboxes.
    pub sandboxes: usize,
    /// Images.
    pub images: usize,
}

impl Collected {
    fn new() -> Self {
        Self {
            end: CollectEnd::Exhausted,
            steps: Vec::new(),
            counts: Counts::default(),
            frees: Bytes::ZERO,
            refused: Vec::new(),
            took: Duration::ZERO,
        }
    }

    /// Of an order that could not even be begun.
    pub(crate) fn interrupted(reason: String) -> Self {
        Self { end: CollectEnd::Interrupted(reason), ..Self::new() }
    }

    fn note(&mut self, step: Step) {
        let count = match step.target {
            Target::Container { .. } => &mut self.counts.containers,
            Target::Sandbox { .. } => &mut self.counts.sandboxes,
            Target::Image { .. } => &mut self.counts.images,
        };
        *count += 1;
        self.frees = self.frees.saturating_add(step.frees.unwrap_or_default());
        if self.steps.len() < TOLD {
            self.steps.push(step);
        }
    }
}

/// What a collection works with.
#[derive(Debug, Clone)]
pub(super) struct Collection {
    pub(super) found: Found,
    pub(super) watcher: Arc<Mutex<Watcher>>,
    pub(super) ages: Ages,
    pub(super) logs: PathBuf,
}

/// Why no further step is taken.
enum Stop {
    Enough,
    Interrupted(CallError),
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Interrupted(error)
    }
}

impl Collection {
    /// Carries the order out.
    pub(super) async fn run(self, mut order: CollectOrder) -> Collected {
        let begun = Monotonic::now();
        let mut collected = Collected::new();
        let done = if order.dry_run {
            self.list(&order.what, &mut collected).await
        } else {
            self.remove(&mut order, &mut collected).await
        };
        collected.end = match done {
            Ok(()) if order.dry_run => CollectEnd::Listed,
            Ok(()) => CollectEnd::Exhausted,
            Err(Stop::Enough) => CollectEnd::Enough,
            Err(Stop::Interrupted(error)) => CollectEnd::Interrupted(error.to_string()),
        };
        collected.took = Monotonic::now().since(begun);
        collected
    }

    async fn list(&self, what: &[Garbage], collected: &mut Collected) -> Result<(), Stop> {
        let snapshot = self.look().await?;
        let mut steps = plan::plan(&snapshot, what, self.ages, Monotonic::now());
        self.weigh(&mut steps).await?;
        steps.into_iter().for_each(|step| collected.note(step));
        Ok(())
    }

    async fn remove(&self, order: &mut CollectOrder, collected: &mut Collected) -> Result<(), Stop> {
        let CollectOrder { what, dry_run: _, is_enough } = order;
        if is_enough() {
            return Err(Stop::Enough);
        }
        let none = HashSet::new();
        if what.contains(&Garbage::Containers) {
            let snapshot = self.look().await?;
            let mut steps = plan::containers(&snapshot, self.ages, Monotonic::now());
            self.weigh(&mut steps).await?;
            self.take(steps, is_enough, collected).await?;
            // Those that have lost their last container just now are among them.
            let snapshot = self.look().await?;
            let steps = plan::sandboxes(&snapshot, self.ages, Monotonic::now(), &none);
            self.take(steps, is_enough, collected).await?;
        }
        if what.contains(&Garbage::Images) {
            let snapshot = self.look().await?;
            let steps = plan::images(&snapshot, self.ages, Monotonic::now(), &none);
            self.take(steps, is_enough, collected).await?;
        }
        Ok(())
    }

    async fn look(&self) -> Result<Snapshot, CallError> {
        let mut watcher = self.watcher.lock().await;
        Ok(watcher.look(&self.found.client, &self.found.name).await?.snapshot)
    }

    /// One after the other, measuring after each.
    async fn take(&self, steps: Vec<Step>, is_enough: &mut IsEnough, collected: &mut Collected) -> Result<(), Stop> {
        for step in steps {
            let is_image = matches!(step.target, Target::Image { .. });
            match self.take_one(&step).await {
                Ok(true) => collected.note(step),
                Ok(false) => continue,
                Err(error) if error.is_missing() => continue,
                Err(error) if error.is_refusal() => {
                    if collected.refused.len() < TOLD {
                        collected.refused.push((step, error.to_string()));
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if !is_image {
                self.found.give_back().await?;
            }
            if is_enough() {
                return Err(Stop::Enough);
            }
            if is_image {
                tokio::time::sleep(SETTLING).await;
                if is_enough() {
                    return Err(Stop::Enough);
                }
            }
        }
        Ok(())
    }

    /// Looks whether it is still garbage, and removes it; false when it is not.
    async fn take_one(&self, step: &Step) -> Result<bool, CallError> {
        let client = &self.found.client;
        match &step.target {
            Target::Container { id, log } => {
                // Asked to remove one that runs, a runtime kills it.
                let status = client.container(id).await?;
                if status.is_none_or(|status| container_state(status.state) != ContainerState::Exited) {
                    return Ok(false);
                }
                client.remove_container(id).await?;
                if let Some(log) = log
                    && let Err(error) = logs::remove(&self.logs, log)
                {
                    tracing::debug!(%error, log = %log.display(), "the log of a removed container is left");
                }
            }
            Target::Sandbox { id } => {
                let status = client.sandbox(id, false).await?.status;
                let is_dead = status.is_some_and(|status| status.state != cri::SANDBOX_READY);
                if !is_dead || !client.containers(Some(id)).await?.iter().all(|other| other.pod_sandbox_id != *id) {
                    return Ok(false);
                }
                // Its network may still be there; the kubelet stops a sandbox before it removes it, too.
                client.stop_sandbox(id).await?;
                client.remove_sandbox(id).await?;
            }
            Target::Image { id } => {
                if self.is_used(client, id).await? {
                    return Ok(false);
                }
                client.remove_image(id).await?;
            }
        }
        Ok(true)
    }

    /// A container may have been made of it since it was planned.
    async fn is_used(&self, client: &Client, id: &str) -> Result<bool, CallError> {
        let Some(image) = client.images().await?.into_iter().find(|image| image.id == id) else { return Ok(true) };
        let containers = client.containers(None).await?;
        let containers: Vec<_> = containers.into_iter().filter_map(|it| snapshot::container(it, &[])).collect();
        let names: Vec<String> = image.repo_tags.into_iter().chain(image.repo_digests).collect();
        Ok(image.pinned || is_among(&used_images(&containers), id, &names))
    }

    /// What containers free: their logs, and their writable layers where the runtime tells.
    async fn weigh(&self, steps: &mut [Step]) -> Result<(), CallError> {
        if steps.iter().all(|step| !matches!(step.target, Target::Container { .. })) {
            return Ok(());
        }
        let stats = match self.found.client.container_stats().await {
            Ok(stats) => stats,
            Err(error) if error.is_refusal() => Vec::new(),
            Err(error) => return Err(error),
        };
        for step in steps {
            let Target::Container { id, log } = &step.target else { continue };
            let layer = stats
                .iter()
                .find(|stats| stats.attributes.as_ref().is_some_and(|attributes| attributes.id == *id))
                .and_then(|stats| stats.writable_layer.as_ref()?.used_bytes)
                .map(|bytes| Bytes(bytes.value));
            let log = log.as_ref().map(|log| logs::size(&self.logs, log));
            step.frees = layer.into_iter().chain(log).reduce(Bytes::saturating_add);
        }
        Ok(())
    }
}
