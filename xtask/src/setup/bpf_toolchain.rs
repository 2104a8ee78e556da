//! The BPF toolchain: a rustc that can compile BPF objects, and bpf-linker built with the same LLVM.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::apt::Apt;
use super::need::Lack;
use super::packaged::CXX;
use crate::bpf;
use crate::cmd;

/// Debian's compiler, which has `core` for the BPF targets. A complete nightly of rustup with rust-src is preferred.
pub const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_PACKAGES: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];
const DEBIAN_CORE: &str = "/usr/lib/rustlib/bpfel-unknown-none/lib";
const LINKER_VERSION: &str = "0.13.0";

/// Describes the toolchain that was found.
pub fn find() -> Result<String, Lack> {
    let toolchain = bpf::find().map_err(|missing| Lack::Pieces(missing.to_string()))?;
    Ok(toolchain.to_string())
}

fn debian_compiler_is_there() -> bool {
    Path::new(DEBIAN_RUSTC).exists() && Path::new(DEBIAN_CORE).is_dir()
}

/// Returns whether root must install a missing piece.
pub fn needs_packages() -> bool {
    !debian_compiler_is_there() || llvm_major().is_none_or(|major| !llvm_prefix(major).join("include").is_dir())
}

pub fn by_hand() -> Vec<String> {
    let major = llvm_major().map_or_else(|| "NN".to_owned(), |major| major.to_string());
    let mut commands = vec![format!("apt-get install -y --no-install-recommends {} g++", DEBIAN_PACKAGES.join(" "))];
    if major == "NN" {
        commands.push(format!("NN=$({DEBIAN_RUSTC} -vV | sed -n 's/^LLVM version: \\([0-9]*\\).*/\\1/p')"));
    }
    let variable = if major == "NN" { "$NN" } else { &major };
    commands.push(format!("apt-get install -y --no-install-recommends llvm-{variable}-dev"));
    commands.push(format!(
        "LLVM_PREFIX=/usr/lib/llvm-{variable} cargo install bpf-linker --version {LINKER_VERSION} --force --no-default-features --features llvm-{variable}"
    ));
    commands
}

pub fn install(apt: &mut Apt) -> Result<String> {
    if !debian_compiler_is_there() {
        apt.install(&DEBIAN_PACKAGES)?;
    }
    let major = llvm_major().with_context(|| format!("`{DEBIAN_RUSTC} -vV` does not say its LLVM version"))?;
    let prefix = llvm_prefix(major);
    // bpf-linker links LLVM's C++ libraries, hence g++.
    if !prefix.join("include").is_dir() || CXX.find().is_err() {
        apt.install(&[&format!("llvm-{major}-dev"), "g++"])?;
    }
    let mut install = cmd::cargo();
    install
        .env("LLVM_PREFIX", &prefix)
        .args(["install", "bpf-linker", "--version", LINKER_VERSION, "--locked", "--force", "--no-default-features"])
        .args(["--features", &format!("llvm-{major}")])
        // The workspace's settings of linker and aliases are not for this build, so it runs in another directory.
        .current_dir(env::temp_dir());
    cmd::output(&mut install)?;
    Ok(format!("installed rustc-web with LLVM {major}, bpf-linker {LINKER_VERSION}"))
}

fn llvm_prefix(major: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{major}"))
}

/// Returns LLVM's major version of Debian's rustc.
fn llvm_major() -> Option<u32> {
    bpf::rustc_llvm_major(&cmd::output(Command::new(DEBIAN_RUSTC).arg("-vV")).ok()?)
}
