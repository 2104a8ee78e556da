//! `cargo xtask setup`: finds what the other commands need, and as root on Debian installs what is missing.
//!
//! Setup looks for each part before it installs anything, so a second run costs only some file look-ups.

mod apt;
mod bpf_toolchain;
pub mod cross;
pub mod guest_root;
pub mod helm;
pub mod kernel;
pub mod unpacked;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::arch::Arch;
use crate::bpf;
use crate::cmd::{self, Steps};
use crate::console::Console;
use crate::paths::{Workspace, find_program, is_root};
use apt::Apt;
use guest_root::Root;
use kernel::Series;
use unpacked::{EARLYOOM, PROMETHEUS, Unpacked};

/// Finds, and as root on Debian installs, the tools that the other commands need.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Install and download nothing: say what is missing and what to type, and exit with an error if anything is.
    #[arg(long)]
    check: bool,
}

/// A thing that some command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Programs from Debian's packages.
    Packaged(Packaged),
    /// A rustc that can compile BPF objects, and bpf-linker with the same LLVM.
    BpfToolchain,
    /// rustfmt and clippy of the active toolchain.
    RustComponents,
    /// Programs from Debian's packages, which are not installed.
    Unpacked(Unpacked),
    CargoFuzz,
    Kernel(Series, Arch),
    /// The standard library for another architecture.
    CrossStd(Arch),
    /// A static busybox of another architecture. It is only unpacked.
    Busybox(Arch),
    /// A root file system with systemd and containerd from Debian's packages, as an image.
    GuestRoot(Root),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packaged {
    name: &'static str,
    programs: &'static [&'static str],
    packages: &'static [&'static str],
}

