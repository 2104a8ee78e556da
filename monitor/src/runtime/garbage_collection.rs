//! Collects garbage until enough is free. Removes one object at a time, and checks each again immediately before.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::cri_client::{CallError, Client};
use super::find::Found;
use super::garbage_plan::{self as plan, Ages, Garbage, Step, Target};
use super::image_use::{are_known, is_among, used_images};
use super::observer::{Observation, Observer};
use super::runtime_orders::{CollectEnd, CollectOrder, Collected, IsEnough};
use super::runtime_snapshot::{self as snapshot, ContainerState, container_state};
use super::{cri, logs};
use crate::units::{Bytes, Monotonic};

/// A filesystem may free the space of an image a moment after the runtime has removed it.
const SETTLING: Duration = Duration::from_millis(100);
/// Timeout of estimates, which are only for the log.
const ESTIMATING: Duration = Duration::from_secs(1);
/// Timeout of a measurement. A measurement that takes longer counts as a hanging disk.
const MEASURING: Duration = Duration::from_secs(5);
/// The most observations until the details of all containers are known. Each takes a few seconds at most.
const OBSERVATIONS: usize = 10;

#[derive(Debug, Clone)]
pub(super) struct Collection {
    pub(super) found: Found,
    pub(super) observer: Arc<Mutex<Observer>>,
    pub(super) ages: Ages,
    pub(super) logs: logs::Root,
}

enum Stop {
    Enough,
    Interrupted(String),
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Interrupted(error.to_string())
    }
}

/// Measures on its own thread, which a hanging disk may block for ever. The gauge is empty after that.
struct Gauge {
    is_enough: Option<IsEnough>,
    /// Whether it measures only when the space of a removed image is free. containerd 2.0 answers before that: its CRI plugin has lost the
    /// option for a synchronous removal (kubernetes/kubernetes#130663).
    awaits_space: bool,
}

impl Gauge {
    /// Measures. Returns an error unless the collection must continue.
    async fn read(&mut self) -> Result<(), Stop> {
        let hangs =
            || Stop::Interrupted(format!("the free space of the disk is not known within {} s", MEASURING.as_secs()));
        let mut is_enough = self.is_enough.take().ok_or_else(hangs)?;
        let measuring = tokio::task::spawn_blocking(move || (is_enough(), is_enough));
        match tokio::time::timeout(MEASURING, measuring).await {
            Ok(Ok((true, _))) => Err(Stop::Enough),
            Ok(Ok((false, is_enough))) => {
                self.is_enough = Some(is_enough);
                Ok(())
            }
            // The measurement has panicked.
            Ok(Err(_)) => Err(Stop::Interrupted("the free space of the disk could not be measured".to_owned())),
            Err(_) => Err(hangs()),
        }
    }
}

