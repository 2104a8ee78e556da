//! Which runtime there is, and whether it can be spoken to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::client::{CallError, Client};
use super::snapshot::stores;
use super::{State, Stores, containerd};
use crate::config::RuntimeEndpoint;
use crate::node::Monotonic;

/// Where runtimes listen, most likely first.
const USUAL: [&str; 6] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/containerd/containerd.sock",
    "/var/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
];

const NO_SUCH_INTERFACE: &str = "does not speak runtime.v1: its CRI plugin is switched off (disabled_plugins in \
    /etc/containerd/config.toml) or it is older than containerd 1.6";

/// A runtime that answers.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) client: Client,
    pub(super) socket: PathBuf,
    /// `containerd 1.6.20`.
    pub(super) name: String,
    /// The image that sandboxes are made of, where the runtime says so.
    pub(super) sandbox_image: Option<String>,
}

impl Found {
    pub(super) fn state(&self) -> State {
        State::Up { runtime: self.name.clone(), socket: self.socket.clone() }
    }

    /// After something was removed: waits until what that frees is free. A runtime that cannot be asked frees it in its own time.
    pub(super) async fn give_back(&self) -> Result<(), CallError> {
        if !self.name.starts_with("containerd") {
            return Ok(());
        }
        let collected = containerd::collect_garbage(&self.client).await;
        collected.or_else(|error| if error.is_refusal() { Ok(()) } else { Err(error) })
    }
}

/// Who answers at a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// What the runtime calls itself: `containerd`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the Container Runtime Interface that it speaks: `v1`.
    pub api_version: String,
    /// Where it keeps things, as far as it says so.
    pub stores: Stores,
}

/// Asks who answers at a socket, once.
///
/// # Errors
/// Why nobody does who could be of use.
pub async fn identify(socket: &Path, timeout: Duration) -> Result<Identity, String> {
    let words = |error: CallError| match error {
        // Whoever asks knows where.
        CallError::Unreachable { reason, .. } => reason,
        error if error.is_unknown_call() => NO_SUCH_INTERFACE.to_owned(),
        error => error.to_string(),
    };
    let client = Client::connect(socket, timeout).await.map_err(words)?;
    let version = client.version().await.map_err(words)?;
    let stores = client.filesystems().await.map(stores).unwrap_or_default();
    Ok(Identity {
        name: version.runtime_name,
        version: version.runtime_version,
        api_version: version.runtime_api_version,
        stores,
    })
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Missing {
    /// None of the usual sockets exists: a machine without containers, which is nothing to complain of.
    Absent,
    /// There is one, and it is of no use; with what to do about it.
    Unusable(String),
}

impl Missing {
    pub(super) fn into_state(self) -> State {
        match self {
            Self::Absent => State::Absent,
            Self::Unusable(reason) => State::Down { reason, since: Monotonic::now() },
        }
    }
}

/// Looks for the runtime, and asks it who it is.
pub(super) async fn find(endpoint: &RuntimeEndpoint, timeout: Duration) -> Result<Found, Missing> {
    let sockets: Vec<PathBuf> = match endpoint {
        RuntimeEndpoint::Off => return Err(Missing::Absent),
        RuntimeEndpoint::Unix(socket) => return greet(socket, timeout).await.map_err(Missing::Unusable),
        RuntimeEndpoint::Auto => USUAL.iter().map(PathBuf::from).filter(|socket| socket.exists()).collect(),
    };
    first_of(&sockets, timeout).await
}

/// The first that answers; else what is wrong with the first.
pub(super) async fn first_of(sockets: &[PathBuf], timeout: Duration) -> Result<Found, Missing> {
    let mut missing = Missing::Absent;
    for socket in sockets {
        match greet(socket, timeout).await {
            Ok(found) => return Ok(found),
            Err(reason) if missing == Missing::Absent => missing = Missing::Unusable(reason),
            Err(_) => {}
        }
    }
    Err(missing)
}

async fn greet(socket: &Path, timeout: Duration) -> Result<Found, String> {
    let client = Client::connect(socket, timeout).await.map_err(|error| with_fix(socket, &error))?;
    let version = client.version().await.map_err(|error| with_fix(socket, &error))?;
    let name = format!("{} {}", version.runtime_name, version.runtime_version);
    // Only of use where images cannot be pinned; its absence is no reason to go without the runtime.
    let status = client.status().await.ok();
    let sandbox_image = status.and_then(|status| status.info.get("config").and_then(|json| sandbox_image_of(json)));
    Ok(Found { client, socket: socket.to_owned(), name: name.trim().to_owned(), sandbox_image })
}

fn with_fix(socket: &Path, error: &CallError) -> String {
    if error.is_unknown_call() {
        return format!(
            "{} answers, but {NO_SUCH_INTERFACE}; switch it on, or set runtime.endpoint: none",
            socket.display()
        );
    }
    match error {
        CallError::Unreachable { .. } => {
            format!("{error}; start the runtime, give the agent access to the socket, or correct runtime.endpoint")
        }
        _ => format!("{}: {error}", socket.display()),
    }
}

/// containerd's configuration, of which one field matters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    #[serde(default)]
    sandbox_image: String,
}

/// `config` of containerd's verbose `Status`.
fn sandbox_image_of(json: &str) -> Option<String> {
    let configuration: Configuration = serde_json::from_str(json).ok()?;
    Some(configuration.sandbox_image).filter(|image| !image.is_empty())
}

/// What `info` of a verbose `PodSandboxStatus` says of the image of the sandbox.
pub(super) fn image_of_sandbox(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Info {
        #[serde(default)]
        image: String,
    }
    let info: Info = serde_json::from_str(json).ok()?;
    Some(info.image).filter(|image| !image.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_sandboxes_is_found_where_it_is_told() {
        for (json, expected) in [
            (
                r#"{"containerd":{"a":[1]},"sandboxImage":"registry.k8s.io/pause:3.6","x":null}"#,
                Some("registry.k8s.io/pause:3.6"),
            ),
            (r#"{"sandboxImage":""}"#, None),
            (r#"{"sandboxImage":3}"#, None),
            ("{}", None),
            ("not json", None),
        ] {
            assert_eq!(sandbox_image_of(json).as_deref(), expected, "{json}");
        }
        assert_eq!(image_of_sandbox(r#"{"pid":1,"image":"pause:3.9","config":{}}"#).as_deref(), Some("pause:3.9"));
        assert_eq!(image_of_sandbox(r#"{"pid":1}"#), None);
    }
}
