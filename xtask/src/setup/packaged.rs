//! The programs that Debian's packages install, and what the project needs of each.

use super::Part;
use super::bpf_toolchain::DEBIAN_RUSTC;
use super::need::{Lack, Need, Program};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packaged {
    pub name: &'static str,
    pub programs: &'static [Program],
    pub packages: &'static [&'static str],
}

impl Packaged {
    /// Returns the paths of the programs.
    pub fn find(self) -> Result<String, Lack> {
        let found = self.programs.iter().map(|program| Ok(program.find()?.display().to_string()));
        Ok(found.collect::<Result<Vec<_>, Lack>>()?.join(", "))
    }
}

const fn packaged(name: &'static str, programs: &'static [Program], packages: &'static [&'static str]) -> Part {
    Part::Packaged(Packaged { name, programs, packages })
}

const fn program(name: &'static str, needs: &'static [Need]) -> Program {
    Program { name, needs }
}

/// A compiler with the headers and the library of C links this.
const C: &str = "#include <stdio.h>\nint main(void) { return puts(\"\") < 0; }\n";
const C_STATICALLY: Need = Need::takes(C, &["-static", "-x", "c", "-", "-o", "/dev/null"]);
/// A compiler with the headers and the library of C++ links this.
const CPP: &str = "#include <new>\nint main() { delete new int; }\n";
const HAS_VERSION: &[Need] = &[Need::runs(&["--version"])];

const CC: Program = program("cc", &[Need::takes(C, &["-x", "c", "-", "-o", "/dev/null"])]);
const STRIP: Program = program("strip", HAS_VERSION);
/// gcc links host programs. The package also has strip.
pub const C_LINKER: Part = packaged("C linker", &[CC, STRIP], &["gcc", "libc6-dev"]);
/// Release builds are static.
const STATIC_CC: Program = program("cc", &[C_STATICALLY]);
pub const STATIC_C_LIBRARY: Part = packaged("static C library", &[STATIC_CC], &["gcc", "libc6-dev"]);

/// libFuzzer and bpf-linker link C++. cargo's packages call the compiler by this name.
pub const CXX: Program = program("c++", &[Need::takes(CPP, &["-x", "c++", "-", "-o", "/dev/null"])]);
pub const CXX_COMPILER: Part = packaged("C++ compiler", &[CXX], &["g++"]);

/// clippy of Debian's compiler for BPF. A clippy of another version cannot read what the compiler wrote.
const BPF_CARGO_CLIPPY: Program = program("/usr/bin/cargo-clippy", HAS_VERSION);
const BPF_CLIPPY_DRIVER: Program =
    program("/usr/bin/clippy-driver", &[Need::version_of(DEBIAN_RUSTC, &["--rustc", "--version"])]);
pub const BPF_CLIPPY: Part = packaged("clippy for BPF", &[BPF_CARGO_CLIPPY, BPF_CLIPPY_DRIVER], &["rust-web-clippy"]);
/// clippy of the active toolchain, which compiles the tests.
pub const CLIPPY_DRIVER: Program = program("clippy-driver", &[Need::version_of("rustc", &["--rustc", "--version"])]);

/// The emulator builds the VM's machine in software, with its user network, and quits before the first instruction. Some builds leave out the
/// user network.
const BLOCK_DEVICE: Need = Need::runs(&["-machine", "none", "-device", "virtio-blk-pci,help"]);
#[rustfmt::skip]
const QEMU_SYSTEM_AMD64: Program = program("qemu-system-x86_64", &[BLOCK_DEVICE, Need::takes("quit\n", &[
    "-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-no-user-config", "-display", "none",
    "-netdev", "user,id=network", "-device", "virtio-net-pci,netdev=network,romfile=", "-S", "-monitor", "stdio",
])]);
#[rustfmt::skip]
const QEMU_SYSTEM_ARM64: Program = program("qemu-system-aarch64", &[BLOCK_DEVICE, Need::takes("quit\n", &[
    "-machine", "virt", "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on", "-nodefaults", "-no-user-config", "-display", "none",
    "-netdev", "user,id=network", "-device", "virtio-net-pci,netdev=network,romfile=", "-S", "-monitor", "stdio",
])]);
pub const QEMU_AMD64: Part = packaged("QEMU for amd64", &[QEMU_SYSTEM_AMD64], &["qemu-system-x86"]);
pub const QEMU_ARM64: Part = packaged("QEMU for arm64", &[QEMU_SYSTEM_ARM64], &["qemu-system-arm"]);

