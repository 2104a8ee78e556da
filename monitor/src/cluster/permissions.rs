//! What is asked of the API server, by whom and why: what the roles in config/kubernetes grant, no more and no less.
//!
//! `cargo xtask manifests --check` holds the roles against this table, and the contract tests hold every request that the test API server
//! saw against the roles: a call that is not granted fails there before it fails in somebody's cluster.

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The agent on every node: `run`.
    Agent,
    /// The one that tidies up after agents: `sweep`.
    Sweeper,
}

impl Who {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Agent, Self::Sweeper];

    /// The service account that it has in config/kubernetes.
    #[must_use]
    pub const fn service_account(self) -> &'static str {
        match self {
            Self::Agent => "node-pressure-monitor",
            Self::Sweeper => "node-pressure-monitor-sweeper",
        }
    }
}

/// In which configuration it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In every one, sooner or later.
    Always,
    /// With `metrics.bearerToken.review`.
    TokenReview,
}

/// One verb on one kind of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// Who asks.
    pub who: Who,
    /// As RBAC calls it.
    pub verb: &'static str,
    /// The API group; the core group has no name.
    pub group: &'static str,
    /// The resource, with its subresource behind a slash.
    pub resource: &'static str,
    /// What for.
    pub why: &'static str,
    /// In which configuration.
    pub when: When,
}

const fn agent(verb: &'static str, resource: &'static str, why: &'static str) -> Permission {
    Permission { who: Who::Agent, verb, group: "", resource, why, when: When::Always }
}

const fn sweeper(verb: &'static str, resource: &'static str, why: &'static str) -> Permission {
    Permission { who: Who::Sweeper, verb, group: "", resource, why, when: When::Always }
}

const fn review(group: &'static str, resource: &'static str, why: &'static str) -> Permission {
    Permission { who: Who::Agent, verb: "create", group, resource, why, when: When::TokenReview }
}

/// Everything.
pub const PERMISSIONS: &[Permission] = &[
    agent("list", "pods", "the pods of this node, by the field selector spec.nodeName"),
    agent("watch", "pods", "how they change"),
    agent("get", "pods", "whether a pod is still the one that was to go, where that is in doubt"),
    agent("patch", "pods/status", "the condition DisruptionTarget, before a pod goes"),
    agent("delete", "pods", "evictions by the method `delete`"),
    agent("create", "pods/eviction", "evictions by the method `evict`"),
    agent("list", "nodes", "this node, by the field selector metadata.name"),
    agent("watch", "nodes", "whether it is cordoned, drained or updated"),
    agent("get", "nodes", "which taints it has before one is set or taken away"),
    agent("patch", "nodes", "taints"),
    agent("patch", "nodes/status", "conditions"),
    agent("create", "events", "evictions, OOM kills, conditions"),
    agent("patch", "events", "an event that happens again is counted, not sent anew"),
    review("authentication.k8s.io", "tokenreviews", "whose a bearer token is"),
    review("authorization.k8s.io", "subjectaccessreviews", "whether that one may read a path"),
    sweeper("list", "nodes", "whose agent has died"),
    sweeper("get", "nodes", "which taints it has before one is taken away"),
    sweeper("patch", "nodes", "taints of dead agents are taken away"),
    sweeper("patch", "nodes/status", "conditions of dead agents become Unknown"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_named_once_and_has_a_reason() {
        for (index, permission) in PERMISSIONS.iter().enumerate() {
            let key = |it: &Permission| (it.who, it.verb, it.group, it.resource);
            assert!(!permission.why.is_empty(), "{permission:?}");
            assert!(PERMISSIONS[..index].iter().all(|other| key(other) != key(permission)), "twice: {permission:?}");
        }
    }
}
