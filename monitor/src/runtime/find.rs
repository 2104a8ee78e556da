//! Finds the runtime's socket, and checks that the runtime answers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::containerd;
use super::cri_client::{CallError, Client};
use super::runtime_snapshot::{Stores, stores};
use super::runtime_state::State;
use crate::config::RuntimeEndpoint;
use crate::units::Monotonic;

/// The usual sockets, the most likely first.
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

#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) client: Client,
    pub(super) socket: PathBuf,
    /// Name and version: `containerd 1.6.20`.
    pub(super) name: String,
    /// The image of sandboxes, if the runtime reports one.
    pub(super) sandbox_image: Option<String>,
}

impl Found {
    pub(super) fn state(&self) -> State {
        State::Up { runtime: self.name.clone(), socket: self.socket.clone() }
    }

    /// Waits until the space of removed containers and images is free. Runtimes other than containerd free it by themselves.
    pub(super) async fn free_removed(&self) -> Result<(), CallError> {
        if !self.name.starts_with("containerd") {
            return Ok(());
        }
        let collected = containerd::collect_garbage(&self.client).await;
        collected.or_else(|error| if error.is_refusal() { Ok(()) } else { Err(error) })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name: `containerd`, `cri-o`.
    pub name: String,
    pub version: String,
    /// Version of the Container Runtime Interface: `v1`.
    pub api_version: String,
    pub stores: Stores,
}

/// Connects once to a socket, and returns which runtime answers.
///
/// # Errors
/// When no runtime answers there, or the runtime has no `runtime.v1`.
pub async fn identify(socket: &Path, timeout: Duration) -> Result<Identity, String> {
    let reason = |error: CallError| match error {
        // The error omits the socket, because the caller knows it.
        CallError::Unreachable { reason, .. } => reason,
        error if error.is_unknown_call() => NO_SUCH_INTERFACE.to_owned(),
        error => error.to_string(),
    };
    let client = Client::connect(socket, timeout).await.map_err(reason)?;
    let version = client.version().await.map_err(reason)?;
    let stores = client.filesystems().await.map(stores).unwrap_or_default();
    Ok(Identity {
        name: version.runtime_name,
        version: version.runtime_version,
        api_version: version.runtime_api_version,
        stores,
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Missing {
    /// None of the usual sockets exists: the machine has no container runtime.
    Absent,
    /// A runtime cannot be used. The text has the reason and what to do about it.
    Unusable(String),
}

impl Missing {
    /// Returns the reason for a machine that had a runtime before.
    pub(super) fn or_gone(self) -> Self {
        match self {
            Self::Absent => Self::Unusable(
                "its socket does not exist any more; start the runtime, or set runtime.endpoint: none".to_owned(),
            ),
            Self::Unusable(reason) => Self::Unusable(reason),
        }
    }

    pub(super) fn into_state(self) -> State {
        match self {
            Self::Absent => State::Absent,
            Self::Unusable(reason) => State::Down { reason, since: Monotonic::now() },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sockets {
    None,
    /// This socket, even if it does not exist now.
    This(PathBuf),
    /// The first of these with a runtime. If none has one, the machine has no runtime.
    AnyOf(Vec<PathBuf>),
}

impl From<&RuntimeEndpoint> for Sockets {
    fn from(endpoint: &RuntimeEndpoint) -> Self {
        match endpoint {
            RuntimeEndpoint::Off => Self::None,
            RuntimeEndpoint::Unix(socket) => Self::This(socket.clone()),
            RuntimeEndpoint::Auto => Self::AnyOf(USUAL.iter().map(PathBuf::from).collect()),
        }
    }
}

/// Finds a runtime that answers. A restarting runtime removes its socket for a moment, so the socket `before` stays in use.
/// Another runtime with pods replaces it only if the search `may_move`.
pub(super) async fn find(
    sockets: &Sockets,
    before: Option<&Path>,
    may_move: bool,
    timeout: Duration,
) -> Result<Found, Missing> {
    match (sockets, before) {
        (Sockets::None, _) => Err(Missing::Absent),
        (Sockets::This(socket), _) => connect(socket, timeout).await.map_err(Missing::Unusable),
        (Sockets::AnyOf(sockets), None) => first_of(sockets, timeout).await,
        (Sockets::AnyOf(sockets), Some(before)) => match connect(before, timeout).await {
            Ok(found) => Ok(found),
            Err(reason) if may_move => with_pods(sockets, before, timeout).await.ok_or(Missing::Unusable(reason)),
            Err(reason) => Err(Missing::Unusable(reason)),
        },
    }
}

/// Returns the first runtime with pods, else the first that answers, else the first error. Docker's containerd may answer beside
/// the kubelet's runtime.
pub(super) async fn first_of(sockets: &[PathBuf], timeout: Duration) -> Result<Found, Missing> {
    let mut missing = Missing::Absent;
    let mut answering = Vec::new();
    for socket in distinct(sockets) {
        match connect(&socket, timeout).await {
            Ok(found) => answering.push(found),
            Err(reason) if missing == Missing::Absent => missing = Missing::Unusable(reason),
            Err(_) => {}
        }
    }
    let mut chosen = 0;
    if answering.len() > 1 {
        for (index, found) in answering.iter().enumerate() {
            if has_pods(found).await {
                chosen = index;
                break;
            }
        }
        for (_, other) in answering.iter().enumerate().filter(|(index, _)| *index != chosen) {
            tracing::info!(
                event = "container_runtime",
                runtime = other.name,
                socket = %other.socket.display(),
                "a second container runtime answers, and is not used; runtime.endpoint selects it"
            );
        }
    }
    if chosen < answering.len() { Ok(answering.swap_remove(chosen)) } else { Err(missing) }
}

/// Returns a runtime with pods at another socket than `this`.
pub(super) async fn with_pods(sockets: &[PathBuf], this: &Path, timeout: Duration) -> Option<Found> {
    let real = |socket: &Path| socket.canonicalize().unwrap_or_else(|_| socket.to_owned());
    for socket in distinct(sockets).into_iter().filter(|socket| real(socket) != real(this)) {
        if let Ok(found) = connect(&socket, timeout).await
            && has_pods(&found).await
        {
            let (now, before) = (found.socket.display(), this.display());
            tracing::warn!(
                event = "container_runtime", runtime = found.name, socket = %now, before = %before,
                "another container runtime has the pods, and is used from now on"
            );
            return Some(found);
        }
    }
    None
}

async fn has_pods(found: &Found) -> bool {
    found.client.sandboxes().await.is_ok_and(|sandboxes| !sandboxes.is_empty())
}

/// Returns the existing sockets without duplicates: `/var/run` is usually a link to `/run`.
fn distinct(sockets: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    let mut distinct = Vec::new();
    for socket in sockets {
        if let Ok(real) = socket.canonicalize()
            && !seen.contains(&real)
        {
            seen.push(real);
            distinct.push(socket.clone());
        }
    }
    distinct
}

async fn connect(socket: &Path, timeout: Duration) -> Result<Found, String> {
    let client = Client::connect(socket, timeout).await.map_err(|error| with_fix(socket, &error))?;
    let version = client.version().await.map_err(|error| with_fix(socket, &error))?;
    let name = format!("{} {}", version.runtime_name, version.runtime_version);
    // The status is optional. It is needed only if the runtime does not pin the sandbox image.
    let status = client.status().await.ok();
    let sandbox_image =
        status.and_then(|status| status.info.get("config").and_then(|json| text_in(json, "sandboxImage")));
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

/// Returns a text of an object in a verbose answer: `sandboxImage` in `config` of containerd's `Status`, `image` in `info` of a
/// `PodSandboxStatus`.
pub(super) fn text_in(json: &str, key: &str) -> Option<String> {
    let object: Value = serde_json::from_str(json).ok()?;
    object[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_image_is_read_from_both_answers() {
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
            assert_eq!(text_in(json, "sandboxImage").as_deref(), expected, "{json}");
        }
        assert_eq!(text_in(r#"{"pid":1,"image":"pause:3.9","config":{}}"#, "image").as_deref(), Some("pause:3.9"));
        assert_eq!(text_in(r#"{"pid":1}"#, "image"), None);
    }
}
