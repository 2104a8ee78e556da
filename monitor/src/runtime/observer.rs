//! Observes a runtime. Remembers what the runtime does not report: since when objects exist, and when images were last used.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::cri;
use super::cri_client::{CallError, Client};
use super::deaths::{Deaths, wall_clock};
use super::find::text_in;
use super::image_use::{are_known, is_among, used_images};
use super::runtime_snapshot::{self as snapshot, Container, ContainerState, Details, Image, Sandbox, Snapshot, Stores};
use crate::units::{Bytes, Monotonic};

/// The time for calls about single containers, of which a node may have hundreds. The next observation makes the remaining calls.
const DETAILS_TIME: Duration = Duration::from_secs(2);
/// How long the agent waits before it asks again about a container without an answer. Such containers come last.
const SLOW_RETRY: Duration = Duration::from_secs(30);
/// The last part of the name of sandbox images from any registry.
const SANDBOX_IMAGE_NAME: &str = "pause";

/// Keeps the known facts about existing objects from one observation to the next.
#[derive(Debug, Default)]
pub(super) struct Observer {
    images: HashMap<String, Seen>,
    /// Whether there was an observation. Images of the first one may have existed for any time.
    has_observed: bool,
    deaths: Deaths,
    details: HashMap<String, (ContainerState, Details)>,
    /// The containers without an answer from the runtime, and when the agent asked about them.
    slow: HashMap<String, Instant>,
    sandbox_image: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    first: Option<Monotonic>,
    used: Option<Monotonic>,
}

/// A snapshot, and what is missing in it.
#[derive(Debug)]
pub(super) struct Observation {
    pub(super) snapshot: Snapshot,
    /// Details of some containers are missing for lack of time.
    pub(super) is_cut_short: bool,
    /// The reason why unused images cannot be determined.
    pub(super) keeps_images: Option<&'static str>,
}

impl Observer {
    /// Lists all objects. Fails only if a list fails, because a single container may be stuck.
    pub(super) async fn observe(&mut self, client: &Client, runtime: &str) -> Result<Observation, CallError> {
        let listed = client.sandboxes().await?;
        let containers = client.containers(None).await?;
        let images = client.images().await?;
        let stores = match client.filesystems().await {
            Ok(answer) => snapshot::stores(answer),
            // The stores are optional, because they can be found otherwise.
            Err(error) if error.is_refusal() => Stores::default(),
            Err(error) => return Err(error),
        };
        let (at, wall) = (Monotonic::now(), wall_clock());
        let mut sandboxes: Vec<Sandbox> = listed.into_iter().filter_map(snapshot::sandbox).collect();
        let mut containers: Vec<Container> =
            containers.into_iter().filter_map(|it| snapshot::container(it, &sandboxes)).collect();
        let is_cut_short = !self.ask_details(client, &mut containers).await;
        self.deaths.note(&mut sandboxes, &mut containers, at, wall);
        let is_pause_known = self.find_sandbox_image(client, &sandboxes, &images).await;
        let images = self.note_images(images, &containers, at);
        let keeps_images = if !is_pause_known {
            Some("the image of sandboxes is not known")
        } else if !are_known(&containers) {
            Some("the mounted images of some containers are not known")
        } else {
            None
        };
        let snapshot = Snapshot { at, runtime: runtime.to_owned(), sandboxes, containers, images, stores };
        Ok(Observation { snapshot, is_cut_short, keeps_images })
    }

    /// Sets the sandbox image that the runtime's status names.
    pub(super) fn set_sandbox_image(&mut self, image: Option<String>) {
        self.sandbox_image = image;
    }

