//! Turns a kubelet's configuration into one of the agent, each line with its reason.

mod given;
mod page;
mod thresholds;
mod without_counterpart;

use std::time::Duration;

use super::config_error::{ConfigError, ConfigErrors, ConfigWarning};
use super::file_kinds::monitor_configuration::{API_VERSION, KIND};
use super::file_kinds::{FileKind, Loaded, OtherFiles, Source};
use super::policy::{MonitorConfig, OomScores, Ranking};
use super::quirks::Semantics;
use super::runtime_options::RuntimeEndpoint;
use crate::units::{Bytes, Quantity, Signal, format_go_duration, parse_go_duration};

use given::{Given, Settings};
use page::{Page, value};

/// A migrated file.
#[derive(Debug)]
pub struct Migrated {
    pub text: String,
    /// The warnings about settings of the source that are not in the text: under a name that no kubelet has, or in a file that was not read.
    pub warnings: Vec<ConfigWarning>,
}

/// Returns the text of a `MonitorConfiguration` that decides as the kubelet's configuration does. Only messages use the name.
///
/// # Errors
/// When the source has errors, or is a `MonitorConfiguration` already.
pub fn migrate(file_name: &str, text: &str, semantics: Semantics) -> Result<String, ConfigErrors> {
    migrate_with(file_name, text, semantics, OtherFiles::default()).map(|migrated| migrated.text)
}

/// Returns a `MonitorConfiguration` that decides as the kubelet's configuration in a text and in the other files does. Only messages use the
/// name.
///
/// # Errors
/// When the source has errors, or is a `MonitorConfiguration` already.
pub fn migrate_with(
    file_name: &str,
    text: &str,
    semantics: Semantics,
    others: OtherFiles<'_>,
) -> Result<Migrated, ConfigErrors> {
    let loaded = MonitorConfig::parse_with(file_name, text, others)?;
    if loaded.kind == FileKind::Monitor {
        let fix = "nothing is to be migrated; check-config explains it";
        return Err(ConfigErrors(vec![ConfigError::whole_file(file_name, format!("already a {KIND}"), fix)]));
    }
    let source = Source::assemble(file_name, text, others)?;
    let migration =
        Migration { settings: Settings::of(&source, loaded.kind), source: &source, loaded: &loaded, semantics };
    let mut page = migration.page(file_name);
    let draft = MonitorConfig::parse("the migrated file", &page.render())?;
    migration.explain(file_name, &mut page, &draft.warnings);
    let text = page.render();
    // A comment changes nothing that is read.
    MonitorConfig::parse("the migrated file", &text)?;
    let is_of_lost =
        |ConfigWarning(warning): &ConfigWarning| is_unknown(warning) || warning.reason.contains("that was not read");
    Ok(Migrated { text, warnings: loaded.warnings.into_iter().filter(is_of_lost).collect() })
}

struct Migration<'n> {
    source: &'n Source,
    settings: Settings<'n>,
    loaded: &'n Loaded,
    semantics: Semantics,
}

