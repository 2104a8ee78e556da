//! Looking at what a runtime has, and remembering what it does not tell: since when, and when last used.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::cri;
use super::cri_client::{CallError, Client};
use super::deaths::{Deaths, wall_clock};
use super::find::image_of_sandbox;
use super::runtime_snapshot::{self as snapshot, Container, ContainerState, Details, Image, Sandbox, Snapshot, Stores};
use crate::units::Bytes;
use crate::units::Monotonic;

/// Containers are asked about one by one, and a node may have hundreds: the rest is asked at the next look.
const DETAILS_TIME: Duration = Duration::from_secs(2);
/// One whose details were not told in time is asked about again so soon, after the others.
const SLOW_AGAIN: Duration = Duration::from_secs(30);
/// What such an image is called wherever it comes from.
const SANDBOX_IMAGE_NAME: &str = "pause";

/// What is remembered from one look to the next, of what is still there.
#[derive(Debug, Default)]
pub(super) struct Observer {
    images: HashMap<String, Seen>,
    /// What is there at the first look may have been for ages.
    has_looked: bool,
    deaths: Deaths,
    details: HashMap<String, (ContainerState, Details)>,
    /// Containers of which nothing could be learnt, and when that was tried.
    slow: HashMap<String, Instant>,
    sandbox_image: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    first: Option<Monotonic>,
    used: Option<Monotonic>,
}

/// A snapshot, and what it lacks.
#[derive(Debug)]
pub(super) struct Observation {
    pub(super) snapshot: Snapshot,
    /// There was no time for all: a look soon would tell more.
    pub(super) is_cut_short: bool,
    /// Why it does not tell which images are of no use to anybody.
    pub(super) keeps_images: Option<&'static str>,
}

impl Observer {
    /// Asks the runtime for all that it has. Only the lists decide whether it answers: one container may be stuck.
    pub(super) async fn look(&mut self, client: &Client, runtime: &str) -> Result<Observation, CallError> {
        let listed = client.sandboxes().await?;
        let containers = client.containers(None).await?;
        let images = client.images().await?;
        let stores = match client.filesystems().await {
            Ok(answer) => snapshot::stores(answer),
            // Nothing rests on it that cannot be found out otherwise.
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
            Some("which image sandboxes are made of is not known")
        } else if !are_known(&containers) {
            Some("which images are mounted is not known of every container")
        } else {
            None
        };
        let snapshot = Snapshot { at, runtime: runtime.to_owned(), sandboxes, containers, images, stores };
        Ok(Observation { snapshot, is_cut_short, keeps_images })
    }

    /// Sandboxes are made of this image, by what the runtime said of itself.
    pub(super) fn set_sandbox_image(&mut self, image: Option<String>) {
        self.sandbox_image = image;
    }

    /// False when there was no time for all. Those that were slow before come last, and not at every look.
    pub(super) async fn ask_details(&mut self, client: &Client, containers: &mut [Container]) -> bool {
        let listed: HashSet<&str> = containers.iter().map(|container| container.id.as_str()).collect();
        self.details.retain(|id, _| listed.contains(id.as_str()));
        self.slow.retain(|id, _| listed.contains(id.as_str()));
        let mut unknown: Vec<&mut Container> = Vec::new();
        for container in containers {
            match self.details.get(&container.id).filter(|(state, _)| *state == container.state) {
                Some((_, details)) => container.details = Some(details.clone()),
                None if self.slow.get(&container.id).is_some_and(|at| at.elapsed() < SLOW_AGAIN) => {}
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
                // It has changed since it was listed; so will the next list have.
                Ok(_) => {}
                Err(error) if error.is_refusal() => {}
                Err(error) => {
                    tracing::debug!(%error, container = container.id, "nothing was learnt of a container");
                    self.slow.insert(container.id.clone(), Instant::now());
                }
            }
        }
        true
    }

    /// Whether it is known. containerd 1.6 pins nothing, and no container is seen to use the image that its sandboxes are made of.
    async fn find_sandbox_image(&mut self, client: &Client, sandboxes: &[Sandbox], images: &[cri::Image]) -> bool {
        if self.sandbox_image.is_some() || images.iter().any(is_pinned_sandbox_image) {
            return true;
        }
        let Some(sandbox) = sandboxes.iter().find(|sandbox| sandbox.is_ready) else { return false };
        match client.sandbox(&sandbox.id, true).await {
            Ok(answer) => self.sandbox_image = answer.info.get("info").and_then(|json| image_of_sandbox(json)),
            Err(error) => tracing::debug!(%error, sandbox = sandbox.id, "nothing was learnt of a sandbox"),
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
                self.images.get(&id).copied().unwrap_or(Seen { first: self.has_looked.then_some(at), used: None });
            let seen = Seen { used: if is_used { Some(at) } else { seen.used }, ..seen };
            still.insert(id.clone(), seen);
            let is_pinned = pinned || self.is_sandbox_image(&id, &names);
            let (first_seen, last_used) = (seen.first, seen.used);
            noted.push(Image { id, names, size: Bytes(size), is_pinned, is_used, first_seen, last_used });
        }
        self.images = still;
        self.has_looked = true;
        noted
    }

    fn is_sandbox_image(&self, id: &str, names: &[String]) -> bool {
        let is_told = self.sandbox_image.as_ref().is_some_and(|image| image == id || names.contains(image));
        is_told || names.iter().any(|name| last_part(name) == SANDBOX_IMAGE_NAME)
    }
}

/// Whether all that may still run are known with the images that are mounted into them.
pub(super) fn are_known(containers: &[Container]) -> bool {
    containers.iter().all(|container| container.state == ContainerState::Exited || container.details.is_some())
}

/// containerd 2 and CRI-O pin the one that sandboxes are made of, and others may be pinned beside it.
fn is_pinned_sandbox_image(image: &cri::Image) -> bool {
    let names = || image.repo_tags.iter().chain(&image.repo_digests);
    image.pinned && names().any(|name| last_part(name).contains(SANDBOX_IMAGE_NAME))
}

/// All that images are called by that these containers use, dead or alive.
pub(super) fn used_images<'c>(containers: impl IntoIterator<Item = &'c Container>) -> HashSet<&'c str> {
    let mut used = HashSet::new();
    for container in containers {
        let mounted = container.details.iter().flat_map(|details| &details.mounted_images);
        for name in container.images.iter().chain(mounted) {
            used.extend([name.as_str(), digest(name)]);
        }
    }
    used
}

/// Whether the id, one of the names, or the digest within a name is among `used`.
pub(super) fn is_among(used: &HashSet<&str>, id: &str, names: &[String]) -> bool {
    used.contains(digest(id)) || names.iter().any(|name| used.contains(name.as_str()) || used.contains(digest(name)))
}

/// The bare digits of `sha256:…` and `name@sha256:…`: containerd writes the algorithm before an id, CRI-O does not.
fn digest(name: &str) -> &str {
    let digest = name.split_once('@').map_or(name, |(_, digest)| digest);
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

/// `pause` of `registry.k8s.io/pause:3.9` and of `registry:5000/a/pause@sha256:…`.
fn last_part(name: &str) -> &str {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map_or(last, |(last, _)| last)
}