impl Collection {
    pub(super) async fn run(self, order: CollectOrder) -> Collected {
        let begun = Monotonic::now();
        let mut collected = Collected::default();
        let CollectOrder { what, dry_run, awaits_space, is_enough } = order;
        let done = if dry_run {
            self.list(what, &mut collected).await
        } else {
            let gauge = Gauge { is_enough: Some(is_enough), awaits_space };
            self.remove(&what, gauge, &mut collected).await
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
        let seen = self.observe_all().await?;
        what.retain(|what| *what != Garbage::Images || may_collect_images(&seen));
        let mut steps = plan::plan(&seen.snapshot, &what, self.ages, Monotonic::now());
        self.estimate(&mut steps).await;
        steps.into_iter().for_each(|step| collected.note(step));
        Ok(())
    }

    async fn remove(&self, what: &[Garbage], mut gauge: Gauge, collected: &mut Collected) -> Result<(), Stop> {
        gauge.read().await?;
        let none = HashSet::new();
        if what.contains(&Garbage::Containers) {
            let snapshot = self.observe().await?.snapshot;
            let mut steps = plan::containers(&snapshot, self.ages, Monotonic::now());
            self.estimate(&mut steps).await;
            self.remove_each(steps, &mut gauge, collected).await?;
            // The second observation is needed because sandboxes that have just lost their last container are garbage now.
            let snapshot = self.observe().await?.snapshot;
            let steps = plan::sandboxes(&snapshot, self.ages, Monotonic::now(), &none);
            self.remove_each(steps, &mut gauge, collected).await?;
        }
        if what.contains(&Garbage::Images) {
            let seen = self.observe_all().await?;
            if may_collect_images(&seen) {
                let steps = plan::images(&seen.snapshot, self.ages, Monotonic::now(), &none);
                self.remove_each(steps, &mut gauge, collected).await?;
            }
        }
        Ok(())
    }

    async fn observe(&self) -> Result<Observation, CallError> {
        self.observer.lock().await.observe(&self.found.client, &self.found.name).await
    }

    /// Observes until the details of all containers are known.
    async fn observe_all(&self) -> Result<Observation, CallError> {
        let mut seen = self.observe().await?;
        for _ in 1..OBSERVATIONS {
            if !seen.is_cut_short {
                break;
            }
            seen = self.observe().await?;
        }
        Ok(seen)
    }

    /// Removes the objects one after the other, and measures after each. An object that the runtime cannot remove does not stop
    /// the collection.
    async fn remove_each(&self, steps: Vec<Step>, gauge: &mut Gauge, collected: &mut Collected) -> Result<(), Stop> {
        for step in steps {
            let is_image = matches!(step.target, Target::Image { .. });
            match self.remove_one(&step).await {
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
            if !is_image || gauge.awaits_space {
                self.found.free_removed().await?;
            }
            gauge.read().await?;
            if is_image {
                tokio::time::sleep(SETTLING).await;
                gauge.read().await?;
            }
        }
        Ok(())
    }

    /// Removes an object if it is still garbage. Returns whether it was.
    async fn remove_one(&self, step: &Step) -> Result<bool, CallError> {
        let client = &self.found.client;
        match &step.target {
            Target::Container { id, log } => {
                // The check is needed because a runtime kills a running container that it is ordered to remove.
                let status = client.container(id).await?;
                if status.is_none_or(|status| container_state(status.state) != ContainerState::Exited) {
                    return Ok(false);
                }
                client.remove_container(id).await?;
                if let Some(log) = log {
                    logs::remove_or_note(&self.logs, log);
                }
            }
            Target::Sandbox { id } => {
                let status = client.sandbox(id, false).await?.status;
                let is_dead = status.is_some_and(|status| status.state != cri::SANDBOX_READY);
                if !is_dead || !client.containers(Some(id)).await?.iter().all(|other| other.pod_sandbox_id != *id) {
                    return Ok(false);
                }
                // Stopping removes the network. The kubelet also stops a sandbox before it removes it.
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

    /// Returns whether a container uses the image now. A container without known details may have mounted it.
    async fn is_used(&self, client: &Client, id: &str) -> Result<bool, CallError> {
        let Some(image) = client.images().await?.into_iter().find(|image| image.id == id) else { return Ok(true) };
        let containers = client.containers(None).await?;
        let mut containers: Vec<_> = containers.into_iter().filter_map(|it| snapshot::container(it, &[])).collect();
        self.observer.lock().await.ask_details(client, &mut containers).await;
        let names: Vec<String> = image.repo_tags.into_iter().chain(image.repo_digests).collect();
        Ok(image.pinned || !are_known(&containers) || is_among(&used_images(&containers), id, &names))
    }

    /// Estimates how much the removal of containers frees: logs, and writable layers if the runtime reports them.
    async fn estimate(&self, steps: &mut [Step]) {
        if steps.iter().all(|step| !matches!(step.target, Target::Container { .. })) {
            return;
        }
        // For this call the runtime may walk directories, which takes long under disk pressure.
        let stats = match tokio::time::timeout(ESTIMATING, self.found.client.container_stats()).await {
            Ok(Ok(stats)) => stats,
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        for step in steps {
            let Target::Container { id, log } = &step.target else { continue };
            let layer = stats
                .iter()
                .find(|stats| stats.attributes.as_ref() == Some(id))
                .and_then(|stats| stats.writable_layer.as_ref()?.used_bytes)
                .map(Bytes);
            let log = log.as_ref().map(|log| logs::size(&self.logs, log));
            step.frees = layer.into_iter().chain(log).reduce(Bytes::saturating_add);
        }
    }
}

fn may_collect_images(seen: &Observation) -> bool {
    if let Some(reason) = seen.keeps_images {
        tracing::info!(event = "images_kept", reason, "images are not collected: their use is not known");
    }
    seen.keeps_images.is_none()
}
