//! The roles of filesystems, nodefs, imagefs and containerfs, and the paths by which each is found.

use std::path::{Path, PathBuf};

use crate::config::FilesystemPaths;
use crate::units::named_enum;

named_enum! {
    /// The role of a filesystem, named as the first part of its signals and as its field of the configuration. Every node has the first.
    pub enum Role {
        /// Holds the kubelet's directory: logs and volumes.
        Node = "nodefs",
        /// Holds the runtime's images.
        Image = "imagefs",
        /// Holds the writable layers of containers.
        Container = "containerfs",
    }
}

/// The paths of the container runtime's stores, as the runtime reports them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilesystemHints {
    pub image: Option<PathBuf>,
    /// The path of the writable layers, where it differs.
    pub container: Option<PathBuf>,
}

const KUBELET: &str = "/var/lib/kubelet";
const ROOT: &str = "/";
/// The default stores of containerd, CRI-O and K3s, for runtimes that do not report theirs.
const STORES: [&str; 3] =
    ["/var/lib/containerd", "/var/lib/containers/storage", "/var/lib/rancher/k3s/agent/containerd"];

/// The paths to try for a role, the best first. The first that exists stands for the filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub paths: Vec<PathBuf>,
    /// Whether the operator named the path. If it does not exist, no other path is tried.
    pub is_configured: bool,
    /// The role whose field of the configuration names the path, or could: by default the writable layers are beside the images.
    pub field: Role,
}

impl Choice {
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
                // Runtimes keep both in one place, unless they report otherwise.
                (None, None) => Self::of(Role::Image, configured, hints),
            },
        }
    }

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
    fn configured_paths_win_then_hints_then_defaults() {
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
