//! Converts this node's workloads to the types that decisions about pods use. Pure.

use crate::disk::{Part, PartUsage, Usage};
use crate::runtime::{Sandbox, Snapshot};
use crate::units::{Quantity, Resource};
use crate::workloads::pod::{Container, EmptyDir, Metadata, Resources, Spec, Status, Volume};
use crate::workloads::pod::{ResourceList, ResourceName};
use crate::workloads::{Kind, Pod, PodSpecs, PodUid, Protection, Workload};

/// Annotation with the source of a pod; any source but `api` makes a pod static.
const SOURCE: (&str, &str) = ("kubernetes.io/config.source", "file");
/// A name that no namespace can have.
const UNKNOWN_NAMESPACE: &str = "?";

/// Returns the key of a workload's statistics: the pod UID, or the path of a workload that is not a pod.
pub fn uid(workload: &Workload) -> &str {
    workload.kind.pod_uid().map_or(&workload.name, |PodUid(uid)| uid)
}

/// Returns the pod of a workload: the known spec, else the facts of its runtime and cgroup. A workload of another kind
/// becomes a pod named by its path. Only volumes that a pod can have count as disk usage.
pub fn pod(workload: &Workload, specs: &PodSpecs, snapshot: Option<&Snapshot>, volumes: Vec<Volume>) -> Pod {
    let known = workload.kind.pod_uid().and_then(|uid| specs.find(uid));
    if let Some(known) = known {
        // The cgroup has processes, so the pod is running, whatever phase the file has.
        return Pod { status: Status { phase: "Running".to_owned(), ..known.status.clone() }, ..known.clone() };
    }
    let sandbox = workload.kind.pod_uid().and_then(|uid| sandbox(snapshot?, uid));
    let (namespace, name) = match (&workload.kind, sandbox) {
        (_, Some(sandbox)) => (sandbox.pod.namespace.as_str(), sandbox.pod.name.as_str()),
        (Kind::Pod(PodUid(uid)), None) => (UNKNOWN_NAMESPACE, uid.as_str()),
        (_, None) => workload.name.rsplit_once('/').unwrap_or(("", &workload.name)),
    };
    let is_static =
        workload.protection == Some(Protection::StaticPod) || sandbox.is_some_and(|sandbox| sandbox.is_static);
    let (source, file) = SOURCE;
    let annotations = is_static.then(|| (source.to_owned(), file.to_owned())).into_iter().collect();
    let metadata = Metadata {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        uid: uid(workload).to_owned(),
        annotations,
        ..Metadata::default()
    };
    let status =
        Status { phase: "Running".to_owned(), qos_class: workload.qos.as_str().to_owned(), ..Status::default() };
    Pod { metadata, spec: Spec { containers: vec![asking(workload)], volumes, ..Spec::default() }, status }
}

/// Returns the newest sandbox; all sandboxes of a pod have the same name.
fn sandbox<'s>(snapshot: &'s Snapshot, uid: &PodUid) -> Option<&'s Sandbox> {
    let of_it = snapshot.sandboxes.iter().filter(|sandbox| sandbox.pod.uid == *uid);
    of_it.max_by_key(|sandbox| (sandbox.is_ready, sandbox.attempt))
}

/// Returns one container that stands for all: it requests the memory that the cgroup was promised.
fn asking(workload: &Workload) -> Container {
    let memory = || (ResourceName::from(Resource::Memory.as_str()), Quantity::binary(workload.request));
    let requests = (!workload.request.is_zero()).then(memory).into_iter().collect();
    let resources = Resources { requests: ResourceList(requests), ..Resources::default() };
    Container { resources, ..Container::default() }
}

