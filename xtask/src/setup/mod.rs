//! `cargo xtask setup`: finds what the other commands need, and as root on Debian installs what is missing.
//!
//! Setup checks each part before it installs anything. A program is used only if it does what the project needs of it, and an unpacked package
//! only if it is complete. The checks of all parts take about a second.

mod apt;
mod bpf_toolchain;
mod busybox;
mod completeness;
pub mod cross;
pub mod guest_root;
pub mod helm;
pub mod kernel;
mod need;
mod packaged;
pub mod unpacked;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::arch::Arch;
use crate::cmd::{self, Steps};
use crate::console::Console;
use crate::paths::{Workspace, is_root};
use apt::Apt;
pub use busybox::path as busybox;
use guest_root::Root;
use kernel::Series;
use need::Lack;
pub use packaged::{BPF_CLIPPY, DPKG_DEB, SETPRIV};
use packaged::{
    C_LINKER, CARGO_AUDIT, CARGO_FUZZ, CHROMIUM, CHROMIUM_PROGRAM, CLIPPY_DRIVER, CXX_COMPILER, DEBIANS_RUSTC,
    GCC_FOR_AMD64, GCC_FOR_ARM64, MKFS, Packaged, QEMU_AMD64, QEMU_ARM64, STATIC_C_LIBRARY, XZ,
};
use unpacked::{EARLYOOM, PROMETHEUS, Unpacked};

/// Finds, and as root on Debian installs, the tools that the other commands need. A tool that is too old or lacks a feature is refused with the
/// reason.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Next:\n  cargo xtask run     the agent on this machine, in observe mode\n  cargo xtask test    the whole suite, with the virtual machine"
)]
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
    CargoAudit,
    Kernel(Series, Arch),
    /// The standard library for another architecture.
    CrossStd(Arch),
    /// A static busybox. It is only unpacked.
    Busybox(Arch),
    /// A root file system with systemd and containerd from Debian's packages, as an image.
    GuestRoot(Root),
}

pub const QEMU: Part = if cfg!(target_arch = "aarch64") { QEMU_ARM64 } else { QEMU_AMD64 };

/// Programs that tests look at the agent with. Tests whose program is missing are skipped.
pub const VIEWERS: &[Part] = &[Part::Unpacked(PROMETHEUS), CHROMIUM];

/// The parts that the agent needs to be built and run.
pub const BUILD: &[Part] = &[C_LINKER, Part::BpfToolchain];

/// Returns the parts that a release build for this architecture needs.
pub fn to_build(arch: Arch) -> Vec<Part> {
    let gcc = if arch == Arch::Arm64 { GCC_FOR_ARM64 } else { GCC_FOR_AMD64 };
    let further = if arch.is_host() { vec![STATIC_C_LIBRARY] } else { vec![gcc, DEBIANS_RUSTC, Part::CrossStd(arch)] };
    [BUILD, &further].concat()
}

/// Returns the parts that a boot of the VM needs on this architecture, besides a kernel and the binaries.
pub fn to_boot(arch: Arch) -> Vec<Part> {
    let qemu = if arch == Arch::Arm64 { QEMU_ARM64 } else { QEMU_AMD64 };
    if arch.is_host() { VM.to_vec() } else { vec![qemu, Part::Busybox(arch), MKFS, XZ] }
}

/// The parts that a boot of the VM needs, besides a kernel and the binaries.
pub const VM: &[Part] = &[QEMU, Part::Busybox(Arch::host()), MKFS, XZ, Part::Unpacked(EARLYOOM)];

/// The parts for fuzzing. The fuzz targets link the agent's whole library.
pub const FUZZ: &[Part] = &[C_LINKER, Part::BpfToolchain, CXX_COMPILER, Part::CargoFuzz];

