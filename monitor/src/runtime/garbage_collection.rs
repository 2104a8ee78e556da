//! Collecting garbage: one thing at a time, each looked at once more before it goes, until there is enough.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::cri_client::{CallError, Client};
use super::find::Found;
use super::garbage_plan::{self as plan, Ages, Garbage, Step, Target};
use super::observer::{Observation, Observer, are_known, is_among, used_images};
use super::runtime_snapshot::container_state;
use super::{ContainerState, cri, logs, runtime_snapshot as snapshot};
use crate::units::Bytes;
use crate::units::Monotonic;

/// Told by name at most; all are counted.
const TOLD: usize = 64;
/// A runtime may give the space of an image back a moment after it says that it is gone.
const SETTLING: Duration = Duration::from_millis(100);
/// What things weigh is for people to read: nothing waits longer for it.
const WEIGHING: Duration = Duration::from_secs(1);
/// A disk that has not told how full it is by then does not answer.
const MEASURING: Duration = Duration::from_secs(5);
/// Looks until all containers are known, of which each takes some seconds at most.
const LOOKS: usize = 10;

/// Measures once more; true when nothing more has to go. Called on a thread that may wait, before the first removal and after each.
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
    /// The runtime is gone, or a disk does not answer; why.
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
    /// How many that were in all.
    pub refusals: usize,
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
            refusals: 0,
            took: Duration::ZERO,
        }
    }

    /// Of an order that could not even be begun.
    pub(crate) fn interrupted(reason: String) -> Self {
        Self { end: CollectEnd::Interrupted(reason), ..Self::new() }
    }

    fn refuse(&mut self, step: Step, reason: String) {
        self.refusals += 1;
        if self.refused.len() < TOLD {
            self.refused.push((step, reason));
        }
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
    pub(super) watcher: Arc<Mutex<Observer>>,
    pub(super) ages: Ages,
    pub(super) logs: logs::Root,
}

/// Why no further step is taken.
enum Stop {
    Enough,
    Interrupted(String),
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Interrupted(error.to_string())
    }
}

/// Measures, which a disk that hangs may hold up for ever: not on the thread that speaks to the runtime.
struct Gauge(Option<IsEnough>);

impl Gauge {
    /// Goes on unless there is enough.
    async fn read(&mut self) -> Result<(), Stop> {
        let hangs = || Stop::Interrupted(format!("how full the disk is was not told within {} s", MEASURING.as_secs()));
        let mut is_enough = self.0.take().ok_or_else(hangs)?;
        let measuring = tokio::task::spawn_blocking(move || (is_enough(), is_enough));
        match tokio::time::timeout(MEASURING, measuring).await {
            Ok(Ok((true, _))) => Err(Stop::Enough),
            Ok(Ok((false, is_enough))) => {
                self.0 = Some(is_enough);
                Ok(())
            }
            // A defect, which its panic has told of.
            Ok(Err(_)) => Err(Stop::Interrupted("how full the disk is could not be measured".to_owned())),
            Err(_) => Err(hangs()),
        }
    }
}

impl Collection {
    /// Carries the order out.
    pub(super) async fn run(self, order: CollectOrder) -> Collected {
        let begun = Monotonic::now();
        let mut collected = Collected::new();
        let CollectOrder { what, dry_run, is_enough } = order;
        let done = if dry_run {
            self.list(what, &mut collected).await
        } else {
            self.remove(&what, Gauge(Some(is_enough)), &mut collected).await
        };
        collected.end = match done {
            Ok(()) if dry_run => CollectEnd::Listed,
            Ok(()) => CollectEnd::Exhausted,
            Err(Stop::Enough) => CollectEnd::Enough,
            Err(Stop::Interrupted(reason)) => CollectEnd::Interrupted(reason),
        };
        collected.took = Monotonic::now().since(begun);
        collected
    }

