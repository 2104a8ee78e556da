//! How the agent lives with a Kubernetes control plane.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Whether there is an API server to speak to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApiUse {
    /// Where a kubeconfig is given, or a pod's service account is there.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// How a pod is taken off the node at the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionMethod {
    /// It is deleted, whatever disruption budgets say.
    Delete,
    /// The Eviction API is asked, which refuses what would violate a disruption budget.
    Evict,
    /// Nothing is said to the API server: the kubelet starts the pod's containers again.
    Off,
}

/// Under which names conditions and taints are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authority {
    /// Under names of our own, beside the kubelet's.
    #[default]
    Own,
    /// Under the standard ones: no kubelet writes them.
    Standard,
    /// Not at all.
    Off,
}

/// What a taint keeps away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaintEffect {
    /// New pods.
    NoSchedule,
    /// New pods, where there is another node for them.
    PreferNoSchedule,
}

/// Methods of evicting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionMethods {
    /// For hard thresholds and limits of local storage: the pod is killed at once, and this follows.
    pub hard: EvictionMethod,
    /// For soft thresholds: this comes first.
    pub soft: EvictionMethod,
}

/// Which pods are never evicted, besides static, mirror and critical ones. The model is the descheduler's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodProtection {
    /// Pods of a DaemonSet: it makes them anew on the same node.
    pub daemon_sets: bool,
    /// Pods with one of these annotations: `key`, or `key=value`.
    pub annotations: Vec<String>,
    /// Pods of these namespaces.
    pub namespaces: Vec<String>,
    /// Pods with at least this priority.
    pub priority_at_least: Option<i32>,
    /// Pods with emptyDir or hostPath volumes, whose content would be lost.
    pub local_storage: bool,
    /// Pods with a persistent volume claim.
    pub persistent_volumes: bool,
    /// Pods that no controller would make anew.
    pub unowned: bool,
}

impl Default for PodProtection {
    fn default() -> Self {
        Self {
            daemon_sets: true,
            annotations: Vec::new(),
            namespaces: Vec::new(),
            priority_at_least: None,
            local_storage: false,
            persistent_volumes: false,
            unowned: false,
        }
    }
}

/// Which taints the node gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaintOptions {
    /// While a condition holds; none: no taint.
    pub effect: Option<TaintEffect>,
    /// A `NoExecute` taint follows when the condition has held for so long; none: never.
    pub no_execute_after: Option<Duration>,
}

/// The section `kubernetes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesOptions {
    /// Whether there is an API server.
    pub api: ApiUse,
    /// How to find it; without one, the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// This node; without it, the environment's `NODE_NAME`, then the host's name.
    pub node_name: Option<String>,
    /// How pods are evicted.
    pub evictions: EvictionMethods,
    /// Who is not.
    pub protect: PodProtection,
    /// Under which names the node's conditions and taints are reported.
    pub conditions: Authority,
    /// How often conditions are confirmed while nothing changes.
    pub heartbeat: Duration,
    /// Which taints follow from them.
    pub taints: TaintOptions,
    /// Whether events are sent.
    pub events: bool,
    /// Whether soft evictions wait while the node is in maintenance.
    pub defer_soft_in_maintenance: bool,
}

impl Default for KubernetesOptions {
    fn default() -> Self {
        Self {
            api: ApiUse::default(),
            kubeconfig: None,
            node_name: None,
            evictions: EvictionMethods { hard: EvictionMethod::Delete, soft: EvictionMethod::Evict },
            protect: PodProtection::default(),
            conditions: Authority::default(),
            heartbeat: Duration::from_secs(60),
            taints: TaintOptions { effect: Some(TaintEffect::NoSchedule), no_execute_after: None },
            events: true,
            defer_soft_in_maintenance: true,
        }
    }
}
