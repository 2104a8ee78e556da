//! Which paths stand for nodefs, imagefs and containerfs.

use std::path::{Path, PathBuf};

use crate::config::FilesystemPaths;

/// What a filesystem is to the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Holds the kubelet's directory: logs and volumes.
    Node,
    /// Holds the runtime's images.
    Image,
    /// Holds the writable layers of containers.
    Container,
}

impl Role {
    /// All of them; the node's own first, which there always is.
    pub const ALL: [Self; 3] = [Self::Node, Self::Image, Self::Container];

    /// The first part of its signals' names, and the field of the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "nodefs",
            Self::Image => "imagefs",
            Self::Container => "containerfs",
        }
    }
}

/// What the container runtime says of its stores.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilesystemHints {
    /// Where its images are.
    pub image: Option<PathBuf>,
    /// Where the writable layers are, if not there.
    pub container: Option<PathBuf>,
}

const KUBELET: &str = "/var/lib/kubelet";
const ROOT: &str = "/";
/// Stores of runtimes that have not been asked: containerd, CRI-O, K3s.
const STORES: [&str; 3] =
    ["/var/lib/containerd", "/var/lib/containers/storage", "/var/lib/rancher/k3s/agent/containerd"];

/// The paths to try for a role; the first that is there counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// First the best.
    pub paths: Vec<PathBuf>,
    /// The operator named it: when it is not there, no other is guessed.
    pub is_configured: bool,
    /// Whose field of the configuration names it, or would: runtimes keep writable layers where the images are.
    pub field: Role,
}

impl Choice {
    /// What to try for `role`.
    #[must_use]
    pub fn of(role: Role, configured: &FilesystemPaths, hints: &FilesystemHints) -> Self {
        let guessed = |paths: &[&str], hint: Option<&PathBuf>| Self {
            paths: hint.cloned().into_iter().chain(paths.iter().map(PathBuf::from)).collect(),
            is_configured: false,
            field: role,
        };
        let named = |path: &Path| Self { paths: vec![path.to_owned()], is_configured: true, field: role };
        match role {
            Role::Node => configured.node.as_deref().map_or_else(|| guessed(&[KUBELET, ROOT], None), named),
            Role::Image => configured.image.as_deref().map_or_else(|| guessed(&STORES, hints.image.as_ref()), named),
            Role::Container => match (&configured.container, &hints.container) {
                (Some(path), _) => named(path),
                (None, Some(hint)) => guessed(&[], Some(hint)),
                // Runtimes keep both in one place, unless they say otherwise.
                (None, None) => Self::of(Role::Image, configured, hints),
            },
        }
    }

    /// The paths, for a message.
    #[must_use]
    pub fn words(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        paths.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(role: Role, configured: [Option<&str>; 3], hints: [Option<&str>; 2]) -> (String, bool) {
        let [node, image, container] = configured.map(|path| path.map(PathBuf::from));
        let [hinted_image, hinted_container] = hints.map(|path| path.map(PathBuf::from));
        let hints = FilesystemHints { image: hinted_image, container: hinted_container };
        let choice = Choice::of(role, &FilesystemPaths { node, image, container }, &hints);
        (choice.words(), choice.is_configured)
    }

    #[test]
    fn the_operator_then_the_runtime_then_the_usual_places() {
        use Role::{Container, Image, Node};
        let none = [None; 3];
        let stores = STORES.join(", ");
        for (role, configured, hints, expected, is_configured) in [
            (Node, none, [None; 2], "/var/lib/kubelet, /", false),
            (Node, [Some("/n"), None, None], [None; 2], "/n", true),
            (Node, none, [Some("/i"), Some("/c")], "/var/lib/kubelet, /", false),
            (Image, none, [None; 2], stores.as_str(), false),
            (Image, none, [Some("/i"), None], &format!("/i, {stores}"), false),
            (Image, [None, Some("/x"), None], [Some("/i"), None], "/x", true),
            (Container, none, [None; 2], &stores, false),
            (Container, none, [Some("/i"), None], &format!("/i, {stores}"), false),
            (Container, none, [Some("/i"), Some("/c")], "/c", false),
            (Container, [None, Some("/x"), None], [None; 2], "/x", true),
            (Container, [None, Some("/x"), Some("/y")], [Some("/i"), Some("/c")], "/y", true),
        ] {
            let found = chosen(role, configured, hints);
            assert_eq!(found, (expected.to_owned(), is_configured), "{role:?} {configured:?} {hints:?}");
        }
    }
}
