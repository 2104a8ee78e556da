//! `cargo xtask test`: everything that must be green. Failures are collected, none hides the next.
//!
//! Everything is compiled before anything is run: what a bare machine lacks for the VM is downloaded and put together meanwhile, and
//! is done before anything that measures.

mod boots;
mod lanes;
mod supplies;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::bench;
use crate::build;
use crate::cmd;
use crate::paths::Workspace;
use crate::setup::{self, Part};
use crate::vm::{self, Counts, Verdict};
use supplies::Pending;

/// Checks format and lints, runs unit and integration tests on this machine and the VM scenarios on both kernels.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Leave the virtual machine out.
    #[arg(long)]
    no_vm: bool,
}

/// Its clippy is for the eBPF programs.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// The test API server and the contract tests.
const CONTRACT: &str = "node-pressure-apiserver";
const CONTRACT_SUITES: [&str; 6] = ["behaviour", "evict", "permissions", "report", "serve", "watch"];
/// Its cases wait for time-outs and back-offs for most of their time.
const CONTRACT_THREADS: &str = "6";

/// Counts and the story of each failure.
#[derive(Debug, Default)]
struct Tally {
    counts: Counts,
    failures: Vec<String>,
    skips: Vec<String>,
}

impl Tally {
    fn check(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        let start = begin(name);
        match work() {
            Ok(()) => self.counts.passed += 1,
            Err(error) => self.fail(format!("{name}: {error:#}")),
        }
        end(name, start);
    }

    fn fail(&mut self, story: String) {
        println!("FAILED {story}");
        self.counts.failed += 1;
        self.failures.push(story);
    }

    fn skip(&mut self, story: String) {
        println!("SKIPPED {story}");
        self.counts.skipped += 1;
        self.skips.push(story);
    }
}

fn begin(step: &str) -> Instant {
    println!("== {step}");
    Instant::now()
}

