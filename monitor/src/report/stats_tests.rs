use std::path::Path;

use super::*;
use crate::config::{Quirks, Semantics};
use crate::disk::{Held, Part, PartUsage, Source};
use crate::eviction::{self, Layout};
use crate::kernel::DeviceId;
use crate::node::CgroupVersion;
use crate::node::mountinfo::Inodes;
use crate::node::statfs::{Place, Space};
use crate::runtime::{Container as Running, ContainerState, PodRef as RuntimePod};
use crate::units::{Bytes, CgroupId, Monotonic, Signal};
use crate::workloads::{Pod as Spec, Summary};

const POD: &str = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice";
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn write(root: &Path, path: &str, files: &[(&str, &str)]) {
    std::fs::create_dir_all(root.join(path)).unwrap();
    for (name, text) in files {
        std::fs::write(root.join(path).join(name), text).unwrap();
    }
}

/// A node with one pod of one container, as cgroup v2 has it.
fn cgroups() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let memory = |usage: &'static str| {
        [("memory.current", usage), ("memory.max", "4000"), ("memory.stat", "inactive_file 100\nanon 500\n")]
    };
    write(root.path(), "", &[("cpu.stat", "usage_usec 9000000\n")]);
    write(root.path(), "kubepods.slice", &memory("3000"));
    write(root.path(), POD, &memory("2000"));
    write(root.path(), POD, &[("pids.current", "12\n"), ("cpu.stat", "usage_usec 2000\n")]);
    write(root.path(), &format!("{POD}/cri-containerd-{ID}.scope"), &memory("1500"));
    // Of the 12 tasks some are threads, one is the sandbox's process, and one is in a cgroup that the container has made.
    write(root.path(), &format!("{POD}/cri-containerd-{ID}.scope"), &[("cgroup.procs", "40\n41\n57\n")]);
    write(root.path(), &format!("{POD}/cri-containerd-{ID}.scope/below"), &[("cgroup.procs", "60\n")]);
    // The pod's own sandbox is no container.
    let sandbox = format!("{POD}/cri-containerd-{}.scope", ID.replace('0', "f"));
    write(root.path(), &sandbox, &memory("50"));
    write(root.path(), &sandbox, &[("cgroup.procs", "39\n")]);
    root
}

fn snapshot() -> Snapshot {
    let pod = RuntimePod { namespace: "shop".to_owned(), name: "web".to_owned(), uid: PodUid("u-1".to_owned()) };
    let sandbox = Sandbox {
        id: ID.replace('0', "f"),
        pod: pod.clone(),
        labels: Arc::default(),
        attempt: 0,
        is_ready: true,
        created: Some(UnixNanos(1_700_000_000_500_000_000)),
        is_static: false,
        dead_since: None,
    };
    let container = Running {
        id: ID.to_owned(),
        sandbox: sandbox.id.clone(),
        pod: Some(pod),
        name: "app".to_owned(),
        attempt: 0,
        state: ContainerState::Running,
        created: Some(UnixNanos(1_700_000_001_000_000_000)),
        grace: None,
        images: Vec::new(),
        dead_since: None,
        details: None,
    };
    Snapshot {
        at: Monotonic(0),
        runtime: "fake 1".to_owned(),
        sandboxes: vec![sandbox],
        containers: vec![container],
        images: Vec::new(),
        stores: Stores::default(),
    }
}

