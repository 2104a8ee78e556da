//! Names of workloads: those of pods come from the API server, the pods file or the container runtime, other names from the cgroup.

use std::sync::Arc;

use node_pressure_state::{Identity, Name};

use super::runtime_snapshot::{PodRef, Snapshot};
use crate::workloads::cgroup_path::{self, Role};
use crate::workloads::{Kind, Pod, PodSpecs, PodUid, Workload};

/// The names that are known at one moment. A clone shares them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Names {
    pods: Arc<PodSpecs>,
    /// Pods that the source of `pods` has dropped lately.
    departed: Arc<PodSpecs>,
    snapshot: Option<Arc<Snapshot>>,
}

impl Names {
    pub const fn new(pods: Arc<PodSpecs>, departed: Arc<PodSpecs>, snapshot: Option<Arc<Snapshot>>) -> Self {
        Self { pods, departed, snapshot }
    }

    /// Returns the name of a workload by its path, which suffices for a workload that is gone.
    pub fn of(&self, path: &str) -> Name {
        let kind = match cgroup_path::role(path) {
            Role::Pod(uid, _) => Kind::Pod(uid),
            Role::Container(id) => Kind::Container(id),
            Role::Service => Kind::Service,
            Role::Scope => Kind::Scope,
            Role::Group | Role::Plain => Kind::Cgroup,
        };
        self.named(path, &kind, None)
    }

    /// As [`Self::of`], with the name of the container to which the cgroup at `cgroup` belongs.
    pub fn of_cgroup(&self, workload: &str, cgroup: &str) -> Name {
        let mut name = self.of(workload);
        if name.container.is_none() {
            name.container = cgroup_path::container(cgroup).and_then(|id| self.container(workload, &id));
        }
        name
    }

    /// Returns the name of a pod by its UID, without a path.
    pub fn of_uid(&self, uid: &str) -> Name {
        self.named("", &Kind::Pod(PodUid(uid.to_owned())), None)
    }

    /// Returns the names for the row of a record; `None` if only the path is known.
    pub fn identity(&self, workload: &str, cgroup: Option<&str>) -> Option<Identity> {
        self.of_cgroup(workload, cgroup.unwrap_or(workload)).identity()
    }

    /// Returns the name of a workload of the tree, which keeps the last known object of its pod.
    pub fn of_workload(&self, workload: &Workload) -> Name {
        self.named(&workload.name, &workload.kind, workload.pod.as_deref())
    }

    /// Returns the name of the container with this id of the runtime, in the pod that `workload` is.
    fn container(&self, workload: &str, id: &str) -> Option<String> {
        let uid = match cgroup_path::role(workload) {
            Role::Pod(uid, _) => Some(uid),
            _ => None,
        };
        container_name(uid.and_then(|uid| self.pod(&uid)), self.snapshot.as_deref(), id).map(str::to_owned)
    }

    fn pod(&self, uid: &PodUid) -> Option<&Pod> {
        self.pods.find(uid).or_else(|| self.departed.find(uid))
    }

    fn named(&self, path: &str, kind: &Kind, pod: Option<&Pod>) -> Name {
        let display = |text: &str| Name { display: text.to_owned(), ..Name::default() };
        let name = match kind {
            Kind::Pod(uid) => pod
                .or_else(|| self.pod(uid))
                .map(of_object)
                .or_else(|| Some(of_runtime(&self.snapshot.as_ref()?.sandbox_of(uid)?.pod)))
                .unwrap_or_else(|| Name { uid: Some(uid.0.clone()), ..display(&uid.0) }),
            Kind::Container(id) => self.of_container(id).unwrap_or_else(|| display(cgroup_path::short_id(id))),
            Kind::Service | Kind::Scope => display(path.rsplit('/').next().unwrap_or(path)),
            Kind::Cgroup if path.is_empty() => display("/"),
            Kind::Cgroup => display(path),
        };
        Name { workload: path.to_owned(), ..name }
    }

    /// Names a container that is a workload of its own.
    fn of_container(&self, id: &str) -> Option<Name> {
        let container = self.snapshot.as_ref()?.container(id)?;
        let pod = container.pod.as_ref();
        let name = pod.map(|pod| self.pod(&pod.uid).map_or_else(|| of_runtime(pod), of_object)).unwrap_or_default();
        let display =
            if pod.is_some() { format!("{}/{}", name.display, container.name) } else { container.name.clone() };
        Some(Name { display, container: Some(container.name.clone()), ..name })
    }
}

/// Returns the name of the container with this id of the runtime. Either may not know it yet: the API server learns of it from the kubelet, and
/// the runtime is asked once a minute while the node is at rest.
pub fn container_name<'n>(pod: Option<&'n Pod>, snapshot: Option<&'n Snapshot>, id: &str) -> Option<&'n str> {
    let of_pod = pod.and_then(|pod| pod.container_name(id));
    of_pod.or_else(|| Some(snapshot?.container(id)?.name.as_str()))
}

