//! The compiler for another architecture: Debian's rustc with the standard library of that architecture, and Debian's cross gcc. The
//! standard library is unpacked into the cache, and never installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::apt::Apt;
use super::bpf_toolchain::DEBIAN_RUSTC;
use crate::arch::Arch;
use crate::cmd;

/// Returns the directory into which the standard library is unpacked.
pub fn tree(cache: &Path, arch: Arch) -> PathBuf {
    directory(cache, arch).join("files")
}

/// Returns the system root of the compiler, if it is there.
pub fn find(cache: &Path, arch: Arch) -> Option<PathBuf> {
    let root = directory(cache, arch);
    libraries(&root, arch).is_dir().then_some(root)
}

/// Downloads the standard library.
pub fn install(apt: &mut Apt, cache: &Path, arch: Arch) -> Result<String> {
    let root = directory(cache, arch);
    let package = format!("libstd-rust-web-dev:{arch}");
    let files = apt.elsewhere(cache, arch, None)?.unpack(&[&package], &tree(cache, arch))?;
    let link = libraries(&root, arch);
    fs::create_dir_all(link.parent().context("the libraries' directory")?).context("creating the system root")?;
    if link.symlink_metadata().is_err() {
        symlink(files.join("usr/lib/rustlib").join(arch.target()), &link)
            .with_context(|| format!("linking {}", link.display()))?;
    }
    Ok("downloaded".to_owned())
}

/// The libraries of one version of rustc do not serve another one.
fn directory(cache: &Path, arch: Arch) -> PathBuf {
    let version = cmd::output(Command::new(DEBIAN_RUSTC).arg("-V")).unwrap_or_default();
    let version = version.split_whitespace().nth(1).unwrap_or("none").to_owned();
    cache.join(format!("rust-{version}-{arch}"))
}

fn libraries(root: &Path, arch: Arch) -> PathBuf {
    root.join("lib/rustlib").join(arch.target())
}

/// Makes cargo compile for this architecture.
pub fn configure(command: &mut Command, cache: &Path, arch: Arch) -> Result<()> {
    let root = find(cache, arch).with_context(|| format!("the standard library for {arch} is not there"))?;
    let target = arch.target().replace('-', "_");
    let of_release = command.get_envs().find(|(name, _)| *name == "RUSTFLAGS").and_then(|(_, value)| value?.to_str());
    let flags = format!("{} --sysroot={}", of_release.unwrap_or_default(), root.display());
    command
        .env("RUSTC", DEBIAN_RUSTC)
        .env(format!("CARGO_TARGET_{}_LINKER", target.to_uppercase()), arch.tool("gcc"))
        .env(format!("CC_{target}"), arch.tool("gcc"))
        .env(format!("AR_{target}"), arch.tool("ar"))
        .env("RUSTFLAGS", flags);
    Ok(())
}
