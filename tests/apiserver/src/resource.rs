//! The table of served resources. One handler serves all of them.

/// A resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The plural name in paths.
    pub plural: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// Whether its objects belong to namespaces.
    pub namespaced: bool,
    /// Whether the status is a subresource, which writes of the object itself do not change.
    pub status: bool,
    /// Whether a change of the specification increments `metadata.generation`.
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

    /// Returns the name in messages: the plural, with the group if it has one.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the field `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// All served resources. Plurals are unique, because the store uses them as keys.
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

/// Returns the resource with this group, version and plural.
#[must_use]
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
}

/// Returns the resource of a plural that is known to be served.
pub(crate) fn named(plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural)
}
