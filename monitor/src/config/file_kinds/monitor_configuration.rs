//! The agent's own kind of file, `MonitorConfiguration`. Unknown fields are errors.

use std::time::Duration;

use super::reservations::{PodsThreshold, check_header, enforced_field, reserved_map};
use super::threshold_fields::{Rules, Style, ThresholdFields};
use crate::config::candidate_options::{self, CandidateOptions};
use crate::config::disk_options::{DiskUsageOptions, FilesystemPaths, IncidentOptions};
use crate::config::document_walk::{Field, Fields, Shape, Walk};
use crate::config::kubelet_version::KubeletVersion;
use crate::config::kubernetes_options::KubernetesOptions;
use crate::config::notification_options::NotificationOptions;
use crate::config::patterns::{NamePattern, built_in_patterns, read_patterns};
use crate::config::policy::{KernelOptions, Mode, MonitorConfig, OomScores, Policy, Ranking, RankingKey, Sampling};
use crate::config::pools;
use crate::config::pressure_conditions::read_pressure_conditions;
use crate::config::quirks::{Quirk, Quirks, Semantics};
use crate::config::runtime_options::RuntimeOptions;
use crate::config::serving_options::ServingOptions;
use crate::config::yaml::Value;
use crate::units::Bytes;

/// With a shorter floor, the agent would take a CPU for itself near a threshold.
const SHORTEST_FLOOR: Duration = Duration::from_micros(100);
/// The ring buffer is kernel memory that stays allocated while the agent runs.
const MAX_RING_BUFFER: Bytes = Bytes(64 * Bytes::MIB);

pub const API_VERSION: &str = "node-pressure-monitor/v1alpha1";
pub const KIND: &str = "MonitorConfiguration";

pub const FIELDS: &str = "\
    apiVersion kind mode semantics kubeletVersion quirks ranking oomScoreAdj evictionHard mergeDefaultEvictionSettings \
    evictionSoft evictionSoftGracePeriod evictionMinimumReclaim evictionMaxPodGracePeriod \
    evictionPressureTransitionPeriod localStorageCapacityIsolation systemReserved kubeReserved \
    enforceNodeAllocatable sampling evictions pressureConditions protected kernel pods diskUsage incidents \
    notifications filesystems runtime kubernetes metrics lockFile cgroupRoot procRoot pools";

/// Reads the file. Errors are recorded in `walk`.
pub fn read(walk: &mut Walk<'_>, document: &Field<'_>) -> MonitorConfig {
    let mut config = MonitorConfig::default();
    let fields = walk.fields(document, FIELDS);
    check_header(walk, &fields, document.node, API_VERSION, KIND);
    walk.set(&mut config.mode, fields.get("mode"), |walk, field| walk.choice(field, &Mode::CHOICES));
    read_policy(walk, &fields, &mut config.policy);
    config.has_default_hard = fields.get("evictionHard").is_none();
    read_sampling(walk, &fields, &mut config.sampling);
    read_evictions(walk, &fields, &mut config);
    read_kernel(walk, &fields, &mut config.kernel);
    walk.set(&mut config.protected, fields.get("protected"), read_protected);
    config.pods = fields.get("pods").and_then(|field| walk.path(&field, "/run/node-pressure-monitor/pods.json"));
    for (name, target, example) in [
        ("lockFile", &mut config.lock_file, "/run/node-pressure-monitor/lock"),
        ("cgroupRoot", &mut config.cgroup_root, "/sys/fs/cgroup"),
        ("procRoot", &mut config.proc_root, "/proc"),
    ] {
        walk.set(target, fields.get(name), |walk, field| walk.path(field, example));
    }
    config.serving = ServingOptions::read(walk, &fields, &mut config.listen, &mut config.workload_memory);
    let config = MonitorConfig {
        pressure_conditions: read_pressure_conditions(walk, &fields),
        disk_usage: DiskUsageOptions::read(walk, &fields),
        incidents: IncidentOptions::read(walk, &fields),
        notifications: NotificationOptions::read(walk, &fields),
        filesystems: FilesystemPaths::read(walk, &fields),
        runtime: RuntimeOptions::read(walk, &fields),
        kubernetes: KubernetesOptions::read(walk, &fields),
        ..config
    };
    // Last: a mistake in a field that pools share is named once, at the field.
    MonitorConfig { pools: pools::read(walk, document, &fields, read), ..config }
}

