//! Our own kind of file: `MonitorConfiguration`. A field that is not known is refused.

use std::time::Duration;

use super::reservations::{enforced_field, reserved_map};
use super::threshold_fields::{Lists, Rules, Style};
use crate::config::document_walk::{Fields, Walk};
use crate::config::filesystem_paths::FilesystemPaths;
use crate::config::patterns::NamePattern;
use crate::config::policy::{Mode, MonitorConfig, OomScores, Policy, Ranking, RankingKey, Semantics};
use crate::config::quirks::{Quirk, Quirks};
use crate::config::yaml::{Node, Value};
use crate::units::amount::Bytes;

/// Below, the agent would take a CPU for itself near a threshold.
const SHORTEST_FLOOR: Duration = Duration::from_micros(100);
/// Kernel memory that stays allocated as long as the agent runs.
const MAX_RING_BUFFER: Bytes = Bytes(64 * Bytes::MIB);

/// Below, a few large records would push each other out.
const SMALLEST_JOURNAL: Bytes = Bytes(4 * Bytes::MIB);

pub const API_VERSION: &str = "node-pressure-monitor/v1alpha1";
pub const KIND: &str = "MonitorConfiguration";

pub const FIELDS: [&str; 33] = [
    "apiVersion",
    "kind",
    "mode",
    "semantics",
    "quirks",
    "ranking",
    "oomScoreAdj",
    "evictionHard",
    "mergeDefaultEvictionSettings",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "evictionMaxPodGracePeriod",
    "evictionPressureTransitionPeriod",
    "localStorageCapacityIsolation",
    "systemReserved",
    "kubeReserved",
    "enforceNodeAllocatable",
    "sampling",
    "evictions",
    "pressureConditions",
    "protected",
    "kernel",
    "pods",
    "diskUsage",
    "incidents",
    "filesystems",
    "runtime",
    "kubernetes",
    "metrics",
    "lockFile",
    "cgroupRoot",
    "procRoot",
];

/// Reads the file. What is wrong with it is noted in `walk`.
pub fn read(walk: &mut Walk<'_>, document: &Node) -> MonitorConfig {
    let mut config = MonitorConfig::default();
    let fields = walk.fields("", document, &FIELDS);
    for (name, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match fields.get(name) {
            Some((field, node)) => {
                walk.choice(&field, node, &[(expected, ())]);
            }
            None => walk.error(name, document, "missing", &format!("add `{name}: {expected}`")),
        }
    }
    if let Some((field, node)) = fields.get("mode") {
        let choices = [Mode::Observe, Mode::Enforce].map(|mode| (mode.as_str(), mode));
        set(&mut config.mode, walk.choice(&field, node, &choices));
    }
    read_policy(walk, &fields, &mut config.policy);
    config.pressure_conditions = super::pressure::read(walk, &fields);
    config.disk_usage = super::disk_usage::read(walk, &fields);
    read_loop(walk, &fields, &mut config);
    read_host(walk, &fields, &mut config);
    config
}

pub(super) fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

fn read_policy(walk: &mut Walk<'_>, fields: &Fields<'_>, policy: &mut Policy) {
    if let Some((field, node)) = fields.get("semantics") {
        let choices = [Semantics::Corrected, Semantics::Kubelet].map(|it| (it.as_str(), it));
        set(&mut policy.semantics, walk.choice(&field, node, &choices));
        policy.quirks = Quirks::of(policy.semantics);
    }
    if let Some((field, node)) = fields.get("quirks") {
        read_quirks(walk, &field, node, &mut policy.quirks);
    }
    if let Some((field, node)) = fields.get("ranking") {
        set(&mut policy.ranking, read_ranking(walk, &field, node));
    }
    if let Some((field, node)) = fields.get("oomScoreAdj") {
        let choices = [("kubernetes", OomScores::KUBERNETES), ("openshift3", OomScores::OPENSHIFT3)];
        set(&mut policy.oom_scores, walk.choice(&field, node, &choices));
    }
    if let Some((field, node)) = fields.get("evictionMaxPodGracePeriod") {
        let seconds = walk.whole_number(&field, node, i32::MIN.into()..=i32::MAX.into(), "30, in seconds");
        set(&mut policy.max_pod_grace_period, seconds);
    }
    if let Some((field, node)) = fields.get("evictionPressureTransitionPeriod") {
        let period = walk.duration(&field, node, "5m");
        set(&mut policy.pressure_transition_period, period);
    }
    if let Some((field, node)) = fields.get("localStorageCapacityIsolation") {
        set(&mut policy.local_storage_isolation, walk.boolean(&field, node));
    }
    policy.reservations.system = reserved_map(walk, fields, "systemReserved");
    policy.reservations.kube = reserved_map(walk, fields, "kubeReserved");
    let mut merge_defaults = false;
    if let Some((field, node)) = fields.get("mergeDefaultEvictionSettings") {
        set(&mut merge_defaults, walk.boolean(&field, node));
    }
    let default = Policy::default_hard_threshold();
    let rules = Rules {
        quirks: policy.quirks,
        defaults: vec![(default.signal, default.value)],
        merge_defaults,
        pods_enforced: enforced_field(walk, fields, false),
        style: Style::Maps,
    };
    Lists::from_maps(walk, fields).assemble(walk, &rules, policy);
}

