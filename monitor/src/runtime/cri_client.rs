//! Calls to a runtime over its Unix socket. Every one has an end.

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

use super::cri;

/// The kubelet's bound on an answer too: thousands of containers with all that is said of them.
const LARGEST_ANSWER: usize = 16 << 20;
/// Removing something may take the runtime this much longer than answering a question.
const REMOVAL_TIME: Duration = Duration::from_secs(60);
/// Stopping takes its grace period, and then this long at most.
const STOP_TIME: Duration = Duration::from_secs(15);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody listens, or may not be spoken to.
    #[error("cannot connect to {}: {reason}", socket.display())]
    Unreachable {
        /// Whose socket.
        socket: PathBuf,
        /// What the kernel said.
        reason: String,
    },
    /// It takes too long.
    #[error("{call} was not answered within {} s", after.as_secs_f64())]
    Slow {
        /// What was asked.
        call: &'static str,
        /// How long an answer was waited for.
        after: Duration,
    },
    /// The connection broke, or what came over it makes no sense.
    #[error("{call} failed: {reason}")]
    Broken {
        /// What was asked.
        call: &'static str,
        /// What happened.
        reason: String,
    },
    /// The runtime does not want to.
    #[error("{call} was refused: {reason}")]
    Refused {
        /// What was asked.
        call: &'static str,
        /// What the runtime said.
        reason: String,
        /// What it was asked of does not exist.
        is_missing: bool,
        /// It does not know the call at all.
        is_unknown: bool,
    },
}

