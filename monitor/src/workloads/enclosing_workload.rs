//! The kind of workload that a cgroup can be, by its name, its owner, and the workload that contains it.

use std::sync::Arc;

use super::candidacy::is_user_manager;
use super::cgroup_path::{QosClass, Role, role};
use super::managers::Managers;
use super::protection::Protection;
use super::workload::Kind;

/// The workload that contains a cgroup.
#[derive(Debug, Clone)]
pub(super) struct Enclosing {
    pub(super) name: Arc<str>,
    /// Whether every cgroup inside is part of the workload, whatever its name.
    pub(super) is_whole: bool,
    /// Whether the workload is the manager of a user's services. A cgroup without a name of its own inside is not part of it, because the
    /// manager is exempt.
    pub(super) is_manager: bool,
    /// Index into the walk's list of workloads; `None` when the workload contains no process.
    pub(super) index: Option<usize>,
}

impl Enclosing {
    /// A pod or a container is evicted with all cgroups inside. So is a service or scope of a user: the user could otherwise exempt it as
    /// a workload that contains others. The manager of a user's services is an exception.
    pub(super) fn of(kind: &Kind, name: Arc<str>, owner_uid: u32, managers: &Managers, index: Option<usize>) -> Self {
        let is_manager = *kind == Kind::Service && is_user_manager(managers.place(&name));
        let is_of_user = owner_uid != 0 && matches!(kind, Kind::Service | Kind::Scope) && !is_manager;
        let is_whole = is_of_user || matches!(kind, Kind::Pod(_) | Kind::Container(_));
        Self { name, is_whole, is_manager, index }
    }
}

/// Returns the kind of workload that a directory of this role can be; `None` for a group, or for a part of another workload.
pub(super) fn kind(role: Role, within: Option<&Enclosing>) -> Option<(Kind, Option<QosClass>)> {
    match (role, within) {
        // A directory without a name of its own inside another workload is also a part of it.
        (_, Some(Enclosing { is_whole: true, .. })) | (Role::Group, _) => None,
        (Role::Plain, Some(Enclosing { is_manager: true, .. }) | None) => Some((Kind::Cgroup, None)),
        (Role::Plain, Some(_)) => None,
        (Role::Pod(uid, qos), _) => Some((Kind::Pod(uid), Some(qos))),
        (Role::Service, _) => Some((Kind::Service, None)),
        (Role::Scope, _) => Some((Kind::Scope, None)),
        (Role::Container(container), _) => Some((Kind::Container(container), None)),
    }
}

/// Returns the protection of a static pod. The kubelet names static pods by a hash without dashes, and treats all of them as
/// critical.
pub(super) fn protection(kind: &Kind) -> Option<Protection> {
    matches!(kind, Kind::Pod(uid) if uid.is_static()).then_some(Protection::StaticPod)
}

/// Returns the role by name. The kubelet runs as root, so a user's cgroup with the name of a pod is not a pod.
pub(super) fn trusted_role(path: &str, owner_uid: u32) -> Role {
    match role(path) {
        Role::Pod(..) if owner_uid != 0 => Role::Plain,
        role => role,
    }
}
