//! The bill of materials: every crate whose code is linked into the agent, by cargo's own resolution.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use serde_json::{Value, json};

const AGENT: &str = "node-pressure-monitor";
/// The crate of the eBPF programs, which the agent contains as an object file.
const PROGRAMS: &str = "monitor-ebpf";
/// The library that every static program of this target contains besides crates.
const C_LIBRARY: &str = "glibc";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rust's target
    #[arg(long)]
    target: String,
    /// Time of the commit in seconds since 1970
    #[arg(long)]
    epoch: i64,
    /// Directory of the workspace
    #[arg(long)]
    workspace: PathBuf,
    /// Version of the statically linked C library
    #[arg(long)]
    libc: Option<String>,
    /// A program that made the agent, as it prints its version: `rustc 1.95.0 (59807616e 2026-04-14)`; several times for several
    #[arg(long = "tool")]
    tools: Vec<String>,
    /// File to write
    #[arg(long)]
    output: PathBuf,
}

pub fn write(options: &Options) -> Result<()> {
    let target = options.target.as_str();
    // Cargo's metadata unite the features of the whole workspace; its tree has those of one package.
    let linked = ["--edges", "normal,no-proc-macro", "--target", target, "--prefix", "none", "--format", "{p}"];
    let agent = cargo(options, &[&["tree", "--package", AGENT][..], &linked].concat())?;
    let programs = cargo(options, &[&["tree", "--package", PROGRAMS, "--features", "programs"][..], &linked].concat())?;
    let crates: BTreeSet<String> = agent.lines().chain(programs.lines()).filter_map(reference_in_tree).collect();
    let features = format!("{PROGRAMS}/programs");
    let metadata = ["metadata", "--format-version", "1", "--filter-platform", target, "--features", &features];
    let metadata = serde_json::from_str(&cargo(options, &metadata)?).context("`cargo metadata` printed no JSON")?;
    let lock = options.workspace.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("reading {}", lock.display()))?;
    let bill = compose(&metadata, &crates, &checksums(&lock), options)?;
    let text = serde_json::to_string_pretty(&bill).context("the bill of materials")? + "\n";
    fs::write(&options.output, text).with_context(|| format!("writing {}", options.output.display()))
}

/// Runs cargo in the workspace, and returns what it prints.
fn cargo(options: &Options, arguments: &[&str]) -> Result<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&options.workspace).args(arguments).arg("--locked");
    let output = cargo.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns `name@version` of a line such as `serde v1.0.228` or `monitor-ebpf v0.1.0 (/src)`.
fn reference_in_tree(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    Some(format!("{}@{}", words.next()?, words.next()?.strip_prefix('v')?))
}

/// Returns the document. The crates are sorted by name and version, so that it is the same for the same commit.
fn compose(
    metadata: &Value,
    crates: &BTreeSet<String>,
    checksums: &BTreeMap<String, String>,
    options: &Options,
) -> Result<Value> {
    let all = array(&metadata["packages"]);
    let packages: BTreeMap<&str, &Value> = all
        .iter()
        .filter(|package| crates.contains(&reference(package)))
        .map(|package| (text(&package["id"]), package))
        .collect();
    let root = packages.values().find(|it| it["name"] == AGENT).with_context(|| format!("cargo knows no {AGENT}"))?;
    let mut components: Vec<Value> = packages
        .values()
        .filter(|package| package["name"] != AGENT)
        .map(|package| component(package, checksums))
        .collect();
    let mut libc = json!({"type": "library", "bom-ref": C_LIBRARY, "name": C_LIBRARY,
        "licenses": [{"expression": "LGPL-2.1-or-later"}]});
    if let Some(version) = &options.libc {
        libc["version"] = version.as_str().into();
    }
    components.push(libc);
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let mut dependencies: Vec<Value> = array(&metadata["resolve"]["nodes"])
        .iter()
        .filter_map(|node| Some((packages.get(text(&node["id"]))?, node)))
        .map(|(package, node)| {
            let is_normal =
                |dependency: &&Value| array(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let normal = array(&node["deps"]).iter().filter(is_normal);
            let mut on: Vec<String> =
                normal.filter_map(|it| packages.get(text(&it["pkg"]))).map(|package| reference(package)).collect();
            if package["name"] == AGENT {
                on.push(C_LIBRARY.to_owned());
            }
            on.sort();
            json!({"ref": reference(package), "dependsOn": on})
        })
        .collect();
    dependencies.sort_by_key(|dependency| dependency["ref"].to_string());
    let mut of_agent = component(root, checksums);
    of_agent["type"] = "application".into();
    let timestamp = Timestamp::from_second(options.epoch).context("the time of the commit")?;
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp.to_string(),
            "component": of_agent,
            "tools": {"components": options.tools.iter().map(|text| tool(text)).collect::<Vec<_>>()},
            "properties": [{"name": "cargo:target", "value": options.target}],
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Returns a program of the build by what it prints: its name, and the rest as its version.
fn tool(text: &str) -> Value {
    let (name, version) = text.split_once(' ').unwrap_or((text, ""));
    json!({"type": "application", "name": name, "version": version})
}

fn component(package: &Value, checksums: &BTreeMap<String, String>) -> Value {
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    let reference = reference(package);
    let mut component = json!({"type": "library", "bom-ref": reference, "name": name, "version": version});
    if let Some(license) = package["license"].as_str() {
        // An old spelling of OR.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if !package["source"].is_null() {
        component["purl"] = format!("pkg:cargo/{name}@{version}").into();
    }
    if let Some(checksum) = checksums.get(&format!("{name} {version}")) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

fn reference(package: &Value) -> String {
    format!("{}@{}", text(&package["name"]), text(&package["version"]))
}

/// Returns the check sums of a `Cargo.lock` by name and version.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
        Some(line.trim_matches('"').to_owned())
    };
    let entry = |block: &str| {
        Some((format!("{} {}", value(block, "name")?, value(block, "version")?), value(block, "checksum")?))
    };
    lock.split("[[package]]").filter_map(entry).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_bill_has_what_is_linked_and_nothing_else() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let output = std::env::temp_dir().join(format!("packaging-materials-{}", std::process::id()));
        let target = "x86_64-unknown-linux-gnu".to_owned();
        let (libc, tools) = (Some("2.36".to_owned()), vec!["rustc 1.95.0 (59807616e 2026-04-14)".to_owned()]);
        write(&Options { target, epoch: 0, workspace, libc, tools, output: output.clone() }).unwrap();
        let bill: Value = serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
        fs::remove_file(output).unwrap();
        let names: BTreeSet<&str> = array(&bill["components"]).iter().map(|it| text(&it["name"])).collect();
        for linked in ["aya", "aya-ebpf", "glibc", "kube", "monitor-ebpf", "rustls", "tokio"] {
            assert!(names.contains(linked), "{linked} is missing: {names:?}");
        }
        // Of tests, of build scripts, of compilation, of this program, of other systems.
        for other in ["proptest", "criterion", "cc", "serde_derive", "clap_mangen", "rpm", "palette", "windows-sys"] {
            assert!(!names.contains(other), "{other} is not linked");
        }
        let without_sum =
            array(&bill["components"]).iter().filter(|it| it["purl"].is_string() && it["hashes"].is_null());
        assert_eq!(without_sum.count(), 0);
        assert_eq!(bill["metadata"]["component"]["name"], AGENT);
        assert_eq!(bill["metadata"]["tools"]["components"][0]["version"], "1.95.0 (59807616e 2026-04-14)");
    }
}