impl CallError {
    /// Whether another call to the same runtime is worth a try: it said no to this one alone.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether what was to be stopped or removed does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { is_missing: true, .. })
    }

    /// Whether the runtime has no such call.
    #[must_use]
    pub fn is_unknown_call(&self) -> bool {
        matches!(self, Self::Refused { is_unknown: true, .. })
    }

    fn of(call: &'static str, status: &Status) -> Self {
        let reason = shortened(status.message());
        // What did not come from the other end has a cause on this one.
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

/// A runtime's words may be many; nobody reads on after so much.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 300;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Which of containerd's clients a call is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Namespace(pub(super) &'static str);

/// A connection to a runtime.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    timeout: Duration,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn connect(socket: &Path, timeout: Duration) -> Result<Self, CallError> {
        // Tried plainly first: what tonic makes of an error does not say why.
        let unreachable = |reason: String| CallError::Unreachable { socket: socket.to_owned(), reason };
        UnixStream::connect(socket).await.map_err(|error| unreachable(error.to_string()))?;
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // Names nobody: the connector knows the way.
        let endpoint = Endpoint::from_static("http://localhost").connect_timeout(timeout);
        let connected = tokio::time::timeout(timeout, endpoint.connect_with_connector(connector)).await;
        match connected {
            Ok(Ok(channel)) => Ok(Self { channel, timeout }),
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(_) => Err(CallError::Slow { call: "connecting", after: timeout }),
        }
    }

    async fn call<Q, A>(&self, call: &'static str, request: Q, after: Duration) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.send(call, Request::new(request), after).await
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

    /// Who it is.
    pub(super) async fn version(&self) -> Result<cri::VersionResponse, CallError> {
        self.call("/runtime.v1.RuntimeService/Version", cri::Empty {}, self.timeout).await
    }

    /// What it says of itself beyond what is specified.
    pub(super) async fn status(&self) -> Result<cri::StatusResponse, CallError> {
        self.call("/runtime.v1.RuntimeService/Status", cri::StatusRequest { verbose: true }, self.timeout).await
    }

    pub(super) async fn sandboxes(&self) -> Result<Vec<cri::PodSandbox>, CallError> {
        let answer: cri::ListPodSandboxResponse =
            self.call("/runtime.v1.RuntimeService/ListPodSandbox", cri::Empty {}, self.timeout).await?;
        Ok(answer.items)
    }

    /// All of them, or those of one sandbox.
    pub(super) async fn containers(&self, sandbox: Option<&str>) -> Result<Vec<cri::Container>, CallError> {
        let filter = sandbox.map(|id| cri::ContainerFilter { pod_sandbox_id: id.to_owned() });
        let request = cri::ListContainersRequest { filter };
        let answer: cri::ListContainersResponse =
            self.call("/runtime.v1.RuntimeService/ListContainers", request, self.timeout).await?;
        Ok(answer.containers)
    }

    pub(super) async fn sandbox(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse, CallError> {
        let request = cri::ItemStatusRequest { id: id.to_owned(), verbose };
        self.call("/runtime.v1.RuntimeService/PodSandboxStatus", request, self.timeout).await
    }

    pub(super) async fn container(&self, id: &str) -> Result<Option<cri::ContainerStatus>, CallError> {
        let request = cri::ItemStatusRequest { id: id.to_owned(), verbose: false };
        let answer: cri::ContainerStatusResponse =
            self.call("/runtime.v1.RuntimeService/ContainerStatus", request, self.timeout).await?;
        Ok(answer.status)
    }

    pub(super) async fn container_stats(&self) -> Result<Vec<cri::ContainerStats>, CallError> {
        let answer: cri::ListContainerStatsResponse =
            self.call("/runtime.v1.RuntimeService/ListContainerStats", cri::Empty {}, self.timeout).await?;
        Ok(answer.stats)
    }

    pub(super) async fn images(&self) -> Result<Vec<cri::Image>, CallError> {
        let answer: cri::ListImagesResponse =
            self.call("/runtime.v1.ImageService/ListImages", cri::Empty {}, self.timeout).await?;
        Ok(answer.images)
    }

    pub(super) async fn filesystems(&self) -> Result<cri::ImageFsInfoResponse, CallError> {
        self.call("/runtime.v1.ImageService/ImageFsInfo", cri::Empty {}, self.timeout).await
    }

    /// SIGTERM, SIGKILL when the grace period is over; answered when it is dead.
    pub(super) async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CallError> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = cri::StopContainerRequest { container_id: id.to_owned(), timeout };
        let after = grace.saturating_add(STOP_TIME);
        self.call::<_, cri::Empty>("/runtime.v1.RuntimeService/StopContainer", request, after).await.map(drop)
    }

    pub(super) async fn stop_sandbox(&self, id: &str) -> Result<(), CallError> {
        let request = cri::PodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call::<_, cri::Empty>("/runtime.v1.RuntimeService/StopPodSandbox", request, STOP_TIME).await.map(drop)
    }

    pub(super) async fn remove_sandbox(&self, id: &str) -> Result<(), CallError> {
        let request = cri::PodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call::<_, cri::Empty>("/runtime.v1.RuntimeService/RemovePodSandbox", request, REMOVAL_TIME).await.map(drop)
    }

    pub(super) async fn remove_container(&self, id: &str) -> Result<(), CallError> {
        let request = cri::RemoveContainerRequest { container_id: id.to_owned() };
        self.call::<_, cri::Empty>("/runtime.v1.RuntimeService/RemoveContainer", request, REMOVAL_TIME).await.map(drop)
    }

    pub(super) async fn remove_image(&self, id: &str) -> Result<(), CallError> {
        let request = cri::RemoveImageRequest { image: Some(cri::ImageSpec { image: id.to_owned() }) };
        self.call::<_, cri::Empty>("/runtime.v1.ImageService/RemoveImage", request, REMOVAL_TIME).await.map(drop)
    }

    /// A call beyond CRI, whose answer says no more than that it is done.
    pub(super) async fn change<Q>(&self, call: &'static str, request: Q, namespace: Namespace) -> Result<(), CallError>
    where
        Q: Message + 'static,
    {
        let mut request = Request::new(request);
        request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(namespace.0));
        self.send::<_, cri::Empty>(call, request, REMOVAL_TIME).await.map(drop)
    }
}

/// `ListImages` of `/runtime.v1.ImageService/ListImages`.
fn name_of(call: &'static str) -> &'static str {
    call.rsplit('/').next().unwrap_or(call)
}