fn read_quirks(walk: &mut Walk<'_>, path: &str, node: &Node, quirks: &mut Quirks) {
    let switches = walk.fields_or(path, node, &Quirk::ALL.map(Quirk::as_str), |_| "unknown quirk".to_owned());
    for quirk in Quirk::ALL {
        if let Some((field, node)) = switches.get(quirk.as_str())
            && let Some(on) = walk.boolean(&field, node)
        {
            quirks.set(quirk, on);
        }
    }
}

/// The name of a preset, or a list of keys.
fn read_ranking(walk: &mut Walk<'_>, path: &str, node: &Node) -> Option<Ranking> {
    let Value::Sequence(items) = &node.value else {
        return walk.choice(path, node, &Ranking::PRESETS);
    };
    if items.is_empty() {
        walk.error(
            path,
            node,
            "an empty list ranks nobody",
            "write qos or kubernetes or openshift3, or a list of keys",
        );
        return None;
    }
    let choices = RankingKey::ALL.map(|key| (key.as_str(), key));
    let mut keys = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let field = format!("{path}[{index}]");
        match walk.choice(&field, item, &choices) {
            Some(key) if keys.contains(&key) => {
                walk.error(&field, item, "given twice: the first one has decided already", "remove one of them");
            }
            key => keys.extend(key),
        }
    }
    Some(Ranking::Custom(keys))
}

fn read_loop(walk: &mut Walk<'_>, fields: &Fields<'_>, config: &mut MonitorConfig) {
    if let Some((path, node)) = fields.get("sampling") {
        let inner = walk.fields(&path, node, &["floor", "ceiling", "fastestRate"]);
        let sampling = &mut config.sampling;
        if let Some((field, node)) = inner.get("floor") {
            set(&mut sampling.floor, walk.positive_duration(&field, node, "1ms"));
        }
        if let Some((field, node)) = inner.get("ceiling") {
            set(&mut sampling.ceiling, walk.positive_duration(&field, node, "10s"));
        }
        if let Some((field, node)) = inner.get("fastestRate") {
            set(&mut sampling.fastest_rate, walk.bytes(&field, node, "6Gi").map(Some));
        }
        if sampling.floor < SHORTEST_FLOOR {
            let fix = "write at least 100us: shorter, the agent would do nothing but look";
            walk.error(&path, node, "the floor is too short", fix);
        }
        if sampling.floor > sampling.ceiling {
            let fix = "lower sampling.floor or raise sampling.ceiling";
            walk.error(&path, node, "the floor is longer than the ceiling", fix);
        }
    }
    if let Some((path, node)) = fields.get("evictions") {
        let inner = walk.fields(&path, node, &["coolDown", "maxPerMinute", "killTimeout", "reclaimDeadline"]);
        let limits = &mut config.evictions;
        if let Some((field, node)) = inner.get("coolDown") {
            set(&mut limits.cool_down, walk.duration(&field, node, "100ms"));
        }
        if let Some((field, node)) = inner.get("maxPerMinute") {
            let example = "6; to evict nothing, use `mode: observe`";
            let number = walk.whole_number(&field, node, 1..=u32::MAX.into(), example);
            set(&mut limits.max_per_minute, number.and_then(|number| u32::try_from(number).ok()));
        }
        if let Some((field, node)) = inner.get("killTimeout") {
            set(&mut limits.kill_timeout, walk.positive_duration(&field, node, "3s"));
        }
        if let Some((field, node)) = inner.get("reclaimDeadline") {
            set(&mut limits.reclaim_deadline, walk.duration(&field, node, "200ms"));
        }
    }
    if let Some((path, node)) = fields.get("kernel") {
        let inner = walk.fields(&path, node, &["ringBuffer", "stallThreshold", "doorbellInterval"]);
        let kernel = &mut config.kernel;
        if let Some((field, node)) = inner.get("ringBuffer") {
            let size = walk.bytes(&field, node, "256Ki");
            if size.is_some_and(|size| size > MAX_RING_BUFFER) {
                let reason = "more than 64Mi of kernel memory held for good";
                walk.error(&field, node, reason, "write e.g. 256Ki");
            }
            set(&mut kernel.ring_buffer, size);
        }
        if let Some((field, node)) = inner.get("stallThreshold") {
            set(&mut kernel.stall_threshold, walk.duration(&field, node, "10ms"));
        }
        if let Some((field, node)) = inner.get("doorbellInterval") {
            set(&mut kernel.doorbell_interval, walk.duration(&field, node, "10ms"));
        }
    }
}

