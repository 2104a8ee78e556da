//! Facts about the container runtimes with a socket on this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::RuntimeEndpoint;
use crate::node::filesystem_roles::FilesystemHints;
use crate::runtime::{Identity, identify};

use super::facts::Runtime;

/// The usual sockets.
const SOCKETS: [(&str, &str); 4] = [
    ("containerd", "/run/containerd/containerd.sock"),
    ("CRI-O", "/run/crio/crio.sock"),
    ("containerd of k3s", "/run/k3s/containerd/containerd.sock"),
    ("containerd of k0s", "/run/k0s/containerd.sock"),
];
/// A busy runtime identifies itself within this time.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Identifies the runtimes of the machine with root directory `root`. Returns the stores of the first that answers, too.
pub async fn find(root: &Path, endpoint: &RuntimeEndpoint) -> (Vec<Runtime>, FilesystemHints) {
    let candidates: Vec<(&'static str, PathBuf, bool)> = match endpoint {
        RuntimeEndpoint::Off => Vec::new(),
        RuntimeEndpoint::Auto => SOCKETS.map(|(name, socket)| (name, PathBuf::from(socket), false)).into(),
        RuntimeEndpoint::Unix(socket) => vec![("the configured runtime", socket.clone(), true)],
    };
    let (mut found, mut hints) = (Vec::new(), None);
    for (name, socket, is_configured) in candidates {
        let place = root.join(socket.strip_prefix("/").unwrap_or(&socket));
        if !is_configured && !place.exists() {
            continue;
        }
        found.push(match identify(&place, TIMEOUT).await {
            Ok(Identity { name, version, api_version, stores }) => {
                hints.get_or_insert(FilesystemHints { image: stores.image, container: stores.container });
                Runtime { name, version: Some(version), api_version: Some(api_version), socket, trouble: None }
            }
            Err(trouble) => {
                let name = name.to_owned();
                Runtime { name, version: None, api_version: None, socket, trouble: Some(trouble) }
            }
        });
    }
    (found, hints.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::fake::{Fake, Has};

    #[tokio::test]
    async fn a_live_runtime_differs_from_a_stale_socket() {
        let root = tempfile::tempdir().unwrap();
        let auto = RuntimeEndpoint::Auto;
        assert_eq!(find(root.path(), &auto).await, (Vec::new(), FilesystemHints::default()));
        let socket = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        let _alive = Fake::start(&socket("run/containerd/containerd.sock"), Has::default());
        drop(std::os::unix::net::UnixListener::bind(socket("run/crio/crio.sock")).unwrap());
        let (found, hints) = find(root.path(), &auto).await;
        let [alive, dead] = &found[..] else { panic!("{found:?}") };
        let text = Some;
        assert_eq!(
            (alive.name.as_str(), alive.version.as_deref(), alive.api_version.as_deref()),
            ("fake", text("1.0"), text("v1"))
        );
        assert_eq!(alive.trouble, None);
        assert_eq!((dead.name.as_str(), dead.version.as_deref()), ("CRI-O", None));
        assert!(dead.trouble.as_ref().is_some_and(|trouble| trouble.contains("refused")), "{found:?}");
        assert_eq!(hints.image.as_deref(), Some(Path::new("/var/lib/fake/overlay")));
        assert_eq!(find(root.path(), &RuntimeEndpoint::Off).await.0, []);
        let (named, _) = find(root.path(), &RuntimeEndpoint::Unix("/run/none.sock".into())).await;
        assert!(named[0].trouble.is_some(), "a configured socket must exist");
    }
}
