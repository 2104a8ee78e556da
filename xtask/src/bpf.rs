//! Finds a compiler for the eBPF programs and builds them.
//!
//! This file uses only std: `monitor/build.rs` includes it too, and must not wait for dependencies.

use std::{
    env,
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The only target: the agent runs on little-endian machines, on which aya loads little-endian objects.
const TARGET: &str = "bpfel-unknown-none";

/// The nightly of rustup. It is one of a date, so that every build of a commit has the same compiler. Its LLVM is that of Debian's compiler.
const NIGHTLY: &str = "nightly-2026-05-20";

/// Path of Debian's compiler. rustup never installs a compiler at this path.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// A complete set of tools for the BPF target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    compiler: Compiler,
    /// What the compiler prints of its version: `rustc 1.96.0 (ac68faa20 2026-05-25)`.
    pub version: String,
    pub linker: PathBuf,
    llvm_major: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Compiler {
    /// `rustup run` with [`NIGHTLY`], which compiles `core` itself from rust-src.
    RustupNightly,
    /// A rustc with a precompiled `core` for the target (Debian: libstd-rust-web-dev-bpf).
    Precompiled { rustc: PathBuf },
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.compiler {
            Compiler::RustupNightly => write!(f, "rustup's {NIGHTLY} with rust-src")?,
            Compiler::Precompiled { rustc } => {
                write!(f, "{} with its core for {TARGET}", rustc.display())?;
            }
        }
        write!(f, ", {}", self.version)?;
        if let Some(major) = self.llvm_major {
            write!(f, " (LLVM {major})")?;
        }
        write!(f, ", {}", self.linker.display())
    }
}

/// A missing piece, and how to install it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPiece {
    /// The kind of toolchain that the piece belongs to, or both kinds.
    pub way: &'static str,
    pub what: String,
    pub fix: String,
}

/// The pieces that each kind of toolchain lacks. No kind is complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing {
    pub pieces: Vec<MissingPiece>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, MissingPiece { way, what, fix }) in self.pieces.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{way}: {what}; {fix}")?;
        }
        Ok(())
    }
}

/// Returns a complete toolchain. rustup's nightly comes first, because most people have it; Debian's packages come second.
pub fn find() -> Result<Toolchain, Missing> {
    let mut missing = Missing::default();
    let linker = find_linker();
    for candidate in [rustup_nightly(), debian()] {
        match candidate {
            Ok((compiler, version)) => {
                let llvm_major = rustc_llvm_major(&version);
                let Some(linker) = &linker else {
                    missing.pieces.push(no_linker(llvm_major));
                    continue;
                };
                let version = version.lines().next().unwrap_or_default().to_owned();
                match same_llvm(llvm_major, linker_llvm_major(linker)) {
                    Ok(()) => return Ok(Toolchain { compiler, version, linker: linker.clone(), llvm_major }),
                    Err(piece) => missing.pieces.push(piece),
                }
            }
            Err(piece) => missing.pieces.push(piece),
        }
    }
    Err(missing)
}

/// Builds the object and returns its path. `target_dir` is for this build alone, because the outer cargo holds the lock of its
/// own.
pub fn build(toolchain: &Toolchain, workspace_root: &Path, target_dir: &Path) -> Result<PathBuf, String> {
    let mut command = match &toolchain.compiler {
        Compiler::RustupNightly => {
            let mut command = Command::new("rustup");
            command.args(["run", NIGHTLY, "cargo"]);
            command
        }
        Compiler::Precompiled { .. } => Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
    };
    command.args(["build", "--release", "--package", "monitor-ebpf", "--bin", "monitor-ebpf"]);
    command.args(["--features", "programs", "--target", TARGET, "--target-dir"]).arg(target_dir);
    scrub(&mut command);
    match &toolchain.compiler {
        Compiler::RustupNightly => {
            command.args(["-Z", "build-std=core"]);
        }
        Compiler::Precompiled { rustc } => {
            // aya-ebpf uses inline assembly for BPF, which no stable compiler accepts.
            command.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
        }
    }
    let linker = format!("-Clinker={}", toolchain.linker.display());
    command
        .current_dir(workspace_root)
        .env("CARGO_ENCODED_RUSTFLAGS", [linker.as_str(), "-Clink-arg=--btf", "-Cdebuginfo=2"].join("\x1f"))
        .env("CARGO_PROFILE_RELEASE_LTO", "true")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .stdin(Stdio::null());

    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the kernel side does not compile ({toolchain}):\n{log}"));
    }
    let object = target_dir.join(TARGET).join("release").join("monitor-ebpf");
    if object.is_file() { Ok(object) } else { Err(format!("{command:?} made no {}", object.display())) }
}

