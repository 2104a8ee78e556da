//! The permissions that the agent and the sweeper need: exactly those that the roles in config/kubernetes grant.
//!
//! `cargo xtask manifests --check` compares the roles with this table, and the contract tests compare every request that the test API server
//! received with the roles: a missing permission fails there, not in a cluster.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// `run`, on every node.
    Agent,
    /// `sweep`, which removes what dead agents have left.
    Sweeper,
    /// `sweep --remove --after-agents`, which is the last step of uninstalling.
    Removal,
}

impl Component {
    pub const ALL: [Self; 3] = [Self::Agent, Self::Sweeper, Self::Removal];

    /// Returns the name of the service account in config/kubernetes.
    pub const fn service_account(self) -> &'static str {
        match self {
            Self::Agent => "node-pressure-monitor",
            Self::Sweeper => "node-pressure-monitor-sweeper",
            Self::Removal => "node-pressure-monitor-removal",
        }
    }
}

/// The configurations that need a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    /// With `mode: enforce`, at the top or in a pool.
    Enforcing,
    /// With `metrics.bearerToken.review`.
    TokenReview,
}

/// Where a permission is granted: by a role, or by a cluster role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    /// The namespace of the agents.
    Namespace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    pub component: Component,
    pub verb: &'static str,
    /// Empty for the core group.
    pub group: &'static str,
    /// With the subresource behind a slash.
    pub resource: &'static str,
    pub purpose: &'static str,
    pub when: When,
    pub scope: Scope,
}

const fn agent(verb: &'static str, resource: &'static str, purpose: &'static str) -> Permission {
    of(Component::Agent, verb, resource, purpose)
}

const fn enforcing(verb: &'static str, resource: &'static str, purpose: &'static str) -> Permission {
    Permission { when: When::Enforcing, ..agent(verb, resource, purpose) }
}

const fn sweeper(verb: &'static str, resource: &'static str, purpose: &'static str) -> Permission {
    of(Component::Sweeper, verb, resource, purpose)
}

const fn removal(verb: &'static str, resource: &'static str, purpose: &'static str) -> Permission {
    of(Component::Removal, verb, resource, purpose)
}

const fn review(group: &'static str, resource: &'static str, purpose: &'static str) -> Permission {
    Permission { group, when: When::TokenReview, ..of(Component::Agent, "create", resource, purpose) }
}

const fn leases(component: Component, verb: &'static str, purpose: &'static str) -> Permission {
    Permission { group: "coordination.k8s.io", scope: Scope::Namespace, ..of(component, verb, "leases", purpose) }
}

const fn of(component: Component, verb: &'static str, resource: &'static str, purpose: &'static str) -> Permission {
    Permission { component, verb, group: "", resource, purpose, when: When::Always, scope: Scope::Cluster }
}

pub const PERMISSIONS: &[Permission] = &[
    agent("list", "pods", "the pods of this node, by the field selector spec.nodeName"),
    agent("watch", "pods", "changes of these pods"),
    enforcing("get", "pods", "what became of a victim, after a conflict and after its status was set"),
    enforcing("patch", "pods/status", "evictions by the method `fail`, and the condition DisruptionTarget"),
    enforcing("delete", "pods", "evictions by the method `delete`"),
    enforcing("create", "pods/eviction", "evictions by the method `evict`"),
    agent("list", "nodes", "this node, by the field selector metadata.name"),
    agent("watch", "nodes", "whether it is cordoned, drained or updated"),
    agent("get", "nodes", "this node, after another client has changed it, and when the agent stops"),
    enforcing("patch", "nodes", "taints"),
    agent("patch", "nodes/status", "conditions"),
    agent("create", "events", "evictions, OOM kills, conditions"),
    agent("patch", "events", "the count of an event that repeats"),
    leases(Component::Agent, "patch", "the heartbeat"),
    leases(Component::Agent, "create", "the first heartbeat"),
    leases(Component::Agent, "delete", "the Lease of an agent that stops"),
    review("authentication.k8s.io", "tokenreviews", "the user of a bearer token"),
    review("authorization.k8s.io", "subjectaccessreviews", "whether that user may read a path"),
    leases(Component::Sweeper, "list", "the heartbeats"),
    leases(Component::Sweeper, "get", "whether an agent is dead, before its node is swept"),
    sweeper("list", "nodes", "nodes without a Lease that have conditions or taints of ours"),
    sweeper("get", "nodes", "nodes whose agent is dead"),
    sweeper("patch", "nodes", "taints of dead agents are removed"),
    sweeper("patch", "nodes/status", "conditions of dead agents become Unknown"),
    removal("get", "namespaces", "whether the agents' namespace is deleted"),
    Permission {
        scope: Scope::Cluster,
        ..leases(
            Component::Removal,
            "list",
            "whether agents live; no role in their namespace can grant it, which may be gone",
        )
    },
    removal("list", "nodes", "nodes that have conditions or taints of ours"),
    removal("get", "nodes", "a node that another client has changed"),
    removal("patch", "nodes", "taints are removed"),
    removal("patch", "nodes/status", "conditions are removed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_permission_is_listed_once_and_has_a_purpose() {
        for (index, permission) in PERMISSIONS.iter().enumerate() {
            let key = |it: &Permission| (it.component, it.verb, it.group, it.resource);
            assert!(!permission.purpose.is_empty(), "{permission:?}");
            assert!(PERMISSIONS[..index].iter().all(|other| key(other) != key(permission)), "twice: {permission:?}");
        }
    }
}
