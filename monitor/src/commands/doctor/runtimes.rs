//! Container runtimes that have a socket here, and whether somebody answers there.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;

use crate::config::RuntimeEndpoint;

use super::facts::Runtime;

/// Where they are known to listen.
const SOCKETS: [(&str, &str); 3] = [
    ("containerd", "/run/containerd/containerd.sock"),
    ("CRI-O", "/run/crio/crio.sock"),
    ("containerd of k3s", "/run/k3s/containerd/containerd.sock"),
];
/// A runtime that is busy still takes a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// Those of the machine whose root directory is `root`. A connection is made and closed; nothing is asked.
pub async fn find(root: &Path, endpoint: &RuntimeEndpoint) -> Vec<Runtime> {
    let candidates: Vec<(&'static str, PathBuf, bool)> = match endpoint {
        RuntimeEndpoint::Off => Vec::new(),
        RuntimeEndpoint::Auto => SOCKETS.map(|(name, socket)| (name, PathBuf::from(socket), false)).into(),
        RuntimeEndpoint::Unix(socket) => vec![("the one configured", socket.clone(), true)],
    };
    let mut found = Vec::new();
    for (name, socket, is_configured) in candidates {
        let place = root.join(socket.strip_prefix("/").unwrap_or(&socket));
        let trouble = match tokio::time::timeout(PATIENCE, UnixStream::connect(&place)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound && !is_configured => continue,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no connection within {} s", PATIENCE.as_secs())),
        };
        found.push(Runtime { name, socket, trouble });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_answers_is_told_from_who_left_a_socket_behind() {
        let root = tempfile::tempdir().unwrap();
        let auto = RuntimeEndpoint::Auto;
        assert_eq!(find(root.path(), &auto).await, []);
        let socket = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::net::UnixListener::bind(path).unwrap()
        };
        let _alive = socket("run/containerd/containerd.sock");
        drop(socket("run/crio/crio.sock"));
        let found = find(root.path(), &auto).await;
        let shown: Vec<_> = found.iter().map(|runtime| (runtime.name, runtime.trouble.is_some())).collect();
        assert_eq!(shown, [("containerd", false), ("CRI-O", true)]);
        assert_eq!(find(root.path(), &RuntimeEndpoint::Off).await, []);
        let named = find(root.path(), &RuntimeEndpoint::Unix("/run/none.sock".into())).await;
        assert!(named[0].trouble.is_some(), "what is named must be there");
    }
}
