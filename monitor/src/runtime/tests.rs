//! Tests the thread against a runtime on a real socket. The runtime answers, is down, is slow, or misbehaves.

mod finding;
mod orders;

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tonic::Status;

use super::fake::{Fake, Has};
use super::*;
use crate::workloads::cgroup_path::PodUid;

const PATIENCE: Duration = Duration::from_secs(40);

/// The directory of a socket and of logs.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("runtime.sock")
    }

    fn logs(&self) -> PathBuf {
        self.0.path().join("pods")
    }

    /// Returns options without least ages, and with a short timeout.
    fn options(&self) -> RuntimeOptions {
        RuntimeOptions {
            endpoint: RuntimeEndpoint::Unix(self.socket()),
            timeout: Duration::from_millis(500),
            minimum_container_age: Duration::ZERO,
            image_minimum_gc_age: Duration::ZERO,
        }
    }

    fn start(&self) -> Runtime {
        self.start_with(self.options())
    }

    fn start_with(&self, options: RuntimeOptions) -> Runtime {
        let sockets = Sockets::from(&options.endpoint);
        Runtime::start_with(options, sockets, Root::at(&self.logs())).unwrap()
    }

    /// Starts as with `endpoint: auto`, with this socket among the usual ones.
    fn start_auto(&self, others: &[PathBuf]) -> Runtime {
        let sockets = Sockets::AnyOf([&[self.socket()], others].concat());
        Runtime::start_with(self.options(), sockets, Root::at(&self.logs())).unwrap()
    }
}

fn until<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn snapshot(runtime: &Runtime) -> Arc<Snapshot> {
    until("a snapshot", || runtime.view().snapshot)
}

fn down(runtime: &Runtime) -> String {
    until("the runtime is down", || match runtime.view().state {
        State::Down { reason, .. } => Some(reason),
        _ => None,
    })
}

fn up(runtime: &Runtime) {
    until("the runtime is up", || matches!(runtime.view().state, State::Up { .. }).then_some(()));
}

fn collected(runtime: &mut Runtime, order: CollectOrder) -> Collected {
    snapshot(runtime);
    runtime.collect(order).unwrap();
    until("a collection", || match runtime.try_event() {
        Some(Event::Collected(collected)) => Some(collected),
        _ => None,
    })
}

fn order(uid: &str, grace: u64, remove: bool) -> StopOrder {
    let (uid, grace) = (PodUid(uid.to_owned()), Duration::from_secs(grace));
    StopOrder { uid, by: TearDown::Runtime, wait: None, grace, remove }
}

fn stopped(runtime: &mut Runtime, order: StopOrder) -> Stopped {
    snapshot(runtime);
    runtime.stop_pod(order).unwrap();
    next_stopped(runtime)
}

fn next_stopped(runtime: &mut Runtime) -> Stopped {
    until("a pod to stop", || match runtime.try_event() {
        Some(Event::Stopped(stopped)) => Some(stopped),
        _ => None,
    })
}

fn everything(is_enough: impl FnMut() -> bool + Send + 'static) -> CollectOrder {
    let what = vec![Garbage::Containers, Garbage::Images];
    CollectOrder { what, dry_run: false, awaits_space: true, is_enough: Box::new(is_enough) }
}

