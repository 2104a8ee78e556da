//! Calls a runtime over its Unix socket. Each call has a timeout.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::units::signed;

use super::cri;

/// Limit in bytes, as in the kubelet. It is enough for thousands of containers.
const LARGEST_ANSWER: usize = 16 << 20;
const REMOVAL_TIME: Duration = Duration::from_secs(60);
/// How long a stop may take after its grace period.
const STOP_TIME: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("cannot connect to {}: {reason}", socket.display())]
    Unreachable { socket: PathBuf, reason: String },
    #[error("{call} was not answered within {} s", after.as_secs_f64())]
    Slow { call: &'static str, after: Duration },
    /// The connection broke, or the answer cannot be decoded.
    #[error("{call} failed: {reason}")]
    Broken { call: &'static str, reason: String },
    #[error("{call} was refused: {reason}")]
    Refused {
        call: &'static str,
        reason: String,
        is_missing: bool,
        /// The runtime does not implement the call.
        is_unknown: bool,
    },
}

impl CallError {
    /// Returns whether the runtime answered: other calls may succeed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Returns whether the call failed because the object to stop or remove does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { is_missing: true, .. })
    }

    pub fn is_unknown_call(&self) -> bool {
        matches!(self, Self::Refused { is_unknown: true, .. })
    }

    fn of(call: &'static str, status: &Status) -> Self {
        let reason = shortened(status.message());
        // An error with a source is tonic's own, not the runtime's answer.
        let is_ours = std::error::Error::source(status).is_some();
        match status.code() {
            Code::Unavailable | Code::Cancelled | Code::Internal | Code::DeadlineExceeded | Code::OutOfRange => {
                Self::Broken { call, reason }
            }
            _ if is_ours => Self::Broken { call, reason },
            code => Self::Refused {
                call,
                reason,
                is_missing: code == Code::NotFound,
                is_unknown: code == Code::Unimplemented,
            },
        }
    }
}

