//! A `KubeletConfiguration`, read as the kubelet reads it. Fields that do not concern evictions are ignored.

use super::layers::{HardDefaults, Reading};
use super::monitor_configuration;
use super::reservations::{PodsThreshold, SWAP, SWAP_FIX, check_header, enforced_field, reserved_map};
use super::threshold_fields::{Rules, Style, ThresholdFields};
use crate::config::document_walk::{Field, Fields, Walk};
use crate::config::policy::{MonitorConfig, OomScores, Policy, Ranking, Reservations};
use crate::config::quirks::{Quirks, Semantics};
use crate::config::runtime_options::RuntimeOptions;
use crate::config::threshold::{Percentage, ThresholdValue};
use crate::config::yaml::Value;
use crate::units::{Bytes, Signal};

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

/// The fields that are maps from text to text, separated by blanks.
const MAPS: &str =
    "evictionHard evictionSoft evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved";

const FIELDS: &str = "\
    apiVersion kind evictionHard evictionSoft evictionSoftGracePeriod evictionMinimumReclaim \
    evictionPressureTransitionPeriod evictionMaxPodGracePeriod mergeDefaultEvictionSettings enforceNodeAllocatable \
    localStorageCapacityIsolation systemReserved kubeReserved failSwapOn memorySwap kernelMemcgNotification \
    containerRuntimeEndpoint imageMinimumGCAge imageMaximumGCAge";

/// Fields that the agent's own kind and the kubelet's have, with another meaning each.
const KUBELETS_TOO: [&str; 2] = ["cgroupRoot", "oomScoreAdj"];

/// All fields of Kubernetes 1.37 and those that earlier versions had (staging/src/k8s.io/kubelet/config/v1beta1/types.go).
const ALL: &str = "\
    enableServer staticPodPath podLogsDir syncFrequency fileCheckFrequency httpCheckFrequency staticPodURL staticPodURLHeader \
    address port readOnlyPort tlsCertFile tlsPrivateKeyFile tlsCipherSuites tlsCurvePreferences tlsMinVersion \
    rotateCertificates serverTLSBootstrap authentication authorization registryPullQPS registryBurst \
    imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist eventRecordQPS eventBurst \
    enableDebuggingHandlers enableContentionProfiling healthzPort healthzBindAddress oomScoreAdj clusterDomain clusterDNS \
    streamingConnectionIdleTimeout nodeStatusUpdateFrequency nodeStatusReportFrequency nodeLeaseDurationSeconds \
    imageGCHighThresholdPercent imageGCLowThresholdPercent volumeStatsAggPeriod kubeletCgroups systemCgroups cgroupRoot \
    cgroupsPerQOS cgroupDriver cpuManagerPolicy singleProcessOOMKill cpuManagerPolicyOptions cpuManagerReconcilePeriod \
    memoryManagerPolicy topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions qosReserved \
    runtimeRequestTimeout hairpinMode maxPods podCIDR podPidsLimit resolvConf runOnce cpuCFSQuota cpuCFSQuotaPeriod \
    nodeStatusMaxImages maxOpenFiles contentType kubeAPIQPS kubeAPIBurst serializeImagePulls maxParallelImagePulls \
    podsPerCore enableControllerAttachDetach protectKernelDefaults makeIPTablesUtilChains iptablesMasqueradeBit \
    iptablesDropBit featureGates containerLogMaxSize containerLogMaxFiles containerLogMaxWorkers \
    containerLogMonitorInterval configMapAndSecretChangeDetectionStrategy reservedSystemCPUs \
    showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup allowedUnsafeSysctls defaultPodSysctls \
    volumePluginDir providerID logging enableSystemLogHandler enableSystemLogQuery shutdownGracePeriod \
    shutdownGracePeriodCriticalPods shutdownGracePeriodByPodPriority crashLoopBackOff reservedMemory \
    enableProfilingHandler enableDebugFlagsHandler seccompDefault memoryThrottlingFactor memoryReservationPolicy \
    registerWithTaints registerNode tracing imageServiceEndpoint failCgroupV1 userNamespaces podHousekeepingPeriod \
    dynamicConfigDir experimentalAllocatableIgnoreEviction networkPluginName metadata status";

