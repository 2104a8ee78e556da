//! Compiles the kernel side, so that the agent carries it inside.

#[path = "../xtask/src/bpf.rs"]
mod bpf;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
};

fn main() {
    for path in ["../monitor-ebpf/src", "../monitor-ebpf/Cargo.toml", "../xtask/src/bpf.rs", "build.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    if links_by_lld() {
        // Generic code is compiled many times over to the same: the agent keeps in memory what it has used of each copy.
        println!("cargo::rustc-link-arg-bin=node-pressure-monitor=-Wl,--icf=all");
    }
    // Which piece is missing, and how to get it, is what setup says.
    let Ok(toolchain) = bpf::find() else {
        println!(
            "cargo::error=the eBPF programs need a BPF toolchain, and there is no complete one: run `cargo xtask setup`"
        );
        return;
    };
    match object(&toolchain) {
        Ok(path) => println!("cargo::rustc-env=MONITOR_EBPF_OBJECT={}", path.display()),
        Err(message) => {
            eprintln!("{message}");
            process::exit(1);
        }
    }
}

/// Whether the linker is the LLD of the Rust toolchain, its own choice on x86-64 (Rust 1.90). Others do not fold identical code.
fn links_by_lld() -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let target = "x86_64-unknown-linux-gnu";
    let is_chosen_otherwise = variable("CARGO_ENCODED_RUSTFLAGS").contains("link");
    if variable("TARGET") != target || variable("HOST") != target || is_chosen_otherwise {
        return false;
    }
    let Ok(sysroot) = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output() else { return false };
    Path::new(String::from_utf8_lossy(&sysroot.stdout).trim())
        .join("lib/rustlib")
        .join(target)
        .join("bin/gcc-ld/ld.lld")
        .exists()
}

fn object(toolchain: &bpf::Toolchain) -> Result<PathBuf, String> {
    let directory = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(format!("cargo did not set {name}"));
    let (manifest, out) = (directory("CARGO_MANIFEST_DIR")?, directory("OUT_DIR")?);
    let root = manifest.parent().ok_or("the package is not inside the workspace")?;
    let built = bpf::build(toolchain, root, &target_dir(&out).join("bpf"))?;
    // A copy of one's own: the path stays the same whichever toolchain built it.
    let object = out.join("monitor-ebpf.o");
    fs::copy(&built, &object).map_err(|error| format!("cannot copy {}: {error}", built.display()))?;
    Ok(object)
}

/// `OUT_DIR` is `target/[TARGET/]PROFILE/build/PACKAGE/out`. All profiles and targets share one build of the programs.
fn target_dir(out: &Path) -> &Path {
    let above_profile = out.ancestors().nth(4).unwrap_or(out);
    let is_of_target = above_profile.file_name().is_some_and(|name| env::var_os("TARGET").is_some_and(|it| it == name));
    if is_of_target { above_profile.parent().unwrap_or(above_profile) } else { above_profile }
}