/// Removes variables that the outer cargo or the user set for the build for the host.
fn scrub(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if is_hosts_own(&name) {
            command.env_remove(name);
        }
    }
}

fn is_hosts_own(name: &OsString) -> bool {
    // The variables that both builds share: they say where cargo keeps and downloads the source of crates.
    const KEEP: [&str; 3] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_"];
    const DROP: [&str; 8] =
        ["CARGO", "RUSTC", "RUSTFLAGS", "RUSTDOC", "RUSTUP_TOOLCHAIN", "CLIPPY", "TARGET", "OUT_DIR"];
    let Some(name) = name.to_str() else {
        return false;
    };
    let registry = name.starts_with("CARGO_REGISTR") || name.starts_with("CARGO_SOURCE_");
    !registry
        && !KEEP.iter().any(|prefix| name.starts_with(prefix))
        && DROP.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the compiler, and what it prints of its version.
fn rustup_nightly() -> Result<(Compiler, String), MissingPiece> {
    let piece = |what: String, fix: String| MissingPiece { way: "rustup", what, fix };
    if run("rustup", &["--version"]).is_none() {
        return Err(piece("rustup is not in PATH".into(), "see https://rustup.rs".into()));
    }
    let version = run("rustup", &["run", NIGHTLY, "rustc", "-vV"]).ok_or_else(|| {
        piece(format!("no {NIGHTLY}"), format!("run: rustup toolchain install {NIGHTLY} --component rust-src"))
    })?;
    let sysroot = run("rustup", &["run", NIGHTLY, "rustc", "--print", "sysroot"]).unwrap_or_default();
    if !Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir() {
        let fix = format!("run: rustup component add rust-src --toolchain {NIGHTLY}");
        return Err(piece(format!("{NIGHTLY} has no rust-src"), fix));
    }
    Ok((Compiler::RustupNightly, version))
}

fn debian() -> Result<(Compiler, String), MissingPiece> {
    let piece = |what: String, fix: &str| MissingPiece { way: "Debian", what, fix: fix.into() };
    let version = run(DEBIAN_RUSTC, &["-vV"])
        .ok_or_else(|| piece(format!("no {DEBIAN_RUSTC}"), "run: apt-get install rustc-web libstd-rust-web-dev-bpf"))?;
    let libraries = run(DEBIAN_RUSTC, &["--print", "target-libdir", "--target", TARGET]).unwrap_or_default();
    let has_core = fs::read_dir(libraries.trim()).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
    });
    if !has_core {
        return Err(piece(
            format!("{DEBIAN_RUSTC} has no core for {TARGET}"),
            "run: apt-get install libstd-rust-web-dev-bpf",
        ));
    }
    Ok((Compiler::Precompiled { rustc: DEBIAN_RUSTC.into() }, version))
}