fn read_policy(walk: &mut Walk<'_>, fields: &Fields<'_>, policy: &mut Policy) {
    walk.set(&mut policy.semantics, fields.get("semantics"), |walk, field| walk.choice(field, &Semantics::CHOICES));
    policy.quirks = Quirks::of(policy.semantics);
    if let Some(field) = fields.get("quirks") {
        read_quirks(walk, &field, policy);
    }
    policy.kubelet.version =
        fields.get("kubeletVersion").and_then(|field| read_version(walk, &field, policy.semantics));
    policy.follow_kubelet(None);
    walk.set(&mut policy.ranking, fields.get("ranking"), read_ranking);
    walk.set(&mut policy.oom_scores, fields.get("oomScoreAdj"), |walk, field| {
        walk.choice(field, &[("kubernetes", OomScores::KUBERNETES), ("openshift3", OomScores::OPENSHIFT3)])
    });
    walk.set(&mut policy.max_pod_grace_period, fields.get("evictionMaxPodGracePeriod"), |walk, field| {
        walk.whole_number(field, i32::MIN..=i32::MAX, "30, in seconds").map(i64::from)
    });
    walk.set(&mut policy.pressure_transition_period, fields.get("evictionPressureTransitionPeriod"), |walk, field| {
        walk.duration(field, "5m")
    });
    walk.set(&mut policy.local_storage_isolation, fields.get("localStorageCapacityIsolation"), Walk::boolean);
    policy.reservations.system = reserved_map(walk, fields, "systemReserved");
    policy.reservations.kube = reserved_map(walk, fields, "kubeReserved");
    let mut merge_defaults = false;
    walk.set(&mut merge_defaults, fields.get("mergeDefaultEvictionSettings"), Walk::boolean);
    let default = Policy::default_hard_threshold();
    let by_default = match policy.semantics {
        Semantics::Corrected => PodsThreshold::ByDefault,
        Semantics::Kubelet => PodsThreshold::Off,
    };
    let rules = Rules {
        quirks: policy.quirks,
        defaults: vec![(default.signal, default.value)],
        merge_defaults,
        pods: enforced_field(walk, fields, by_default),
        style: Style::Maps,
    };
    ThresholdFields::from_maps(walk, fields).assemble(walk, &rules, policy);
}

fn read_version(walk: &mut Walk<'_>, field: &Field<'_>, semantics: Semantics) -> Option<KubeletVersion> {
    const FIX: &str = "write the minor release of the kubelet, e.g. \"1.37\"";
    walk.describe(field, || Shape::Pattern(r"^v?1\.[0-9]+([.+-].*)?$"));
    let version = KubeletVersion::parse(walk.text(field, FIX)?);
    if version.is_none() {
        walk.error(field, "not a version of Kubernetes", FIX);
    } else if semantics == Semantics::Corrected {
        walk.warning(field, "has no effect: corrected semantics follow no kubelet", "leave it out");
    }
    version
}

fn read_quirks(walk: &mut Walk<'_>, field: &Field<'_>, policy: &mut Policy) {
    let switches = walk.fields_or(field, &Quirk::ALL.map(Quirk::as_str), |_| "unknown quirk".to_owned());
    for quirk in Quirk::ALL {
        if let Some(on) = switches.get(quirk.as_str()).and_then(|field| walk.boolean(&field)) {
            policy.quirks.set(quirk, on);
            policy.kubelet.switched.set(quirk, true);
        }
    }
}

/// Reads the name of a preset, or a list of keys.
fn read_ranking(walk: &mut Walk<'_>, field: &Field<'_>) -> Option<Ranking> {
    const FIX: &str = "write qos or kubernetes or openshift3 or openshift3.9, or a list of keys";
    if !matches!(field.node.value, Value::Sequence(_)) {
        return walk.choice(field, &Ranking::PRESETS);
    }
    let items = walk.list(field, "keys", FIX);
    if items.is_empty() {
        walk.error(field, "an empty list ranks no workload", FIX);
        return None;
    }
    let mut keys = Vec::new();
    for item in &items {
        match walk.choice(item, &RankingKey::CHOICES) {
            Some(key) if keys.contains(&key) => {
                walk.error(item, "given twice: the second has no effect", "remove one of them");
            }
            key => keys.extend(key),
        }
    }
    Some(Ranking::Custom(keys))
}