/// Makes a running pod with a restarted container, a pod with a new sandbox, and five images, one of them in use.
fn node() -> Has {
    let mut has = Has::default();
    has.info.insert("config".to_owned(), r#"{"sandboxImage":"registry.k8s.io/pause:3.9"}"#.to_owned());
    has.pod("web", true);
    has.container("web", "app", 0, cri::CONTAINER_EXITED, 30);
    has.container("web", "app", 1, cri::CONTAINER_EXITED, 40);
    has.container("web", "init", 0, cri::CONTAINER_EXITED, 20);
    has.container("web", "app", 2, cri::CONTAINER_RUNNING, 50);
    has.pod("job", false);
    has.container("job", "work", 0, cri::CONTAINER_EXITED, 10);
    again(&mut has, "job", "job-again", true);
    has.container("job-again", "work", 1, cri::CONTAINER_RUNNING, 60);
    has.image("sha256:a", "registry/app:1", 100);
    has.image("sha256:small", "registry/old:1", 10);
    has.image("sha256:large", "registry/old:2", 1000);
    has.image("sha256:pause", "registry.k8s.io/pause:3.9", 1);
    has.image("sha256:pinned", "registry/agent:1", 500).pinned = true;
    has
}

/// Adds the sandbox with which the kubelet restarts a pod.
fn again(has: &mut Has, pod: &str, sandbox: &str, is_ready: bool) {
    let sandbox = has.pod(sandbox, is_ready);
    sandbox.created_at = 2;
    let metadata = sandbox.metadata.as_mut().unwrap();
    (metadata.name, metadata.uid, metadata.attempt) = (pod.to_owned(), pod.to_owned(), 1);
}

#[test]
fn a_snapshot_has_pods_containers_and_images() {
    let place = Place::new();
    let mut has = node();
    let resources = cri::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 150_000,
        cpu_shares: 512,
        memory_limit_in_bytes: 64 << 20,
    };
    let status = has.statuses.get_mut("web-app-2").unwrap();
    status.resources = Some(cri::ContainerResources { linux: Some(resources) });
    status.started_at = 51;
    has.containers[3].annotations.insert("io.kubernetes.pod.terminationGracePeriod".to_owned(), "45".to_owned());
    let _fake = Fake::start(&place.socket(), has);
    let runtime = place.start();
    let snapshot = snapshot(&runtime);
    assert_eq!(snapshot.runtime, "fake 1.0");
    let uid = PodUid("web".to_owned());
    assert_eq!(snapshot.containers_of(&uid).count(), 4);
    assert_eq!(snapshot.grace_of(&uid), Some(Duration::from_secs(45)));
    let app = snapshot.container("web-app-2").unwrap();
    assert_eq!((app.state, app.attempt, app.name.as_str()), (ContainerState::Running, 2, "app"));
    assert_eq!(app.pod.as_ref().map(|pod| (pod.namespace.as_str(), pod.name.as_str())), Some(("ns", "web")));
    let details = app.details.as_ref().unwrap();
    let limits = Limits {
        memory: Some(crate::units::Bytes::from_mib(64)),
        cpu_millis: Some(1500),
        cpu_request_millis: Some(500),
    };
    assert_eq!((details.limits, details.started), (limits, Some(UnixNanos(51))));
    let used: Vec<_> = snapshot.images.iter().filter(|image| image.is_used).map(Image::name).collect();
    assert_eq!(used, ["registry/app:1"]);
    let pinned: Vec<_> = snapshot.images.iter().filter(|image| image.is_pinned).map(Image::name).collect();
    assert_eq!(pinned, ["registry.k8s.io/pause:3.9", "registry/agent:1"]);
    assert_eq!(runtime.view().stores.image.as_deref(), Some(Path::new("/var/lib/fake/overlay")));
    assert!(snapshot.sandboxes.iter().any(|sandbox| !sandbox.is_ready && sandbox.dead_since.is_some()));
}

#[test]
fn a_runtime_that_was_down_is_found_again() {
    let place = Place::new();
    let runtime = place.start();
    let reason = down(&runtime);
    assert!(reason.contains("runtime.sock") && reason.contains("start the runtime"), "{reason}");
    assert!(runtime.view().state.degradation().is_some_and(|text| text.starts_with("container runtime: ")));
    let fake = Fake::start(&place.socket(), node());
    up(&runtime);
    let seen = snapshot(&runtime).images[0].first_seen;
    let has = Arc::clone(&fake.has);
    drop(fake);
    runtime.observe().unwrap();
    down(&runtime);
    assert_eq!(runtime.view().snapshot, None, "an old snapshot is dropped");
    assert!(runtime.view().stores.image.is_some(), "the stores are kept");
    let _fake = Fake::start_again(&place.socket(), has);
    up(&runtime);
    assert_eq!(snapshot(&runtime).images[0].first_seen, seen, "a restart keeps the age of images");
    assert_eq!(runtime.view().state.degradation(), None);
}

