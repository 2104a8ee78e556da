//! Derives from the path of a cgroup what the cgroup is. No I/O.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::named_enum;

/// The UID of a Kubernetes pod in the API's spelling (with dashes).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(pub String);

impl PodUid {
    /// Returns whether this is the UID of a static pod. The API server assigns UUIDs; the kubelet names static pods by a hash of
    /// 32 hexadecimal digits.
    pub fn is_static(&self) -> bool {
        Self::is_hash(&self.0)
    }

    /// As [`Self::is_static`], for a UID that is a string.
    pub(crate) fn is_hash(uid: &str) -> bool {
        uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

named_enum! {
    /// Quality-of-service class of a workload, first evicted first.
    #[derive(Serialize, Deserialize)]
    pub enum QosClass {
        /// The workload has no request and no limit.
        BestEffort = "BestEffort",
        /// The workload has a request or a limit, but is not Guaranteed.
        Burstable = "Burstable",
        Guaranteed = "Guaranteed",
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The role of a directory of the cgroup tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// A slice or another directory that only groups other cgroups.
    Group,
    /// A pod. The pod and all cgroups below it are one workload.
    Pod(PodUid, QosClass),
    Service,
    Scope,
    /// A container, by the runtime's id.
    Container(String),
    /// Any other cgroup: a workload of its own if it contains processes and is outside every other workload.
    Plain,
}

/// Classifies the directory at `path`, which is relative to the root of its hierarchy.
pub fn role(path: &str) -> Role {
    let name = path.rsplit('/').next().unwrap_or(path);
    if let Some((uid, qos)) = pod(path, name) {
        return Role::Pod(uid, qos);
    }
    if let Some(id) = container_id(name) {
        return Role::Container(id.to_owned());
    }
    match name.rsplit_once('.') {
        Some((_, "slice")) => Role::Group,
        Some((_, "service")) => Role::Service,
        Some((_, "scope")) => Role::Scope,
        _ if is_kubernetes_group(path) => Role::Group,
        _ => Role::Plain,
    }
}

/// Returns the workload of a process in the cgroup at `path`. The result is the same as that of the walk over the tree, but the
/// path suffices, for a cgroup that has been removed.
pub fn workload(path: &str) -> &str {
    let mut owner = None;
    for prefix in prefixes(path) {
        match role(prefix) {
            Role::Pod(..) | Role::Container(_) => return prefix,
            Role::Service | Role::Scope => owner = Some((prefix, true)),
            // An unnamed cgroup is part of the named one above it. Without a named one, each unnamed cgroup is its own workload.
            Role::Plain if !owner.is_some_and(|(_, is_named)| is_named) => owner = Some((prefix, false)),
            Role::Plain | Role::Group => {}
        }
    }
    owner.map_or(path, |(prefix, _)| prefix)
}

/// Returns the id of the container that the cgroup at `path` is, or is part of.
pub fn container(path: &str) -> Option<String> {
    prefixes(path).find_map(|prefix| match role(prefix) {
        Role::Container(id) => Some(id),
        _ => None,
    })
}

/// Returns whether the cgroup is that of a container or in one. `libpod-payload-<id>` is the half of a service that Podman has split
/// (`--cgroups=split`); the service is the workload.
pub fn is_of_container(path: &str) -> bool {
    path.split('/').any(|name| container_id(name.strip_prefix("libpod-payload-").unwrap_or(name)).is_some())
}

/// Yields the paths of the cgroups above the one at `path`: `a`, `a/b` for `a/b/c`.
pub fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at))
}

/// Yields `a`, `a/b`, `a/b/c`.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| at).chain([path.len()]).filter_map(|end| path.get(..end))
}

/// The directory below `kubepods` that holds the pods of the system partition, with classes of its own (KEP-5894, planned as
/// alpha for Kubernetes 1.37; its code, kubernetes/kubernetes#142200, was not merged in September 2026).
const SYSTEM_PARTITION: &str = "system";

