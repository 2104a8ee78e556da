//! A runtime for tests: tonic on a real Unix socket, with content that the test sets.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::transport::Server;
use tonic_prost::ProstCodec;

use super::containerd::DeleteLease;
use super::cri;

/// The content, the received calls, and the faults.
#[derive(Debug, Default)]
pub struct Has {
    pub sandboxes: Vec<cri::PodSandbox>,
    pub containers: Vec<cri::Container>,
    pub statuses: HashMap<String, cri::ContainerStatus>,
    pub images: Vec<cri::Image>,
    pub info: cri::Texts,
    pub sandbox_info: cri::Texts,
    /// The received calls with effects: `RemoveImage sha256:1`.
    pub done: Vec<String>,
    /// Whether the runtime answers as containerd does, with leases.
    pub is_containerd: bool,
    pub leases: Vec<String>,
    /// Delays of these calls, or of calls about these containers.
    pub delays: HashMap<&'static str, Duration>,
    /// Refusals of these calls, or of calls about these ids.
    pub refusals: HashMap<&'static str, Status>,
    /// Calls that get undecodable answers.
    pub nonsense: Vec<&'static str>,
    /// Once it has received this many calls with an effect, the runtime does not answer any more.
    pub dies_after: Option<usize>,
}

impl Has {
    /// Adds a pod with this name and UID and the sandbox `sandbox-NAME`.
    pub fn pod(&mut self, name: &str, is_ready: bool) -> &mut cri::PodSandbox {
        let metadata = cri::PodSandboxMetadata {
            name: name.to_owned(),
            uid: name.to_owned(),
            namespace: "ns".to_owned(),
            attempt: 0,
        };
        self.sandboxes.push(cri::PodSandbox {
            id: format!("sandbox-{name}"),
            metadata: Some(metadata),
            state: i32::from(!is_ready),
            created_at: 1,
            labels: cri::Texts::new(),
            annotations: cri::Texts::new(),
        });
        self.sandboxes.last_mut().unwrap()
    }

    /// Adds a container `POD-NAME-ATTEMPT` to the pod. A container that has ended did so at `created`.
    pub fn container(&mut self, pod: &str, name: &str, attempt: u32, state: i32, created: i64) -> &mut cri::Container {
        let id = format!("{pod}-{name}-{attempt}");
        let finished_at = if state == cri::CONTAINER_EXITED { created } else { 0 };
        let status = cri::ContainerStatus { state, finished_at, ..Default::default() };
        self.statuses.insert(id.clone(), status);
        self.containers.push(cri::Container {
            id,
            pod_sandbox_id: format!("sandbox-{pod}"),
            metadata: Some(cri::ContainerMetadata { name: name.to_owned(), attempt }),
            image: Some("registry/app:1".to_owned()),
            image_ref: String::new(),
            state,
            created_at: created,
            labels: cri::Texts::new(),
            annotations: cri::Texts::new(),
            image_id: String::new(),
        });
        self.containers.last_mut().unwrap()
    }

    pub fn image(&mut self, id: &str, tag: &str, size: u64) -> &mut cri::Image {
        let (id, repo_tags) = (id.to_owned(), vec![tag.to_owned()]);
        self.images.push(cri::Image { id, repo_tags, repo_digests: Vec::new(), size, pinned: false });
        self.images.last_mut().unwrap()
    }
}

/// The running runtime; dropping it removes the socket.
#[derive(Debug)]
pub struct Fake {
    pub has: Arc<Mutex<Has>>,
    socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fake {
    pub fn start(socket: &Path, has: Has) -> Self {
        Self::start_again(socket, Arc::new(Mutex::new(has)))
    }

    pub fn start_again(socket: &Path, has: Arc<Mutex<Has>>) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (at, having) = (socket.to_owned(), Arc::clone(&has));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListener::bind(&at).unwrap();
                ready.send(()).unwrap();
                let serving = Server::builder()
                    .add_service(Served::<RuntimeService>(Arc::clone(&having), PhantomData))
                    .add_service(Served::<ImageService>(Arc::clone(&having), PhantomData))
                    .add_service(Served::<LeaseService>(having, PhantomData))
                    .serve_with_incoming(UnixListenerStream::new(listener));
                // The server does not stop gracefully: connections break, as when a runtime is killed.
                tokio::select! {
                    served = serving => served.unwrap(),
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        is_ready.recv().unwrap();
        Self { has, socket: socket.to_owned(), stop: Some(stop), thread: Some(thread) }
    }

    pub fn has(&self) -> MutexGuard<'_, Has> {
        self.has.lock().unwrap()
    }