#[test]
fn a_restart_between_two_observations_is_not_seen() {
    let place = Place::new();
    let fake = Fake::start(&place.socket(), node());
    let mut runtime = place.start();
    let before = snapshot(&runtime).at;
    let has = Arc::clone(&fake.has);
    drop(fake);
    let _fake = Fake::start_again(&place.socket(), has);
    runtime.observe().unwrap();
    until("another snapshot", || runtime.view().snapshot.filter(|snapshot| snapshot.at > before));
    assert!(matches!(runtime.try_event(), Some(Event::State(State::Up { .. }))));
    assert!(runtime.try_event().is_none());
}

#[test]
fn a_slow_runtime_is_reported_as_slow() {
    let place = Place::new();
    let mut has = node();
    has.delays.insert("ListContainers", Duration::from_secs(5));
    let fake = Fake::start(&place.socket(), has);
    let runtime = place.start();
    let reason = down(&runtime);
    assert_eq!(reason, "fake 1.0: ListContainers was not answered within 0.5 s");
    fake.has().delays.clear();
    up(&runtime);
}

#[test]
fn an_undecodable_answer_is_a_failure() {
    let place = Place::new();
    let mut has = node();
    has.nonsense.push("ListPodSandbox");
    let fake = Fake::start(&place.socket(), has);
    let runtime = place.start();
    let reason = down(&runtime);
    assert!(reason.starts_with("fake 1.0: ListPodSandbox failed: "), "{reason}");
    fake.has().nonsense.clear();
    up(&runtime);
}

#[test]
fn an_endless_answer_is_a_failure() {
    let place = Place::new();
    let mut has = node();
    has.image("sha256:x", &"x".repeat(17 << 20), 1);
    let _fake = Fake::start(&place.socket(), has);
    let options = RuntimeOptions { timeout: PATIENCE, ..place.options() };
    let runtime = place.start_with(options);
    let reason = down(&runtime);
    assert!(reason.starts_with("fake 1.0: ListImages failed: "), "{reason}");
}

#[test]
fn another_server_behind_the_socket_is_a_failure() {
    use std::io::Write as _;

    let place = Place::new();
    let listener = UnixListener::bind(place.socket()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _gone = stream.unwrap().write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        }
    });
    let runtime = place.start();
    let reason = down(&runtime);
    assert!(reason.contains("runtime.sock"), "{reason}");
}

#[test]
fn a_silent_server_is_a_failure() {
    let place = Place::new();
    let _listener = UnixListener::bind(place.socket()).unwrap();
    let runtime = place.start();
    let reason = down(&runtime);
    assert!(reason.contains("within 0.5 s"), "{reason}");
}

#[test]
fn a_runtime_without_cri_is_reported_with_the_fix() {
    let place = Place::new();
    let mut has = node();
    has.refusals.insert("Version", Status::unimplemented("unknown service runtime.v1.RuntimeService"));
    let _fake = Fake::start(&place.socket(), has);
    let reason = down(&place.start());
    assert!(reason.contains("disabled_plugins") && reason.contains("runtime.endpoint: none"), "{reason}");
}

#[test]
fn one_hanging_container_does_not_stop_the_others() {
    let place = Place::new();
    let mut has = node();
    has.delays.insert("web-app-2", Duration::from_secs(60));
    let _fake = Fake::start(&place.socket(), has);
    let mut runtime = place.start();
    let seen = snapshot(&runtime);
    assert!(seen.container("web-app-2").unwrap().details.is_none());
    assert!(seen.container("web-init-0").unwrap().details.is_some(), "details of the others");
    let collected = collected(&mut runtime, everything(|| false));
    assert_eq!(collected.end, CollectEnd::Exhausted);
    assert_eq!(collected.counts, Counts { containers: 3, sandboxes: 1, images: 0 }, "its mounted images are not known");
}