/// Returns whether the path is one of the directories that the kubelet creates above the pods (cgroupfs driver).
fn is_kubernetes_group(path: &str) -> bool {
    let path = path.strip_suffix("/burstable").or_else(|| path.strip_suffix("/besteffort")).unwrap_or(path);
    is_partition(path)
}

/// Returns whether the path is the directory of a partition's pods: `kubepods` or `kubepods/system`.
fn is_partition(path: &str) -> bool {
    let pods = path.strip_suffix(SYSTEM_PARTITION).and_then(|rest| rest.strip_suffix('/')).unwrap_or(path);
    pods.rsplit('/').next() == Some("kubepods")
}

/// Parses the pod whose cgroup is called `name`: `kubepods-burstable-pod<uid with _>.slice` (systemd driver; kind and others put a prefix
/// before `kubepods`) or `kubepods/burstable/pod<uid>` (cgroupfs driver). In the system partition `system` follows `kubepods`. A path without
/// a class means Guaranteed.
fn pod(path: &str, name: &str) -> Option<(PodUid, QosClass)> {
    if let Some(unit) = name.strip_suffix(".slice") {
        let (_, rest) = unit.rsplit_once("kubepods-")?;
        let rest = rest.strip_prefix(SYSTEM_PARTITION).and_then(|rest| rest.strip_prefix('-')).unwrap_or(rest);
        let (class, uid) = match rest.split_once('-') {
            Some(("burstable", uid)) => (QosClass::Burstable, uid),
            Some(("besteffort", uid)) => (QosClass::BestEffort, uid),
            _ => (QosClass::Guaranteed, rest),
        };
        let uid = uid.strip_prefix("pod").filter(|uid| is_pod_uid(uid))?;
        return Some((PodUid(uid.replace('_', "-")), class));
    }
    let uid = name.strip_prefix("pod").filter(|uid| is_pod_uid(uid))?;
    let above = path.strip_suffix(name)?.strip_suffix('/')?;
    let (class, partition) = match above.rsplit_once('/') {
        Some((partition, "burstable")) => (QosClass::Burstable, partition),
        Some((partition, "besteffort")) => (QosClass::BestEffort, partition),
        _ => (QosClass::Guaranteed, above),
    };
    is_partition(partition).then(|| (PodUid(uid.to_owned()), class))
}

/// Returns the paths that the kubelet gives the cgroup of a pod: with the systemd driver, and with the cgroupfs driver; first outside the
/// system partition, then inside.
pub fn of_pod(uid: &str, qos: QosClass) -> [String; 4] {
    let class = match qos {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    };
    let partition = Some(SYSTEM_PARTITION);
    [
        of_systemd(uid, [None, class]),
        of_cgroupfs(uid, [None, class]),
        of_systemd(uid, [partition, class]),
        of_cgroupfs(uid, [partition, class]),
    ]
}

/// Returns the path of a pod's slice. The name of a slice repeats the names of those above.
fn of_systemd(uid: &str, groups: [Option<&str>; 2]) -> String {
    let (mut path, mut unit) = ("kubepods.slice".to_owned(), "kubepods".to_owned());
    let pod = format!("pod{}", uid.replace('-', "_"));
    for name in groups.into_iter().flatten().chain([&*pod]) {
        unit = format!("{unit}-{name}");
        path = format!("{path}/{unit}.slice");
    }
    path
}

fn of_cgroupfs(uid: &str, groups: [Option<&str>; 2]) -> String {
    let groups: String = groups.into_iter().flatten().map(|name| format!("{name}/")).collect();
    format!("kubepods/{groups}pod{uid}")
}