const CARGO_FUZZ_VERSION: &str = "0.13.2";
const CARGO_AUDIT_VERSION: &str = "0.22.2";

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let mut parts = to_build(Arch::host());
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
    println!(
        "Everything is in place. Next: `cargo xtask run` (the agent on this machine), `cargo xtask test` (the whole suite)."
    );
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
            let found = part.find(&cache);
            if self.verbose {
                let line = found.as_ref().map_or_else(Lack::to_string, String::clone);
                println!("{:<22} {line}", part.name());
            }
            missing.extend(found.err().map(|lack| (part, lack)));
        }
        if missing.is_empty() {
            return Ok(());
        }
        let apt = Apt::find();
        let possible = |(part, _): &(Part, Lack)| apt.is_some() && (is_root() || !part.needs_root());
        if self.check_only || !missing.iter().all(possible) {
            bail!("{}", advice(&missing, apt.is_some(), is_root()));
        }
        let mut apt = apt.context("apt-get is not there")?;
        let mut steps = Steps::new(self.console, missing.len());
        for (part, lack) in &missing {
            if let (Lack::Refused(reason), false) = (lack, self.verbose) {
                self.console.say(format_args!("{}: {reason}", part.name()));
            }
            steps.step(&part.name(), || part.install(&mut apt, &cache)).with_context(|| {
                format!("setting up {}; by hand it is: {}", part.name(), part.by_hand().join(" && "))
            })?;
        }
        for (part, _) in &missing {
            if let Err(lack) = part.find(&cache) {
                bail!(
                    "{} was installed and is still not usable: {lack}. The first program of its name in PATH counts",
                    part.name()
                );
            }
        }
        Ok(())
    }
}

/// Returns the commands that install the missing parts.
fn advice(missing: &[(Part, Lack)], debian: bool, root: bool) -> String {
    let names: Vec<String> = missing.iter().map(|(part, _)| part.name()).collect();
    let mut text = format!("missing: {}.\n", names.join(", "));
    for details in missing.iter().filter_map(|(_, lack)| lack.details()) {
        text.push_str(&format!("  {details}\n"));
    }
    if !debian {
        text.push_str("This system has no apt-get. On Debian 12 it would be, as root:\n");
    } else if root {
        text.push_str("Let `cargo xtask setup` see to it, or type:\n");
    } else {
        text.push_str("Installing needs root. Run `cargo xtask setup` as root, or type as root:\n");
    }
    let mut commands = vec!["apt-get update".to_owned()];
    for (part, _) in missing {
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
            Self::CargoAudit => "cargo-audit".to_owned(),
            Self::Kernel(series, arch) => format!("kernel {series} {arch}"),
            Self::CrossStd(arch) => format!("Rust for {arch}"),
            Self::Busybox(arch) => format!("busybox {arch}"),
            Self::GuestRoot(Root::Containers) => "guest with containerd".to_owned(),
            Self::GuestRoot(Root::Cluster) => "guest with a cluster".to_owned(),
        }
    }

    /// Returns the place of the part if it is usable.
    fn find(&self, cache: &Path) -> Result<String, Lack> {
        if let Some(tree) = self.tree(cache) {
            completeness::check(&tree)?;
        }
        match self {
            Self::Packaged(part) => part.find(),
            Self::BpfToolchain => bpf_toolchain::find(),
            Self::RustComponents => {
                let found = format!("{}, {}", subcommand("fmt")?, subcommand("clippy")?);
                CLIPPY_DRIVER.find().map(|_| found)
            }
            Self::Unpacked(part) => part.find(cache),
            Self::CargoFuzz => {
                let found = subcommand("fuzz")?;
                CARGO_FUZZ.find().map(|_| found)
            }
            Self::CargoAudit => {
                let found = subcommand("audit")?;
                CARGO_AUDIT.find().map(|_| found)
            }
            Self::Kernel(series, arch) => {
                let kernel = kernel::find(cache, *series, *arch).ok_or(Lack::Absent)?;
                Ok(kernel.image.display().to_string())
            }
            Self::CrossStd(arch) => Ok(cross::find(cache, *arch).ok_or(Lack::Absent)?.display().to_string()),
            Self::Busybox(arch) => busybox::find(cache, *arch),
            Self::GuestRoot(root) => guest_root::find(*root, cache),
        }
    }

    /// Returns the directory of the cache into which the part is unpacked, whose files must be complete.
    fn tree(&self, cache: &Path) -> Option<PathBuf> {
        match self {
            Self::Kernel(series, arch) => Some(kernel::directory(cache, *series, *arch)),
            Self::CrossStd(arch) => Some(cross::tree(cache, *arch)),
            Self::Busybox(arch) => Some(busybox::tree(cache, *arch)),
            Self::Packaged(_)
            | Self::BpfToolchain
            | Self::RustComponents
            | Self::Unpacked(_)
            | Self::CargoFuzz
            | Self::CargoAudit
            | Self::GuestRoot(_) => None,
        }
    }

    /// Returns whether the installation needs root. Downloads to the cache and rustup's components do not; packages do.
    fn needs_root(self) -> bool {
        match self {
            Self::RustComponents
            | Self::Unpacked(_)
            | Self::CargoFuzz
            | Self::CargoAudit
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
            Self::CargoAudit => {
                vec![format!(
                    "cargo install cargo-audit --version {CARGO_AUDIT_VERSION} --locked --no-default-features"
                )]
            }
            // Downloads need only the package lists. xtask then does the rest as an ordinary user.
            Self::Kernel(series, arch) if !Series::IN_SUITE.contains(series) || !arch.is_host() => {
                vec![format!("cargo xtask vm --kernel {series} --arch {arch} probes")]
            }
            Self::CrossStd(arch) | Self::Busybox(arch) if !arch.is_host() => {
                vec![format!("cargo xtask vm --arch {arch} probes")]
            }
            Self::Unpacked(part) => vec![part.chore.to_owned()],
            Self::Kernel(..) | Self::GuestRoot(_) | Self::CrossStd(_) | Self::Busybox(_) => {
                vec!["cargo xtask setup".to_owned()]
            }
            Self::Packaged(part) => {
                vec![format!("apt-get install -y --no-install-recommends {}", part.packages.join(" "))]
            }
        }
    }

    fn install(self, apt: &mut Apt, cache: &Path) -> Result<String> {
        match self {
            Self::BpfToolchain => bpf_toolchain::install(apt),
            Self::RustComponents => {
                cmd::output(Command::new("rustup").args(["component", "add", "rustfmt", "clippy"]))?;
                Ok("added with rustup".to_owned())
            }
            Self::Unpacked(part) => part.install(apt, cache),
            Self::Kernel(series, arch) => {
                let kernel = kernel::download(apt, cache, series, arch)?;
                Ok(format!("downloaded {}", kernel.release))
            }
            Self::CrossStd(arch) => cross::install(apt, cache, arch),
            Self::Busybox(arch) => busybox::install(apt, cache, arch),
            Self::GuestRoot(root) => guest_root::make(root, apt, cache),
            Self::CargoFuzz => cargo_install("cargo-fuzz", CARGO_FUZZ_VERSION, &[]),
            Self::CargoAudit => cargo_install("cargo-audit", CARGO_AUDIT_VERSION, &["--no-default-features"]),
            Self::Packaged(part) => {
                apt.install(part.packages)?;
                Ok("installed".to_owned())
            }
        }
    }
}

