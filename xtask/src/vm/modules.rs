//! The kernel modules that the guest loads, in load order. Debian's packages have no modules.dep (depmod makes it when a kernel
//! is installed), so the order comes from the `depends=` of each module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::cmd;

/// The guest's modules that may not be built in: disks, file systems, ext4's quotas, loop devices, swap in memory and its default
/// compression in Linux 6.1. crc32c-intel computes the check sums of xfs faster.
const WANTED: [&str; 9] =
    ["virtio_pci", "virtio_blk", "crc32c_intel", "xfs", "overlay", "quota_v2", "loop", "lzo_rle", "zram"];

/// The modules of a pod network.
const OF_PODS: [&str; 2] = ["bridge", "veth"];

/// The module of the network through which viewers reach the agent.
const OF_VIEWERS: [&str; 1] = ["virtio_net"];

/// One module, unpacked.
#[derive(Debug)]
pub struct Module {
    pub name: String,
    pub content: Vec<u8>,
}

/// Reads the wanted modules, with those of a pod network and of viewers if asked for, and their dependencies, dependencies first. Omits
/// modules that are built in or absent.
pub fn load(modules: &Path, with_pod_network: bool, with_viewers: bool) -> Result<Vec<Module>> {
    let mut wanted = WANTED.to_vec();
    if with_pod_network {
        wanted.extend(OF_PODS);
    }
    if with_viewers {
        wanted.extend(OF_VIEWERS);
    }
    let mut files = BTreeMap::new();
    index(&modules.join("kernel"), &mut files)?;
    let mut contents = BTreeMap::new();
    let order = load_order(&wanted, &mut |name| {
        let Some(file) = files.get(name) else {
            return Ok(None);
        };
        let content = read(file)?;
        let depends = depends(&content);
        contents.insert(name.to_owned(), content);
        Ok(Some(depends))
    })?;
    Ok(order.into_iter().filter_map(|name| contents.remove(&name).map(|content| Module { name, content })).collect())
}

/// Returns the load order, depth first, each module once. `depends_of` returns `None` for a name that is no loadable module, such
/// as a built-in one.
fn load_order(wanted: &[&str], depends_of: &mut dyn FnMut(&str) -> Result<Option<Vec<String>>>) -> Result<Vec<String>> {
    fn visit(
        name: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<String>,
        depends_of: &mut dyn FnMut(&str) -> Result<Option<Vec<String>>>,
    ) -> Result<()> {
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        if let Some(depends) = depends_of(name)? {
            for dependency in &depends {
                visit(dependency, seen, order, depends_of)?;
            }
            order.push(name.to_owned());
        }
        Ok(())
    }
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    for name in wanted {
        visit(name, &mut seen, &mut order, depends_of)?;
    }
    Ok(order)
}

/// Returns the names in a module's `depends=` entry.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module[start + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value).split(',').filter(|name| !name.is_empty()).map(module_name).collect()
}

/// Returns the module name of a file name. File names have dashes or underscores; module names have underscores.
fn module_name(name: &str) -> String {
    name.replace('-', "_")
}

fn index(dir: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry.with_context(|| format!("reading {}", dir.display()))?.path();
        if path.is_dir() {
            index(&path, files)?;
        } else if let Some((name, rest)) =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('.'))
            && rest.starts_with("ko")
        {
            files.insert(module_name(name), path);
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let unpacker = match file.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => return fs::read(file).with_context(|| format!("reading {}", file.display())),
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => bail!("{}: compressed in an unknown way", file.display()),
    };
    let mut command = Command::new(unpacker);
    command.arg("-dc").arg(file).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("cannot run `{}`", cmd::shown(&command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", cmd::shown(&command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_parsed_from_modinfo() {
        assert_eq!(depends(b"ELF\0depends=virtio,virtio_ring\0name=virtio_blk\0"), ["virtio", "virtio_ring"]);
        assert_eq!(depends(b"ELF\0depends=crc32c-intel\0"), ["crc32c_intel"]);
        assert!(depends(b"ELF\0depends=\0name=loop\0").is_empty());
        assert!(depends(b"ELF").is_empty());
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let graph = BTreeMap::from([
            ("virtio_blk", vec!["virtio", "virtio_ring"]),
            ("virtio", vec!["virtio_ring"]),
            ("virtio_ring", vec![]),
            ("virtio_pci", vec!["virtio_ring", "virtio", "built_in"]),
        ]);
        let order = load_order(&["virtio_pci", "virtio_blk", "absent"], &mut |name| {
            Ok(graph.get(name).map(|depends| depends.iter().map(ToString::to_string).collect()))
        });
        assert_eq!(order.unwrap(), ["virtio_ring", "virtio", "virtio_pci", "virtio_blk"]);
    }
}