/// Returns whether this is the UID of a pod. Pods of the API server have a dashed UUID, static pods 32 hexadecimal digits of a
/// hash, pods of test clusters any word.
fn is_pod_uid(uid: &str) -> bool {
    !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Extracts the runtime's id from a container's directory name: `cri-containerd-<id>.scope`, `docker-<id>.scope`, `crio-<id>.scope`,
/// `libpod-<id>.scope`, or the bare id (cgroupfs driver). `crio-conmon-<id>.scope` is the monitor process beside the container.
fn container_id(name: &str) -> Option<&str> {
    let id = match name.strip_suffix(".scope") {
        Some(unit) => {
            ["cri-containerd-", "docker-", "crio-", "libpod-"].iter().find_map(|prefix| unit.strip_prefix(prefix))?
        }
        None => name,
    };
    (id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// Returns the id of a container as container tools shorten it.
pub fn short_id(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_pod_leads_back_to_it() {
        let uid = "0b8bd9ec-5a1f-4ee0-9a9b-3d6bb6d9a1c2";
        for qos in QosClass::ALL {
            for path in of_pod(uid, qos) {
                assert_eq!(role(&path), Role::Pod(PodUid(uid.to_owned()), qos), "{path}");
            }
        }
    }

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const UID: &str = "1b2c3d4e-0000-1111-2222-333344445555";

    fn pod_role(path: &str) -> (String, QosClass) {
        match role(path) {
            Role::Pod(uid, qos) => (uid.0, qos),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn pods_of_the_systemd_driver_are_found() {
        let uid = UID.replace('-', "_");
        for (path, qos) in [
            (
                format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid}.slice"),
                QosClass::BestEffort,
            ),
            (format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice"), QosClass::Burstable),
            (format!("kubepods.slice/kubepods-pod{uid}.slice"), QosClass::Guaranteed),
            (
                format!(
                    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{uid}.slice"
                ),
                QosClass::Burstable,
            ),
        ] {
            assert_eq!(pod_role(&path), (UID.to_owned(), qos), "{path}");
        }
    }

    #[test]
    fn pods_of_the_cgroupfs_driver_and_static_pods_are_found() {
        assert_eq!(pod_role(&format!("kubepods/burstable/pod{UID}")), (UID.to_owned(), QosClass::Burstable));
        assert_eq!(pod_role(&format!("kubepods/besteffort/pod{UID}")), (UID.to_owned(), QosClass::BestEffort));
        assert_eq!(pod_role(&format!("kubepods/pod{UID}")), (UID.to_owned(), QosClass::Guaranteed));
        let hash = "00112233445566778899aabbccddeeff";
        assert_eq!(pod_role(&format!("kubepods/pod{hash}")).0, hash);
        assert!(PodUid(hash.to_owned()).is_static() && !PodUid(UID.to_owned()).is_static());
    }

    /// The tree of KEP-5894 (kubernetes/enhancements, `keps/sig-node/5894-node-system-partition`), as both drivers write it.
    #[test]
    fn pods_of_the_system_partition_keep_uid_and_class() {
        let uid = UID.replace('-', "_");
        let slices = "kubepods.slice/kubepods-system.slice";
        for (path, qos) in [
            (format!("{slices}/kubepods-system-pod{uid}.slice"), QosClass::Guaranteed),
            (
                format!("{slices}/kubepods-system-burstable.slice/kubepods-system-burstable-pod{uid}.slice"),
                QosClass::Burstable,
            ),
            (
                format!("{slices}/kubepods-system-besteffort.slice/kubepods-system-besteffort-pod{uid}.slice"),
                QosClass::BestEffort,
            ),
            (
                format!("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-system-pod{uid}.slice"),
                QosClass::Guaranteed,
            ),
            (format!("kubepods/system/pod{UID}"), QosClass::Guaranteed),
            (format!("kubepods/system/burstable/pod{UID}"), QosClass::Burstable),
            (format!("kubelet/kubepods/system/besteffort/pod{UID}"), QosClass::BestEffort),
        ] {
            assert_eq!(pod_role(&path), (UID.to_owned(), qos), "{path}");
            let inner = format!("{path}/cri-containerd-{ID}.scope");
            assert_eq!((workload(&inner), container(&inner).as_deref()), (&*path, Some(ID)), "{path}");
        }
        for path in [
            "kubepods/system",
            "kubepods/system/burstable",
            "kubelet/kubepods/system/besteffort",
            "kubepods.slice/kubepods-system.slice",
        ] {
            assert_eq!(role(path), Role::Group, "{path}");
        }
        // Names that only resemble the partition's make no pod.
        for path in [
            format!("system/burstable/pod{UID}"),
            format!("kubepods/system/system/pod{UID}"),
            format!("kubepods/mysystem/burstable/pod{UID}"),
            format!("notkubepods/system/pod{UID}"),
        ] {
            assert!(!matches!(role(&path), Role::Pod(..)), "{path}");
        }
    }

    #[test]
    fn groups_above_the_pods_are_not_pods() {
        for path in [
            "kubepods.slice",
            "kubepods.slice/kubepods-burstable.slice",
            "kubepods",
            "kubepods/besteffort",
            "system.slice",
        ] {
            assert_eq!(role(path), Role::Group, "{path}");
        }
        assert_eq!(role("home/podcast"), Role::Plain);
        assert_eq!(role("burstable"), Role::Plain);
    }

    #[test]
    fn containers_of_every_runtime_are_found() {
        for name in ["cri-containerd-@.scope", "docker-@.scope", "crio-@.scope", "libpod-@.scope", "@"] {
            let path = format!("machine.slice/{}", name.replace('@', ID));
            assert_eq!(role(&path), Role::Container(ID.to_owned()), "{path}");
        }
        assert_eq!(role(&format!("kubepods.slice/crio-conmon-{ID}.scope")), Role::Scope);
    }

    #[test]
    fn the_payload_of_a_split_service_is_a_container_but_no_workload() {
        for (path, expected) in [
            (format!("system.slice/a.service/libpod-payload-{ID}"), true),
            (format!("system.slice/a.service/libpod-payload-{ID}/init.scope"), true),
            (format!("system.slice/docker-{ID}.scope"), true),
            ("system.slice/a.service/runtime".to_owned(), false),
            ("system.slice/a.service/libpod-payload-1".to_owned(), false),
        ] {
            assert_eq!(is_of_container(&path), expected, "{path}");
        }
        let payload = format!("system.slice/a.service/libpod-payload-{ID}");
        assert_eq!((workload(&payload), role(&payload)), ("system.slice/a.service", Role::Plain));
    }

    #[test]
    fn workload_and_container_follow_from_the_path() {
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b_2.slice";
        for (path, owner, container_id) in [
            (format!("{pod}/cri-containerd-{ID}.scope"), pod, Some(ID)),
            (format!("{pod}/cri-containerd-{ID}.scope/init/x.service"), pod, Some(ID)),
            (pod.to_owned(), pod, None),
            ("system.slice/a.service/payload/x".to_owned(), "system.slice/a.service", None),
            (
                "user.slice/user@1.service/app.slice/b.service".to_owned(),
                "user.slice/user@1.service/app.slice/b.service",
                None,
            ),
            (format!("system.slice/docker-{ID}.scope/x"), &*format!("system.slice/docker-{ID}.scope"), Some(ID)),
            ("lxc/web/inner".to_owned(), "lxc/web/inner", None),
            ("kubepods.slice".to_owned(), "kubepods.slice", None),
        ] {
            assert_eq!(workload(&path), owner, "{path}");
            assert_eq!(container(&path).as_deref(), container_id, "{path}");
        }
    }

    #[test]
    fn services_and_scopes_are_found_by_suffix() {
        assert_eq!(role("system.slice/nginx.service"), Role::Service);
        assert_eq!(role("user.slice/user-1000.slice/session-3.scope"), Role::Scope);
        assert_eq!(role("lxc/web"), Role::Plain);
    }
}