    pub fn done(&self) -> Vec<String> {
        self.has().done.clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
        let _gone = std::fs::remove_file(&self.socket);
    }
}

#[derive(Debug)]
struct RuntimeService;
#[derive(Debug)]
struct ImageService;
#[derive(Debug)]
struct LeaseService;

#[derive(Debug)]
struct Served<K>(Arc<Mutex<Has>>, PhantomData<fn() -> K>);

impl<K> Clone for Served<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), PhantomData)
    }
}

impl NamedService for Served<RuntimeService> {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl NamedService for Served<ImageService> {
    const NAME: &'static str = "runtime.v1.ImageService";
}

impl NamedService for Served<LeaseService> {
    const NAME: &'static str = "containerd.services.leases.v1.Leases";
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<K> tower::Service<Request<Body>> for Served<K> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let has = Arc::clone(&self.0);
        Box::pin(async move {
            let call = request.uri().path().rsplit('/').next().unwrap().to_owned();
            let (delay, is_nonsense, is_dead) = {
                let has = has.lock().unwrap();
                let is_dead = has.dies_after.is_some_and(|changes| has.done.len() >= changes);
                (has.delays.get(call.as_str()).copied(), has.nonsense.contains(&call.as_str()), is_dead)
            };
            if is_dead {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(delay.unwrap_or_default()).await;
            if is_nonsense {
                return Ok(unary(request, |_: ()| Ok(Nonsense { number: 7 })).await);
            }
            Ok(answer(&call, request, has).await)
        })
    }
}

/// A message with a number instead of a message or text.
#[derive(Clone, Copy, PartialEq, Message)]
struct Nonsense {
    #[prost(uint64, tag = "1")]
    number: u64,
}

async fn unary<Q, A>(request: Request<Body>, act: impl FnOnce(Q) -> Result<A, Status> + Clone + Send) -> Response<Body>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let service = tower::service_fn(move |request: tonic::Request<Q>| {
        let answer = act.clone()(request.into_inner()).map(tonic::Response::new);
        std::future::ready(answer)
    });
    Grpc::new(ProstCodec::<A, Q>::default()).unary(service, request).await
}

fn lock(has: &Mutex<Has>) -> MutexGuard<'_, Has> {
    has.lock().unwrap()
}