/// Looks in PATH first, then in the directory of `cargo install`, which root's PATH often lacks. A linker that lacks its LLVM does not run, and
/// an old one cannot emit BTF; neither is used.
fn find_linker() -> Option<PathBuf> {
    let mut places: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    places.extend(env::var_os("CARGO_HOME").map(|home| PathBuf::from(home).join("bin")));
    places.extend(env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo/bin")));
    places.into_iter().map(|place| place.join("bpf-linker")).find(|path| path.is_absolute() && emits_btf(path))
}

fn emits_btf(linker: &Path) -> bool {
    linker.is_file()
        && linker.to_str().and_then(|linker| run(linker, &["--help"])).is_some_and(|help| help.contains("--btf"))
}

fn no_linker(llvm_major: Option<u32>) -> MissingPiece {
    let fix = match llvm_major {
        Some(major) => format!(
            "run: LLVM_PREFIX=/usr/lib/llvm-{major} cargo install --force bpf-linker --no-default-features --features llvm-{major} \
             (needs llvm-{major}-dev)"
        ),
        None => "run: cargo install bpf-linker".into(),
    };
    MissingPiece {
        way: "both ways",
        what: "no bpf-linker that runs and knows --btf in PATH or ~/.cargo/bin".into(),
        fix,
    }
}

/// Refuses a linker of an older LLVM, which cannot read the bitcode of a newer rustc. An unknown version on either side is
/// accepted.
fn same_llvm(rustc: Option<u32>, linker: Option<u32>) -> Result<(), MissingPiece> {
    match (rustc, linker) {
        (Some(rustc), Some(linker)) if rustc != linker => Err(MissingPiece {
            way: "both ways",
            what: format!("bpf-linker is built with LLVM {linker}, rustc with LLVM {rustc}"),
            fix: format!(
                "run: LLVM_PREFIX=/usr/lib/llvm-{rustc} cargo install --force bpf-linker --no-default-features --features llvm-{rustc}"
            ),
        }),
        _ => Ok(()),
    }
}

/// Parses `LLVM version: 22.1.8` in the output of `rustc -vV`.
pub fn rustc_llvm_major(version: &str) -> Option<u32> {
    let line = version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    line.split('.').next()?.parse().ok()
}

/// Returns the LLVM version of the linker by the library that it needs. bpf-linker does not print the version, so that of a
/// statically linked one stays unknown.
fn linker_llvm_major(linker: &Path) -> Option<u32> {
    llvm_major_in(&run("ldd", &[linker.to_str()?])?)
}

fn llvm_major_in(ldd: &str) -> Option<u32> {
    let name = ldd.split_whitespace().find(|word| word.starts_with("libLLVM"))?;
    let digits = name.trim_start_matches("libLLVM").trim_start_matches(['-', '.']).trim_start_matches("so.");
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    scrub(&mut command);
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{emits_btf, is_hosts_own, llvm_major_in, rustc_llvm_major, same_llvm};

    #[test]
    fn llvm_major_is_read_from_both_tools() {
        assert_eq!(rustc_llvm_major("rustc 1.96.0\nrelease: 1.96.0\nLLVM version: 22.1.8\n"), Some(22));
        assert_eq!(rustc_llvm_major("LLVM version: 9\n"), Some(9));
        assert_eq!(rustc_llvm_major("rustc 1.96.0\n"), None);
        assert_eq!(rustc_llvm_major("LLVM version: unknown\n"), None);
        for (ldd, major) in [
            ("\tlibLLVM.so.22.1 => /usr/lib/llvm-22/lib/libLLVM.so.22.1 (0x7f)\n", Some(22)),
            ("\tlibLLVM-19.so.1 => /lib/libLLVM-19.so.1 (0x7f)\n", Some(19)),
            ("\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n", None),
        ] {
            assert_eq!(llvm_major_in(ldd), major, "{ldd}");
        }
    }

    #[test]
    fn a_linker_that_fails_or_does_not_know_btf_is_not_used() {
        for wrong in ["/bin/false", "/bin/cat", "/dev/null", "/no/bpf-linker"] {
            assert!(!emits_btf(Path::new(wrong)), "{wrong}");
        }
    }

    #[test]
    fn only_a_known_difference_of_versions_is_refused() {
        assert!(same_llvm(Some(22), Some(22)).is_ok());
        assert!(same_llvm(None, Some(22)).is_ok());
        assert!(same_llvm(Some(22), None).is_ok());
        assert!(same_llvm(Some(23), Some(22)).is_err_and(|piece| piece.fix.contains("llvm-23")));
    }

    #[test]
    fn settings_of_the_outer_build_are_removed() {
        for name in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "RUSTC_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "RUSTUP_TOOLCHAIN"]
        {
            assert!(is_hosts_own(&name.into()), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_HTTP_PROXY", "CARGO_REGISTRIES_X_TOKEN", "PATH", "HOME", "RUSTUP_HOME"] {
            assert!(!is_hosts_own(&name.into()), "{name}");
        }
    }
}
