//! How the agent works with a Kubernetes control plane: `kubernetes` of a `MonitorConfiguration`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::document_walk::{Fields, Shape, Walk};
use crate::units::named_enum;

/// A shorter heartbeat of five thousand nodes is a burden to the API server.
const SHORTEST_HEARTBEAT: Duration = Duration::from_secs(10);

named_enum! {
    /// Whether the agent uses the API server.
    #[derive(Default)]
    pub enum ApiUse {
        /// Where a kubeconfig is given, or a pod's service account is there.
        #[default]
        Auto = "auto",
        Off = "off",
    }
}

named_enum! {
    /// How the agent ends a pod at the API server.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum EvictionMethod {
        /// Sets the pod's status to Failed with the reason `Evicted`, as the kubelet's own evictions do. The object stays.
        Fail = "fail",
        /// Deletes the pod, whatever its disruption budgets say.
        Delete = "delete",
        /// Asks the Eviction API, which refuses what would violate a disruption budget.
        Evict = "evict",
        /// Does not report to the API server: the kubelet restarts the pod's containers.
        Off = "off",
    }
}

named_enum! {
    /// Under which names the agent reports conditions and taints.
    #[derive(Default)]
    pub enum Authority {
        /// Under names of its own, beside the kubelet's.
        #[default]
        Own = "own",
        /// Under the standard names, where no kubelet writes them.
        Standard = "standard",
        Off = "off",
    }
}

named_enum! {
    pub enum TaintEffect {
        NoSchedule = "NoSchedule",
        PreferNoSchedule = "PreferNoSchedule",
    }
}

