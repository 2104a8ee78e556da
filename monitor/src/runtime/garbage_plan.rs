//! What would be collected, in which order. Pure: a snapshot in, steps out.
//!
//! Dead containers first, the oldest before the others; then sandboxes that are dead and empty; then images that nothing uses, the one whose
//! last use is the longest ago first (`eviction-semantics.md` §4). What the kubelet may still decide by is left to it: the newest dead
//! container of its name in a pod, and the pod's newest sandbox, tell it whether to run them again (`kuberuntime_gc.go`). Whether the pod
//! was deleted only the API server knows: after a reboot, before the kubelet or the network is up, all pods look as if they were over.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use super::observer::{is_among, used_images};
use super::runtime_snapshot::{Container, ContainerState, Image, Sandbox, Snapshot, UnixNanos};
use crate::config::RuntimeOptions;
use crate::units::Bytes;
use crate::units::Monotonic;

/// What may be collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Garbage {
    /// Dead containers with their logs, and dead sandboxes.
    Containers,
    /// Images that no container uses.
    Images,
}

/// How long what might still be needed is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    /// A container or sandbox, after it died.
    pub container: Duration,
    /// An image, after it was first seen.
    pub image: Duration,
    /// Keep the newest of its kind for good: there may be a kubelet, which decides by it.
    pub keep_newest: bool,
}

impl From<&RuntimeOptions> for Ages {
    fn from(options: &RuntimeOptions) -> Self {
        Self { container: options.minimum_container_age, image: options.image_minimum_gc_age, keep_newest: true }
    }
}

/// One thing to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A dead container, with its log.
    Container {
        /// Its id.
        id: String,
        /// Its log.
        log: Option<PathBuf>,
    },
    /// A dead sandbox without containers.
    Sandbox {
        /// Its id.
        id: String,
    },
    /// An image that nothing uses.
    Image {
        /// Its id.
        id: String,
    },
}

impl Target {
    /// What kind of thing it is.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Container { .. } => "container",
            Self::Sandbox { .. } => "sandbox",
            Self::Image { .. } => "image",
        }
    }

    /// The runtime's id of it.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Container { id, .. } | Self::Sandbox { id } | Self::Image { id } => id,
        }
    }
}

/// One thing to remove, as people know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub target: Target,
    /// What it is called: `namespace/pod/container#attempt`, or the name of the image.
    pub name: String,
    /// About how much that frees, as far as it is known: layers that an image shares with others stay.
    pub frees: Option<Bytes>,
}

/// All that would be removed of what is asked for, in order.
#[must_use]
pub fn plan(snapshot: &Snapshot, what: &[Garbage], ages: Ages, now: Monotonic) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut gone = HashSet::new();
    if what.contains(&Garbage::Containers) {
        steps = containers(snapshot, ages, now);
        gone.extend(steps.iter().map(|step| step.target.id().to_owned()));
        steps.extend(sandboxes(snapshot, ages, now, &gone));
    }
    if what.contains(&Garbage::Images) {
        steps.extend(images(snapshot, ages, now, &gone));
    }
    steps
}

/// Dead containers that nobody needs any more, the one that ended first first.
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

/// There is a newer one of the same name in the same pod: nobody asks this one any more.
fn is_superseded(container: &Container, snapshot: &Snapshot) -> bool {
    let Some(pod) = &container.pod else { return false };
    let age = (container.created, container.attempt);
    let is_newer = |other: &Container| {
        other.name == container.name && other.id != container.id && (other.created, other.attempt) > age
    };
    !container.name.is_empty() && snapshot.containers_of(&pod.uid).any(is_newer)
}

/// Its sandbox is gone, for which the kubelet removes it only of a pod that was deleted; or dead for long, and nobody asks by it.
fn is_left_over(container: &Container, snapshot: &Snapshot, ages: Ages, now: Monotonic) -> bool {
    let sandbox = snapshot.sandboxes.iter().find(|sandbox| sandbox.id == container.sandbox);
    let is_asked_for = ages.keep_newest && sandbox.is_some() && container.pod.is_some();
    !is_asked_for
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

/// Dead sandboxes without containers, the oldest first, once those in `gone` are.
pub(super) fn sandboxes(snapshot: &Snapshot, ages: Ages, now: Monotonic, gone: &HashSet<String>) -> Vec<Step> {
    let is_empty = |sandbox: &Sandbox| {
        snapshot.containers.iter().all(|container| container.sandbox != sandbox.id || gone.contains(&container.id))
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

/// Images that nothing uses, once the containers in `gone` are: never used ones first, then by last use; the larger first among equals.
pub(super) fn images(snapshot: &Snapshot, ages: Ages, now: Monotonic, gone: &HashSet<String>) -> Vec<Step> {
    let used = used_images(snapshot.containers.iter().filter(|container| !gone.contains(&container.id)));
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