/// Returns the version of a subcommand of cargo.
fn subcommand(name: &str) -> Result<String, Lack> {
    let version = cmd::output(cmd::cargo().args([name, "--version"])).map_err(|_| Lack::Absent)?;
    Ok(version.trim().to_owned())
}

/// Returns the browser that the tests of the status page use.
pub fn browser() -> Result<PathBuf, Lack> {
    CHROMIUM_PROGRAM.find()
}

/// Installs a program of crates.io with the versions of crates that it was released with.
fn cargo_install(name: &str, version: &str, features: &[&str]) -> Result<String> {
    let mut install = cmd::cargo();
    install.args(["install", name, "--version", version, "--locked"]).args(features);
    // The workspace's settings of linker and aliases are not for this build, so it runs in another directory.
    cmd::output(install.current_dir(std::env::temp_dir()))?;
    Ok(format!("installed {name} {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_has_each_command_once_and_names_root() {
        let text = advice(&[QEMU, XZ, QEMU].map(|part| (part, Lack::Absent)), true, false);
        assert_eq!(text.matches("install -y --no-install-recommends qemu-system-x86").count(), 1, "{text}");
        assert!(text.contains("as root"), "{text}");
        assert!(text.starts_with("missing: QEMU for "), "{text}");
    }

    #[test]
    fn advice_says_why_a_tool_is_refused() {
        let refused = Lack::Refused("`/bin/xz -dc` fails: no".to_owned());
        let text = advice(&[(XZ, refused), (QEMU, Lack::Absent)], true, true);
        assert!(text.contains("missing: xz, QEMU for ") && text.contains("\n  `/bin/xz -dc` fails: no\n"), "{text}");
    }

    #[test]
    fn advice_mentions_a_missing_apt_get() {
        assert!(advice(&[(XZ, Lack::Absent)], false, true).contains("no apt-get"));
    }
}
