//! Checks what manifests assume about the program: flags, configuration, ports, paths, mounts, metrics.

use std::collections::BTreeSet;
use std::path::Path;

use clap::{Args, Command};
use serde_json::Value;

use node_pressure_monitor::commands::{run, sweep};
use node_pressure_monitor::config::{MonitorConfig, ServingOptions};
use node_pressure_monitor::report::Metrics;
use node_pressure_monitor::report::http::PATHS;
use node_pressure_monitor::report::series::SeriesLimits;

use crate::documents::{at, list, name, text};

/// The prefix of every metric's name.
const PREFIX: &str = "node_pressure_monitor_";
/// The image's name without its registry.
const IMAGE: &str = "node-pressure-monitor";
/// The key of the agent's configuration in the ConfigMap.
pub const KEY: &str = "monitor.yaml";
/// Directories of the host that the agent always uses.
const ALWAYS_USED: [&str; 4] = ["/sys/kernel/tracing", "/run/containerd", "/run/crio", "/sys/fs/cgroup"];

/// Returns the mismatches between the code and the objects of one kustomization.
///
/// # Errors
/// When the metrics cannot be created.
pub fn check(objects: &[Value]) -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut say = |object: &Value, problem: String| problems.push(format!("{}: {problem}", name(object)));
    for object in objects {
        for container in list(object, &["spec", "template", "spec", "containers"]) {
            if image_name(text(container, &["image"])) == IMAGE {
                let container = ProgramContainer { objects, object, container };
                container.check().into_iter().for_each(|problem| say(object, problem));
            }
        }
        references(object, objects).into_iter().for_each(|problem| say(object, problem));
        for path in served_paths(object) {
            if !PATHS.contains(&path) {
                say(object, format!("the agent serves no {path}: it serves {}", PATHS.join(" ")));
            }
        }
    }
    let known = known_metrics()?;
    for object in objects.iter().filter(|object| text(object, &["kind"]) == "PrometheusRule") {
        for metric in metrics_in(object) {
            if !is_known(&known, &metric) {
                say(object, format!("the agent has no metric {metric}"));
            }
        }
    }
    Ok(problems)
}

/// Returns the image's name without registry and tag: `registry:5000/a/name:tag` → `name`.
fn image_name(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split([':', '@']).next().unwrap_or_default()
}