impl Migration<'_> {
    fn page(&self, file_name: &str) -> Page {
        let mut page = Page::default();
        let kind = match (self.loaded.what, self.loaded.kind) {
            (Some(what), _) => format!("a {what}"),
            (None, FileKind::KubeletFlags) => "the flags of a kubelet".to_owned(),
            (None, FileKind::OpenShift3) => "a NodeConfig of OpenShift 3".to_owned(),
            (None, FileKind::Kubelet | FileKind::Monitor) => "a KubeletConfiguration".to_owned(),
        };
        let more: Vec<&str> = self.source.lines.names().collect();
        let more = if more.is_empty() { String::new() } else { format!(", with {}", more.join(", ")) };
        page.head.extend([
            format!("Migrated from {file_name}{more}, {kind}, by node-pressure-monitor {}.", env!("CARGO_PKG_VERSION")),
            "\"line N\" is the line of that file which a value comes from. Every field that is not written here has the agent's default; \
             config/monitor.yaml describes all of them. Settings that are not carried over are listed at the end."
                .to_owned(),
        ]);
        page.field("apiVersion", API_VERSION);
        page.field("kind", KIND);
        page.field("mode", "observe").note(
            "The agent's own field. observe evicts nothing and reports what it would have evicted; write enforce when the reports are as \
             expected. A kubelet on the same node keeps evicting by its own configuration.",
        );
        self.rules(&mut page);
        self.thresholds(&mut page);
        self.soft_evictions(&mut page);
        self.reservations(&mut page);
        self.places(&mut page);
        self.foot(&mut page);
        page
    }

    /// The fields that say by which rules the agent decides.
    fn rules(&self, page: &mut Page) {
        let (name, note) = match self.semantics {
            Semantics::Kubelet => (
                "kubelet",
                "kubelet: the agent decides as the kubelet of the source does. Available memory is the capacity minus the working set, \
                 percentages are 32-bit floats, and all quirks of the kubelet apply. The agent's default is corrected (`migrate --semantics \
                 corrected`): MemAvailable is compared with the thresholds, and the quirks are corrected. config/SEMANTICS.md lists the \
                 differences.",
            ),
            Semantics::Corrected => (
                "corrected",
                "corrected, as --semantics asks: MemAvailable is compared with the thresholds instead of the capacity minus the working \
                 set, percentages are exact (10% of 100Gi is 10737418240 bytes, 160 fewer than a kubelet computes), and the quirks of the \
                 kubelet are corrected. Decisions therefore differ from the source's; config/SEMANTICS.md lists how. With `semantics: \
                 kubelet` they would be the same.",
            ),
        };
        page.field("semantics", name).note(note);
        let (ranking, scores) = (&self.loaded.config.policy.ranking, self.loaded.config.policy.oom_scores);
        let note = match ranking {
            Ranking::OpenShift3 => {
                "The order of OpenShift 3 up to 3.7, and of its documents: the QoS class, then the amount above the request, then the usage. From 3.9 on the kubelet ranks by usage above the request, then priority, then the amount above it; `openshift3.9` does the same."
            }
            _ => {
                "The kubelet's order: usage above the request, then priority, then the amount above the request. The agent's default, qos, has the QoS class first."
            }
        };
        page.field("ranking", ranking.as_str()).note(note);
        let (scheme, note) = match scores == OomScores::OPENSHIFT3 {
            true => ("openshift3", "The values that OpenShift 3's kubelet sets: Guaranteed -998, Burstable 2 to 999."),
            false => (
                "kubernetes",
                "The values that a kubelet sets, which are the defaults: Guaranteed -997, Burstable 3 to 999.",
            ),
        };
        page.field("oomScoreAdj", scheme).note(note);
    }

    fn soft_evictions(&self, page: &mut Page) {
        let policy = &self.loaded.config.policy;
        if let Some(given) = self.settings.one("evictionMaxPodGracePeriod") {
            let line = page.field("evictionMaxPodGracePeriod", &policy.max_pod_grace_period.to_string());
            line.origin(self.origin(&given, &given.text));
            if policy.max_pod_grace_period < 0 {
                line.note(match self.semantics {
                    Semantics::Kubelet => {
                        "Negative: as from the kubelet, the value reaches the pod unchanged (quirk negativeMaxGrace)."
                    }
                    Semantics::Corrected => "Negative: the pod's own grace period counts, as Kubernetes documents it.",
                });
            }
        }
        if let Some(given) = self.settings.one("evictionPressureTransitionPeriod") {
            let period = policy.pressure_transition_period;
            let is_same = duration(&given.text) == Some(period);
            let text = if is_same { given.text.clone() } else { format_go_duration(period) };
            let line = page.field("evictionPressureTransitionPeriod", &value(&text));
            line.origin(self.origin(&given, &text));
            if !is_same {
                line.note(
                    "Zero in a KubeletConfiguration stands for the default, which is written out: here 0s would mean no period at all.",
                );
            }
        }
        if let Some(given) = self.settings.one("localStorageCapacityIsolation") {
            page.field("localStorageCapacityIsolation", &policy.local_storage_isolation.to_string())
                .origin(self.origin(&given, &given.text));
        }
    }

    /// Names what changes for a source that does not subtract hard thresholds from allocatable, by an example of 10Gi.
    fn not_subtracted(&self) -> String {
        let policy = &self.loaded.config.policy;
        let capacity = Quantity::binary(Bytes::from_mib(10 << 10)).value_bytes();
        let reserved = policy.reservations.system.iter().chain(&policy.reservations.kube);
        let reserved: Quantity = reserved.filter(|(name, _)| name == "memory").map(|(_, amount)| amount).sum();
        let hard = policy.thresholds.iter().find(|it| it.signal == Signal::MemoryAvailable && it.is_hard());
        let hard = hard.map_or(0, |it| it.value.resolve(capacity, policy.quirks).units());
        let left = |taken: i64| Quantity::from_units(capacity.saturating_sub(taken).max(0), true).canonical();
        let (source, present) = (left(reserved.value_bytes()), left(reserved.value_bytes().saturating_add(hard)));
        format!(
            "The source does not subtract hard thresholds from what pods get, so its reservation has to cover them: of 10Gi of memory it \
             leaves {source}. A present kubelet subtracts them, and so does check-config --capacity for this file: {present}. Evictions do \
             not depend on it. On a present kubelet, lower the reservation by the hard threshold to keep {source}."
        )
    }

    fn reservations(&self, page: &mut Page) {
        let policy = &self.loaded.config.policy;
        for name in ["systemReserved", "kubeReserved"] {
            let Some(map) = self.settings.map(name).filter(|map| !map.entries.is_empty()) else { continue };
            page.section(name).origin(self.place(map.line));
            if !policy.reservations.hard_thresholds && name == "systemReserved" {
                page.note(name, self.not_subtracted());
            }
            for (resource, given) in &map.entries {
                page.entry(name, resource, &value(&given.text)).origin(self.origin(given, &given.text));
            }
        }
        let name = "enforceNodeAllocatable";
        let is_pods = self.loaded.config.policy.pods_enforced;
        let given = self.settings.list(name);
        let mut scopes: Vec<String> = match &given {
            Some(list) => list.iter().flat_map(|it| it.text.split(',')).map(|text| text.trim().to_owned()).collect(),
            None => vec!["pods".to_owned()],
        };
        let is_ignored = scopes.iter().any(|scope| scope == "pods") && !is_pods;
        scopes.retain(|scope| !scope.is_empty() && (is_pods || scope != "pods"));
        let line = page.field(name, &format!("[{}]", scopes.join(", ")));
        match given.as_ref().and_then(|list| list.first()) {
            Some(first) => drop(line.origin(self.place(first.line))),
            None => drop(line.origin("the kubelet's default")),
        }
        if is_pods {
            line.note(
                "With pods, hard thresholds on memory.available apply to the cgroup of all pods too. The kubelet sets the limit of that \
                 cgroup; without it there is no such signal.",
            );
        }
        if is_ignored {
            line.note(
                "experimental-allocatable-ignore-eviction is true in the source: hard thresholds do not apply to all pods together, so pods is left out.",
            );
        }
    }

    /// Names a line of the source.
    fn place(&self, line: usize) -> String {
        self.source.lines.shown(line)
    }

    /// Names the line of a value, and what is written there where it is another text.
    fn origin(&self, given: &Given, text: &str) -> String {
        let place = self.place(given.line);
        if given.shown == text { place } else { format!("{place}: {}", given.shown) }
    }

    /// The container runtime, the filesystems, and the name of the node.
    fn places(&self, page: &mut Page) {
        let mut runtime: Vec<(&str, String, Given)> = Vec::new();
        if let Some((given, socket)) = self.socket() {
            runtime.push(("endpoint", socket, given));
        }
        for (name, field) in [
            (
                "imageMinimumGCAge",
                if self.settings.is_arguments() { "minimumImageTtlDuration" } else { "imageMinimumGCAge" },
            ),
            ("minimumContainerAge", "minimumContainerTtlDuration"),
        ] {
            let given = self.settings.one(field).filter(|given| {
                // Zero in a file stands for the default, which the agent has too.
                let age = duration(&given.text);
                age.is_some_and(|age| self.settings.is_arguments() || !age.is_zero())
            });
            runtime.extend(given.map(|given| (name, given.text.clone(), given)));
        }
        if !runtime.is_empty() {
            page.section("runtime");
        }
        for (name, text, given) in runtime {
            page.entry("runtime", name, &value(&text)).origin(self.origin(&given, &text));
        }
        let beside = |field, beside| self.settings.one(field).or_else(|| self.settings.beside(beside));
        if let Some(given) = beside("rootDir", "volumeDirectory").filter(|given| is_path(&given.text)) {
            page.section("filesystems");
            page.entry("filesystems", "nodefs", &value(&given.text))
                .origin(format!("{}: the kubelet's root directory", self.origin(&given, &given.text)));
        }
        if let Some(given) = beside("hostnameOverride", "nodeName").filter(|given| is_literal(&given.text)) {
            page.section("kubernetes");
            page.entry("kubernetes", "nodeName", &value(&given.text)).origin(self.origin(&given, &given.text));
        }
    }

    /// Returns the socket of the container runtime, as the agent writes it.
    fn socket(&self) -> Option<(Given, String)> {
        let given = self.settings.one("containerRuntimeEndpoint")?;
        let path = match &self.loaded.config.runtime.endpoint {
            RuntimeEndpoint::Unix(path) => path.display().to_string(),
            // A flag. The kubelet takes a path without a scheme for a Unix socket.
            RuntimeEndpoint::Auto | RuntimeEndpoint::Off => {
                given.text.strip_prefix("unix://").unwrap_or(&given.text).to_owned()
            }
        };
        let is_usable = is_path(&path) && !path.ends_with('/');
        is_usable.then(|| (given, format!("unix://{path}")))
    }

    /// Lists what has no counterpart, and what check-config says of the source.
    fn foot(&self, page: &mut Page) {
        let mut listed = Vec::new();
        let mut others: Vec<String> = Vec::new();
        for (name, line, text) in self.settings.names() {
            let is_carried = ["apiVersion", "kind"].contains(&name.as_str()) || self.is_carried(page, &name, line);
            let is_empty = is_threshold_field(&name) || text.as_deref() == Some("") && unusable(&name).is_some();
            let shown = text.filter(|text| !text.is_empty()).map_or_else(String::new, |text| format!(", {text}"));
            let place = self.place(line);
            let reason = without_counterpart::reason(&name).or_else(|| is_empty.then_some(EMPTY));
            match reason {
                _ if is_carried => {}
                Some(reason) => listed.push(format!("- {name} ({place}{shown}): {reason}.")),
                None => match unusable(&name) {
                    Some(reason) => listed.push(format!("- {name} ({place}{shown}): {reason}.")),
                    // A finding names it below.
                    None if self.is_unknown(&name) => {}
                    None => others.push(name),
                },
            }
        }
        if !listed.is_empty() {
            page.foot.push("Not carried over:".to_owned());
            page.foot.append(&mut listed);
        }
        if !others.is_empty() {
            others.dedup();
            let names = others.join(", ");
            page.foot.push(format!("Not carried over, because they do not concern evictions: {names}."));
        }
    }

    /// Returns whether no version of the source's kind has a name, so that it may be meant as another.
    fn is_unknown(&self, name: &str) -> bool {
        let is_it = |field: &str| field.rsplit('.').next() == Some(name);
        self.loaded.warnings.iter().any(|ConfigWarning(warning)| is_it(&warning.field) && is_unknown(warning))
    }

    /// Returns whether a field of the source is in the page already.
    fn is_carried(&self, page: &Page, name: &str, line: usize) -> bool {
        let mark = self.place(line);
        let has_mark = |text: &str| {
            text.match_indices(&mark).any(|(at, _)| {
                let rest = &text[at + mark.len()..];
                !rest.starts_with(|it: char| it.is_ascii_digit()) && !rest.starts_with(" of ")
            })
        };
        let is_of_section = |line: &page::Line| {
            let field = line.path.split('.').next().unwrap_or_default();
            self.settings.name_of(field) == name
                || line.path.strip_prefix("runtime.").is_some_and(|own| RENAMED.contains(&(own, name)))
                || RENAMED.contains(&(&line.path, name))
        };
        let origin = |line: &page::Line| line.origin.as_deref().is_some_and(has_mark) || line.indent == 0;
        page.lines.iter().any(|line| is_of_section(line) && origin(line))
            || name == "mergeDefaultEvictionSettings" && self.loaded.config.policy.hard_count > 0
    }

    /// Adds the warnings of check-config: those about the new file to its lines, and others about the source at the end.
    fn explain(&self, file_name: &str, page: &mut Page, warnings: &[ConfigWarning]) {
        for ConfigWarning(warning) in warnings {
            page.note(&warning.field, format!("check-config warns of this value: {}.", sentence(warning)));
        }
        let is_new = |reason: &str| !warnings.iter().any(|ConfigWarning(own)| own.reason == reason);
        let of_source: Vec<_> =
            self.loaded.warnings.iter().filter(|ConfigWarning(warning)| is_new(&warning.reason)).collect();
        if !of_source.is_empty() {
            page.foot.push("The findings of check-config on the source:".to_owned());
        }
        for ConfigWarning(warning) in of_source {
            let field = warning.field.strip_prefix(&format!("{}.", self.source.path)).unwrap_or(&warning.field);
            let file = if warning.file == file_name { String::new() } else { format!(" of {}", warning.file) };
            page.foot.push(format!("- {field} (line {}{file}): {}.", warning.line, sentence(warning)));
        }
    }
}