const fn packaged(name: &'static str, programs: &'static [&'static str], packages: &'static [&'static str]) -> Part {
    Part::Packaged(Packaged { name, programs, packages })
}

/// gcc links host programs. The package also has strip.
const C_LINKER: Part = packaged("C linker", &["cc", "strip"], &["gcc", "libc6-dev"]);
/// clippy of Debian's compiler for BPF.
pub const BPF_CLIPPY: Part = packaged("clippy for BPF", &["/usr/bin/cargo-clippy"], &["rust-web-clippy"]);
const QEMU_AMD64: Part = packaged("QEMU for amd64", &["qemu-system-x86_64"], &["qemu-system-x86"]);
const QEMU_ARM64: Part = packaged("QEMU for arm64", &["qemu-system-aarch64"], &["qemu-system-arm"]);
pub const QEMU: Part = if cfg!(target_arch = "aarch64") { QEMU_ARM64 } else { QEMU_AMD64 };
const BUSYBOX: Part = packaged("busybox", &["busybox"], &["busybox-static"]);
/// These programs make the VM's disks.
const MKFS: Part = packaged("mkfs.ext4, mkfs.xfs", &["mkfs.ext4", "mkfs.xfs"], &["e2fsprogs", "xfsprogs"]);
/// xz decompresses kernel modules.
const XZ: Part = packaged("xz", &["xz"], &["xz-utils"]);
/// libFuzzer is written in C++.
const CXX_COMPILER: Part = packaged("C++ compiler", &["g++"], &["g++"]);

/// Shows the status page to its tests.
const CHROMIUM: Part = packaged("Chromium", &["chromium"], &["chromium"]);

/// Programs that tests look at the agent with. Tests whose program is missing are skipped.
pub const VIEWERS: &[Part] = &[Part::Unpacked(PROMETHEUS), CHROMIUM];

/// The parts that the agent needs to be built and run.
pub const BUILD: &[Part] = &[C_LINKER, Part::BpfToolchain];

/// The C compilers for the other architecture, with its C library.
const GCC_FOR_ARM64: Part =
    packaged("gcc for arm64", &["aarch64-linux-gnu-gcc"], &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]);
const GCC_FOR_AMD64: Part =
    packaged("gcc for amd64", &["x86_64-linux-gnu-gcc"], &["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"]);
/// The standard library of another architecture is that of this compiler.
const DEBIAN_RUSTC: Part = packaged("Debian's rustc", &[bpf_toolchain::DEBIAN_RUSTC], &["rustc-web"]);

/// Returns the parts that a build for this architecture needs.
pub fn to_build(arch: Arch) -> Vec<Part> {
    let gcc = if arch == Arch::Arm64 { GCC_FOR_ARM64 } else { GCC_FOR_AMD64 };
    let cross = [gcc, DEBIAN_RUSTC, Part::CrossStd(arch)];
    [BUILD, if arch.is_host() { &[] } else { &cross }].concat()
}

/// Returns the parts that a boot of the VM needs on this architecture, besides a kernel and the binaries.
pub fn to_boot(arch: Arch) -> Vec<Part> {
    let qemu = if arch == Arch::Arm64 { QEMU_ARM64 } else { QEMU_AMD64 };
    if arch.is_host() { VM.to_vec() } else { vec![qemu, Part::Busybox(arch), MKFS, XZ] }
}

/// The parts that a boot of the VM needs, besides a kernel and the binaries.
pub const VM: &[Part] = &[QEMU, BUSYBOX, MKFS, XZ, Part::Unpacked(EARLYOOM)];

/// The parts for fuzzing. The fuzz targets link the agent's whole library.
pub const FUZZ: &[Part] = &[C_LINKER, Part::BpfToolchain, CXX_COMPILER, Part::CargoFuzz];

const CARGO_FUZZ_VERSION: &str = "0.13.2";

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let mut parts = BUILD.to_vec();
    parts.push(Part::RustComponents);
    parts.extend_from_slice(VIEWERS);
    parts.extend_from_slice(VM);
    parts.extend(FUZZ.iter().filter(|part| !BUILD.contains(part)));
    parts.extend(Series::IN_SUITE.map(|series| Part::Kernel(series, Arch::host())));
    parts.push(Part::GuestRoot(Root::Containers));
    let console = Console::alone();
    let setup = Setup { workspace, console: &console, check_only: options.check, verbose: true };
    setup.ensure(&parts)?;
    helm::set_up(workspace, options.check);
    println!("Everything is in place. Next: `cargo xtask run`, `cargo xtask vm ramp`, `cargo xtask test`.");
    Ok(ExitCode::SUCCESS)
}

/// Installs the missing parts. Prints nothing when no part is missing.
pub fn ensure(workspace: &Workspace, parts: &[Part]) -> Result<()> {
    ensure_on(&Console::alone(), workspace, parts)
}

/// Installs the missing parts beside other work, with output to `console`.
pub fn ensure_on(console: &Console, workspace: &Workspace, parts: &[Part]) -> Result<()> {
    Setup { workspace, console, check_only: false, verbose: false }.ensure(parts)
}

struct Setup<'a> {
    workspace: &'a Workspace,
    console: &'a Console,
    check_only: bool,
    verbose: bool,
}