fn known(root: &Path) -> Known {
    let part = |part, bytes, inodes| PartUsage {
        part,
        device: DeviceId(1),
        held: Held { bytes: Bytes(bytes), inodes },
        ranked: Held { bytes: Bytes(bytes), inodes },
        at: Monotonic::now(),
        source: Source::Walk,
        is_complete: true,
    };
    let parts = vec![
        part(Part::WritableLayer { container: ID.to_owned() }, 70, 7),
        part(Part::WritableLayer { container: ID.replace('0', "f") }, 30, 3),
        part(Part::Logs { container: "app".to_owned() }, 20, 2),
        part(Part::Volume { name: "cache".to_owned() }, 300, 3),
    ];
    let usage = Usage::new(CgroupId(5), parts, Monotonic::now(), true);
    let usages = Usages { by_workload: [(POD.into(), Arc::new(usage))].into(), ..Usages::default() };
    let place = Place { path: "/p".into(), device: "8:1".into(), mount_point: "/p".into(), kind: "ext4".to_owned() };
    let filesystem = FsSample {
        role: Role::Node,
        place: Arc::new(place),
        is_read_only: false,
        space: Some(Space { available: Bytes(600), capacity: Bytes(1000), used: Bytes(350) }),
        inodes: Some(Inodes { total: 100, free: 40 }),
        at: Monotonic::now(),
    };
    Known {
        node_name: "worker-1".to_owned(),
        memory: Some(MemoryReport {
            usage: Bytes(5000),
            working_set: Bytes(4500),
            kubelet: Bytes(3500),
            ..MemoryReport::default()
        }),
        swap: Some(SwapReport { total: Bytes(10), free: Bytes(4), ..SwapReport::default() }),
        pids: Some((900, 1000)),
        filesystems: vec![filesystem],
        stores: Stores::default(),
        hierarchy: Hierarchy { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false },
        pods: vec![
            PodCgroup { uid: PodUid("u-1".to_owned()), path: POD.to_owned(), id: CgroupId(5) },
            PodCgroup { uid: PodUid("gone".to_owned()), path: "kubepods.slice/gone".to_owned(), id: CgroupId(6) },
        ],
        snapshot: Some(Arc::new(snapshot())),
        specs: Arc::default(),
        usages: Arc::new(usages),
    }
}

fn served(extent: Extent) -> serde_json::Value {
    let root = cgroups();
    serde_json::to_value(document(&known(root.path()), extent, &mut CpuHistory::default())).unwrap()
}

#[test]
fn rank_and_simulate_can_read_the_served_document() {
    let summary: Summary = serde_json::from_value(served(Extent::Whole)).unwrap();
    let node = &summary.node;
    assert_eq!(node.node_name, "worker-1");
    let memory = node.memory.unwrap();
    assert!(memory.time.is_some());
    assert_eq!((memory.available_bytes, memory.working_set_bytes), (Some(3500), Some(4500)));
    let fs = node.fs.unwrap();
    assert_eq!(
        (fs.available_bytes, fs.capacity_bytes, fs.inodes_free, fs.inodes),
        (Some(600), Some(1000), Some(40), Some(100))
    );
    assert_eq!(node.runtime, None, "no filesystem of images was seen");
    let rlimit = node.rlimit.unwrap();
    assert_eq!((rlimit.max_pid, rlimit.running), (Some(1000), Some(100)));
    assert_eq!(node.swap.unwrap().swap_usage_bytes, Some(6));
    let all_pods: Vec<_> = node.system_containers.iter().map(|it| (it.name.as_str(), it.memory.unwrap())).collect();
    assert_eq!(all_pods.len(), 1);
    assert_eq!(
        (all_pods[0].0, all_pods[0].1.available_bytes, all_pods[0].1.working_set_bytes),
        ("pods", Some(1100), Some(2900))
    );

    let [pod] = summary.pods.as_slice() else { panic!("{:?}", summary.pods) };
    assert_eq!(pod.pod_ref.uid, "u-1");
    assert_eq!(pod.memory.unwrap().working_set_bytes, Some(1900));
    assert_eq!(pod.process_stats.unwrap().process_count, Some(3));
    assert_eq!(pod.ephemeral_storage.unwrap().used_bytes, Some(390));
    assert_eq!((pod.volumes[0].name.as_str(), pod.volumes[0].used_bytes), ("cache", Some(300)));
    let [container] = pod.containers.as_slice() else { panic!("{:?}", pod.containers) };
    assert_eq!((container.name.as_str(), container.memory.unwrap().working_set_bytes), ("app", Some(1400)));
    assert_eq!((container.rootfs.unwrap().used_bytes, container.logs.unwrap().used_bytes), (Some(70), Some(20)));

    // A ranking by this document equals a ranking by the kubelet's document.
    let spec: Spec = serde_json::from_str(
        r#"{"metadata":{"namespace":"shop","name":"web","uid":"u-1"},"spec":{"volumes":[{"name":"cache","emptyDir":{}}]}}"#,
    )
    .unwrap();
    let used = |signal| eviction::usage::usage(signal, Layout::Single, &spec, pod).bytes().0;
    assert_eq!((used(Signal::MemoryAvailable), used(Signal::NodeFsAvailable)), (1900, 390));
    assert_eq!(spec.qos_class(Quirks::of(Semantics::Corrected)).as_str(), "BestEffort");
}

