//! Our own kind of file: `MonitorConfiguration`.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use super::error::{ConfigError, ConfigErrors};
use super::patterns::NamePattern;
use super::policy::{Mode, MonitorConfig, Policy, Ranking, Semantics};
use super::quirks::Quirks;
use super::signal::{Signal, UnsupportedSignal};
use super::threshold::{ThresholdError, ThresholdLists, parse_grace_period, parse_min_reclaim, parse_threshold_value};
use super::units::Bytes;
use super::walk::{Fields, Walk};
use super::yaml::{Node, Value, parse_document};

/// Below, the agent would take a CPU for itself near a threshold.
const SHORTEST_FLOOR: Duration = Duration::from_micros(100);

const API_VERSION: &str = "node-pressure-monitor/v1alpha1";
const KIND: &str = "MonitorConfiguration";
const MAX_FILE_SIZE: u64 = 256 << 10;
/// Kernel memory that stays allocated as long as the agent runs.
const MAX_RING_BUFFER: Bytes = Bytes(64 * Bytes::MIB);

const FIELDS: [&str; 19] = [
    "apiVersion",
    "kind",
    "mode",
    "semantics",
    "ranking",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "evictionMaxPodGracePeriod",
    "evictionPressureTransitionPeriod",
    "sampling",
    "evictions",
    "protected",
    "kernel",
    "metrics",
    "lockFile",
    "cgroupRoot",
    "procRoot",
];

impl MonitorConfig {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let name = path.display().to_string();
        let whole_file = |reason: String, fix: &str| {
            ConfigErrors(vec![ConfigError {
                file: name.clone(),
                line: 0,
                column: 0,
                field: String::new(),
                value: None,
                reason,
                fix: Some(fix.to_owned()),
            }])
        };
        let mut bytes = Vec::new();
        std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes)).map_err(
            |error| {
                let fix = "check the path and its permissions, or leave --config out for the defaults";
                whole_file(format!("cannot be read: {error}"), fix)
            },
        )?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_FILE_SIZE) {
            return Err(whole_file("larger than 256 KiB".to_owned(), "check the path"));
        }
        let text =
            String::from_utf8(bytes).map_err(|error| whole_file(format!("not UTF-8: {error}"), "save it as UTF-8"))?;
        Self::parse(&name, &text)
    }

    /// Checks the text of a configuration file; the name is for messages only.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        let document = parse_document(text).map_err(|error| {
            ConfigErrors(vec![ConfigError {
                file: file_name.to_owned(),
                line: error.line,
                column: error.column,
                field: String::new(),
                value: None,
                reason: error.reason,
                fix: error.fix.map(str::to_owned),
            }])
        })?;
        let mut walk = Walk::new(file_name);
        let config =
            if refuse_other_kinds(&mut walk, &document) { Self::default() } else { read(&mut walk, &document) };
        let errors = walk.into_errors();
        if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
    }
}

/// Tells whether the file is of a kind that is known but not read, so that its fields need no look.
fn refuse_other_kinds(walk: &mut Walk<'_>, document: &Node) -> bool {
    const FIX: &str = "write the same eviction fields in a MonitorConfiguration, see config/monitor.yaml";
    let Value::Mapping(pairs) = &document.value else {
        let reason = match document.value {
            Value::Null => "the file is empty".to_owned(),
            _ => format!("the file must be a map of fields, not {}", document.value.kind()),
        };
        let fix = format!("start with `apiVersion: {API_VERSION}` and `kind: {KIND}`");
        walk.error("", document, reason, &fix);
        return true;
    };
    for (key, value) in pairs {
        let scalar = |node: &Node| match &node.value {
            Value::Scalar { text, .. } => text.clone(),
            _ => String::new(),
        };
        match (scalar(key).as_str(), scalar(value).as_str()) {
            ("kind", "KubeletConfiguration") => {
                walk.error("kind", value, "KubeletConfiguration files are not read yet", FIX);
                return true;
            }
            ("kubeletArguments", _) => {
                let reason = "OpenShift 3 node configuration files are not read yet";
                walk.error("kubeletArguments", key, reason, FIX);
                return true;
            }
            _ => {}
        }
    }
    false
}

fn read(walk: &mut Walk<'_>, document: &Node) -> MonitorConfig {
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
    read_loop(walk, &fields, &mut config);
    read_host(walk, &fields, &mut config);
    config
}