    /// Fills in details. Returns false if the time was not sufficient for all. Containers without an answer come last, and not
    /// each time.
    pub(super) async fn ask_details(&mut self, client: &Client, containers: &mut [Container]) -> bool {
        let listed: HashSet<&str> = containers.iter().map(|container| container.id.as_str()).collect();
        self.details.retain(|id, _| listed.contains(id.as_str()));
        self.slow.retain(|id, _| listed.contains(id.as_str()));
        let mut unknown: Vec<&mut Container> = Vec::new();
        for container in containers {
            match self.details.get(&container.id).filter(|(state, _)| *state == container.state) {
                Some((_, details)) => container.details = Some(details.clone()),
                None if self.slow.get(&container.id).is_some_and(|at| at.elapsed() < SLOW_RETRY) => {}
                None => unknown.push(container),
            }
        }
        unknown.sort_by_key(|container| self.slow.get(&container.id).copied());
        let begun = Instant::now();
        for container in unknown {
            if begun.elapsed() >= DETAILS_TIME {
                return false;
            }
            match client.container(&container.id).await {
                Ok(Some(status)) if snapshot::container_state(status.state) == container.state => {
                    let details = snapshot::details(status);
                    self.slow.remove(&container.id);
                    self.details.insert(container.id.clone(), (container.state, details.clone()));
                    container.details = Some(details);
                }
                // The container has changed since it was listed; the next list has its new state.
                Ok(_) => {}
                Err(error) if error.is_refusal() => {}
                Err(error) => {
                    tracing::debug!(%error, container = container.id, "details of a container cannot be read");
                    self.slow.insert(container.id.clone(), Instant::now());
                }
            }
        }
        true
    }

    /// Finds the image of sandboxes. Returns whether it is known. containerd 1.6 does not pin this image, and no container uses
    /// it.
    async fn find_sandbox_image(&mut self, client: &Client, sandboxes: &[Sandbox], images: &[cri::Image]) -> bool {
        if self.sandbox_image.is_some() || images.iter().any(is_pinned_sandbox_image) {
            return true;
        }
        let Some(sandbox) = sandboxes.iter().find(|sandbox| sandbox.is_ready) else { return false };
        match client.sandbox(&sandbox.id, true).await {
            Ok(answer) => self.sandbox_image = answer.info.get("info").and_then(|json| text_in(json, "image")),
            Err(error) => tracing::debug!(%error, sandbox = sandbox.id, "details of a sandbox cannot be read"),
        }
        self.sandbox_image.is_some()
    }

    fn note_images(&mut self, images: Vec<cri::Image>, containers: &[Container], at: Monotonic) -> Vec<Image> {
        let used = used_images(containers);
        let mut still = HashMap::new();
        let mut noted = Vec::with_capacity(images.len());
        for image in images.into_iter().filter(|image| !image.id.is_empty()) {
            let cri::Image { id, repo_tags, repo_digests, size, pinned } = image;
            let names: Vec<String> = repo_tags.into_iter().chain(repo_digests).collect();
            let is_used = is_among(&used, &id, &names);
            let seen =
                self.images.get(&id).copied().unwrap_or(Seen { first: self.has_observed.then_some(at), used: None });
            let seen = Seen { used: if is_used { Some(at) } else { seen.used }, ..seen };
            still.insert(id.clone(), seen);
            let is_pinned = pinned || self.is_sandbox_image(&id, &names);
            let (first_seen, last_used) = (seen.first, seen.used);
            noted.push(Image { id, names, size: Bytes(size), is_pinned, is_used, first_seen, last_used });
        }
        self.images = still;
        self.has_observed = true;
        noted
    }

    fn is_sandbox_image(&self, id: &str, names: &[String]) -> bool {
        let is_named = self.sandbox_image.as_ref().is_some_and(|image| image == id || names.contains(image));
        is_named || names.iter().any(|name| last_part(name) == SANDBOX_IMAGE_NAME)
    }
}

/// Returns whether the image is a pinned sandbox image, as in containerd 2 and CRI-O. These runtimes may pin other images as
/// well.
fn is_pinned_sandbox_image(image: &cri::Image) -> bool {
    let names = || image.repo_tags.iter().chain(&image.repo_digests);
    image.pinned && names().any(|name| last_part(name).contains(SANDBOX_IMAGE_NAME))
}

/// Returns the last part of a name: `pause` of `registry.k8s.io/pause:3.9` and of `registry:5000/a/pause@sha256:…`.
fn last_part(name: &str) -> &str {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map_or(last, |(last, _)| last)
}
