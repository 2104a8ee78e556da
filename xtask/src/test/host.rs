//! The checks that run on this machine: format, lints, tests.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{Tally, begin, end};
use crate::arch::Arch;
use crate::cmd;
use crate::dist::package::note_compiled_tests;
use crate::outcome::Counts;
use crate::paths::Workspace;
use crate::setup::unpacked::PROMETHEUS;
use crate::setup::{self, Part};

/// Debian's compiler, whose clippy lints the eBPF programs.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// The package of the test API server and of the contract tests.
const CONTRACT: &str = "node-pressure-apiserver";
const CONTRACT_SUITES: [&str; 7] = ["behaviour", "evict", "permissions", "report", "serve", "tokens", "watch"];
/// The number of concurrent contract tests. They spend most of their time waiting for time-outs and back-offs.
const CONTRACT_THREADS: &str = "6";

/// Test binaries of the agent that take seconds and need no root.
const QUICK_SUITES: [&str; 4] = ["decision_properties", "fuzz_seeds", "rooms", "simulate_cli"];

/// Installs what later steps need. Without root or without Debian, only the lints of the eBPF programs are skipped.
pub fn set_up(workspace: &Workspace) -> Result<Option<Result<()>>> {
    let parts: Vec<Part> = setup::to_build(Arch::host()).into_iter().chain([Part::RustComponents]).collect();
    setup::ensure(workspace, &parts)?;
    Ok(Path::new(DEBIAN_RUSTC).exists().then(|| setup::ensure(workspace, &[setup::BPF_CLIPPY])))
}

pub fn format(tally: &mut Tally) {
    tally.check("format", || cmd::run(cmd::cargo().args(["fmt", "--all", "--check"])));
}

/// Compiles all tests and benches with clippy as the compiler. A warning fails this step, and later steps still use the binaries.
pub fn lint(tally: &mut Tally) {
    cmd::lint_tests();
    tally.check("lints, and compiling the tests", || {
        let mut command = cmd::cargo_for_tests();
        command.args(["test", "--workspace", "--all-targets", "--no-run", "--no-fail-fast", "--quiet"]);
        let shown = cmd::shown(&command);
        let mut child = command.stderr(Stdio::piped()).spawn().with_context(|| format!("cannot run `{shown}`"))?;
        let stderr = child.stderr.take().context("standard error of cargo test")?;
        let mut warnings = 0;
        for line in BufReader::new(stderr).lines() {
            let line = line.with_context(|| format!("reading from `{shown}`"))?;
            // Cargo repeats the warnings of crates that are compiled already. Its last line for a crate ("generated …") has the
            // count, and is no further warning.
            warnings += u32::from(line.starts_with("warning: ") && !line.contains(" generated "));
            eprintln!("{line}");
        }
        let status = child.wait().with_context(|| format!("waiting for `{shown}`"))?;
        ensure!(status.success(), "`{shown}` failed: {status}");
        note_compiled_tests();
        ensure!(warnings == 0, "{warnings} warnings");
        Ok(())
    });
}

/// Runs the tests that need neither root nor another process: unit tests, property tests, and comparisons of the decision with
/// tables.
pub fn quick_tests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let suites = QUICK_SUITES.iter().flat_map(|suite| ["--test", suite]);
    let selection: Vec<&str> = ["--workspace", "--lib", "--bins"].into_iter().chain(suites).collect();
    cargo_test(workspace, tally, "unit and property tests", &selection, &[])
}

pub fn all_tests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    cargo_test(
        workspace,
        tally,
        "unit and integration tests on this machine",
        &["--workspace", "--exclude", CONTRACT],
        &[],
    )?;
    contract_tests(workspace, tally, "contract tests with an API server", None, None)
}

/// Runs the contract tests against the API server that this kubeconfig names, or one in memory; with a filter only those whose name
/// contains it.
pub fn contract_tests(
    workspace: &Workspace,
    tally: &mut Tally,
    name: &str,
    kubeconfig: Option<&Path>,
    filter: Option<&str>,
) -> Result<()> {
    let threads = ("RUST_TEST_THREADS", OsStr::new(CONTRACT_THREADS));
    let kubeconfig = kubeconfig.map(|path| ("KUBECONFIG", path.as_os_str()));
    let environment: Vec<_> = [threads].into_iter().chain(kubeconfig).collect();
    let selection: Vec<_> = contract_suites().into_iter().chain(filter).collect();
    cargo_test(workspace, tally, name, &selection, &environment)
}

pub fn compile_contract_tests() -> Result<()> {
    cmd::run(cmd::cargo_for_tests().args(["test", "--no-run"]).args(contract_suites()))
}

/// The suites are named one by one: cargo would compile the package alone with other features than those of the workspace.
fn contract_suites() -> Vec<&'static str> {
    CONTRACT_SUITES.iter().flat_map(|suite| ["--test", suite]).collect()
}