fn read_host(walk: &mut Walk<'_>, fields: &Fields<'_>, config: &mut MonitorConfig) {
    if let Some((path, node)) = fields.get("protected") {
        read_protected(walk, &path, node, config);
    }
    if let Some((field, node)) = fields.get("pods") {
        config.pods = walk.path(&field, node, "/run/node-pressure-monitor/pods.json");
    }
    if let Some((path, node)) = fields.get("incidents") {
        read_incidents(walk, &path, node, config);
    }
    if let Some((path, node)) = fields.get("filesystems") {
        read_filesystems(walk, &path, node, config);
    }
    config.runtime = super::runtime::read(walk, fields);
    config.kubernetes = super::kubernetes::read(walk, fields);
    config.serving = super::serving::read(walk, fields, &mut config.listen);
    for (name, target, example) in [
        ("lockFile", &mut config.lock_file, "/run/node-pressure-monitor.lock"),
        ("cgroupRoot", &mut config.cgroup_root, "/sys/fs/cgroup"),
        ("procRoot", &mut config.proc_root, "/proc"),
    ] {
        if let Some((field, node)) = fields.get(name) {
            set(target, walk.path(&field, node, example));
        }
    }
}

fn read_filesystems(walk: &mut Walk<'_>, path: &str, node: &Node, config: &mut MonitorConfig) {
    let inner = walk.fields(path, node, &["nodefs", "imagefs", "containerfs"]);
    let FilesystemPaths { node, image, container } = &mut config.filesystems;
    for (name, target, example) in [
        ("nodefs", node, "/var/lib/kubelet"),
        ("imagefs", image, "/var/lib/containerd"),
        ("containerfs", container, "/var/lib/containerd"),
    ] {
        if let Some((field, node)) = inner.get(name) {
            set(target, walk.path(&field, node, example).map(Some));
        }
    }
}

fn read_incidents(walk: &mut Walk<'_>, path: &str, node: &Node, config: &mut MonitorConfig) {
    let inner = walk.fields(path, node, &["directory", "maxSize"]);
    let incidents = &mut config.incidents;
    if let Some((field, node)) = inner.get("directory") {
        set(&mut incidents.directory, walk.path(&field, node, "/var/lib/node-pressure-monitor/incidents"));
    }
    if let Some((field, node)) = inner.get("maxSize") {
        let size = walk.bytes(&field, node, "32Mi");
        if size.is_some_and(|size| size < SMALLEST_JOURNAL) {
            walk.error(&field, node, "too small: a single incident may take half a MiB", "write at least 4Mi");
        }
        set(&mut incidents.max_size, size);
    }
}

fn read_protected(walk: &mut Walk<'_>, path: &str, node: &Node, config: &mut MonitorConfig) {
    const FIX: &str = "write e.g. \"postgresql@*.service\"";
    let items = walk.list(path, node, "patterns", "write e.g. [\"postgresql@*.service\"]");
    for (index, item) in items.iter().enumerate() {
        let field = format!("{path}[{index}]");
        let Some(text) = walk.text(&field, item, FIX) else {
            continue;
        };
        match NamePattern::new(text) {
            Ok(pattern) => config.protected.push(pattern),
            Err(error) => walk.error(&field, item, error.to_string(), FIX),
        }
    }
}
