//! Every program that setup looks for is held against a wrong one of its name, and against one that does what is needed. Both are scripts.

use std::fs;
use std::process::{Command, Stdio};

use super::*;
use crate::arch::Arch;
use crate::setup::bpf_toolchain::DEBIAN_RUSTC;
use crate::setup::packaged::{CARGO_FUZZ, CLIPPY_DRIVER, MMDEBSTRAP};
use crate::setup::unpacked::ETCD;
use crate::setup::{
    BPF_CLIPPY, DPKG_DEB, FUZZ, GCC_FOR_AMD64, GCC_FOR_ARM64, Part, SETPRIV, VIEWERS, to_boot, to_build,
};

struct Case {
    part: &'static str,
    program: &'static str,
    wrong: &'static str,
    /// The end of the sentence that refuses the wrong one.
    refusal: &'static str,
    right: &'static str,
}

const fn case(
    (part, program): (&'static str, &'static str),
    wrong: &'static str,
    refusal: &'static str,
    right: &'static str,
) -> Case {
    Case { part, program, wrong, refusal, right }
}

const NO_HEADERS: &str = "echo '<stdin>:1:10: fatal error: stdio.h: No such file or directory' >&2; exit 1";
const NO_STATIC_LIBRARY: &str =
    "case \" $* \" in *' -static '*) echo '/usr/bin/ld: cannot find -lc: No such file or directory' >&2; exit 1;; esac";
const STUB: &str = "echo \"Command '$0' not found, but can be installed\" >&2; exit 127";
const NO_USER_NETWORK: &str = "case \" $* \" in *' -netdev user,'*) echo \"network backend 'user' is not compiled into this binary\" >&2; exit 1;; esac";
const SNAP: &str = "echo 'Chromium 156.0.8078.108 snap'";

