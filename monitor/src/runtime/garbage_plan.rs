//! The garbage of a snapshot, in the order of its removal. Pure.
//!
//! Dead containers come first, from the oldest; then dead sandboxes without containers; then unused images, from the least
//! recently used (`eviction-semantics.md` §4). The newest dead container of each name and the newest sandbox of each pod are
//! kept: from them the kubelet decides whether to run the pod again (`kuberuntime_gc.go`). Only the API server knows whether the
//! pod was deleted. After a reboot, before the kubelet or the network is up, all pods look finished.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use super::image_use::{is_among, used_images};
use super::runtime_snapshot::{Container, ContainerState, Image, Sandbox, Snapshot, UnixNanos};
use crate::config::RuntimeOptions;
use crate::units::{Bytes, Monotonic};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Garbage {
    /// Dead containers with their logs, and dead sandboxes.
    Containers,
    Images,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    /// The least age of garbage since the death of a container or sandbox.
    pub container: Duration,
    /// The least age of garbage since an image was first seen.
    pub image: Duration,
    /// Whether to keep each pod's newest containers and sandbox, from which the kubelet decides.
    pub keep_newest: bool,
}

impl From<&RuntimeOptions> for Ages {
    fn from(options: &RuntimeOptions) -> Self {
        Self { container: options.minimum_container_age, image: options.image_minimum_gc_age, keep_newest: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Container { id: String, log: Option<PathBuf> },
    Sandbox { id: String },
    Image { id: String },
}

impl Target {
    /// Returns the name of the kind in logs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Container { .. } => "container",
            Self::Sandbox { .. } => "sandbox",
            Self::Image { .. } => "image",
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Self::Container { id, .. } | Self::Sandbox { id } | Self::Image { id } => id,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub target: Target,
    /// `namespace/pod/container#attempt`, or the name of the image.
    pub name: String,
    /// An estimate. Layers that the image shares with other images are not freed.
    pub frees: Option<Bytes>,
}

/// Returns the garbage of these kinds, in the order of removal.
pub fn plan(snapshot: &Snapshot, what: &[Garbage], ages: Ages, now: Monotonic) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut removed = HashSet::new();
    if what.contains(&Garbage::Containers) {
        steps = containers(snapshot, ages, now);
        removed.extend(steps.iter().map(|step| step.target.id().to_owned()));
        steps.extend(sandboxes(snapshot, ages, now, &removed));
    }
    if what.contains(&Garbage::Images) {
        steps.extend(images(snapshot, ages, now, &removed));
    }
    steps
}

/// Returns dead containers that are not needed. The container that ended first comes first.
pub(super) fn containers(snapshot: &Snapshot, ages: Ages, now: Monotonic) -> Vec<Step> {
    let is_garbage = |container: &&Container| {
        container.state == ContainerState::Exited
            && (is_superseded(container, snapshot) || is_left_over(container, snapshot, ages, now))
    };
    let mut garbage: Vec<&Container> = snapshot.containers.iter().filter(is_garbage).collect();
    garbage.sort_by_key(|container| (ended(container), container.created, &container.id));
    garbage.into_iter().map(step_of).collect()
}

fn ended(container: &Container) -> Option<UnixNanos> {
    container.details.as_ref().and_then(|details| details.finished).or(container.created)
}

/// Returns whether the pod has a newer container of this name.
fn is_superseded(container: &Container, snapshot: &Snapshot) -> bool {
    let Some(pod) = &container.pod else { return false };
    let age = (container.created, container.attempt);
    let is_newer = |other: &Container| {
        other.name == container.name && other.id != container.id && (other.created, other.attempt) > age
    };
    !container.name.is_empty() && snapshot.containers_of(&pod.uid).any(is_newer)
}

/// Returns whether the container's sandbox was removed (the kubelet removes only sandboxes of deleted pods), or has long been
/// dead and is not needed.
fn is_left_over(container: &Container, snapshot: &Snapshot, ages: Ages, now: Monotonic) -> bool {
    let sandbox = snapshot.sandboxes.iter().find(|sandbox| sandbox.id == container.sandbox);
    let is_needed = ages.keep_newest && sandbox.is_some() && container.pod.is_some();
    !is_needed
        && is_older(container.dead_since, ages.container, now)
        && sandbox.is_none_or(|sandbox| is_older(sandbox.dead_since, ages.container, now))
}

fn is_older(since: Option<Monotonic>, age: Duration, now: Monotonic) -> bool {
    since.is_some_and(|since| now.since(since) >= age)
}

fn step_of(container: &Container) -> Step {
    let log = container.details.as_ref().and_then(|details| details.log.clone());
    let pod = container.pod.as_ref().map_or_else(String::new, |pod| format!("{}/{}/", pod.namespace, pod.name));
    Step {
        target: Target::Container { id: container.id.clone(), log },
        name: format!("{pod}{}#{}", container.name, container.attempt),
        frees: None,
    }
}

/// Returns dead sandboxes whose containers are all in `removed`, from the oldest.
pub(super) fn sandboxes(snapshot: &Snapshot, ages: Ages, now: Monotonic, removed: &HashSet<String>) -> Vec<Step> {
    let is_empty = |sandbox: &Sandbox| {
        snapshot.containers.iter().all(|container| container.sandbox != sandbox.id || removed.contains(&container.id))
    };
    let is_newest = |sandbox: &Sandbox| {
        let age = (sandbox.created, sandbox.attempt);
        let mut others = snapshot.sandboxes.iter().filter(|other| other.pod.uid == sandbox.pod.uid);
        others.all(|other| other.id == sandbox.id || (other.created, other.attempt) <= age)
    };
    let is_garbage = |sandbox: &&Sandbox| {
        is_older(sandbox.dead_since, ages.container, now)
            && is_empty(sandbox)
            && !(ages.keep_newest && is_newest(sandbox))
    };
    let mut garbage: Vec<&Sandbox> = snapshot.sandboxes.iter().filter(is_garbage).collect();
    garbage.sort_by_key(|sandbox| (sandbox.created, &sandbox.id));
    let step = |sandbox: &Sandbox| Step {
        target: Target::Sandbox { id: sandbox.id.clone() },
        name: format!("{}/{}#{}", sandbox.pod.namespace, sandbox.pod.name, sandbox.attempt),
        frees: None,
    };
    garbage.into_iter().map(step).collect()
}

/// Returns images that no container uses, except containers in `removed`. Never used images come first, then the others by last
/// use, then the largest.
pub(super) fn images(snapshot: &Snapshot, ages: Ages, now: Monotonic, removed: &HashSet<String>) -> Vec<Step> {
    let used = used_images(snapshot.containers.iter().filter(|container| !removed.contains(&container.id)));
    let is_garbage = |image: &&Image| {
        !image.is_pinned
            && image.first_seen.is_none_or(|first| is_older(Some(first), ages.image, now))
            && !is_among(&used, &image.id, &image.names)
    };
    let mut garbage: Vec<&Image> = snapshot.images.iter().filter(is_garbage).collect();
    garbage.sort_by_key(|image| (image.last_used, image.first_seen, Reverse(image.size), &image.id));
    let step = |image: &Image| Step {
        target: Target::Image { id: image.id.clone() },
        name: image.name().to_owned(),
        frees: Some(image.size),
    };
    garbage.into_iter().map(step).collect()
}

#[cfg(test)]
#[path = "garbage_plan_tests.rs"]
mod tests;
