//! What is served: one line for each resource, one handler for them all.

/// A resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    /// The kind in objects.
    pub kind: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether the status is a resource of its own, which nobody changes by the way.
    pub status: bool,
    /// Whether a change of the specification counts up `metadata.generation`.
    pub generation: bool,
}

const fn core(plural: &'static str, kind: &'static str, namespaced: bool) -> Resource {
    in_group("", "v1", plural, kind, namespaced)
}

const fn in_group(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
) -> Resource {
    Resource { group, version, plural, kind, namespaced, status: false, generation: false }
}

impl Resource {
    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    /// The name in messages: with the group, where it has one.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The member `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// All of them. No two share a plural: it is the key of the store.
pub static RESOURCES: &[Resource] = &[
    core("namespaces", "Namespace", false).with_status(),
    core("nodes", "Node", false).with_status(),
    core("pods", "Pod", true).with_status().with_generation(),
    core("events", "Event", true),
    core("serviceaccounts", "ServiceAccount", true),
    core("configmaps", "ConfigMap", true),
    core("secrets", "Secret", true),
    in_group("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true).with_status().with_generation(),
    in_group("apps", "v1", "daemonsets", "DaemonSet", true).with_status().with_generation(),
    in_group("apps", "v1", "deployments", "Deployment", true).with_status().with_generation(),
    in_group("apps", "v1", "replicasets", "ReplicaSet", true).with_status().with_generation(),
    in_group("coordination.k8s.io", "v1", "leases", "Lease", true),
    in_group("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false).with_generation(),
    in_group(RBAC, "v1", "clusterroles", "ClusterRole", false),
    in_group(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", false),
    in_group(RBAC, "v1", "roles", "Role", true),
    in_group(RBAC, "v1", "rolebindings", "RoleBinding", true),
];

/// The resource of that name.
#[must_use]
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
}

/// The resource of that plural, which is known to be served.
pub(crate) fn named(plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural)
}
