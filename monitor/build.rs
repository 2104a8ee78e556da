//! Compiles the kernel side, so that the agent carries it inside.

#[path = "../xtask/src/bpf.rs"]
mod bpf;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
};

fn main() {
    for path in ["../monitor-ebpf/src", "../monitor-ebpf/Cargo.toml", "../xtask/src/bpf.rs", "build.rs"] {
        println!("cargo::rerun-if-changed={path}");
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

/// `OUT_DIR` is `target/PROFILE/build/PACKAGE/out`, so that all profiles share one build of the programs.
fn target_dir(out: &Path) -> &Path {
    out.ancestors().nth(4).unwrap_or(out)
}
