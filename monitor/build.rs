//! Compiles the kernel side, so that the agent carries it inside.

#[path = "../xtask/src/bpf.rs"]
mod bpf;

use object::build::elf::{self, SectionData};
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
        if is_static() && glibc().is_some_and(|version| version >= RELOCATES_PACKED) {
            println!("cargo::rustc-link-arg-bin=node-pressure-monitor=-Wl,-z,pack-relative-relocs");
        }
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

/// The first glibc whose start of a static program understands packed relocations, which take a thirtieth of the room.
const RELOCATES_PACKED: (u32, u32) = (2, 36);

fn is_static() -> bool {
    env::var("CARGO_CFG_TARGET_FEATURE")
        .is_ok_and(|features| features.split(',').any(|feature| feature == "crt-static"))
}

/// Returns the version of this machine's glibc, which is linked.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn object(toolchain: &bpf::Toolchain) -> Result<PathBuf, String> {
    let directory = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(format!("cargo did not set {name}"));
    let (manifest, out) = (directory("CARGO_MANIFEST_DIR")?, directory("OUT_DIR")?);
    let root = manifest.parent().ok_or("the package is not inside the workspace")?;
    let built = bpf::build(toolchain, root, &target_dir(&out).join("bpf"))?;
    // A copy of one's own: the path stays the same whichever toolchain built it.
    let object = out.join("monitor-ebpf.o");
    let content = fs::read(&built).map_err(|error| format!("cannot read {}: {error}", built.display()))?;
    let content = without_dwarf(&content).map_err(|error| format!("cannot rewrite {}: {error}", built.display()))?;
    fs::write(&object, content).map_err(|error| format!("cannot write {}: {error}", object.display()))?;
    Ok(object)
}

/// Removes the DWARF sections, five sixths of the object. The linker has made BTF of them, which is what the kernel and the verifier's log use.
fn without_dwarf(content: &[u8]) -> object::build::Result<Vec<u8>> {
    let mut elf = elf::Builder::read(content)?;
    for section in elf.sections.iter_mut() {
        let name = section.name.to_string();
        section.delete = name.trim_start_matches(".rel").starts_with(".debug_");
    }
    elf.delete_orphans();
    // LLVM keeps the names of sections and those of symbols in one section; the builder wants two.
    let names = elf.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = object::elf::SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    elf.write(&mut stripped)?;
    Ok(stripped)
}

/// `OUT_DIR` is `target/[TARGET/]PROFILE/build/PACKAGE/out`. All profiles and targets share one build of the programs.
fn target_dir(out: &Path) -> &Path {
    let above_profile = out.ancestors().nth(4).unwrap_or(out);
    let is_of_target = above_profile.file_name().is_some_and(|name| env::var_os("TARGET").is_some_and(|it| it == name));
    if is_of_target { above_profile.parent().unwrap_or(above_profile) } else { above_profile }
}
