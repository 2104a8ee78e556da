//! Checks the files under `config/` against the published schemas and the code: `cargo xtask manifests --check`.
//!
//! Every kustomization is built as by `kubectl kustomize`. Its objects are checked against the schemas of their kinds; roles against the
//! code's requests to the API server, both ways; flags, configuration, ports, paths, mounts and metrics against the program. Only an API
//! server checks values and expressions: `kubectl apply --dry-run=server`.

pub mod capabilities;
pub mod chart;
mod chart_values;
pub mod documents;
mod foreign;
pub mod kustomize;
pub mod program;
pub mod rbac;
pub mod schema;
pub mod units;
pub mod yaml;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The checks that were made, and the problems found.
#[derive(Debug, Default)]
pub struct Report {
    /// Directories of kustomizations, with their number of objects.
    pub kustomizations: Vec<(PathBuf, usize)>,
    /// systemd units.
    pub units: Vec<PathBuf>,
    /// The problems. Each begins with its file or directory.
    pub problems: Vec<String>,
}

#[must_use]
pub fn root() -> PathBuf {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifests.ancestors().nth(2).unwrap_or(manifests).to_owned()
}

/// Lists the directories below `config` with a kustomization, sorted. Components, which are parts of others, are left out.
///
/// # Errors
/// When a directory cannot be read.
pub fn kustomizations(root: &Path) -> Result<Vec<PathBuf>> {
    let is_component = |directory: &PathBuf| {
        let file = directory.join("kustomization.yaml");
        std::fs::read_to_string(file).is_ok_and(|text| text.lines().any(|line| line == "kind: Component"))
    };
    let mut found = kustomizations_and_components(root)?;
    found.retain(|directory| !is_component(directory));
    Ok(found)
}

fn kustomizations_and_components(root: &Path) -> Result<Vec<PathBuf>> {
    let files = files(&root.join("config"))?;
    let files = files.iter().filter(|path| path.ends_with("kustomization.yaml"));
    Ok(files.filter_map(|path| path.parent()).map(Path::to_owned).collect())
}

/// Lists the files below a directory, sorted.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let context = || format!("reading {}", directory.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(context)? {
        let path = entry.with_context(context)?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

/// Checks everything under `config`.
///
/// # Errors
/// When a file cannot be read.
pub fn check(root: &Path) -> Result<Report> {
    let mut report = Report::default();
    let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    let base = kustomize::build(&root.join("config/kubernetes/base"))?;
    for directory in kustomizations(root)? {
        let objects = kustomize::build(&directory)?;
        // A kustomization without a namespace refers to objects of the base.
        let is_whole = objects.iter().any(|object| documents::text(object, &["kind"]) == "Namespace");
        let all: Vec<Value> = if is_whole { objects.clone() } else { [objects.clone(), base.clone()].concat() };
        let mut say = |problem: String| {
            report.problems.push(format!("{}: {problem}", shown(&directory)));
        };
        for object in &objects {
            for problem in schema::check(object) {
                say(format!("{}: {problem}", documents::name(object)));
            }
        }
        // Problems of the base are reported for the base.
        let is_of_these = |problem: &String| objects.iter().any(|object| problem.starts_with(&documents::name(object)));
        program::check(&all)?.into_iter().filter(is_of_these).for_each(&mut say);
        capabilities::check(&all).into_iter().filter(is_of_these).for_each(&mut say);
        if is_whole {
            rbac::check(&objects).into_iter().for_each(&mut say);
        }
        report.kustomizations.push((directory, objects.len()));
    }
    let units = files(&root.join("config/systemd"))?;
    for unit in units.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "service")) {
        for problem in units::check(&unit, &capabilities::of_agent(&base))? {
            report.problems.push(format!("{}: {problem}", shown(&unit)));
        }
        report.units.push(unit);
    }
    // A file that no kustomization names is never applied.
    for path in unnamed(root)? {
        report.problems.push(format!("{}: no kustomization names it", shown(&path)));
    }
    Ok(report)
}

/// Lists YAML files that the kustomization in their directory does not name.
fn unnamed(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in kustomizations_and_components(root)? {
        let text = std::fs::read_to_string(directory.join("kustomization.yaml"))
            .with_context(|| format!("reading the kustomization in {}", directory.display()))?;
        let entries = std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_object = name.ends_with(".yaml") && name != "kustomization.yaml";
            if is_object && !text.lines().any(|line| line.split([' ', ':']).any(|word| word == name)) {
                found.push(path);
            }
        }
    }
    Ok(found)
}