pub const NO_NOTIFICATION: &str = "has no effect on cgroup v2, where the kubelet still samples every ten seconds";

/// Reads the file. Errors are recorded in `walk`.
pub fn read(walk: &mut Walk<'_>, document: &Field<'_>) -> MonitorConfig {
    let fields = walk.known_fields(document, FIELDS);
    check_header(walk, &fields, document.node, API_VERSION, KIND);
    refuse_own_fields(walk, document);
    check_names(walk, document);
    read_fields(walk, &fields, Reading::default())
}

/// Checks one of several files: its header, and that its fields are the kubelet's. Their values are checked when all files are merged.
pub fn check_file(walk: &mut Walk<'_>, document: &Field<'_>) {
    if !matches!(document.node.value, Value::Mapping(_)) {
        walk.error(document, format!("must be a {KIND}, not {}", document.node.value.kind()), "write its fields");
        return;
    }
    let fields = walk.known_fields(document, FIELDS);
    check_header(walk, &fields, document.node, API_VERSION, KIND);
    refuse_own_fields(walk, document);
    check_names(walk, document);
}

/// Warns about names that no version of the kubelet has. The kubelet ignores them too, with a line in its log.
pub fn check_names(walk: &mut Walk<'_>, document: &Field<'_>) {
    let Value::Mapping(pairs) = &document.node.value else { return };
    for (key, _) in pairs {
        let Some(name) = key.text() else { continue };
        let is_known = || FIELDS.split(' ').chain(ALL.split(' ')).any(|known| known == name);
        if !is_known() && !walk.has_note_at(key) {
            let path = if document.path.is_empty() { name.to_owned() } else { format!("{}.{name}", document.path) };
            walk.warning_at(
                &path,
                key,
                None,
                "no field of a kubelet, which ignores it",
                "correct the name, or leave it out",
            );
        }
    }
}

/// Reads fields without a kind: the kubelet's answer to `/configz`, `spec.kubeletConfig` of OpenShift 4's resource, or several files merged.
pub fn read_without_kind(walk: &mut Walk<'_>, document: &Field<'_>, reading: Reading) -> MonitorConfig {
    let fields = walk.known_fields(document, FIELDS);
    read_fields(walk, &fields, reading)
}

/// Refuses the agent's own fields, which a kubelet does not have: without an error they would be ignored.
fn refuse_own_fields(walk: &mut Walk<'_>, document: &Field<'_>) {
    let Value::Mapping(pairs) = &document.node.value else { return };
    for (key, node) in pairs {
        let Value::Scalar { text: name, .. } = &key.value else { continue };
        let is_own = monitor_configuration::FIELDS.split(' ').any(|own| own == name);
        if is_own && !FIELDS.split(' ').chain(KUBELETS_TOO).any(|known| known == name) {
            let path = if document.path.is_empty() { name.clone() } else { format!("{}.{name}", document.path) };
            let reason =
                format!("a field of the agent's own kind, {}; a kubelet has none", monitor_configuration::KIND);
            let fix = match name.as_str() {
                "mode" => "leave it out and start the agent with --mode enforce, or write a MonitorConfiguration",
                _ => "write it into a MonitorConfiguration",
            };
            walk.error(&Field { path, node }, reason, fix);
        }
    }
}

fn read_fields(walk: &mut Walk<'_>, fields: &Fields<'_>, reading: Reading) -> MonitorConfig {
    let mut policy = kubelet_policy();
    walk.set(&mut policy.max_pod_grace_period, fields.get("evictionMaxPodGracePeriod"), |walk, field| {
        walk.whole_number(field, i32::MIN..=i32::MAX, "30, in seconds").map(i64::from)
    });
    walk.set(&mut policy.pressure_transition_period, fields.get("evictionPressureTransitionPeriod"), |walk, field| {
        // The kubelet takes zero for an absent field.
        walk.duration(field, "5m").filter(|period| !period.is_zero() || reading.has_zero_period)
    });
    walk.set(&mut policy.local_storage_isolation, fields.get("localStorageCapacityIsolation"), Walk::boolean);
    policy.reservations.system = reserved_map(walk, fields, "systemReserved");
    policy.reservations.kube = reserved_map(walk, fields, "kubeReserved");
    let mut merge_defaults = false;
    walk.set(&mut merge_defaults, fields.get("mergeDefaultEvictionSettings"), Walk::boolean);
    let rules = Rules {
        quirks: policy.quirks,
        defaults: if reading.defaults == HardDefaults::None { Vec::new() } else { default_thresholds() },
        merge_defaults: merge_defaults || reading.defaults == HardDefaults::Kept,
        pods: enforced_field(walk, fields, PodsThreshold::Written),
        style: Style::Maps,
    };
    ThresholdFields::from_maps(walk, fields).assemble(walk, &rules, &mut policy);
    advise_quotes(walk, fields);
    advise(walk, fields);
    MonitorConfig { policy, runtime: RuntimeOptions::read_kubelet(walk, fields), ..MonitorConfig::default() }
}