const CASES: &[Case] = &[
    case(("C linker", "cc"), NO_HEADERS, "stdio.h: No such file or directory", NO_STATIC_LIBRARY),
    case(("C linker", "strip"), STUB, "can be installed", "true"),
    case(("static C library", "cc"), NO_STATIC_LIBRARY, "cannot find -lc: No such file or directory", "true"),
    case(("C++ compiler", "c++"), "echo 'cannot execute cc1plus' >&2; exit 1", "fails: cannot execute cc1plus", "true"),
    case(("clippy for BPF", "/usr/bin/cargo-clippy"), STUB, "can be installed", "true"),
    case(("clippy for BPF", "/usr/bin/clippy-driver"), "echo 'rustc 1.63.0'", "", "exec /usr/bin/rustc --version"),
    case(("rustfmt and clippy", "clippy-driver"), "echo 'rustc 1.63.0'", "", "exec rustc --version"),
    case(("QEMU for amd64", "qemu-system-x86_64"), NO_USER_NETWORK, "is not compiled into this binary", "true"),
    case(("QEMU for arm64", "qemu-system-aarch64"), NO_USER_NETWORK, "is not compiled into this binary", "true"),
    case(
        ("mkfs.ext4, mkfs.xfs", "mkfs.ext4"),
        "echo 'mke2fs 1.42.13 (17-May-2015)' >&2",
        "prints version 1.42.13; needed is 1.43 or later",
        "echo 'mke2fs 1.47.0 (5-Feb-2023)' >&2",
    ),
    case(
        ("mkfs.ext4, mkfs.xfs", "mkfs.ext4"),
        "echo 'usage: mkfs.ext4'",
        "prints no version: usage: mkfs.ext4",
        "echo mke2fs 1.43",
    ),
    case(("mkfs.ext4, mkfs.xfs", "mkfs.xfs"), STUB, "can be installed", "echo 'mkfs.xfs version 6.1.0'"),
    case(("xz", "xz"), "echo 'xz: cannot decompress' >&2; exit 1", "-dc` fails: xz: cannot decompress", "printf ok"),
    case(("xz", "xz"), "cat", "-dc` returns something else than it should", "cat >/dev/null; printf ok"),
    case(("Chromium", "chromium"), STUB, "can be installed", "echo 'Chromium 112.0.1'"),
    case(
        ("Chromium", "chromium"),
        SNAP,
        "prints Chromium 156.0.8078.108 snap",
        "echo 'Chromium 156.0 built on Debian'",
    ),
    case(
        ("Chromium", "chromium"),
        "echo 'Chromium 90.0.4430.212'",
        "prints version 90.0.4430.212; needed is 112 or later",
        "echo 'Chromium 156.0.8078.108'",
    ),
    case(("gcc for arm64", "aarch64-linux-gnu-gcc"), NO_HEADERS, "stdio.h: No such file or directory", "true"),
    case(("gcc for arm64", "aarch64-linux-gnu-ar"), STUB, "can be installed", "true"),
    case(("gcc for arm64", "aarch64-linux-gnu-strip"), STUB, "can be installed", "true"),
    case(
        ("gcc for amd64", "x86_64-linux-gnu-gcc"),
        NO_STATIC_LIBRARY,
        "cannot find -lc: No such file or directory",
        "true",
    ),
    case(("gcc for amd64", "x86_64-linux-gnu-ar"), STUB, "can be installed", "true"),
    case(("gcc for amd64", "x86_64-linux-gnu-strip"), STUB, "can be installed", "true"),
    case(
        ("Debian's rustc", DEBIAN_RUSTC),
        "echo 'rustc 1.63.0'",
        "prints version 1.63.0; needed is 1.95 or later",
        "echo 'rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)'",
    ),
    case(("cargo-fuzz", "cargo"), "echo 'cargo-fuzz 0.11.2'", "needed is 0.13 or later", "echo 'cargo-fuzz 0.13.2'"),
    case(("guest with containerd", "mmdebstrap"), STUB, "can be installed", "true"),
    case(
        ("earlyoom (unpacked)", "earlyoom"),
        "echo 'libc.so.6: version not found' >&2; exit 1",
        "version not found",
        "true",
    ),
    case(
        ("etcd (unpacked)", "etcd"),
        ETCD_OF_DEBIAN_12,
        "prints version 3.4.23; needed is 3.4.31 or 3.5.13 or later",
        ETCD_OF_DEBIAN_13,
    ),
    case(
        ("etcd (unpacked)", "etcd"),
        "echo 'etcd Version: 3.5.2'",
        "prints version 3.5.2; needed is 3.4.31 or 3.5.13 or later",
        "echo 'etcd Version: 3.4.37'",
    ),
    case(
        ("prometheus (unpacked)", "prometheus"),
        "echo 'prometheus, version 2.15.2+ds (branch: debian/sid)'",
        "prints version 2.15.2; needed is 2.42 or later",
        "echo 'prometheus, version 2.42.0+ds (branch: debian/sid)'",
    ),
    case(
        ("prometheus (unpacked)", "promtool"),
        "echo 'promtool, version 2.15.2+ds (branch: debian/sid)'",
        "prints version 2.15.2; needed is 2.42 or later",
        "echo 'promtool, version 3.5.0+ds (branch: debian/sid)'",
    ),
    case(("prometheus (unpacked)", "prometheus-node-exporter"), STUB, "can be installed", "true"),
    case(
        ("no part", "setpriv"),
        "echo \"setpriv: unrecognized option '--pdeathsig'\" >&2; exit 1",
        "unrecognized option '--pdeathsig'",
        "true",
    ),
    case(
        ("no part", "dpkg-deb"),
        "echo 'BusyBox v1.35.0 multi-call binary.'",
        "prints no version: BusyBox v1.35.0 multi-call binary.",
        "echo \"Debian 'dpkg-deb' package archive backend version 1.21.22 (amd64).\"",
    ),
];
const ETCD_OF_DEBIAN_12: &str = "printf 'etcd Version: 3.4.23\\nGit SHA: Not provided\\n'";
const ETCD_OF_DEBIAN_13: &str = "printf 'etcd Version: 3.5.16\\nGit SHA: Not provided\\n'";