/// Where the time goes is part of the log: a suite grows unseen.
fn end(step: &str, start: Instant) {
    println!("== {step}: took {:.0} s", start.elapsed().as_secs_f64());
}

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let start = Instant::now();
    let mut parts = setup::BUILD.to_vec();
    parts.push(Part::RustComponents);
    setup::ensure(workspace, &parts)?;
    // All that the foreground ever installs is there before the background begins to: apt has one lock.
    let ebpf_clippy = Path::new(DEBIAN_RUSTC).exists().then(|| setup::ensure(workspace, &[Part::BpfClippy]));
    end("setup", start);
    let supplies = (!options.no_vm).then(|| Pending::begin(workspace, boots::parts()));

    let mut tally = Tally::default();
    tally.check("format", || cmd::run(cmd::cargo().args(["fmt", "--all", "--check"])));
    tally.check("lints", || {
        cmd::run(cmd::cargo().args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
    });
    lint_ebpf(workspace, ebpf_clippy, &mut tally);
    compile(options);
    let supplies = supplies.map(|pending| {
        let start = begin("waiting for what the VM needs");
        let supplies = pending.wait();
        end("waiting for what the VM needs", start);
        supplies
    });
    host_tests(&mut tally)?;
    tally.check("speed of the decision", bench::check_promise);
    for (step, judge) in bench::JUDGES_OF_TEST {
        check_cost(&mut tally, step, || judge(workspace));
    }
    let verdicts = match supplies {
        Some(supplies) => boots::run(workspace, &supplies, &mut tally),
        None => {
            tally.skip("VM scenarios: --no-vm".to_owned());
            Vec::new()
        }
    };
    summary(&tally, &verdicts, start);
    Ok(if tally.counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compiles what later steps run. It judges nothing: the step that needs what does not compile fails, and says so.
fn compile(options: &Options) {
    const NAME: &str = "compiling what is run later";
    let start = begin(NAME);
    let binaries = if options.no_vm { &build::BINARIES[..1] } else { &build::BINARIES };
    let done = [
        cmd::run(cmd::cargo().args(["test", "--workspace", "--no-run", "--quiet"])),
        bench::compile_for_test(),
        build::release_with_benches(binaries, &bench::RELEASED_OF_TEST),
    ];
    for error in done.into_iter().filter_map(Result::err) {
        println!("{error:#}; going on to the step that needs it");
    }
    end(NAME, start);
}

/// What could not be measured here counts as skipped, not as kept.
fn check_cost(tally: &mut Tally, step: &str, judge: impl Fn() -> Result<bench::Outcome>) {
    let start = begin(step);
    let mut outcome = judge();
    if matches!(outcome, Ok(bench::Outcome::Broken)) {
        println!("measuring once more: what else this machine does can only add to a cost");
        outcome = judge();
    }
    match outcome {
        Ok(bench::Outcome::Kept) => tally.counts.passed += 1,
        Ok(bench::Outcome::Skipped(reason)) => tally.skip(format!("{step}: {reason}")),
        Ok(bench::Outcome::Broken) => tally.fail(format!("{step}: a promise is broken")),
        Err(error) => tally.fail(format!("{step}: {error:#}")),
    }
    end(step, start);
}

/// `cargo test` of the whole workspace; each test counts.
fn host_tests(tally: &mut Tally) -> Result<()> {
    cargo_test(tally, "unit and integration tests on this machine", &["--workspace", "--exclude", CONTRACT], None)?;
    // Named one by one: by its package alone it would be compiled with other features than a moment ago.
    let suites: Vec<&str> = CONTRACT_SUITES.iter().flat_map(|suite| ["--test", suite]).collect();
    cargo_test(tally, "contract tests with an API server", &suites, Some(CONTRACT_THREADS))
}

fn cargo_test(tally: &mut Tally, name: &str, packages: &[&str], threads: Option<&str>) -> Result<()> {
    let start = begin(name);
    let mut command = cmd::cargo();
    command.args(["test", "--no-fail-fast"]).args(packages).stdout(Stdio::piped());
    command.envs(threads.map(|threads| ("RUST_TEST_THREADS", threads)));
    let shown = cmd::shown(&command);
    let mut child = command.spawn().with_context(|| format!("cannot run `{shown}`"))?;
    let stdout = child.stdout.take().context("standard output of cargo test")?;
    let mut binaries = 0;
    let mut failed = 0;
    for line in BufReader::new(stdout).lines() {
        let line = line.with_context(|| format!("reading from `{shown}`"))?;
        // A part of a test that this machine cannot do.
        if let Some(story) = line.trim_start().strip_prefix("SKIPPED ") {
            tally.skip(story.to_owned());
            continue;
        }
        // Passing tests are counted, not listed; a failing one shows with all that it printed.
        if !(line.starts_with("test ") && (line.ends_with(" ... ok") || line.contains(" ... ignored")))
            && !line.is_empty()
        {
            println!("{line}");
        }
        if let Some(counts) = parse_test_result(&line) {
            binaries += 1;
            failed += counts.failed;
            tally.counts.passed += counts.passed;
            tally.counts.skipped += counts.skipped;
        }
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            tally.fail(format!("test {name}"));
        }
    }
    let status = child.wait().with_context(|| format!("waiting for `{shown}`"))?;
    // A test that does not compile, or takes its whole process down, leaves no line of its own.
    if !status.success() && failed == 0 {
        tally.fail(format!("`{shown}` failed: {status}"));
    }
    if status.success() && binaries == 0 {
        tally.fail(format!("`{shown}` ran no tests at all"));
    }
    end(name, start);
    Ok(())
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
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

/// The programs are for another target, whose compiler may come without clippy.
fn lint_ebpf(workspace: &Workspace, clippy: Option<Result<()>>, tally: &mut Tally) {
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
            // Debian's clippy may be there without Debian's cargo; any will do.
            .env("CARGO", std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .env("RUSTC", DEBIAN_RUSTC)
            .env("RUSTC_BOOTSTRAP", "1")
            .env_remove("RUSTUP_TOOLCHAIN")
            .current_dir(&workspace.root);
        cmd::run(&mut command)
    });
}

fn summary(tally: &Tally, verdicts: &[Verdict], start: Instant) {
    if !verdicts.is_empty() {
        vm::print_table(verdicts);
    }
    for story in &tally.skips {
        println!("skipped: {story}");
    }
    for story in &tally.failures {
        println!("failed:  {story}");
    }
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!("VM scenarios: {}; {minutes:.1} min in all", scenarios_by_kernel(verdicts));
    let Counts { passed, failed, skipped } = tally.counts;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
}

/// `20 on Linux 6.12.117 (v2), 34 on Linux 6.1.0-56 (v1, v2)`: only what came to an outcome has run.
fn scenarios_by_kernel(verdicts: &[Verdict]) -> String {
    let mut kernels: BTreeMap<&str, (usize, Vec<&str>)> = BTreeMap::new();
    for verdict in verdicts {
        let (runs, layouts) = kernels.entry(&verdict.release).or_default();
        *runs += verdict.counts.passed + verdict.counts.failed;
        let layout = verdict.label.rsplit(' ').next().unwrap_or_default();
        if !layouts.contains(&layout) {
            layouts.push(layout);
        }
    }
    if kernels.is_empty() {
        return "none ran".to_owned();
    }
    let seconds: f64 = verdicts.iter().map(|verdict| verdict.seconds).sum();
    let parts = kernels
        .iter()
        .map(|(release, (runs, layouts))| format!("{runs} on Linux {release} (cgroup {})", layouts.join(", ")));
    format!("{} in boots of {seconds:.0} s together", parts.collect::<Vec<_>>().join(", "))
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

    #[test]
    fn without_a_boot_no_scenario_ran() {
        assert_eq!(scenarios_by_kernel(&[]), "none ran");
    }
}