fn of_object(pod: &Pod) -> Name {
    let metadata = &pod.metadata;
    Name {
        display: pod.full_name(),
        namespace: Some(metadata.namespace.clone()),
        pod: Some(metadata.name.clone()),
        owner: pod.owner(),
        // All clients but the kubelet know a static pod by the UID of its mirror pod.
        uid: Some(metadata.uid.clone()),
        ..Name::default()
    }
}

fn of_runtime(PodRef { namespace, name, uid }: &PodRef) -> Name {
    Name {
        display: format!("{namespace}/{name}"),
        namespace: Some(namespace.clone()),
        pod: Some(name.clone()),
        uid: Some(uid.0.clone()),
        ..Name::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Container, ContainerState, Sandbox, Stores};
    use crate::units::Monotonic;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn uid(last: char) -> String {
        format!("0b8bd9ec-5a1f-4ee0-9a9b-3d6bb6d9a1c{last}")
    }

    fn specs(name: &str, last: char) -> Arc<PodSpecs> {
        let text = format!(
            r#"{{"kind": "List", "items": [{{"metadata": {{"name": "{name}", "namespace": "batch", "uid": "{}",
                "ownerReferences": [{{"kind": "Job", "name": "report", "controller": true}}]}},
                "status": {{"containerStatuses": [{{"name": "app", "containerID": "cri-o://{ID}"}}]}}}}]}}"#,
            uid(last)
        );
        Arc::new(PodSpecs::parse(&text).unwrap())
    }

    fn snapshot(last: char) -> Arc<Snapshot> {
        let pod = PodRef { namespace: "web".to_owned(), name: "front".to_owned(), uid: PodUid(uid(last)) };
        let sandbox = Sandbox {
            id: "s".to_owned(),
            pod: pod.clone(),
            labels: Arc::default(),
            attempt: 0,
            is_ready: true,
            created: None,
            is_static: false,
            dead_since: None,
        };
        let container = Container {
            id: ID.to_owned(),
            sandbox: "s".to_owned(),
            pod: Some(pod),
            name: "nginx".to_owned(),
            attempt: 0,
            state: ContainerState::Running,
            created: None,
            grace: None,
            images: Vec::new(),
            dead_since: None,
            details: None,
        };
        Arc::new(Snapshot {
            at: Monotonic::default(),
            runtime: "containerd 2".to_owned(),
            sandboxes: vec![sandbox],
            containers: vec![container],
            images: Vec::new(),
            stores: Stores::default(),
        })
    }

    fn words(name: &Name) -> String {
        let all = [&name.namespace, &name.pod, &name.container, &name.owner, &name.uid];
        let known: Vec<&str> = all.into_iter().map(|field| field.as_deref().unwrap_or("-")).collect();
        format!("{}: {}", name.display, known.join(" "))
    }

    #[test]
    fn a_workload_is_named_by_the_first_source_that_knows_it() {
        let pod = |last| format!("kubepods.slice/kubepods-pod{}.slice", uid(last).replace('-', "_"));
        let (a, b, c, d) = (uid('a'), uid('b'), uid('c'), uid('d'));
        let names = Names::new(specs("report", 'a'), specs("earlier", 'b'), Some(snapshot('c')));
        for (workload, cgroup, expected) in [
            (pod('a'), format!("x/{ID}"), format!("batch/report: batch report app Job/report {a}")),
            (pod('a'), pod('a'), format!("batch/report: batch report - Job/report {a}")),
            (pod('b'), pod('b'), format!("batch/earlier: batch earlier - Job/report {b}")),
            (pod('c'), format!("x/cri-containerd-{ID}.scope"), format!("web/front: web front nginx - {c}")),
            (pod('d'), pod('d'), format!("{d}: - - - - {d}")),
            (
                format!("system.slice/cri-containerd-{ID}.scope"),
                String::new(),
                format!("web/front/nginx: web front nginx - {c}"),
            ),
            (
                format!("machine.slice/libpod-{}.scope", ID.replace('0', "1")),
                String::new(),
                "1123456789ab: - - - - -".to_owned(),
            ),
            ("system.slice/nginx.service".to_owned(), String::new(), "nginx.service: - - - - -".to_owned()),
            ("lxc/web".to_owned(), String::new(), "lxc/web: - - - - -".to_owned()),
            (String::new(), String::new(), "/: - - - - -".to_owned()),
        ] {
            let name = names.of_cgroup(&workload, &cgroup);
            assert_eq!((words(&name), &name.workload), (expected, &workload));
        }
    }

    #[test]
    fn a_workload_keeps_the_name_of_its_last_known_pod() {
        let mut workload = crate::workloads::fixtures::workload("kubepods/pod0b8bd9ec-5a1f-4ee0-9a9b-3d6bb6d9a1ca");
        workload.kind = Kind::Pod(PodUid(uid('a')));
        workload.pod = specs("report", 'a').find_shared(&PodUid(uid('a'))).cloned();
        assert_eq!(Names::default().of_workload(&workload).display, "batch/report");
        assert_eq!(Names::default().of(&workload.name).display, uid('a'));
    }
}
