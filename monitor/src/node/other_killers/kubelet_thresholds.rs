//! The thresholds of a running kubelet: from its flags, its configuration file and the drop-ins, merged as the kubelet merges them.

use std::path::{Path, PathBuf};

use crate::config::{ConfigErrors, MonitorConfig, OtherFiles, Threshold, arguments_of_k3s};
use crate::units::Signal;

/// Flags of the kubelet with thresholds and what belongs to them.
const DECISIVE: [&str; 4] =
    ["eviction-hard", "eviction-soft", "eviction-soft-grace-period", "eviction-minimum-reclaim"];
const CONFIG: &str = "config";
const CONFIG_DIR: &str = "config-dir";
const WITHOUT_CONFIG: &str = "it has neither --config nor --eviction-hard: since Kubernetes 1.25 such a kubelet has no hard thresholds, and \
                              before it had the defaults";
/// The programs that contain a kubelet, and keep its settings below this directory.
const RANCHER: [&str; 2] = ["k3s", "rke2"];
const RANCHER_DATA: &str = "/var/lib/rancher";

/// Returns the hard and soft thresholds of the kubelet in this directory of `/proc`, or why they are unknown. If a file cannot be read but a
/// flag has the hard thresholds, those of the flags are returned.
pub(super) fn read(directory: &Path, name: &str, arguments: &[String]) -> Result<Vec<Threshold>, String> {
    let is_plain = matches!(name, "kubelet" | "hyperkube");
    let rancher = RANCHER.into_iter().find(|program| name.starts_with(program));
    let flags = match rancher {
        Some(program) => of_rancher(directory, program, arguments)?,
        None => flags(arguments, &|name| DECISIVE.contains(&name) || [CONFIG, CONFIG_DIR].contains(&name)),
    };
    let flags: Vec<_> =
        flags.into_iter().filter(|(flag, path)| flag != CONFIG_DIR || seen_by(directory, path).exists()).collect();
    let decides = flags.iter().any(|(flag, _)| [CONFIG, CONFIG_DIR, DECISIVE[0]].contains(&flag.as_str()));
    if !is_plain && !decides {
        return Err(format!("it is part of {name}"));
    }
    // hyperkube has no version since 1.25, so it has the defaults.
    if name == "kubelet" && !decides {
        return Err(WITHOUT_CONFIG.to_owned());
    }
    let text: String =
        [("v".to_owned(), "0".to_owned())].iter().chain(&flags).map(|(flag, value)| line(flag, value)).collect();
    let named = |path: &str| seen_by(directory, path);
    let others = OtherFiles { named: Some(&named), ..OtherFiles::default() };
    let loaded = MonitorConfig::parse_with("the kubelet's flags", &text, others).map_err(|errors| first(&errors))?;
    // The kubelet derives its threshold on allocatable memory from that on memory.
    let thresholds = loaded.config.policy.thresholds.into_iter();
    Ok(thresholds.filter(|it| it.signal != Signal::AllocatableMemoryAvailable).collect())
}

/// Returns the flags with which k3s or RKE2 starts its kubelet, as far as they concern thresholds. Since 1.32 these programs keep all files of
/// the kubelet in one directory, also those that a flag of the user names. Flags on the command line replace those of `config.yaml`.
fn of_rancher(directory: &Path, program: &str, arguments: &[String]) -> Result<Vec<(String, String)>, String> {
    let is_own = |name: &str| ["kubelet-arg", "data-dir", "d", CONFIG, "c"].contains(&name);
    let own = flags(arguments, &is_own);
    let last =
        |names: [&str; 2]| own.iter().rfind(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value.clone());
    let file = last([CONFIG, "c"]).unwrap_or_else(|| format!("/etc/rancher/{program}/config.yaml"));
    let data = last(["data-dir", "d"]).unwrap_or_else(|| format!("{RANCHER_DATA}/{program}"));
    let given = own.iter().filter(|(name, _)| name == "kubelet-arg").map(|(_, value)| value.clone());
    let mut given: Vec<String> = given.collect();
    let file = seen_by(directory, &file);
    if given.is_empty() && file.exists() {
        given = arguments_of_k3s(&file).map_err(|errors| first(&errors))?;
    }
    let given: Vec<String> = given.iter().map(|flag| format!("--{}", flag.trim_start_matches("--"))).collect();
    let mut all = flags(&given, &|name| DECISIVE.contains(&name) || [CONFIG, CONFIG_DIR].contains(&name));
    let drop_ins = format!("{}/agent/etc/kubelet.conf.d", data.trim_end_matches('/'));
    if seen_by(directory, &drop_ins).exists() {
        all.retain(|(name, _)| ![CONFIG, CONFIG_DIR].contains(&name.as_str()));
        all.push((CONFIG_DIR.to_owned(), drop_ins));
    }
    Ok(all)
}

/// Returns the wanted flags of a command line with their values: `--name VALUE` or `--name=VALUE`, with one hyphen or two.
fn flags(arguments: &[String], is_wanted: &dyn Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = rest.next() {
        let Some(option) = argument.strip_prefix('-').map(|it| it.strip_prefix('-').unwrap_or(it)) else { continue };
        let (name, own) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        if !is_wanted(name) {
            continue;
        }
        if let Some(value) = own.or_else(|| rest.next_if(|next| !next.starts_with("--"))) {
            found.push((name.to_owned(), value.to_owned()));
        }
    }
    found
}

/// Writes a flag as a line. No value of these flags has a quote or a line break in it.
fn line(flag: &str, value: &str) -> String {
    let value: String =
        value.chars().map(|it| if it.is_control() || matches!(it, '"' | '\'') { ' ' } else { it }).collect();
    format!("--{flag}=\"{value}\"\n")
}

/// Returns a path as the kubelet sees it, in the root directory of its process.
fn seen_by(directory: &Path, path: &str) -> PathBuf {
    match path.strip_prefix('/') {
        Some(path) => directory.join("root").join(path),
        None => directory.join("cwd").join(path),
    }
}

/// One sentence suffices: the thresholds are unknown.
fn first(errors: &ConfigErrors) -> String {
    errors.0.first().map(ToString::to_string).unwrap_or_default()
}