/// Returns the kubelet's rules without thresholds.
pub fn kubelet_policy() -> Policy {
    Policy {
        semantics: Semantics::Kubelet,
        quirks: Quirks::of(Semantics::Kubelet),
        ranking: Ranking::Kubernetes,
        oom_scores: OomScores::KUBERNETES,
        thresholds: Vec::new(),
        reservations: Reservations { hard_thresholds: true, ..Reservations::default() },
        ..Policy::default()
    }
}

/// Returns the default hard thresholds of a kubelet on Linux.
pub fn default_thresholds() -> Vec<(Signal, ThresholdValue)> {
    let percent = |percent| ThresholdValue::Percentage(Percentage::whole(percent));
    vec![
        (Signal::MemoryAvailable, ThresholdValue::bytes(Bytes::from_mib(100))),
        (Signal::NodeFsAvailable, percent(10)),
        (Signal::NodeFsInodesFree, percent(5)),
        (Signal::ImageFsAvailable, percent(15)),
        (Signal::ImageFsInodesFree, percent(5)),
    ]
}

/// Warns about numbers in maps from text to text: the kubelet refuses them without quotes. Texts that YAML 1.1 takes for other numbers and
/// booleans (`0x10`, `1_000`, `yes`) is no amount in any case.
fn advise_quotes(walk: &mut Walk<'_>, fields: &Fields<'_>) {
    for field in MAPS.split(' ').filter_map(|name| fields.get(name)) {
        let Value::Mapping(pairs) = &field.node.value else {
            continue;
        };
        for (key, node) in pairs {
            if let (Value::Scalar { text: name, .. }, Value::Scalar { text, quoted: false }) = (&key.value, &node.value)
                && is_number(text)
                && !walk.has_error_at(key)
                && !walk.has_error_at(node)
            {
                let field = Field { path: format!("{}.{name}", field.path), node };
                let reason = "a kubelet does not start with a number here";
                walk.warning(&field, reason, &format!("put it in quotes: \"{text}\""));
            }
        }
    }
}

/// Returns whether the kubelet's YAML reader takes unquoted text for a number. It takes a number that is too large for text.
fn is_number(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    text.bytes().all(may_be) && text.parse().is_ok_and(f64::is_finite)
}

/// Records warnings about fields beside the thresholds that decide what evictions can achieve.
fn advise(walk: &mut Walk<'_>, fields: &Fields<'_>) {
    if let Some(field) = fields.get("failSwapOn")
        && walk.boolean(&field) == Some(false)
    {
        walk.warning(&field, SWAP, SWAP_FIX);
    }
    if let Some(map) = fields.get("memorySwap")
        && let Some(field) = walk.known_fields(&map, "swapBehavior").get("swapBehavior")
        && let Some(behavior) = walk.text(&field, "write NoSwap or LimitedSwap")
        && !matches!(behavior, "" | "NoSwap")
    {
        walk.warning(&field, SWAP, "write NoSwap where evictions are to protect memory");
    }
    if let Some(field) = fields.get("kernelMemcgNotification")
        && walk.boolean(&field) == Some(true)
    {
        let fix = "leave it out; this agent receives the kernel's events in any case";
        walk.warning(&field, NO_NOTIFICATION, fix);
    }
}

#[cfg(test)]
#[path = "kubelet_configuration_tests.rs"]
mod tests;