/// The paths of the agent's fields that have another name than the kubelet's.
const RENAMED: [(&str, &str); 11] = [
    ("endpoint", "containerRuntimeEndpoint"),
    ("endpoint", "container-runtime-endpoint"),
    ("imageMinimumGCAge", "imageMinimumGCAge"),
    ("imageMinimumGCAge", "minimum-image-ttl-duration"),
    ("minimumContainerAge", "minimum-container-ttl-duration"),
    ("filesystems.nodefs", "root-dir"),
    ("filesystems.nodefs", "rootDir"),
    ("filesystems.nodefs", "volumeDirectory"),
    ("kubernetes.nodeName", "hostname-override"),
    ("kubernetes.nodeName", "hostnameOverride"),
    ("kubernetes.nodeName", "nodeName"),
];

const EMPTY: &str = "has no value, or only ones that stand for the default";

fn is_threshold_field(name: &str) -> bool {
    const FIELDS: [&str; 10] = [
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMinimumReclaim",
        "evictionMaxPodGracePeriod",
        "evictionPressureTransitionPeriod",
        "mergeDefaultEvictionSettings",
        "systemReserved",
        "kubeReserved",
        "enforceNodeAllocatable",
    ];
    FIELDS.iter().any(|field| *field == name || given::argument_name(field) == name)
}

