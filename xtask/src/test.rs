//! `cargo xtask test` runs all checks; `cargo xtask check` runs those that take minutes. Failures are collected: one failure does
//! not hide the next.
//!
//! Everything is compiled before anything runs. Meanwhile the parts that the VM needs and the machine lacks are downloaded and
//! made. This ends before the first measurement.

mod boots;
mod host;
mod lanes;
mod supplies;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::advisories;
use crate::bench;
use crate::build;
use crate::outcome::Counts;
use crate::paths::Workspace;
use crate::setup;
use crate::vm::{self, Verdict};
use crate::worlds;
pub use host::{compile_contract_tests, contract_tests};
use supplies::Pending;

/// Checks format and lints, runs unit and integration tests on this machine and the VM scenarios on both kernels, each once.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Repeat the scenarios whose outcome is a matter of luck, and measure what takes long.
    #[arg(long)]
    long: bool,
    /// Leave the virtual machine out.
    #[arg(long)]
    no_vm: bool,
}

const ADVISORIES: &str = "advisories";
const WORLDS: &str = "invariants of a kill in simulated nodes";

/// The counts, and a description of each failure.
#[derive(Debug, Default)]
pub struct Tally {
    pub counts: Counts,
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

    pub fn fail(&mut self, story: String) {
        println!("FAILED {story}");
        self.counts.failed += 1;
        self.failures.push(story);
    }

    pub fn skip(&mut self, story: String) {
        println!("SKIPPED {story}");
        self.counts.skipped += 1;
        self.skips.push(story);
    }

    /// Adds the counts of a part with this name, and its stories.
    pub fn take(&mut self, part: &str, other: Self) {
        self.counts.passed += other.counts.passed;
        self.counts.failed += other.counts.failed;
        self.counts.skipped += other.counts.skipped;
        let named = |story: String| format!("{part}: {story}");
        self.failures.extend(other.failures.into_iter().map(named));
        self.skips.extend(other.skips.into_iter().map(named));
    }

    pub fn code(&self) -> ExitCode {
        if self.counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Prints what was skipped and what failed, by name, and the counts in the last line.
    pub fn print(&self, start: Instant) {
        for story in &self.skips {
            println!("skipped: {story}");
        }
        for story in &self.failures {
            println!("failed:  {story}");
        }
        println!("{:.1} min in all", start.elapsed().as_secs_f64() / 60.0);
        println!("{}", self.line());
    }

    /// Returns the counts in one line.
    pub fn line(&self) -> String {
        let Counts { passed, failed, skipped } = self.counts;
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

fn begin(step: &str) -> Instant {
    println!("== {step}");
    Instant::now()
}

/// Prints the duration of a step, which shows that the suite becomes slower.
fn end(step: &str, start: Instant) {
    println!("== {step}: took {:.0} s", start.elapsed().as_secs_f64());
}

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let start = Instant::now();
    // The foreground finishes its installations before the background starts: apt has one lock.
    let ebpf_clippy = host::set_up(workspace)?;
    if let Err(error) = setup::ensure(workspace, setup::VIEWERS) {
        println!("{error:#}; the tests that need it are skipped");
    }
    setup::helm::set_up(workspace, false);
    end("setup", start);
    let supplies = (!options.no_vm).then(|| Pending::begin(workspace, boots::parts(options.long)));

    let mut tally = Tally::default();
    host::format(&mut tally);
    host::lint(&mut tally);
    host::lint_ebpf(workspace, ebpf_clippy, &mut tally);
    compile_release(options);
    let supplies = supplies.map(|pending| {
        let start = begin("waiting for what the VM needs");
        let supplies = pending.wait();
        end("waiting for what the VM needs", start);
        supplies
    });
    host::all_tests(workspace, &mut tally)?;
    match advisories::named() {
        Some(database) => tally.check(ADVISORIES, || advisories::check(workspace, &database)),
        None => tally.skip(format!("{ADVISORIES}: {} names no database", advisories::VARIABLE)),
    }
    tally.check(WORLDS, || worlds::check(if options.long { worlds::MANY } else { worlds::FEW }));
    tally.check("wrong rules in simulated nodes", worlds::check_mutants);
    tally.check("speed of the decision", bench::check_promise);
    for (step, judge) in bench::JUDGES_OF_TEST {
        check_cost(&mut tally, step, || judge(workspace));
    }
    for (step, judge) in bench::JUDGES_OF_LONG_TEST {
        if options.long {
            check_cost(&mut tally, step, || judge(workspace));
        } else {
            tally.skip(format!("{step}: only with --long"));
        }
    }
    let verdicts = match supplies {
        Some(supplies) => boots::run(workspace, &supplies, options.long, &mut tally),
        None => {
            tally.skip("VM scenarios: --no-vm".to_owned());
            Vec::new()
        }
    };
    summary(&tally, &verdicts, start);
    Ok(tally.code())
}

/// Checks format and lints, and runs the tests that take seconds: unit tests, property tests, the decision held against tables.
#[derive(Debug, clap::Args)]
pub struct QuickOptions {}

pub fn run_quick(_: &QuickOptions, workspace: &Workspace) -> Result<ExitCode> {
    let start = Instant::now();
    let ebpf_clippy = host::set_up(workspace)?;
    let mut tally = Tally::default();
    host::format(&mut tally);
    host::lint(&mut tally);
    host::lint_ebpf(workspace, ebpf_clippy, &mut tally);
    host::quick_tests(workspace, &mut tally)?;
    tally.check(WORLDS, || worlds::check(worlds::FEW));
    tally.print(start);
    Ok(tally.code())
}

/// Compiles the release binaries and benches that later steps run. An error is ignored here: the step that needs the binary
/// fails.
fn compile_release(options: &Options) {
    const NAME: &str = "compiling for release";
    let start = begin(NAME);
    let binaries = if options.no_vm { &build::BINARIES[..1] } else { &build::BINARIES };
    if let Err(error) = build::release_with_benches(binaries, &bench::RELEASED_OF_TEST) {
        println!("{error:#}; going on to the step that needs it");
    }
    end(NAME, start);
}

/// Runs a bench that compares its figures with a budget. A figure that cannot be measured here is counted as skipped, not as
/// passed.
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

fn summary(tally: &Tally, verdicts: &[Verdict], start: Instant) {
    if !verdicts.is_empty() {
        vm::print_table(verdicts);
    }
    println!("VM scenarios: {}", scenarios_by_kernel(verdicts));
    tally.print(start);
}

/// Returns `20 on Linux 6.12.117 (v2), 34 on Linux 6.1.0-56 (v1, v2)`. Only scenarios with an outcome are counted.
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
    fn the_stories_of_a_part_begin_with_its_name() {
        let (mut all, mut part) = (Tally::default(), Tally::default());
        part.counts.passed = 2;
        part.fail("test a".to_owned());
        part.skip("b".to_owned());
        all.skip("c".to_owned());
        all.take("alone", part);
        assert_eq!(all.line(), "2 passed, 1 failed, 2 skipped");
        assert_eq!(
            (all.failures, all.skips),
            (vec!["alone: test a".to_owned()], vec!["c".to_owned(), "alone: b".to_owned()])
        );
    }

    #[test]
    fn without_a_boot_no_scenario_is_counted() {
        assert_eq!(scenarios_by_kernel(&[]), "none ran");
    }
}