/// These programs make the VM's disks. mkfs.ext4 fills a file system from a directory (`-d`), and makes one that counts projects.
const MKFS_EXT4: Program = program("mkfs.ext4", &[Need::version(&["-V"], "mke2fs ", &[&[1, 43]])]);
const MKFS_XFS: Program = program("mkfs.xfs", &[Need::runs(&["-V"])]);
pub const MKFS: Part = packaged("mkfs.ext4, mkfs.xfs", &[MKFS_EXT4, MKFS_XFS], &["e2fsprogs", "xfsprogs"]);

/// The word "ok", compressed.
const OK_XZ: &[u8] = b"\xfd7zXZ\0\0\x01\x69\x22\xde\x36\x02\0\x21\x01\x0c\0\0\0\x8f\x98\x41\x9c\x01\0\x01ok\0\0\0\x47\xdd\xdc\x79\0\x01\x16\x02\
    \xd0\x61\x10\xd2\x90\x42\x99\x0d\x01\0\0\0\0\x01YZ";
/// xz decompresses kernel modules.
const XZ_PROGRAM: Program = program("xz", &[Need::filters(OK_XZ, &["-dc"], b"ok")]);
pub const XZ: Part = packaged("xz", &[XZ_PROGRAM], &["xz-utils"]);

/// Shows the status page to its tests. The one of a snap reads no profile outside of its own directories.
pub const CHROMIUM_PROGRAM: Program = program(
    "chromium",
    &[Need::prints_no("snap", &["--version"]), Need::version(&["--version"], "Chromium ", &[&[112]])],
);
pub const CHROMIUM: Part = packaged("Chromium", &[CHROMIUM_PROGRAM], &["chromium"]);

/// The C compilers for the other architecture, with its C library.
pub const GCC_FOR_ARM64: Part = packaged(
    "gcc for arm64",
    &[
        program("aarch64-linux-gnu-gcc", &[C_STATICALLY]),
        program("aarch64-linux-gnu-ar", HAS_VERSION),
        program("aarch64-linux-gnu-strip", HAS_VERSION),
    ],
    &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
);
pub const GCC_FOR_AMD64: Part = packaged(
    "gcc for amd64",
    &[
        program("x86_64-linux-gnu-gcc", &[C_STATICALLY]),
        program("x86_64-linux-gnu-ar", HAS_VERSION),
        program("x86_64-linux-gnu-strip", HAS_VERSION),
    ],
    &["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"],
);
/// The standard library of another architecture is that of this compiler, which compiles the workspace. Debian 12's package rustc is older.
const RUSTC: Program = program(DEBIAN_RUSTC, &[Need::version(&["--version"], "rustc ", &[&[1, 95]])]);
pub const DEBIANS_RUSTC: Part = packaged("Debian's rustc", &[RUSTC], &["rustc-web"]);

/// Cargo finds its subcommands in the directory of `cargo install`, even if that directory is not in `PATH`.
pub const CARGO_FUZZ: Program = program("cargo", &[Need::version(&["fuzz", "--version"], "cargo-fuzz ", &[&[0, 13]])]);
pub const CARGO_AUDIT: Program =
    program("cargo", &[Need::version(&["audit", "--version"], "cargo-audit-audit ", &[&[0, 22]])]);
/// Makes the root file system of guests.
pub const MMDEBSTRAP: Program = program("mmdebstrap", HAS_VERSION);
/// Starts programs that end with this one. A machine may lack it, and busybox has one without this option.
pub const SETPRIV: Program = program("setpriv", &[Need::runs(&["--pdeathsig", "KILL", "true"])]);
/// Makes Debian's packages, with `--threads-max`. busybox has one that only unpacks them.
pub const DPKG_DEB: Program = program("dpkg-deb", &[Need::version(&["--version"], "version ", &[&[1, 21, 9]])]);