fn cargo_test(
    workspace: &Workspace,
    tally: &mut Tally,
    name: &str,
    selection: &[&str],
    environment: &[(&str, &OsStr)],
) -> Result<()> {
    let start = begin(name);
    let mut command = cmd::cargo_for_tests();
    command.args(["test", "--no-fail-fast"]).args(selection).stdout(Stdio::piped());
    command.envs(environment.iter().copied());
    command.env("PATH", path_with(&PROMETHEUS.directory(&workspace.cache()))?);
    command.envs(setup::helm::find(&workspace.cache()).map(|helm| ("HELM", helm)));
    let shown = cmd::shown(&command);
    let mut child = command.spawn().with_context(|| format!("cannot run `{shown}`"))?;
    let stdout = child.stdout.take().context("standard output of cargo test")?;
    let mut binaries = 0;
    let mut failed = 0;
    for line in BufReader::new(stdout).lines() {
        let line = line.with_context(|| format!("reading from `{shown}`"))?;
        // The test reports a part that cannot run on this machine.
        if let Some(story) = line.trim_start().strip_prefix("SKIPPED ") {
            tally.skip(story.to_owned());
            continue;
        }
        if let Some((name, reason)) = line.strip_prefix("test ").and_then(|line| line.split_once(" ... ignored")) {
            tally.skip(format!("test {name}: {}", reason.strip_prefix(", ").unwrap_or("ignored")));
            continue;
        }
        // Passing tests are only counted. A failing test is printed with its whole output.
        let is_pass = line.starts_with("test ") && line.ends_with(" ... ok");
        if !is_pass && !line.is_empty() {
            println!("{line}");
        }
        if let Some(counts) = parse_test_result(&line) {
            binaries += 1;
            failed += counts.failed;
            tally.counts.passed += counts.passed;
        }
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            tally.fail(format!("test {name}"));
        }
    }
    let status = child.wait().with_context(|| format!("waiting for `{shown}`"))?;
    // A test that does not compile, or that aborts its process, leaves no line with a result.
    if !status.success() && failed == 0 {
        tally.fail(format!("`{shown}` failed: {status}"));
    }
    if status.success() && binaries == 0 {
        tally.fail(format!("`{shown}` ran no tests at all"));
    }
    end(name, start);
    Ok(())
}

/// Returns `PATH` with one more directory at its start, in which tests find programs that are only unpacked. They are the ones that were checked.
fn path_with(directory: &Path) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = [directory.to_owned()].into_iter().chain(env::split_paths(&path));
    env::join_paths(directories).context("adding a directory to PATH")
}

/// Parses `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
fn parse_test_result(line: &str) -> Option<Counts> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = Counts::default();
    for part in rest.split("; ") {
        match part.split_once(' ') {
            Some((number, "passed")) => counts.passed = number.parse().ok()?,
            Some((number, "failed")) => counts.failed = number.parse().ok()?,
            Some((number, "ignored")) => counts.skipped = number.parse().ok()?,
            _ => {}
        }
    }
    Some(counts)
}

/// Lints the eBPF programs. Their target has another compiler, which may lack clippy.
pub fn lint_ebpf(workspace: &Workspace, clippy: Option<Result<()>>, tally: &mut Tally) {
    const NAME: &str = "lints of the eBPF programs";
    match clippy {
        None => {
            return tally.skip(format!("{NAME}: the BPF compiler is not Debian's, and rustup's has no clippy for BPF"));
        }
        Some(Err(error)) => return tally.skip(format!("{NAME}: {error:#}")),
        Some(Ok(())) => {}
    }
    tally.check(NAME, || {
        let mut command = Command::new("/usr/bin/cargo-clippy");
        command
            .arg("clippy")
            .args(["--package", "monitor-ebpf", "--bin", "monitor-ebpf", "--features", "programs"])
            .args(["--target", "bpfel-unknown-none", "--release", "--quiet", "--target-dir"])
            .arg(workspace.target.join("ebpf-clippy"))
            .args(["--", "-D", "warnings"])
            // Debian's clippy may be installed without Debian's cargo. Any cargo works.
            .env("CARGO", std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .env("RUSTC", DEBIAN_RUSTC)
            .env("RUSTC_BOOTSTRAP", "1")
            .env_remove("RUSTUP_TOOLCHAIN")
            .current_dir(&workspace.root);
        cmd::run(&mut command)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_cargo_test_are_counted() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        assert_eq!(parse_test_result(line), Some(Counts { passed: 12, failed: 2, skipped: 1 }));
        assert_eq!(parse_test_result("test result_is_read ... ok"), None);
        assert_eq!(parse_test_result("running 3 tests"), None);
    }

    #[test]
    fn every_contract_suite_is_run() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/apiserver/tests");
        let name = |entry: std::fs::DirEntry| entry.path().file_stem().unwrap().to_str().unwrap().to_owned();
        let mut suites: Vec<String> = std::fs::read_dir(directory).unwrap().map(|entry| name(entry.unwrap())).collect();
        suites.sort();
        assert_eq!(suites, CONTRACT_SUITES);
    }
}