/// Returns the problem with a command line of the program, given without its name.
#[must_use]
pub fn check_arguments(arguments: &[&str]) -> Option<String> {
    let subcommand = |name: &'static str, augment: fn(Command) -> Command| augment(Command::new(name));
    let program = Command::new(IMAGE)
        .subcommand_required(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .subcommand(subcommand("run", run::Options::augment_args))
        .subcommand(subcommand("sweep", sweep::Options::augment_args));
    let parsed = program.try_get_matches_from(std::iter::once(&IMAGE).chain(arguments));
    parsed.err().map(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// A container that runs the program.
struct ProgramContainer<'a> {
    objects: &'a [Value],
    object: &'a Value,
    container: &'a Value,
}

impl ProgramContainer<'_> {
    fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let arguments: Vec<&str> = list(self.container, &["args"]).iter().filter_map(Value::as_str).collect();
        problems.extend(check_arguments(&arguments).map(|problem| format!("args {arguments:?}: {problem}")));
        if arguments.first() == Some(&"run") {
            match arguments.iter().find_map(|argument| argument.strip_prefix("--config=")) {
                Some(file) => self.check_configuration(file, &mut problems),
                None => problems.push("args have no --config=FILE".to_owned()),
            }
        }
        problems
    }

    fn check_configuration(&self, file: &str, problems: &mut Vec<String>) {
        let Some(config) = self.configuration(file, problems) else { return };
        let port = u64::from(config.listen.port());
        let ports = list(self.container, &["ports"]);
        if !ports.iter().any(|it| it.get("containerPort").and_then(Value::as_u64) == Some(port)) {
            problems.push(format!("metrics.listen has port {port}, which is not among the container's ports"));
        }
        if config.listen.ip().is_loopback() && self.pod("hostNetwork").and_then(Value::as_bool) != Some(true) {
            problems.push("metrics.listen is on loopback, which neither probes nor Prometheus reach".to_owned());
        }
        self.check_serving(&config.serving, problems);
        let mounts = self.host_mounts();
        for (field, path) in [
            ("lockFile", config.lock_file.as_path()),
            ("incidents.directory", config.incidents.directory.as_path()),
            ("cgroupRoot", config.cgroup_root.as_path()),
        ] {
            match mounts.iter().find(|mount| path.starts_with(mount.path)) {
                None => problems.push(format!("{field} {} is on no directory of the host", path.display())),
                Some(mount) if mount.is_read_only => {
                    problems.push(format!("{field} {} is mounted read-only", path.display()));
                }
                Some(_) => {}
            }
        }
        let used = [config.lock_file.as_path(), &config.incidents.directory, &config.cgroup_root];
        for mount in &mounts {
            if mount.path != mount.on_host {
                problems.push(format!(
                    "{} of the host is mounted at {}: the agent needs the same path",
                    mount.on_host, mount.path
                ));
            }
            if !used.iter().any(|path| path.starts_with(mount.path)) && !ALWAYS_USED.contains(&mount.path) {
                problems.push(format!("{} is mounted, but the agent does not use it", mount.path));
            }
        }
    }

    fn check_serving(&self, serving: &ServingOptions, problems: &mut Vec<String>) {
        let scheme = if serving.tls.is_some() { "HTTPS" } else { "" };
        for probe in PROBES.iter().filter(|probe| self.container.get(probe).is_some()) {
            if text(self.container, &[probe, "httpGet", "scheme"]) != scheme {
                problems.push(format!("{probe} and metrics.tls do not agree on TLS"));
            }
        }
        let files = serving.tls.iter().flat_map(|tls| [&tls.certificate, &tls.key]).chain(&serving.token_file);
        for file in files {
            let is_there = |mount: &Value| file.starts_with(text(mount, &["mountPath"]));
            if !list(self.container, &["volumeMounts"]).iter().any(is_there) {
                problems.push(format!("{} is on no volume", file.display()));
            }
        }
    }

    /// Returns the configuration that the container sees at the path.
    fn configuration(&self, file: &str, problems: &mut Vec<String>) -> Option<MonitorConfig> {
        let mount = list(self.container, &["volumeMounts"])
            .iter()
            .find(|mount| Path::new(file) == Path::new(text(mount, &["mountPath"])).join(KEY));
        let volume = mount.and_then(|mount| self.volume(text(mount, &["name"])));
        let config_map = volume.map(|volume| text(volume, &["configMap", "name"])).and_then(|name| {
            let is_wanted =
                |object: &&Value| text(object, &["kind"]) == "ConfigMap" && text(object, &["metadata", "name"]) == name;
            self.objects.iter().find(is_wanted)
        });
        let Some(document) = config_map.map(|map| text(map, &["data", KEY])) else {
            problems.push(format!("{file} is in no ConfigMap"));
            return None;
        };
        match MonitorConfig::parse(KEY, document) {
            Ok(loaded) => {
                problems.extend(loaded.warnings.iter().map(ToString::to_string));
                Some(loaded.config)
            }
            Err(errors) => {
                problems.push(errors.to_string());
                None
            }
        }
    }

    fn pod(&self, field: &str) -> Option<&Value> {
        at(self.object, &["spec", "template", "spec", field])
    }

    fn volume(&self, name: &str) -> Option<&Value> {
        self.pod("volumes")?.as_array()?.iter().find(|volume| text(volume, &["name"]) == name)
    }

    fn host_mounts(&self) -> Vec<HostMount<'_>> {
        let host_mount = |mount| {
            Some(HostMount {
                path: text(mount, &["mountPath"]),
                on_host: at(self.volume(text(mount, &["name"]))?, &["hostPath", "path"])?.as_str()?,
                is_read_only: at(mount, &["readOnly"]).and_then(Value::as_bool) == Some(true),
            })
        };
        list(self.container, &["volumeMounts"]).iter().filter_map(host_mount).collect()
    }
}

struct HostMount<'a> {
    path: &'a str,
    on_host: &'a str,
    is_read_only: bool,
}