#[expect(clippy::too_many_lines, reason = "one arm a call")]
async fn answer(call: &str, request: Request<Body>, all: Arc<Mutex<Has>>) -> Response<Body> {
    let name = call.to_owned();
    // Records a call with an effect, unless the call is refused.
    let change = {
        let (all, name) = (Arc::clone(&all), name.clone());
        move |id: &str, text: String| {
            let mut has = lock(&all);
            let refusal = has.refusals.get(name.as_str()).or_else(|| has.refusals.get(id)).cloned();
            has.done.push(format!("{name} {text}"));
            refusal.map_or(Ok(()), Err)
        }
    };
    let refusal = lock(&all).refusals.get(name.as_str()).filter(|_| !name.starts_with("Remove")).cloned();
    if let Some(status) = refusal {
        return unary(request, |_: ()| Err::<(), _>(status)).await;
    }
    match call {
        "Version" => {
            let name = if lock(&all).is_containerd { "containerd" } else { "fake" };
            let version = cri::VersionResponse {
                runtime_name: name.to_owned(),
                runtime_version: "1.0".to_owned(),
                runtime_api_version: "v1".to_owned(),
            };
            unary(request, |_: ()| Ok(version)).await
        }
        "Status" => unary(request, |_: bool| Ok(cri::StatusResponse { info: lock(&all).info.clone() })).await,
        "ListPodSandbox" => unary(request, |_: ()| Ok(cri::List { items: lock(&all).sandboxes.clone() })).await,
        "ListContainers" => {
            let list = move |request: cri::ListContainersRequest| {
                let sandbox = request.filter.unwrap_or_default().pod_sandbox_id;
                let mut containers = lock(&all).containers.clone();
                containers.retain(|container| sandbox.is_empty() || container.pod_sandbox_id == sandbox);
                Ok(cri::List { items: containers })
            };
            unary(request, list).await
        }
        "PodSandboxStatus" => {
            let status = move |request: cri::PodSandboxStatusRequest| {
                let has = lock(&all);
                let found = has.sandboxes.iter().find(|sandbox| sandbox.id == request.id);
                let status = found.map(|it| cri::PodSandboxStatus { state: it.state });
                let status = Some(status.ok_or_else(|| Status::not_found("no such sandbox"))?);
                Ok(cri::PodSandboxStatusResponse { status, info: has.sandbox_info.clone() })
            };
            unary(request, status).await
        }
        "ContainerStatus" => {
            let service = tower::service_fn(move |request: tonic::Request<String>| {
                let (all, id) = (Arc::clone(&all), request.into_inner());
                async move {
                    let delay = lock(&all).delays.get(id.as_str()).copied();
                    tokio::time::sleep(delay.unwrap_or_default()).await;
                    let status = lock(&all).statuses.get(&id).cloned();
                    let status = Some(status.ok_or_else(|| Status::not_found("no such container"))?);
                    Ok::<_, Status>(tonic::Response::new(cri::ContainerStatusResponse { status }))
                }
            });
            let codec = ProstCodec::<cri::ContainerStatusResponse, String>::default();
            Grpc::new(codec).unary(service, request).await
        }
        "ListContainerStats" => {
            let stats = move |_: ()| {
                let stats = |container: &cri::Container| cri::ContainerStats {
                    attributes: Some(container.id.clone()),
                    writable_layer: Some(cri::FilesystemUsage { used_bytes: Some(1000), ..Default::default() }),
                };
                Ok(cri::List { items: lock(&all).containers.iter().map(stats).collect() })
            };
            unary(request, stats).await
        }
        "ListImages" => unary(request, |_: ()| Ok(cri::List { items: lock(&all).images.clone() })).await,
        "ImageFsInfo" => {
            let filesystems = |_: ()| {
                let usage = cri::FilesystemUsage {
                    fs_id: Some("/var/lib/fake/overlay".to_owned()),
                    used_bytes: Some(1 << 20),
                    inodes_used: Some(12),
                };
                Ok(cri::ImageFsInfoResponse { image_filesystems: vec![usage], container_filesystems: Vec::new() })
            };
            unary(request, filesystems).await
        }
        "StopContainer" => {
            let stop = move |request: cri::StopContainerRequest| {
                let cri::StopContainerRequest { container_id: id, timeout } = request;
                change(&id, format!("{id} {timeout}"))?;
                let mut has = lock(&all);
                has.containers.iter_mut().filter(|it| it.id == id).for_each(|it| it.state = cri::CONTAINER_EXITED);
                has.statuses.entry(id).and_modify(|status| status.state = cri::CONTAINER_EXITED);
                Ok(())
            };
            unary(request, stop).await
        }
        "StopPodSandbox" => {
            let stop = move |id: String| {
                change(&id, id.clone())?;
                let mut has = lock(&all);
                let of_it = has.sandboxes.iter_mut().filter(|it| it.id == id);
                of_it.for_each(|sandbox| sandbox.state = 1);
                Ok(())
            };
            unary(request, stop).await
        }
        "RemovePodSandbox" => {
            let remove = move |id: String| {
                change(&id, id.clone())?;
                let mut has = lock(&all);
                has.sandboxes.retain(|sandbox| sandbox.id != id);
                has.containers.retain(|container| container.pod_sandbox_id != id);
                Ok(())
            };
            unary(request, remove).await
        }
        "RemoveContainer" => {
            let remove = move |id: String| {
                change(&id, id.clone())?;
                lock(&all).containers.retain(|container| container.id != id);
                Ok(())
            };
            unary(request, remove).await
        }
        "RemoveImage" => {
            let remove = move |request: cri::RemoveImageRequest| {
                let id = request.image.unwrap_or_default();
                change(&id, id.clone())?;
                lock(&all).images.retain(|image| image.id != id);
                Ok(())
            };
            unary(request, remove).await
        }
        // As in containerd, a lease cannot be created twice, and belongs to a namespace.
        "Create" | "Delete" if lock(&all).is_containerd => {
            let has_namespace = request.headers().contains_key("containerd-namespace");
            let lease = move |request: DeleteLease| {
                let is_there = lock(&all).leases.contains(&request.id);
                if !has_namespace || (name == "Create" && is_there) {
                    return Err(Status::already_exists("lease or no namespace"));
                }
                change(&request.id, format!("{} {}", request.id, request.sync))?;
                let mut has = lock(&all);
                has.leases.retain(|id| *id != request.id);
                if name == "Create" {
                    has.leases.push(request.id);
                }
                Ok(())
            };
            unary(request, lease).await
        }
        _ => unary(request, |_: ()| Err::<(), _>(Status::unimplemented("unknown method"))).await,
    }
}