fn read_sampling(walk: &mut Walk<'_>, fields: &Fields<'_>, sampling: &mut Sampling) {
    let Some(section) = fields.get("sampling") else { return };
    let inner = walk.fields(&section, "floor ceiling fastestRate");
    walk.set(&mut sampling.floor, inner.get("floor"), |walk, field| walk.positive_duration(field, "1ms"));
    walk.set(&mut sampling.ceiling, inner.get("ceiling"), |walk, field| walk.positive_duration(field, "10s"));
    walk.set(&mut sampling.fastest_rate, inner.get("fastestRate"), |walk, field| walk.bytes(field, "6Gi").map(Some));
    if sampling.floor < SHORTEST_FLOOR {
        let fix = "write at least 100us: with a shorter floor the agent would do nothing but sample";
        walk.error(&section, "the floor is too short", fix);
    }
    if sampling.floor > sampling.ceiling {
        let fix = "lower sampling.floor or raise sampling.ceiling";
        walk.error(&section, "the floor is longer than the ceiling", fix);
    }
}

fn read_evictions(walk: &mut Walk<'_>, fields: &Fields<'_>, config: &mut MonitorConfig) {
    let known = format!(
        "coolDown maxPerMinute killTimeout minimumGain reclaimDeadline actOnPresentPressure waitForSwap {}",
        candidate_options::FIELDS
    );
    let inner = walk.section(fields, "evictions", &known);
    config.candidates = CandidateOptions::read(walk, &inner);
    let limits = &mut config.evictions;
    walk.set(&mut limits.cool_down, inner.get("coolDown"), |walk, field| walk.duration(field, "100ms"));
    walk.set(&mut limits.max_per_minute, inner.get("maxPerMinute"), |walk, field| {
        walk.whole_number(field, 1..=u32::MAX, "6; to evict nothing, use `mode: observe`")
    });
    walk.set(&mut limits.kill_timeout, inner.get("killTimeout"), |walk, field| walk.positive_duration(field, "3s"));
    walk.set(&mut limits.minimum_gain, inner.get("minimumGain"), |walk, field| walk.duration(field, "10s"));
    walk.set(&mut limits.reclaim_deadline, inner.get("reclaimDeadline"), |walk, field| walk.duration(field, "200ms"));
    walk.set(&mut limits.act_on_present_pressure, inner.get("actOnPresentPressure"), Walk::boolean);
    walk.set(&mut limits.wait_for_swap, inner.get("waitForSwap"), Walk::boolean);
}

fn read_kernel(walk: &mut Walk<'_>, fields: &Fields<'_>, kernel: &mut KernelOptions) {
    let inner = walk.section(fields, "kernel", "ringBuffer stallThreshold doorbellInterval");
    walk.set(&mut kernel.ring_buffer, inner.get("ringBuffer"), |walk, field| {
        let size = walk.bytes(field, "256Ki")?;
        if size > MAX_RING_BUFFER {
            walk.error(field, "more than 64Mi of kernel memory while the agent runs", "write e.g. 256Ki");
        }
        Some(size)
    });
    walk.set(&mut kernel.stall_threshold, inner.get("stallThreshold"), |walk, field| walk.duration(field, "10ms"));
    walk.set(&mut kernel.doorbell_interval, inner.get("doorbellInterval"), |walk, field| walk.duration(field, "10ms"));
}

/// Returns the built-in patterns, then the given ones.
fn read_protected(walk: &mut Walk<'_>, field: &Field<'_>) -> Option<Vec<NamePattern>> {
    let own = read_patterns(walk, field);
    for pattern in own.iter().filter(|pattern| pattern.matches_everything()) {
        let reason = format!("{pattern} matches every workload: nothing is left that could be evicted");
        walk.warning(field, reason, "name the workloads that must stay, or set mode: observe");
    }
    Some(built_in_patterns().into_iter().chain(own).collect())
}