fn shortened(text: &str) -> String {
    const LONGEST: usize = 300;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A containerd namespace, which separates its clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Namespace(pub(super) &'static str);

#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    timeout: Duration,
}

impl Client {
    pub async fn connect(socket: &Path, timeout: Duration) -> Result<Self, CallError> {
        // A plain connection is tried first, because tonic's error does not contain the kernel's.
        let unreachable = |reason: String| CallError::Unreachable { socket: socket.to_owned(), reason };
        UnixStream::connect(socket).await.map_err(|error| unreachable(error.to_string()))?;
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // tonic needs a URI but does not use it: the connector has the path.
        let endpoint = Endpoint::from_static("http://localhost").connect_timeout(timeout);
        let connected = tokio::time::timeout(timeout, endpoint.connect_with_connector(connector)).await;
        match connected {
            Ok(Ok(channel)) => Ok(Self { channel, timeout }),
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(_) => Err(CallError::Slow { call: "connecting", after: timeout }),
        }
    }

    async fn call<Q, A>(&self, call: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.send(call, Request::new(request), self.timeout).await
    }

    async fn list<Q, A>(&self, call: &'static str, request: Q) -> Result<Vec<A>, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + Debug + 'static,
    {
        self.call(call, request).await.map(|list: cri::List<A>| list.items)
    }

    async fn send<Q, A>(&self, call: &'static str, request: Request<Q>, after: Duration) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER);
        let answered = async {
            let broken =
                |error: tonic::transport::Error| CallError::Broken { call: name_of(call), reason: error.to_string() };
            grpc.ready().await.map_err(broken)?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(request, PathAndQuery::from_static(call), codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| CallError::of(name_of(call), &status))
        };
        match tokio::time::timeout(after, answered).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::Slow { call: name_of(call), after }),
        }
    }

    pub(super) async fn version(&self) -> Result<cri::VersionResponse, CallError> {
        self.call("/runtime.v1.RuntimeService/Version", ()).await
    }

    /// Returns the verbose status, whose format is not specified.
    pub(super) async fn status(&self) -> Result<cri::StatusResponse, CallError> {
        self.call("/runtime.v1.RuntimeService/Status", true).await
    }

    pub(super) async fn sandboxes(&self) -> Result<Vec<cri::PodSandbox>, CallError> {
        self.list("/runtime.v1.RuntimeService/ListPodSandbox", ()).await
    }

    /// Lists all containers, or those of one sandbox.
    pub(super) async fn containers(&self, sandbox: Option<&str>) -> Result<Vec<cri::Container>, CallError> {
        let filter = sandbox.map(|id| cri::ContainerFilter { pod_sandbox_id: id.to_owned() });
        self.list("/runtime.v1.RuntimeService/ListContainers", cri::ListContainersRequest { filter }).await
    }

    pub(super) async fn sandbox(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse, CallError> {
        let request = cri::PodSandboxStatusRequest { id: id.to_owned(), verbose };
        self.call("/runtime.v1.RuntimeService/PodSandboxStatus", request).await
    }

    pub(super) async fn container(&self, id: &str) -> Result<Option<cri::ContainerStatus>, CallError> {
        let answer = self.call("/runtime.v1.RuntimeService/ContainerStatus", id.to_owned()).await;
        answer.map(|answer: cri::ContainerStatusResponse| answer.status)
    }

    pub(super) async fn container_stats(&self) -> Result<Vec<cri::ContainerStats>, CallError> {
        self.list("/runtime.v1.RuntimeService/ListContainerStats", ()).await
    }

    pub(super) async fn images(&self) -> Result<Vec<cri::Image>, CallError> {
        self.list("/runtime.v1.ImageService/ListImages", ()).await
    }

    pub(super) async fn filesystems(&self) -> Result<cri::ImageFsInfoResponse, CallError> {
        self.call("/runtime.v1.ImageService/ImageFsInfo", ()).await
    }

    /// Sends SIGTERM, and SIGKILL after the grace period; returns when the container is dead.
    pub(super) async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CallError> {
        let timeout = signed(grace.as_secs());
        let request = Request::new(cri::StopContainerRequest { container_id: id.to_owned(), timeout });
        self.send("/runtime.v1.RuntimeService/StopContainer", request, grace.saturating_add(STOP_TIME)).await
    }

    pub(super) async fn stop_sandbox(&self, id: &str) -> Result<(), CallError> {
        self.send("/runtime.v1.RuntimeService/StopPodSandbox", Request::new(id.to_owned()), STOP_TIME).await
    }

    pub(super) async fn remove_sandbox(&self, id: &str) -> Result<(), CallError> {
        self.send("/runtime.v1.RuntimeService/RemovePodSandbox", Request::new(id.to_owned()), REMOVAL_TIME).await
    }

    pub(super) async fn remove_container(&self, id: &str) -> Result<(), CallError> {
        self.send("/runtime.v1.RuntimeService/RemoveContainer", Request::new(id.to_owned()), REMOVAL_TIME).await
    }

    pub(super) async fn remove_image(&self, id: &str) -> Result<(), CallError> {
        let request = Request::new(cri::RemoveImageRequest { image: Some(id.to_owned()) });
        self.send("/runtime.v1.ImageService/RemoveImage", request, REMOVAL_TIME).await
    }

    /// Calls a service of containerd outside CRI.
    pub(super) async fn change(
        &self,
        call: &'static str,
        request: impl Message + 'static,
        namespace: Namespace,
    ) -> Result<(), CallError> {
        let mut request = Request::new(request);
        request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(namespace.0));
        self.send(call, request, REMOVAL_TIME).await
    }
}

/// Returns the name of a call: `ListImages` of `/runtime.v1.ImageService/ListImages`.
fn name_of(call: &'static str) -> &'static str {
    call.rsplit('/').next().unwrap_or(call)
}
