//! Looking at what a runtime has, and remembering what it does not tell: since when, and when last used.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::client::{CallError, Client};
use super::cri;
use super::find::image_of_sandbox;
use super::snapshot::{self, Container, ContainerState, Details, Image, Sandbox, Snapshot, Stores};
use crate::config::Bytes;
use crate::node::Monotonic;

/// Containers are asked about one by one, and a node may have hundreds: the rest is asked at the next look.
const DETAILS_TIME: Duration = Duration::from_secs(2);
/// What such an image is called wherever it comes from.
const SANDBOX_IMAGE_NAME: &str = "pause";

/// What is remembered from one look to the next, of what is still there.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    images: HashMap<String, Seen>,
    dead: HashMap<String, Monotonic>,
    details: HashMap<String, (ContainerState, Details)>,
    sandbox_image: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    first: Monotonic,
    used: Option<Monotonic>,
}

/// A snapshot, and whether a look soon would tell more.
#[derive(Debug)]
pub(super) struct Seeing {
    pub(super) snapshot: Snapshot,
    pub(super) is_whole: bool,
}

impl Watcher {
    /// Asks the runtime for all that it has.
    pub(super) async fn look(&mut self, client: &Client, runtime: &str) -> Result<Seeing, CallError> {
        let listed = client.sandboxes().await?;
        let containers = client.containers(None).await?;
        let images = client.images().await?;
        let stores = match client.filesystems().await {
            Ok(answer) => snapshot::stores(answer),
            // Nothing rests on it that cannot be found out otherwise.
            Err(error) if error.is_refusal() => Stores::default(),
            Err(error) => return Err(error),
        };
        let at = Monotonic::now();
        let mut sandboxes: Vec<Sandbox> = listed.into_iter().filter_map(snapshot::sandbox).collect();
        let mut containers: Vec<Container> =
            containers.into_iter().filter_map(|it| snapshot::container(it, &sandboxes)).collect();
        self.note_deaths(&mut sandboxes, &mut containers, at);
        let is_whole = self.ask_details(client, &mut containers).await?;
        self.find_sandbox_image(client, &sandboxes, &images).await?;
        let images = self.note_images(images, &containers, at);
        let snapshot = Snapshot { at, runtime: runtime.to_owned(), sandboxes, containers, images, stores };
        Ok(Seeing { snapshot, is_whole })
    }

    /// Sandboxes are made of this image, by what the runtime said of itself.
    pub(super) fn set_sandbox_image(&mut self, image: Option<String>) {
        self.sandbox_image = image;
    }

    fn note_deaths(&mut self, sandboxes: &mut [Sandbox], containers: &mut [Container], at: Monotonic) {
        let mut still = HashMap::new();
        let mut since = |id: &str| {
            let since = self.dead.get(id).copied().unwrap_or(at);
            still.insert(id.to_owned(), since);
            since
        };
        for sandbox in sandboxes.iter_mut().filter(|sandbox| !sandbox.is_ready) {
            sandbox.dead_since = Some(since(&sandbox.id));
        }
        for container in containers.iter_mut().filter(|container| container.state == ContainerState::Exited) {
            container.dead_since = Some(since(&container.id));
        }
        self.dead = still;
    }

    /// False when there was no time for all.
    async fn ask_details(&mut self, client: &Client, containers: &mut [Container]) -> Result<bool, CallError> {
        let listed: HashSet<&str> = containers.iter().map(|container| container.id.as_str()).collect();
        self.details.retain(|id, _| listed.contains(id.as_str()));
        let begun = Instant::now();
        let mut is_whole = true;
        for container in containers {
            let known = self.details.get(&container.id).filter(|(state, _)| *state == container.state);
            if let Some((_, details)) = known {
                container.details = Some(details.clone());
                continue;
            }
            if begun.elapsed() >= DETAILS_TIME {
                is_whole = false;
                continue;
            }
            match client.container(&container.id).await {
                Ok(Some(status)) if snapshot::container_state(status.state) == container.state => {
                    let details = snapshot::details(status);
                    self.details.insert(container.id.clone(), (container.state, details.clone()));
                    container.details = Some(details);
                }
                // It has changed since it was listed; so will the next list have.
                Ok(_) => {}
                Err(error) if error.is_refusal() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(is_whole)
    }

    /// containerd 1.6 pins nothing, and no container is seen to use the image that its sandboxes are made of.
    async fn find_sandbox_image(
        &mut self,
        client: &Client,
        sandboxes: &[Sandbox],
        images: &[cri::Image],
    ) -> Result<(), CallError> {
        if self.sandbox_image.is_some() || images.iter().any(|image| image.pinned) {
            return Ok(());
        }
        let Some(sandbox) = sandboxes.iter().find(|sandbox| sandbox.is_ready) else { return Ok(()) };
        match client.sandbox(&sandbox.id, true).await {
            Ok(answer) => self.sandbox_image = answer.info.get("info").and_then(|json| image_of_sandbox(json)),
            Err(error) if error.is_refusal() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn note_images(&mut self, images: Vec<cri::Image>, containers: &[Container], at: Monotonic) -> Vec<Image> {
        let used = used_images(containers);
        let mut still = HashMap::new();
        let mut noted = Vec::with_capacity(images.len());
        for image in images.into_iter().filter(|image| !image.id.is_empty()) {
            let cri::Image { id, repo_tags, repo_digests, size, pinned } = image;
            let names: Vec<String> = repo_tags.into_iter().chain(repo_digests).collect();
            let is_used = is_among(&used, &id, &names);
            let seen = self.images.get(&id).copied().unwrap_or(Seen { first: at, used: None });
            let seen = Seen { used: if is_used { Some(at) } else { seen.used }, ..seen };
            still.insert(id.clone(), seen);
            let is_pinned = pinned || self.is_sandbox_image(&id, &names);
            let (first_seen, last_used) = (seen.first, seen.used);
            noted.push(Image { id, names, size: Bytes(size), is_pinned, is_used, first_seen, last_used });
        }
        self.images = still;
        noted
    }

    fn is_sandbox_image(&self, id: &str, names: &[String]) -> bool {
        let is_told = self.sandbox_image.as_ref().is_some_and(|image| image == id || names.contains(image));
        is_told || names.iter().any(|name| last_part(name) == SANDBOX_IMAGE_NAME)
    }
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
