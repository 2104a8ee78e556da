//! The thresholds of a running kubelet: from its flags, its configuration file, or the kubelet's defaults.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{ConfigErrors, FileKind, Loaded, MonitorConfig, Threshold};
use crate::units::Signal;

/// A configuration without fields, so that the kubelet's defaults apply.
const DEFAULTS: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// Flags of the kubelet with thresholds and their grace periods.
const HARD: &str = "eviction-hard";
const SOFT: &str = "eviction-soft";
const GRACE: &str = "eviction-soft-grace-period";

/// Returns the hard and soft thresholds of the kubelet in this directory of `/proc`, or why they are unknown. A flag replaces the field of the
/// configuration file. If the file cannot be read but a flag has the hard thresholds, those of the flags are returned.
pub(super) fn read(directory: &Path, name: &str, arguments: &[String]) -> Result<Vec<Threshold>, String> {
    let is_by_flag = |it: &Threshold| flag(arguments, if it.is_hard() { HARD } else { SOFT }).is_some();
    let mut thresholds = of_flags(arguments)?;
    thresholds.retain(is_by_flag);
    match of_configuration(directory, name, arguments) {
        Ok(others) => thresholds.extend(others.into_iter().filter(|it| !is_by_flag(it))),
        Err(_) if flag(arguments, HARD).is_some() => {}
        Err(reason) => return Err(reason),
    }
    Ok(thresholds)
}

/// Reads the configuration file as the kubelet sees it, in the root directory of its process.
fn of_configuration(directory: &Path, name: &str, arguments: &[String]) -> Result<Vec<Threshold>, String> {
    let drop_ins = flag(arguments, "config-dir").map(|path| seen_by(directory, &path));
    if drop_ins.is_some_and(|path| fs::read_dir(path).is_ok_and(|entries| entries.count() > 0)) {
        return Err("the files of --config-dir are not read".to_owned());
    }
    let Some(path) = flag(arguments, "config") else {
        let is_plain = matches!(name, "kubelet" | "hyperkube");
        return if is_plain { of_file("defaults", DEFAULTS.into()) } else { Err(format!("it is part of {name}")) };
    };
    let bytes = MonitorConfig::read(&seen_by(directory, &path)).map_err(|errors| first(&errors))?;
    of_file(&path, bytes)
}

/// Returns the value of the last `--name VALUE`, `--name=VALUE`, or `--kubelet-arg=name=VALUE` (k3s, RKE2).
fn flag(arguments: &[String], name: &str) -> Option<String> {
    let mut found = None;
    let mut rest = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = rest.next() {
        let Some(mut option) = argument.strip_prefix('-').map(|it| it.strip_prefix('-').unwrap_or(it)) else {
            continue;
        };
        if let Some(inner) = option.strip_prefix("kubelet-arg") {
            option = inner.strip_prefix('=').or_else(|| rest.peek().copied()).unwrap_or_default();
        }
        let Some(after) = option.strip_prefix(name) else { continue };
        let value = after.strip_prefix('=').or_else(|| rest.peek().copied().filter(|_| after.is_empty()));
        found = value.map(str::to_owned).or(found);
    }
    found
}

fn seen_by(directory: &Path, path: &str) -> PathBuf {
    match path.strip_prefix('/') {
        Some(path) => directory.join("root").join(path),
        None => directory.join("cwd").join(path),
    }
}

/// OpenShift 3's file has the kubelet's flags as lists of texts.
fn of_flags(arguments: &[String]) -> Result<Vec<Threshold>, String> {
    let given = [HARD, SOFT, GRACE].into_iter().filter_map(|name| Some((name, flag(arguments, name)?)));
    let given: Vec<(&str, String)> = given.collect();
    if given.is_empty() {
        return Ok(Vec::new());
    }
    let mut text = String::from("kubeletArguments:\n");
    for (name, value) in given {
        let quoted = serde_json::to_string(&value).map_err(|error| error.to_string())?;
        text += &format!("  {name}: [{quoted}]\n");
    }
    let loaded = MonitorConfig::parse("the kubelet's flags", &text).map_err(|errors| first(&errors))?;
    Ok(thresholds(&loaded))
}

fn of_file(name: &str, bytes: Vec<u8>) -> Result<Vec<Threshold>, String> {
    let loaded = MonitorConfig::parse_bytes(name, bytes).map_err(|errors| first(&errors))?;
    if loaded.kind == FileKind::Kubelet {
        Ok(thresholds(&loaded))
    } else {
        Err(format!("{name}: not a KubeletConfiguration"))
    }
}

/// One sentence suffices: the thresholds are unknown.
fn first(errors: &ConfigErrors) -> String {
    errors.0.first().map(ToString::to_string).unwrap_or_default()
}

/// The kubelet derives its threshold on allocatable memory from that on memory.
fn thresholds(loaded: &Loaded) -> Vec<Threshold> {
    let thresholds = loaded.config.policy.thresholds.iter().cloned();
    thresholds.filter(|it| it.signal != Signal::AllocatableMemoryAvailable).collect()
}
