//! `kubernetes` of our own kind of file.

use std::time::Duration;

use crate::config::document_walk::{Fields, Walk};
use crate::config::kubernetes_options::{
    ApiUse, Authority, EvictionMethod, KubernetesOptions, PodProtection, TaintEffect, TaintOptions,
};
use crate::config::yaml::Node;

use super::monitor_configuration::set;

const FIELDS: [&str; 10] = [
    "api",
    "kubeconfig",
    "nodeName",
    "evictions",
    "protect",
    "conditions",
    "heartbeat",
    "taints",
    "events",
    "maintenance",
];
const PROTECT: [&str; 7] =
    ["daemonSets", "annotations", "namespaces", "priorityAtLeast", "localStorage", "persistentVolumes", "unowned"];
const METHODS: [(&str, EvictionMethod); 3] =
    [("delete", EvictionMethod::Delete), ("evict", EvictionMethod::Evict), ("off", EvictionMethod::Off)];
/// More often, five thousand nodes are a burden to the API server.
const SHORTEST_HEARTBEAT: Duration = Duration::from_secs(10);

/// Reads the map. What is wrong with it is noted in `walk`.
pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> KubernetesOptions {
    let mut options = KubernetesOptions::default();
    let Some((path, node)) = fields.get("kubernetes") else { return options };
    let inner = walk.fields(&path, node, &FIELDS);
    read_api(walk, &inner, &mut options);
    if let Some((path, node)) = inner.get("evictions") {
        let inner = walk.fields(&path, node, &["hard", "soft"]);
        for (name, target) in [("hard", &mut options.evictions.hard), ("soft", &mut options.evictions.soft)] {
            if let Some((field, node)) = inner.get(name) {
                set(target, walk.choice(&field, node, &METHODS));
            }
        }
    }
    if let Some((path, node)) = inner.get("protect") {
        read_protection(walk, &path, node, &mut options.protect);
    }
    if let Some((field, node)) = inner.get("conditions") {
        let choices = [("own", Authority::Own), ("standard", Authority::Standard), ("off", Authority::Off)];
        set(&mut options.conditions, walk.choice(&field, node, &choices));
    }
    if let Some((field, node)) = inner.get("heartbeat") {
        let heartbeat = walk.positive_duration(&field, node, "1m");
        if heartbeat.is_some_and(|heartbeat| heartbeat < SHORTEST_HEARTBEAT) {
            walk.error(&field, node, "too often for the API server of a large cluster", "write at least 10s");
        }
        set(&mut options.heartbeat, heartbeat);
    }
    if let Some((path, node)) = inner.get("taints") {
        read_taints(walk, &path, node, &mut options.taints);
    }
    if let Some((field, node)) = inner.get("events") {
        set(&mut options.events, walk.boolean(&field, node));
    }
    if let Some((path, node)) = inner.get("maintenance")
        && let Some((field, node)) = walk.fields(&path, node, &["deferSoftEvictions"]).get("deferSoftEvictions")
    {
        set(&mut options.defer_soft_in_maintenance, walk.boolean(&field, node));
    }
    options
}

fn read_api(walk: &mut Walk<'_>, inner: &Fields<'_>, options: &mut KubernetesOptions) {
    if let Some((field, node)) = inner.get("api") {
        set(&mut options.api, walk.choice(&field, node, &[("auto", ApiUse::Auto), ("off", ApiUse::Off)]));
    }
    if let Some((field, node)) = inner.get("kubeconfig") {
        options.kubeconfig = walk.path(&field, node, "/etc/node-pressure-monitor/kubeconfig");
    }
    if let Some((field, node)) = inner.get("nodeName") {
        options.node_name =
            walk.text(&field, node, "write the name that `kubectl get nodes` prints").map(str::to_owned);
    }
}

fn read_protection(walk: &mut Walk<'_>, path: &str, node: &Node, protect: &mut PodProtection) {
    let inner = walk.fields(path, node, &PROTECT);
    for (name, target) in [
        ("daemonSets", &mut protect.daemon_sets),
        ("localStorage", &mut protect.local_storage),
        ("persistentVolumes", &mut protect.persistent_volumes),
        ("unowned", &mut protect.unowned),
    ] {
        if let Some((field, node)) = inner.get(name) {
            set(target, walk.boolean(&field, node));
        }
    }
    for (name, target, example) in [
        ("annotations", &mut protect.annotations, "[\"example.com/keep=true\"]"),
        ("namespaces", &mut protect.namespaces, "[\"kube-system\"]"),
    ] {
        if let Some((path, node)) = inner.get(name) {
            *target = texts(walk, &path, node, example);
        }
    }
    if let Some((field, node)) = inner.get("priorityAtLeast") {
        let lowest = walk.whole_number(&field, node, i32::MIN.into()..=i32::MAX.into(), "1000000");
        protect.priority_at_least = lowest.and_then(|lowest| i32::try_from(lowest).ok());
    }
}

fn texts(walk: &mut Walk<'_>, path: &str, node: &Node, example: &str) -> Vec<String> {
    let fix = format!("write e.g. {example}");
    let items = walk.list(path, node, "texts", &fix);
    let read = |(index, item)| walk.text(&format!("{path}[{index}]"), item, &fix).map(str::to_owned);
    items.iter().enumerate().filter_map(read).collect()
}

fn read_taints(walk: &mut Walk<'_>, path: &str, node: &Node, taints: &mut TaintOptions) {
    let inner = walk.fields(path, node, &["effect", "noExecute"]);
    if let Some((field, node)) = inner.get("effect") {
        let choices = [
            ("NoSchedule", Some(TaintEffect::NoSchedule)),
            ("PreferNoSchedule", Some(TaintEffect::PreferNoSchedule)),
            ("off", None),
        ];
        set(&mut taints.effect, walk.choice(&field, node, &choices));
    }
    if let Some((path, node)) = inner.get("noExecute")
        && let Some((field, node)) = walk.fields(&path, node, &["after"]).get("after")
    {
        let is_off = walk.text(&field, node, "write off, or e.g. 5m") == Some("off");
        taints.no_execute_after = if is_off { None } else { walk.duration(&field, node, "5m") };
    }
}