    async fn list(&self, mut what: Vec<Garbage>, collected: &mut Collected) -> Result<(), Stop> {
        let seeing = self.look_at_all().await?;
        what.retain(|what| *what != Garbage::Images || may_collect_images(&seeing));
        let mut steps = plan::plan(&seeing.snapshot, &what, self.ages, Monotonic::now());
        self.weigh(&mut steps).await;
        steps.into_iter().for_each(|step| collected.note(step));
        Ok(())
    }

    async fn remove(&self, what: &[Garbage], mut gauge: Gauge, collected: &mut Collected) -> Result<(), Stop> {
        gauge.read().await?;
        let none = HashSet::new();
        if what.contains(&Garbage::Containers) {
            let snapshot = self.look().await?.snapshot;
            let mut steps = plan::containers(&snapshot, self.ages, Monotonic::now());
            self.weigh(&mut steps).await;
            self.take(steps, &mut gauge, collected).await?;
            // Those that have lost their last container just now are among them.
            let snapshot = self.look().await?.snapshot;
            let steps = plan::sandboxes(&snapshot, self.ages, Monotonic::now(), &none);
            self.take(steps, &mut gauge, collected).await?;
        }
        if what.contains(&Garbage::Images) {
            let seeing = self.look_at_all().await?;
            if may_collect_images(&seeing) {
                let steps = plan::images(&seeing.snapshot, self.ages, Monotonic::now(), &none);
                self.take(steps, &mut gauge, collected).await?;
            }
        }
        Ok(())
    }

    async fn look(&self) -> Result<Observation, CallError> {
        self.watcher.lock().await.look(&self.found.client, &self.found.name).await
    }

    /// The same, until no container is left that there was no time for.
    async fn look_at_all(&self) -> Result<Observation, CallError> {
        let mut seeing = self.look().await?;
        for _ in 1..LOOKS {
            if !seeing.is_cut_short {
                break;
            }
            seeing = self.look().await?;
        }
        Ok(seeing)
    }

    /// One after the other, measuring after each. One that the runtime is stuck with does not keep the others.
    async fn take(&self, steps: Vec<Step>, gauge: &mut Gauge, collected: &mut Collected) -> Result<(), Stop> {
        for step in steps {
            let is_image = matches!(step.target, Target::Image { .. });
            match self.take_one(&step).await {
                Ok(true) => collected.note(step),
                Ok(false) => continue,
                Err(error) if error.is_missing() => continue,
                Err(error) => {
                    if !error.is_refusal() {
                        self.found.client.sandboxes().await?;
                    }
                    collected.refuse(step, error.to_string());
                    continue;
                }
            }
            if !is_image {
                self.found.give_back().await?;
            }
            gauge.read().await?;
            if is_image {
                tokio::time::sleep(SETTLING).await;
                gauge.read().await?;
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

    /// A container may have been made of it since it was planned. One that nothing is known of may have it mounted.
    async fn is_used(&self, client: &Client, id: &str) -> Result<bool, CallError> {
        let Some(image) = client.images().await?.into_iter().find(|image| image.id == id) else { return Ok(true) };
        let containers = client.containers(None).await?;
        let mut containers: Vec<_> = containers.into_iter().filter_map(|it| snapshot::container(it, &[])).collect();
        self.watcher.lock().await.ask_details(client, &mut containers).await;
        let names: Vec<String> = image.repo_tags.into_iter().chain(image.repo_digests).collect();
        Ok(image.pinned || !are_known(&containers) || is_among(&used_images(&containers), id, &names))
    }

    /// What containers free: their logs, and their writable layers where the runtime tells.
    async fn weigh(&self, steps: &mut [Step]) {
        if steps.iter().all(|step| !matches!(step.target, Target::Container { .. })) {
            return;
        }
        // It may have to walk directories for it, under the very pressure that this is about.
        let stats = match tokio::time::timeout(WEIGHING, self.found.client.container_stats()).await {
            Ok(Ok(stats)) => stats,
            Ok(Err(_)) | Err(_) => Vec::new(),
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
    }
}

fn may_collect_images(seeing: &Observation) -> bool {
    if let Some(reason) = seeing.keeps_images {
        tracing::info!(event = "images_kept", reason, "no images are collected");
    }
    seeing.keeps_images.is_none()
}
