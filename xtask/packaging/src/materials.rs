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
/// What every static program of this target contains besides crates.
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
    /// File to write
    #[arg(long)]
    output: PathBuf,
}

pub fn write(options: &Options) -> Result<()> {
    let metadata = |further: &[&str]| -> Result<Value> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&options.workspace).args(["metadata", "--format-version", "1", "--locked"]).args(further);
        let output = cargo.output().context("cannot run `cargo metadata`")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("`cargo metadata` printed no JSON")
    };
    let lock = options.workspace.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("reading {}", lock.display()))?;
    let agent = metadata(&["--filter-platform", &options.target])?;
    let bill = compose(&agent, &checksums(&lock), options)?;
    let text = serde_json::to_string_pretty(&bill).context("the bill of materials")? + "\n";
    fs::write(&options.output, text).with_context(|| format!("writing {}", options.output.display()))
}

/// Returns the document. The crates are sorted by name and version, so that it is the same for the same commit.
fn compose(metadata: &Value, checksums: &BTreeMap<String, String>, options: &Options) -> Result<Value> {
    let packages: BTreeMap<&str, &Value> =
        array(&metadata["packages"]).iter().map(|package| (text(&package["id"]), package)).collect();
    let find = |name: &str| {
        let is_it = |(_, package): &(&&str, &&Value)| package["name"] == name && package["source"].is_null();
        packages.iter().find(is_it).map(|(id, _)| *id).with_context(|| format!("cargo knows no package {name}"))
    };
    let (agent, programs) = (find(AGENT)?, find(PROGRAMS)?);
    let mut edges = linked(metadata, &packages, agent);
    // The programs are compiled for another target, with the optional dependencies of their crate.
    edges.extend(linked(metadata, &packages, programs));
    let reference = |id: &str| packages.get(id).map(|package| reference(package)).unwrap_or_default();
    let root = packages.get(agent).copied().context("the agent's package")?;
    let mut components: Vec<Value> = edges
        .keys()
        .filter(|id| **id != agent)
        .filter_map(|id| packages.get(id))
        .map(|package| component(package, checksums))
        .collect();
    let mut libc = json!({"type": "library", "bom-ref": C_LIBRARY, "name": C_LIBRARY,
        "licenses": [{"expression": "LGPL-2.1-or-later"}]});
    if let Some(version) = &options.libc {
        libc["version"] = version.as_str().into();
    }
    components.push(libc);
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let mut dependencies: Vec<Value> = edges
        .iter()
        .map(|(id, targets)| {
            let mut on: Vec<String> = targets.iter().map(|target| reference(target)).collect();
            if *id == agent {
                on.push(C_LIBRARY.to_owned());
            }
            on.sort();
            json!({"ref": reference(id), "dependsOn": on})
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
            "properties": [{"name": "cargo:target", "value": options.target}],
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Returns the crates that are linked, each with those that it uses: by normal dependencies, without procedural macros, which only
/// run while the compiler does.
fn linked<'a>(
    metadata: &'a Value,
    packages: &BTreeMap<&'a str, &'a Value>,
    root: &'a str,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).iter().map(|node| (text(&node["id"]), node)).collect();
    let is_macro = |id: &str| {
        let targets = packages.get(id).map(|package| array(&package["targets"])).unwrap_or_default();
        targets.iter().any(|target| array(&target["kind"]).iter().any(|kind| kind == "proc-macro"))
    };
    let mut edges = BTreeMap::new();
    let mut waiting = vec![root];
    while let Some(id) = waiting.pop() {
        if edges.contains_key(id) {
            continue;
        }
        let dependencies = nodes.get(id).map(|node| array(&node["deps"])).unwrap_or_default();
        let is_normal =
            |dependency: &&'a Value| array(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let used: BTreeSet<&str> =
            dependencies.iter().filter(is_normal).map(|it| text(&it["pkg"])).filter(|id| !is_macro(id)).collect();
        waiting.extend(&used);
        edges.insert(id, used);
    }
    edges
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
        write(&Options { target, epoch: 0, workspace, libc: Some("2.36".to_owned()), output: output.clone() }).unwrap();
        let bill: Value = serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
        fs::remove_file(output).unwrap();
        let names: BTreeSet<&str> = array(&bill["components"]).iter().map(|it| text(&it["name"])).collect();
        for linked in ["aya", "glibc", "kube", "monitor-ebpf", "rustls", "tokio"] {
            assert!(names.contains(linked), "{linked} is missing: {names:?}");
        }
        // Of tests, of build scripts, of compilation, of this program, of other systems.
        for other in ["proptest", "criterion", "cc", "serde_derive", "clap_mangen", "rpm", "windows-sys"] {
            assert!(!names.contains(other), "{other} is not linked");
        }
        let without_sum =
            array(&bill["components"]).iter().filter(|it| it["purl"].is_string() && it["hashes"].is_null());
        assert_eq!(without_sum.count(), 0);
        assert_eq!(bill["metadata"]["component"]["name"], AGENT);
    }
}