#[test]
fn an_order_during_an_observation_causes_another() {
    let place = Place::new();
    let mut has = node();
    has.delays.insert("ListImages", Duration::from_millis(300));
    let fake = Fake::start(&place.socket(), has);
    let runtime = place.start();
    snapshot(&runtime);
    runtime.observe().unwrap();
    std::thread::sleep(Duration::from_millis(150));
    // The runtime has already answered the list of pods.
    fake.has().pod("new", true);
    runtime.observe().unwrap();
    until("the new pod", || runtime.view().snapshot.filter(|snapshot| snapshot.sandboxes.len() == 4));
}

#[test]
fn a_command_observes_once() {
    let place = Place::new();
    let view = observe_once(place.options()).unwrap();
    assert!(matches!(view.state, State::Down { .. }) && view.snapshot.is_none(), "{:?}", view.state);
    let _fake = Fake::start(&place.socket(), node());
    let view = observe_once(place.options()).unwrap();
    assert!(matches!(view.state, State::Up { ref runtime, .. } if runtime == "fake 1.0"), "{:?}", view.state);
    assert_eq!(view.snapshot.map(|snapshot| snapshot.images.len()), Some(5));
    let off = RuntimeOptions { endpoint: RuntimeEndpoint::Off, ..RuntimeOptions::default() };
    assert_eq!(observe_once(off).unwrap().state, State::Off);
}

/// Limits the CPU time of the calling thread. 0.2 % of a CPU at one observation a minute are 120 ms, and this build is not
/// optimized.
#[test]
fn observing_a_busy_node_costs_little() {
    let place = Place::new();
    let mut has = Has::default();
    for pod in 0..250 {
        let pod = format!("pod-{pod}");
        has.pod(&pod, true);
        for name in ["app", "side"] {
            let container = has.container(&pod, name, 0, cri::CONTAINER_RUNNING, 5);
            let texts = (0..12).map(|text| (format!("example.com/label-{text}"), "x".repeat(60)));
            container.annotations = texts.collect();
            container.labels = container.annotations.clone();
        }
    }
    for image in 0..100 {
        has.image(&format!("sha256:{image}"), &format!("registry/image:{image}"), 1);
    }
    let _fake = Fake::start(&place.socket(), has);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let endpoint = place.options().endpoint;
    let [first, again] = runtime.block_on(async {
        let found = find::find(&Sockets::from(&endpoint), None, false, PATIENCE).await.unwrap();
        let mut observer = observer::Observer::default();
        let mut costs = [Duration::ZERO; 2];
        // On a busy machine one observation may not have time for all containers.
        let mut observations = 0;
        while observer.observe(&found.client, &found.name).await.unwrap().is_cut_short {
            observations += 1;
            assert!(observations < 100);
        }
        for cost in &mut costs {
            let before = thread_time();
            let seen = observer.observe(&found.client, &found.name).await.unwrap();
            *cost = thread_time() - before;
            assert_eq!((seen.snapshot.containers.len(), seen.snapshot.images.len()), (500, 100));
        }
        costs
    });
    println!("500 containers: {first:?} and {again:?} of CPU time for an observation");
    assert!(first.min(again) < Duration::from_millis(120), "{first:?}, {again:?}");
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

#[test]
fn a_runtime_that_is_off_is_not_called() {
    let options = RuntimeOptions { endpoint: RuntimeEndpoint::Off, ..RuntimeOptions::default() };
    let runtime = Runtime::start(options).unwrap();
    assert_eq!(runtime.view().state, State::Off);
    assert_eq!(runtime.observe(), Err(NotTaken));
    assert_eq!(runtime.view().state.degradation(), None);
}