impl Setup<'_> {
    fn ensure(&self, parts: &[Part]) -> Result<()> {
        let cache = self.workspace.cache();
        let mut missing = Vec::new();
        for &part in parts {
            match part.find(&cache) {
                Some(found) if self.verbose => println!("{:<22} {found}", part.name()),
                Some(_) => {}
                None => {
                    if self.verbose {
                        println!("{:<22} missing", part.name());
                    }
                    missing.push(part);
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let apt = Apt::find();
        let possible = |part: &Part| apt.is_some() && (is_root() || !part.needs_root());
        if self.check_only || !missing.iter().all(possible) {
            bail!("{}", advice(&missing, apt.is_some(), is_root()));
        }
        let mut apt = apt.context("apt-get is not there")?;
        let mut steps = Steps::new(self.console, missing.len());
        for &part in &missing {
            steps.step(&part.name(), || part.install(&mut apt, &cache)).with_context(|| {
                format!("setting up {}; by hand it is: {}", part.name(), part.by_hand().join(" && "))
            })?;
        }
        if let Some(part) = missing.iter().find(|part| part.find(&cache).is_none()) {
            bail!("{} was installed and is still not found. {}", part.name(), part.why_missing());
        }
        Ok(())
    }
}

/// Returns the commands that install the missing parts.
fn advice(missing: &[Part], debian: bool, root: bool) -> String {
    let names: Vec<String> = missing.iter().map(Part::name).collect();
    let mut text = format!("missing: {}.\n", names.join(", "));
    let reasons: Vec<String> = missing.iter().map(Part::why_missing).filter(|why| !why.is_empty()).collect();
    for why in reasons {
        text.push_str(&format!("  {why}\n"));
    }
    if !debian {
        text.push_str("This system has no apt-get. On Debian 12 it would be, as root:\n");
    } else if root {
        text.push_str("Let `cargo xtask setup` see to it, or type:\n");
    } else {
        text.push_str("Installing needs root. Run `cargo xtask setup` as root, or type as root:\n");
    }
    let mut commands = vec!["apt-get update".to_owned()];
    for part in missing {
        for command in part.by_hand() {
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
    }
    for command in commands {
        text.push_str(&format!("    {command}\n"));
    }
    text.push_str("and try again.");
    text
}

impl Part {
    fn name(&self) -> String {
        match self {
            Self::Packaged(part) => part.name.to_owned(),
            Self::BpfToolchain => "BPF toolchain".to_owned(),
            Self::RustComponents => "rustfmt and clippy".to_owned(),
            Self::Unpacked(part) => part.title(),
            Self::CargoFuzz => "cargo-fuzz".to_owned(),
            Self::Kernel(series, arch) => format!("kernel {series} {arch}"),
            Self::CrossStd(arch) => format!("Rust for {arch}"),
            Self::Busybox(arch) => format!("busybox {arch}"),
            Self::GuestRoot(Root::Containers) => "guest with containerd".to_owned(),
            Self::GuestRoot(Root::Cluster) => "guest with a cluster".to_owned(),
        }
    }

    /// Returns the place of the part if it is usable.
    fn find(&self, cache: &Path) -> Option<String> {
        let existing = |path: PathBuf| path.is_file().then(|| path.display().to_string());
        match self {
            Self::Packaged(part) => {
                let found = part.programs.iter().map(|name| Some(find_program(name)?.display().to_string()));
                Some(found.collect::<Option<Vec<_>>>()?.join(", "))
            }
            Self::BpfToolchain => bpf_toolchain::find(),
            Self::RustComponents => {
                let rustfmt = cmd::output(cmd::cargo().args(["fmt", "--version"])).ok()?;
                let clippy = cmd::output(cmd::cargo().args(["clippy", "--version"])).ok()?;
                Some(format!("{}, {}", rustfmt.trim(), clippy.trim()))
            }
            Self::Unpacked(part) => part.find(cache),
            // Cargo finds its subcommands in the directory of `cargo install`, even if that directory is not in PATH.
            Self::CargoFuzz => Some(cmd::output(cmd::cargo().args(["fuzz", "--version"])).ok()?.trim().to_owned()),
            Self::Kernel(series, arch) => {
                kernel::find(cache, *series, *arch).map(|kernel| kernel.image.display().to_string())
            }
            Self::CrossStd(arch) => cross::find(cache, *arch).map(|root| root.display().to_string()),
            Self::Busybox(arch) => existing(busybox(cache, *arch)),
            Self::GuestRoot(root) => existing(root.path(cache)),
        }
    }

    /// Returns whether the installation needs root. Downloads to the cache and rustup's components do not; packages do.
    fn needs_root(self) -> bool {
        match self {
            Self::RustComponents
            | Self::Unpacked(_)
            | Self::CargoFuzz
            | Self::Kernel(..)
            | Self::CrossStd(_)
            | Self::Busybox(_) => false,
            Self::BpfToolchain => bpf_toolchain::needs_packages(),
            // The files of the root file system have many owners, and its packages are set up in a chroot.
            Self::Packaged(_) | Self::GuestRoot(_) => true,
        }
    }

    /// Returns the commands that install the part by hand; apt-get needs root.
    fn by_hand(&self) -> Vec<String> {
        match self {
            Self::BpfToolchain => bpf_toolchain::by_hand(),
            Self::RustComponents => vec!["rustup component add rustfmt clippy".to_owned()],
            Self::CargoFuzz => vec![format!("cargo install cargo-fuzz --version {CARGO_FUZZ_VERSION} --locked")],
            // Downloads need only the package lists. xtask then does the rest as an ordinary user.
            Self::Kernel(series, arch) if !Series::IN_SUITE.contains(series) || !arch.is_host() => {
                vec![format!("cargo xtask vm --kernel {series} --arch {arch} probes")]
            }
            Self::CrossStd(arch) | Self::Busybox(arch) => vec![format!("cargo xtask vm --arch {arch} probes")],
            Self::Unpacked(part) => vec![part.chore.to_owned()],
            Self::Kernel(..) | Self::GuestRoot(_) => vec!["cargo xtask setup".to_owned()],
            Self::Packaged(part) => {
                vec![format!("apt-get install -y --no-install-recommends {}", part.packages.join(" "))]
            }
        }
    }

    fn why_missing(&self) -> String {
        match self {
            Self::BpfToolchain => bpf::find().err().map(|missing| missing.to_string()).unwrap_or_default(),
            _ => String::new(),
        }
    }

    fn install(self, apt: &mut Apt, cache: &Path) -> Result<String> {
        match self {
            Self::BpfToolchain => bpf_toolchain::install(apt),
            Self::RustComponents => {
                cmd::output(std::process::Command::new("rustup").args(["component", "add", "rustfmt", "clippy"]))?;
                Ok("added with rustup".to_owned())
            }
            Self::Unpacked(part) => part.install(apt, cache),
            Self::Kernel(series, arch) => {
                let kernel = kernel::download(apt, cache, series, arch)?;
                Ok(format!("downloaded {}", kernel.release))
            }
            Self::CrossStd(arch) => cross::install(apt, cache, arch),
            Self::Busybox(arch) => {
                let dir = cache.join(format!("busybox-{arch}"));
                apt.elsewhere(cache, arch, None)?.unpack(&["busybox-static"], &dir)?;
                Ok("downloaded".to_owned())
            }
            Self::GuestRoot(root) => guest_root::make(root, apt, cache),
            Self::CargoFuzz => {
                let mut install = cmd::cargo();
                install.args(["install", "cargo-fuzz", "--version", CARGO_FUZZ_VERSION, "--locked"]);
                // The workspace's settings of linker and aliases are not for this build, so it runs in another directory.
                cmd::output(install.current_dir(std::env::temp_dir()))?;
                Ok(format!("installed cargo-fuzz {CARGO_FUZZ_VERSION}"))
            }
            Self::Packaged(part) => {
                apt.install(part.packages)?;
                Ok("installed".to_owned())
            }
        }
    }
}

pub fn busybox(cache: &Path, arch: Arch) -> PathBuf {
    cache.join(format!("busybox-{arch}/bin/busybox"))
}

/// Returns the browser that the tests of the status page use.
pub fn browser() -> Option<PathBuf> {
    find_program("chromium")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_has_each_command_once_and_names_root() {
        let text = advice(&[QEMU, BUSYBOX, QEMU], true, false);
        assert_eq!(text.matches("install -y --no-install-recommends qemu-system-x86").count(), 1, "{text}");
        assert!(text.contains("as root"), "{text}");
        assert!(text.starts_with("missing: QEMU for "), "{text}");
    }

    #[test]
    fn advice_mentions_a_missing_apt_get() {
        assert!(advice(&[XZ], false, true).contains("no apt-get"));
    }
}