/// Returns the volumes found on the disks, as a pod spec would declare them.
pub fn volumes(usage: &Usage) -> Vec<Volume> {
    let volume = |measured: &PartUsage| match &measured.part {
        Part::Volume { name } => {
            Some(Volume { name: name.clone(), empty_dir: Some(EmptyDir::default()), ..Volume::default() })
        }
        // Memory-backed, or not a volume.
        Part::MemoryVolume { .. } | Part::WritableLayer { .. } | Part::Logs { .. } | Part::PodFiles => None,
    };
    usage.parts.iter().filter_map(volume).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Quirks, Semantics};
    use crate::disk::{Held, Source};
    use crate::eviction::{self, Layout};
    use crate::kernel::DeviceId;
    use crate::runtime::{PodRef, Stores};
    use crate::units::Monotonic;
    use crate::units::{Amount, Bytes, CgroupId, Signal};
    use crate::workloads::{QosClass, fixtures};

    fn workload(name: &str, kind: Kind) -> Workload {
        let request = Bytes::from_mib(64);
        Workload { kind, qos: QosClass::Burstable, request, ..fixtures::workload(name) }
    }

    fn of_uid(uid: &str) -> Workload {
        workload(&format!("kubepods/burstable/pod{uid}"), Kind::Pod(PodUid(uid.to_owned())))
    }

    fn snapshot(uid: &str, is_static: bool) -> Snapshot {
        let sandbox = |attempt, name: &str| Sandbox {
            labels: std::sync::Arc::default(),
            id: format!("s{attempt}"),
            pod: PodRef { namespace: "shop".to_owned(), name: name.to_owned(), uid: PodUid(uid.to_owned()) },
            attempt,
            is_ready: attempt == 1,
            created: None,
            is_static,
            dead_since: None,
        };
        Snapshot {
            at: Monotonic(0),
            runtime: "fake 1".to_owned(),
            sandboxes: vec![sandbox(0, "old"), sandbox(1, "web")],
            containers: Vec::new(),
            images: Vec::new(),
            stores: Stores::default(),
        }
    }

    #[test]
    fn a_name_comes_from_the_file_then_the_runtime_then_the_cgroup() {
        let list = r#"{"kind": "List", "items": [{"metadata": {"name": "db", "namespace": "shop", "uid": "u-1"},
            "spec": {"priority": 7}, "status": {"phase": "Succeeded"}}]}"#;
        let specs = PodSpecs::parse(list).unwrap();
        let runtime = snapshot("u-2", false);
        let named = |workload: &Workload| pod(workload, &specs, Some(&runtime), Vec::new());
        for (workload, name, priority) in [
            (of_uid("u-1"), "shop/db", 7),
            (of_uid("u-2"), "shop/web", 0),
            (of_uid("u-3"), "?/u-3", 0),
            (workload("system.slice/app.service", Kind::Service), "system.slice/app.service", 0),
            (workload("stress", Kind::Cgroup), "/stress", 0),
        ] {
            let pod = named(&workload);
            assert_eq!((pod.full_name().as_str(), pod.priority()), (name, priority));
            assert!(pod.is_active() && !pod.is_critical(), "{name}");
        }
    }

    #[test]
    fn class_and_request_are_the_cgroups() {
        let pod = pod(&of_uid("u-9"), &PodSpecs::default(), None, Vec::new());
        let quirks = Quirks::of(Semantics::Corrected);
        assert_eq!(pod.qos_class(quirks), QosClass::Burstable);
        assert_eq!(pod.request(Resource::Memory, quirks), Bytes::from_mib(64).into());
        assert_eq!(pod.request(Resource::EphemeralStorage, quirks), Bytes::ZERO.into());
    }

    #[test]
    fn static_pods_are_critical_by_runtime_or_uid() {
        let is_critical = |workload: &Workload, snapshot: Option<&Snapshot>| {
            pod(workload, &PodSpecs::default(), snapshot, Vec::new()).is_critical()
        };
        assert!(is_critical(&of_uid("u-1"), Some(&snapshot("u-1", true))));
        let by_uid = Workload { protection: Some(Protection::StaticPod), ..of_uid("u-1") };
        assert!(is_critical(&by_uid, None) && !is_critical(&of_uid("u-1"), None));
    }

    #[test]
    fn memory_volumes_are_on_no_disk() {
        let part = |part, inodes| PartUsage {
            part,
            device: DeviceId(1),
            held: Held { bytes: Bytes(0), inodes },
            ranked: Held { bytes: Bytes(0), inodes },
            at: Monotonic(0),
            source: Source::Walk,
            is_complete: true,
        };
        let name = |name: &str| name.to_owned();
        let parts = vec![
            part(Part::Volume { name: name("cache") }, 20),
            part(Part::MemoryVolume { name: name("shm") }, 300),
            part(Part::Logs { container: name("app") }, 1),
        ];
        let usage = Usage::new(CgroupId(1), parts, Monotonic(0), true);
        let pod = pod(&of_uid("u-1"), &PodSpecs::default(), None, volumes(&usage));
        let stats = usage.statistics("u-1", |_| None);
        let used = eviction::usage::usage(Signal::NodeFsInodesFree, Layout::Single, &pod, &stats);
        assert_eq!(used, Amount::from_units(21));
    }
}