impl TaintEffect {
    /// Returns the default under these names. Pods of DaemonSets tolerate the standard taints and no others.
    const fn of(authority: Authority) -> Self {
        match authority {
            Authority::Own | Authority::Off => Self::PreferNoSchedule,
            Authority::Standard => Self::NoSchedule,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionMethods {
    /// For hard thresholds and limits of local storage. The agent kills the pod at once and applies the method afterwards.
    pub hard: EvictionMethod,
    /// For soft thresholds. The agent applies the method first.
    pub soft: EvictionMethod,
}

/// Which pods are never evicted, besides static, mirror and critical pods. Modelled on the descheduler's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodProtection {
    /// Pods of a DaemonSet, which would create them again on the same node.
    pub daemon_sets: bool,
    /// Pods with one of these annotations: `key`, or `key=value`.
    pub annotations: Vec<String>,
    pub namespaces: Vec<String>,
    pub priority_at_least: Option<i32>,
    /// Pods with emptyDir or hostPath volumes, whose content would be lost.
    pub local_storage: bool,
    /// Pods with a persistent volume claim.
    pub persistent_volumes: bool,
    /// Pods that no controller would create again.
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

/// The effect of the taint while a condition is true, by condition; `None` sets no taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaintEffects {
    memory: Option<TaintEffect>,
    disk: Option<TaintEffect>,
    pid: Option<TaintEffect>,
}

impl TaintEffects {
    /// Returns the default under these names.
    const fn of_names(authority: Authority) -> Self {
        Self::all(Some(TaintEffect::of(authority)))
    }

    pub const fn all(effect: Option<TaintEffect>) -> Self {
        Self { memory: effect, disk: effect, pid: effect }
    }

    /// Returns the effect for the condition with this standard name.
    pub fn of(self, condition: &str) -> Option<TaintEffect> {
        match condition {
            "MemoryPressure" => self.memory,
            "DiskPressure" => self.disk,
            "PIDPressure" => self.pid,
            _ => None,
        }
    }

    /// Returns whether any condition sets a taint.
    pub const fn is_some(self) -> bool {
        self.memory.is_some() || self.disk.is_some() || self.pid.is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaintOptions {
    /// By default they depend on the names.
    pub effects: TaintEffects,
    /// After how long a condition also sets a `NoExecute` taint; `None` means never.
    pub no_execute_after: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesOptions {
    pub api: ApiUse,
    /// Without it the agent uses the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Without it the agent uses the environment's `NODE_NAME`, then the host's name.
    pub node_name: Option<String>,
    pub evictions: EvictionMethods,
    pub protect: PodProtection,
    pub conditions: Authority,
    /// How often unchanged conditions are confirmed.
    pub heartbeat: Duration,
    pub taints: TaintOptions,
    pub events: bool,
    /// Whether an OOM kill also gives an event on each pod that lost a process. A kubelet that writes such events itself makes them double.
    pub pod_oom_events: bool,
    /// Whether soft evictions wait while the node is in maintenance.
    pub defer_soft_in_maintenance: bool,
}

impl Default for KubernetesOptions {
    fn default() -> Self {
        Self {
            api: ApiUse::default(),
            kubeconfig: None,
            node_name: None,
            evictions: EvictionMethods { hard: EvictionMethod::Fail, soft: EvictionMethod::Evict },
            protect: PodProtection::default(),
            conditions: Authority::default(),
            heartbeat: Duration::from_secs(60),
            taints: TaintOptions { effects: TaintEffects::of_names(Authority::default()), no_execute_after: None },
            events: true,
            pod_oom_events: true,
            defer_soft_in_maintenance: true,
        }
    }
}

const FIELDS: &str =
    "api kubeconfig nodeName evictions protect conditions heartbeat taints events podOomEvents maintenance";
const PROTECT: &str = "daemonSets annotations namespaces priorityAtLeast localStorage persistentVolumes unowned";

impl KubernetesOptions {
    pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Self {
        let mut options = Self::default();
        let inner = walk.section(fields, "kubernetes", FIELDS);
        walk.set(&mut options.api, inner.get("api"), |walk, field| walk.choice(field, &ApiUse::CHOICES));
        options.kubeconfig =
            inner.get("kubeconfig").and_then(|field| walk.path(&field, "/etc/node-pressure-monitor/kubeconfig"));
        let node_name_fix = "write the name that `kubectl get nodes` prints";
        options.node_name = inner.get("nodeName").and_then(|field| walk.text(&field, node_name_fix)).map(str::to_owned);
        let evictions = walk.section(&inner, "evictions", "hard soft");
        for (name, target) in [("hard", &mut options.evictions.hard), ("soft", &mut options.evictions.soft)] {
            walk.set(target, evictions.get(name), |walk, field| walk.choice(field, &EvictionMethod::CHOICES));
        }
        options.protect.read(walk, &inner);
        walk.set(&mut options.conditions, inner.get("conditions"), |walk, field| {
            walk.choice(field, &Authority::CHOICES)
        });
        walk.set(&mut options.heartbeat, inner.get("heartbeat"), |walk, field| {
            let heartbeat = walk.positive_duration(field, "1m")?;
            if heartbeat < SHORTEST_HEARTBEAT {
                walk.error(field, "too often for the API server of a large cluster", "write at least 10s");
            }
            Some(heartbeat)
        });
        options.taints.effects = TaintEffects::of_names(options.conditions);
        options.taints.read(walk, &inner);
        walk.set(&mut options.events, inner.get("events"), Walk::boolean);
        walk.set(&mut options.pod_oom_events, inner.get("podOomEvents"), Walk::boolean);
        let maintenance = walk.section(&inner, "maintenance", "deferSoftEvictions");
        walk.set(&mut options.defer_soft_in_maintenance, maintenance.get("deferSoftEvictions"), Walk::boolean);
        options
    }
}

impl PodProtection {
    fn read(&mut self, walk: &mut Walk<'_>, fields: &Fields<'_>) {
        let inner = walk.section(fields, "protect", PROTECT);
        walk.set(&mut self.daemon_sets, inner.get("daemonSets"), Walk::boolean);
        walk.set(&mut self.local_storage, inner.get("localStorage"), Walk::boolean);
        walk.set(&mut self.persistent_volumes, inner.get("persistentVolumes"), Walk::boolean);
        walk.set(&mut self.unowned, inner.get("unowned"), Walk::boolean);
        let annotations_fix = "write e.g. [\"example.com/keep=true\"]";
        walk.set(&mut self.annotations, inner.get("annotations"), |walk, field| {
            Some(walk.texts(field, annotations_fix))
        });
        let namespaces_fix = "write e.g. [\"kube-system\"]";
        walk.set(&mut self.namespaces, inner.get("namespaces"), |walk, field| Some(walk.texts(field, namespaces_fix)));
        walk.set(&mut self.priority_at_least, inner.get("priorityAtLeast"), |walk, field| {
            walk.whole_number(field, i32::MIN..=i32::MAX, "1000000").map(Some)
        });
    }
}

impl TaintOptions {
    fn read(&mut self, walk: &mut Walk<'_>, fields: &Fields<'_>) {
        let inner = walk.section(fields, "taints", "effect effects noExecute");
        let [hard, soft] = TaintEffect::CHOICES.map(|(name, effect)| (name, Some(effect)));
        let choices = [hard, soft, ("off", None)];
        if let Some(effect) = inner.get("effect").and_then(|field| walk.choice(&field, &choices)) {
            self.effects = TaintEffects::all(effect);
        }
        let by_condition = walk.section(&inner, "effects", "MemoryPressure DiskPressure PIDPressure");
        let TaintEffects { memory, disk, pid } = &mut self.effects;
        for (name, effect) in [("MemoryPressure", memory), ("DiskPressure", disk), ("PIDPressure", pid)] {
            walk.set(effect, by_condition.get(name), |walk, field| walk.choice(field, &choices));
        }
        let no_execute = walk.section(&inner, "noExecute", "after");
        walk.set(&mut self.no_execute_after, no_execute.get("after"), |walk, field| {
            walk.describe(field, || Shape::Choice(vec!["off".to_owned()]));
            match walk.text(field, "write off, or e.g. 5m")? {
                "off" => Some(None),
                _ => walk.duration(field, "5m").map(Some),
            }
        });
    }
}