/// Returns the missing objects, volumes and ports that an object refers to.
fn references(object: &Value, objects: &[Value]) -> Vec<String> {
    let exists = |kind: &str, name: &str| {
        objects.iter().any(|object| text(object, &["kind"]) == kind && text(object, &["metadata", "name"]) == name)
    };
    let mut problems = Vec::new();
    let mut want = |kind: &str, name: &str| {
        if !exists(kind, name) {
            problems.push(format!("there is no {kind} {name}"));
        }
    };
    if let Some(pod) = at(object, &["spec", "template", "spec"]) {
        want("ServiceAccount", text(pod, &["serviceAccountName"]));
    }
    if let Some(role) = object.get("roleRef") {
        want(text(role, &["kind"]), text(role, &["name"]));
        for subject in list(object, &["subjects"]).iter().filter(|it| text(it, &["kind"]) == "ServiceAccount") {
            want("ServiceAccount", text(subject, &["name"]));
        }
    }
    let pod = at(object, &["spec", "template", "spec"]);
    let volumes = pod.map(|pod| list(pod, &["volumes"])).unwrap_or_default();
    for container in pod.map(|pod| list(pod, &["containers"])).unwrap_or_default() {
        let mounts = list(container, &["volumeMounts"]).iter().map(|mount| text(mount, &["name"]));
        for mount in mounts {
            if !volumes.iter().any(|volume| text(volume, &["name"]) == mount) {
                problems.push(format!("there is no volume {mount}"));
            }
        }
        let ports: Vec<&str> = list(container, &["ports"]).iter().map(|port| text(port, &["name"])).collect();
        for probe in PROBES {
            let port = text(container, &[probe, "httpGet", "port"]);
            if container.get(probe).is_some() && !ports.contains(&port) {
                problems.push(format!("{probe} uses the port {port:?}, which the container does not name"));
            }
        }
    }
    if text(object, &["kind"]) == "ServiceMonitor" {
        let wanted = at(object, &["spec", "selector", "matchLabels"]);
        let is_chosen = |service: &&Value| {
            let labels = at(service, &["metadata", "labels"]);
            text(service, &["kind"]) == "Service"
                && wanted.and_then(Value::as_object).is_some_and(|wanted| {
                    wanted.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
                })
        };
        match objects.iter().find(is_chosen) {
            None => problems.push("selects no Service".to_owned()),
            Some(service) => {
                for endpoint in list(object, &["spec", "endpoints"]) {
                    let port = text(endpoint, &["port"]);
                    if !list(service, &["spec", "ports"]).iter().any(|it| text(it, &["name"]) == port) {
                        problems.push(format!("the Service has no port {port}"));
                    }
                }
            }
        }
    }
    problems
}

const PROBES: [&str; 3] = ["startupProbe", "livenessProbe", "readinessProbe"];

/// Returns the paths that an object requests from the agent.
fn served_paths(object: &Value) -> Vec<&str> {
    let mut paths = Vec::new();
    for container in list(object, &["spec", "template", "spec", "containers"]) {
        paths.extend(PROBES.map(|probe| text(container, &[probe, "httpGet", "path"])));
    }
    if text(object, &["kind"]) == "ServiceMonitor" {
        paths.extend(list(object, &["spec", "endpoints"]).iter().map(|endpoint| text(endpoint, &["path"])));
    }
    paths.retain(|path| !path.is_empty());
    paths
}

/// Returns the agent's metrics in the expressions and annotations of rules.
fn metrics_in(rules: &Value) -> Vec<String> {
    let all = rules.to_string();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut names: Vec<String> =
        all.split(|c| !is_part(c)).filter(|word| word.starts_with(PREFIX)).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

fn known_metrics() -> anyhow::Result<BTreeSet<String>> {
    let metrics = Metrics::new("0", SeriesLimits::default())?;
    Ok(metrics.families().into_iter().map(|family| family.name).collect())
}

fn is_known(metrics: &BTreeSet<String>, name: &str) -> bool {
    let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    metrics.contains(name) || histogram.is_some_and(|name| metrics.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_found_in_any_registry() {
        for image in [
            "node-pressure-monitor",
            "localhost/node-pressure-monitor:0.1.0",
            "r:5000/a/node-pressure-monitor@sha256:0",
        ] {
            assert_eq!(image_name(image), IMAGE, "{image}");
        }
    }

    #[test]
    fn an_unknown_flag_is_reported() {
        assert_eq!(check_arguments(&["run", "--config=/x", "--log-format=json"]), None);
        let problem = check_arguments(&["run", "--no-such-flag"]).unwrap();
        assert!(problem.contains("--no-such-flag"), "{problem}");
        assert!(check_arguments(&["fly"]).is_some());
    }

    #[test]
    fn an_unknown_metric_is_reported() {
        let metrics = known_metrics().unwrap();
        assert!(is_known(&metrics, "node_pressure_monitor_evictions_total"));
        assert!(is_known(&metrics, "node_pressure_monitor_reclaim_stall_seconds_bucket"));
        assert!(!is_known(&metrics, "node_pressure_monitor_evictions"));
    }
}
