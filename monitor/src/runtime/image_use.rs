//! Determines which images containers use. Pure.

use std::collections::HashSet;

use super::runtime_snapshot::{Container, ContainerState};

/// Returns whether the mounted images of all containers that may still run are known.
pub(super) fn are_known(containers: &[Container]) -> bool {
    containers.iter().all(|container| container.state == ContainerState::Exited || container.details.is_some())
}

/// Returns all names and digests of the images that these containers use, dead or alive.
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

/// Returns whether the id, a name, or the digest in a name is among `used`.
pub(super) fn is_among(used: &HashSet<&str>, id: &str, names: &[String]) -> bool {
    used.contains(digest(id)) || names.iter().any(|name| used.contains(name.as_str()) || used.contains(digest(name)))
}

/// Returns the digits of `sha256:…` and `name@sha256:…`. containerd writes the algorithm before an id, CRI-O does not.
fn digest(name: &str) -> &str {
    let digest = name.split_once('@').map_or(name, |(_, digest)| digest);
    digest.strip_prefix("sha256:").unwrap_or(digest)
}