/// Returns why a field that can have a counterpart has none here.
fn unusable(name: &str) -> Option<&'static str> {
    match name {
        "containerRuntimeEndpoint" | "container-runtime-endpoint" => {
            Some("no Unix socket with a plain path: the agent looks for the usual sockets (runtime.endpoint: auto)")
        }
        "imageMinimumGCAge" => Some("zero stands for the default, 2m, which is the agent's too"),
        "root-dir" => Some("no plain path: the agent finds the kubelet's directory itself"),
        "hostname-override" => {
            Some("no plain name: the agent takes NODE_NAME of its environment, then the host's name")
        }
        _ => None,
    }
}

/// Returns whether a warning is about a name that no version of the source's kind has.
fn is_unknown(warning: &ConfigError) -> bool {
    ["an unknown field", "no field of"].iter().any(|start| warning.reason.starts_with(start))
}

fn sentence(warning: &ConfigError) -> String {
    match &warning.fix {
        Some(fix) => format!("{}; {fix}", warning.reason),
        None => warning.reason.clone(),
    }
}

fn duration(text: &str) -> Option<Duration> {
    parse_go_duration(text).ok()?.to_duration()
}

/// Returns whether a text has no variable of a shell or a unit in it.
fn is_literal(text: &str) -> bool {
    !text.is_empty() && !text.contains(['$', '%', '`'])
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && is_literal(text)
}

#[cfg(test)]
mod tests;
