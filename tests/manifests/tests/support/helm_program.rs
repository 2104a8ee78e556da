//! Runs Helm: the program that the variable HELM names, or the one in PATH.

use std::io::Write as _;
use std::process::{Command, Output};

use node_pressure_manifests::chart::CHART;
use node_pressure_manifests::{documents, root};
use serde_json::Value;

/// Returns how a command of Helm ended; `None` without Helm.
pub fn run(arguments: &[&str]) -> Option<Output> {
    let helm = std::env::var_os("HELM").unwrap_or_else(|| "helm".into());
    Command::new(helm).args(arguments).current_dir(root()).output().ok()
}

/// Returns the standard output of a command that succeeds; `None` without Helm.
pub fn printed_by(arguments: &[&str]) -> Option<String> {
    let output = run(arguments)?;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Returns what Helm renders with further options, sorted by name; `None` without Helm.
pub fn rendered(options: &[&str]) -> Option<Vec<Value>> {
    let printed = printed_by(&[&["template", "node-pressure-monitor", CHART], options].concat())?;
    let mut objects = documents::parse(&printed).unwrap();
    objects.sort_by_key(documents::name);
    Some(objects)
}

/// Only a direct write reaches the summary of the suite: the output of a passing test is not shown.
pub fn skip(test: &str) {
    let line = format!("\nSKIPPED {test}: helm is neither in PATH nor named by HELM: run `cargo xtask setup`\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}