fn set<T>(target: &mut T, value: Option<T>) {
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
    if let Some((field, node)) = fields.get("ranking") {
        set(&mut policy.ranking, walk.choice(&field, node, &Ranking::PRESETS));
    }
    if let Some((field, node)) = fields.get("evictionMaxPodGracePeriod") {
        let seconds = walk.whole_number(&field, node, 0, "30, in seconds");
        set(&mut policy.max_pod_grace_period, seconds.map(i64::from));
    }
    if let Some((field, node)) = fields.get("evictionPressureTransitionPeriod") {
        let period = walk.duration(&field, node, "5m");
        set(&mut policy.pressure_transition_period, period);
    }
    policy.thresholds = read_thresholds(walk, fields);
}

fn read_thresholds(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Vec<super::threshold::Threshold> {
    let mut lists = ThresholdLists::default();
    // Absent is not the same as empty: `{}` means none.
    if fields.get("evictionHard").is_none() {
        let default = Policy::default_hard_threshold();
        lists.hard.push((default.signal, default.value));
    }
    for (name, is_soft) in [("evictionHard", false), ("evictionSoft", true)] {
        for (signal, field, node) in signals(walk, fields, name) {
            let fix = "write e.g. 100Mi or 10%";
            let Some(text) = walk.text(&field, node, fix) else {
                continue;
            };
            match parse_threshold_value(signal, text) {
                Ok(None) => {}
                Ok(Some(value)) if is_soft => lists.soft.push((signal, value)),
                Ok(Some(value)) => lists.hard.push((signal, value)),
                Err(error) => walk.error(&field, node, error.to_string(), fix),
            }
        }
    }
    for (signal, field, node) in signals(walk, fields, "evictionSoftGracePeriod") {
        let fix = "write e.g. 1m30s";
        let parsed = walk.text(&field, node, fix).map(parse_grace_period);
        if let Some(Err(error)) = &parsed {
            walk.error(&field, node, error.to_string(), fix);
        }
        // A bad one is there nevertheless: do not call it missing too.
        let grace_period = parsed.and_then(Result::ok).unwrap_or_default();
        lists.grace_periods.insert(signal, grace_period);
    }
    for (signal, field, node) in signals(walk, fields, "evictionMinimumReclaim") {
        let fix = "write e.g. 100Mi or 5%";
        match walk.text(&field, node, fix).map(|text| parse_min_reclaim(signal, text)) {
            Some(Ok(value)) => {
                lists.min_reclaims.insert(signal, value);
            }
            Some(Err(error)) => walk.error(&field, node, error.to_string(), fix),
            None => {}
        }
    }
    lists.assemble().unwrap_or_else(|errors| {
        let soft = signals(&mut Walk::new(""), fields, "evictionSoft");
        for error in errors {
            let ThresholdError::GraceMissing(missing) = error else {
                continue;
            };
            if let Some((_, field, node)) = soft.iter().find(|(signal, ..)| *signal == missing) {
                let fix = format!("add `{missing}: 30s` to evictionSoftGracePeriod");
                walk.error(field, node, error.to_string(), &fix);
            }
        }
        Vec::new()
    })
}

/// Returns the entries of a map from signals to values.
fn signals<'n>(walk: &mut Walk<'_>, fields: &Fields<'n>, name: &str) -> Vec<(Signal, String, &'n Node)> {
    let Some((path, node)) = fields.get(name) else {
        return Vec::new();
    };
    let names = Signal::ALL.map(Signal::as_str);
    let unsupported = |name: &str| UnsupportedSignal(name.to_owned()).to_string();
    walk.fields_or(&path, node, &names, unsupported)
        .iter()
        .filter_map(|(key, field, node)| key.parse().ok().map(|signal| (signal, field, node)))
        .collect()
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
        let inner = walk.fields(&path, node, &["coolDown", "maxPerMinute", "killTimeout"]);
        let limits = &mut config.evictions;
        if let Some((field, node)) = inner.get("coolDown") {
            set(&mut limits.cool_down, walk.duration(&field, node, "100ms"));
        }
        if let Some((field, node)) = inner.get("maxPerMinute") {
            let number = walk.whole_number(&field, node, 1, "6; to evict nothing, use `mode: observe`");
            set(&mut limits.max_per_minute, number);
        }
        if let Some((field, node)) = inner.get("killTimeout") {
            set(&mut limits.kill_timeout, walk.positive_duration(&field, node, "3s"));
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
    if let Some((path, node)) = fields.get("metrics")
        && let Some((field, node)) = walk.fields(&path, node, &["listen"]).get("listen")
    {
        set(&mut config.listen, walk.address(&field, node));
    }
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

fn read_protected(walk: &mut Walk<'_>, path: &str, node: &Node, config: &mut MonitorConfig) {
    const FIX: &str = "write e.g. \"postgresql@*.service\"";
    let Value::Sequence(items) = &node.value else {
        let reason = format!("must be a list of patterns, not {}", node.value.kind());
        walk.error(path, node, reason, "write e.g. [\"postgresql@*.service\"]");
        return;
    };
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

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
