//! Checks systemd units: the program's flags, the capabilities, and the directives.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use node_pressure_monitor::config::MonitorConfig;

use crate::program;

/// The path of the program in the unit.
const PROGRAM: &str = "/usr/bin/node-pressure-monitor";

/// Returns the problems with a unit that should have these capabilities.
///
/// # Errors
/// When the unit cannot be read.
pub fn check(path: &Path, capabilities: &BTreeSet<String>) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut problems = Vec::new();
    let commands: Vec<&str> = values(&text, "ExecStart").collect();
    if commands.is_empty() {
        problems.push("has no ExecStart".to_owned());
    }
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.split_first() {
            Some((&PROGRAM, arguments)) => {
                problems.extend(program::check_arguments(arguments).map(|problem| format!("ExecStart: {problem}")));
                problems.extend(other_lock(arguments));
            }
            _ => problems.push(format!("ExecStart does not begin with {PROGRAM}")),
        }
    }
    let bounding: BTreeSet<String> =
        values(&text, "CapabilityBoundingSet").flat_map(str::split_whitespace).map(str::to_owned).collect();
    if &bounding != capabilities {
        let other: Vec<&str> = bounding.symmetric_difference(capabilities).map(String::as_str).collect();
        problems
            .push(format!("CapabilityBoundingSet differs from the DaemonSet's capabilities in {}", other.join(", ")));
    }
    Ok(problems)
}

/// Commands find the lock by the configuration, so that the unit's must be the default.
fn other_lock(arguments: &[&str]) -> Option<String> {
    let default = MonitorConfig::default().lock_file;
    let given = arguments.iter().skip_while(|it| **it != "--lock-file").nth(1)?;
    (Path::new(given) != default)
        .then(|| format!("ExecStart: --lock-file is {given}, and the default is {}", default.display()))
}

fn values<'a>(text: &'a str, setting: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(setting)?.strip_prefix('='))
}

/// Returns the directives that systemd does not accept; `None` if systemd-analyze is not installed.
#[must_use]
pub fn rejected_by_systemd(path: &Path) -> Option<Vec<String>> {
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_of_ours =
        |line: &&str| line.contains("Unknown") || line.contains("Failed to parse") || line.contains("Invalid");
    Some(text.lines().filter(is_of_ours).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_flags_and_capabilities_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let unit = directory.path().join("a.service");
        std::fs::write(&unit, format!("[Service]\nExecStart={PROGRAM} run --confg=/x\n")).unwrap();
        let problems = || check(&unit, &BTreeSet::from(["CAP_KILL".to_owned()])).unwrap();
        assert!(problems()[0].contains("--confg"), "{:?}", problems());
        std::fs::write(&unit, "[Service]\nCapabilityBoundingSet=CAP_KILL\n").unwrap();
        assert_eq!(problems(), ["has no ExecStart"]);
        std::fs::write(&unit, format!("[Service]\nExecStart={PROGRAM} run\nCapabilityBoundingSet=CAP_BPF\n")).unwrap();
        assert!(problems()[0].ends_with("CAP_BPF, CAP_KILL"), "{:?}", problems());
    }
}