#[test]
fn the_document_has_the_kubelets_fields() {
    let json = served(Extent::Whole);
    for (pointer, expected) in [
        ("/node/nodeName", serde_json::json!("worker-1")),
        ("/node/cpu/usageCoreNanoSeconds", serde_json::json!(9_000_000_000_u64)),
        ("/node/memory/usageBytes", serde_json::json!(5000)),
        ("/node/fs/usedBytes", serde_json::json!(350)),
        ("/node/fs/inodesUsed", serde_json::json!(60)),
        ("/node/rlimit/maxpid", serde_json::json!(1000)),
        ("/node/systemContainers/0/name", serde_json::json!("pods")),
        ("/pods/0/podRef/name", serde_json::json!("web")),
        ("/pods/0/podRef/namespace", serde_json::json!("shop")),
        ("/pods/0/startTime", serde_json::json!("2023-11-14T22:13:20Z")),
        ("/pods/0/cpu/usageCoreNanoSeconds", serde_json::json!(2_000_000)),
        ("/pods/0/memory/rssBytes", serde_json::json!(500)),
        ("/pods/0/ephemeral-storage/availableBytes", serde_json::json!(600)),
        ("/pods/0/process_stats/process_count", serde_json::json!(3)),
        ("/pods/0/volume/0/name", serde_json::json!("cache")),
        ("/pods/0/volume/0/inodesUsed", serde_json::json!(3)),
        ("/pods/0/containers/0/startTime", serde_json::json!("2023-11-14T22:13:21Z")),
    ] {
        assert_eq!(json.pointer(pointer), Some(&expected), "{pointer} in {json:#}");
    }
    // Unknown is absent, not null and not zero.
    assert!(json.pointer("/node/memory/rssBytes").is_none() && json.pointer("/node/runtime").is_none());
    assert!(json.pointer("/node/cpu/usageNanoCores").is_none(), "no client has asked before");
    assert!(!json.to_string().contains("null"), "{json}");
}

#[test]
fn a_pod_that_the_runtime_has_not_reported_has_its_names_from_the_api_server() {
    let root = cgroups();
    let spec = format!(
        r#"{{"metadata": {{"namespace": "shop", "name": "web", "uid": "u-1"}},
            "status": {{"containerStatuses": [{{"name": "app", "containerID": "containerd://{ID}"}}]}}}}"#
    );
    let specs = Arc::new(PodSpecs::new([serde_json::from_str::<Spec>(&spec).unwrap()]));
    let known = Known { snapshot: None, specs, ..known(root.path()) };
    let document = document(&known, Extent::Whole, &mut CpuHistory::default());
    let [pod] = document.pods.as_slice() else { panic!("{:?}", document.pods) };
    let [app] = pod.containers.as_slice() else { panic!("{:?}", pod.containers) };
    assert_eq!((app.name.as_str(), app.rootfs.unwrap().used_bytes), ("app", Some(70)));
    assert_eq!(pod.ephemeral_storage.unwrap().used_bytes, Some(390), "without the sandbox");
}

#[test]
fn only_cpu_and_memory_omits_the_rest() {
    let json = served(Extent::CpuAndMemory);
    for absent in ["/node/fs", "/node/rlimit", "/pods/0/volume", "/pods/0/ephemeral-storage", "/pods/0/process_stats"] {
        assert!(json.pointer(absent).is_none(), "{absent} in {json:#}");
    }
    for there in ["/node/cpu", "/node/memory", "/pods/0/memory", "/pods/0/cpu", "/pods/0/containers/0/memory"] {
        assert!(json.pointer(there).is_some(), "{there} in {json:#}");
    }
}