/// Returns every program that a part needs, with the name of the part.
fn programs() -> Vec<(String, Program)> {
    let of_arches = [Arch::Amd64, Arch::Arm64].into_iter().flat_map(|arch| [to_build(arch), to_boot(arch)].concat());
    // The cross compiler for this machine's own architecture is no part of anything here.
    let others = [&[GCC_FOR_AMD64, GCC_FOR_ARM64, BPF_CLIPPY, Part::Unpacked(ETCD)], VIEWERS, FUZZ].concat();
    let parts: Vec<Part> = of_arches.chain(others).collect();
    let of_part = |part: &Part| match part {
        Part::Packaged(packaged) => packaged.programs.to_vec(),
        Part::Unpacked(unpacked) => unpacked.programs.to_vec(),
        _ => Vec::new(),
    };
    let single = [
        ("rustfmt and clippy", CLIPPY_DRIVER),
        ("cargo-fuzz", CARGO_FUZZ),
        ("guest with containerd", MMDEBSTRAP),
        ("no part", SETPRIV),
        ("no part", DPKG_DEB),
    ];
    let of_parts = parts.iter().flat_map(|part| of_part(part).into_iter().map(|program| (part.name(), program)));
    of_parts.chain(single.map(|(part, program)| (part.to_owned(), program))).collect()
}

/// Writes an executable file. Another process writes it: a file that this process holds open for writing could not be executed.
fn script(path: &Path, body: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().unwrap();
    install.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{body}\n").as_bytes()).unwrap();
    assert!(install.wait().unwrap().success());
}

#[test]
fn a_wrong_program_is_refused_and_a_right_one_used() {
    let directory = std::env::temp_dir().join(format!("need-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let programs = programs();
    for Case { part, program: name, wrong, refusal, right } in CASES {
        let Some((_, program)) = programs.iter().find(|(of, program)| of == part && program.name == *name) else {
            panic!("no part {part} has a program {name}");
        };
        let path = directory.join(Path::new(name).file_name().unwrap());
        script(&path, wrong);
        let story = program.examine(&path).expect_err(wrong).to_string();
        let start = format!("`{} ", path.display());
        assert!(story.starts_with(&start) && story.ends_with(refusal), "{part}, {name}: {story}");
        if !program.needs.iter().any(|need| need.result == Expected::VersionOf(DEBIAN_RUSTC))
            || Path::new(DEBIAN_RUSTC).exists()
        {
            script(&path, right);
            assert_eq!(program.examine(&path), Ok(()), "{part}, {name}: {right}");
        }
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn every_program_has_a_wrong_one() {
    for (part, program) in programs() {
        let has_case = |case: &Case| case.part == part && case.program == program.name;
        assert!(CASES.iter().any(has_case), "{part}: {}", program.name);
        assert!(!program.needs.is_empty(), "{part}: {}: nothing is needed of it", program.name);
    }
}

#[test]
fn an_absent_program_is_not_refused_but_absent() {
    assert_eq!(Program { name: "no-such-program", needs: &[] }.find(), Err(Lack::Absent));
}

#[test]
fn versions_are_compared_by_series() {
    let etcd: &[&[u32]] = &[&[3, 4, 31], &[3, 5, 13]];
    for (text, is_enough_for_etcd) in [
        ("3.4.30", false),
        ("3.4.31", true),
        ("3.5.12", false),
        ("3.5.13", true),
        ("3.6.0", true),
        ("3.3.99", false),
        ("4", true),
    ] {
        let version = version(&format!("etcd Version: {text}\n"), "Version: ").unwrap();
        assert_eq!(is_enough(&version, etcd), is_enough_for_etcd, "{text}");
    }
    assert_eq!(version("xz 5", "mke2fs "), None);
    assert_eq!(version("mke2fs next", "mke2fs "), None);
}

#[test]
fn debians_compiler_is_as_new_as_the_workspace_wants() {
    let wanted = version(env!("CARGO_PKG_RUST_VERSION"), "").unwrap();
    let needs = programs().into_iter().find(|(_, program)| program.name == DEBIAN_RUSTC).unwrap().1.needs;
    assert!(matches!(needs[0].result, Expected::Version(_, least) if least == [wanted.as_slice()]));
}

#[test]
fn the_emulator_is_tried_with_the_machine_of_the_vm() {
    use crate::vm::accel::Accel;
    for (arch, name) in [(Arch::Amd64, "qemu-system-x86_64"), (Arch::Arm64, "qemu-system-aarch64")] {
        let needs = programs().into_iter().find(|(_, program)| program.name == name).unwrap().1.needs;
        assert!(needs.iter().any(|need| need.arguments.starts_with(&Accel::Tcg.arguments(arch))), "{name}");
    }
}
