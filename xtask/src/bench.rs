//! `cargo xtask bench`: measures the decision, the eBPF programs, the walk over files, the agent with many pods and the API clients of many
//! agents, and compares with the promises.

mod fleet;
mod kernel;
mod near;
mod pods;
mod walk;

use std::io::{BufRead as _, BufReader};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::arch::Arch;
use crate::cmd;
use crate::paths::Workspace;
use crate::setup;

pub use self::kernel::Outcome;

/// Measures the decision, the kernel side, the walk over files, many pods and many nodes; exits with 1 when a promise is broken.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bench pass\n  cargo xtask bench probes aggregates\n  cargo xtask bench fleet --nodes 200\n  cargo xtask bench"
)]
pub struct Options {
    /// pass, simulate, numbers, probes, aggregates, walk, pods, near or fleet; all when none is named.
    benches: Vec<String>,
    /// The number of nodes of `fleet`, 10 to 2000. With `KUBERNETES_BIN` it measures at a real API server, too.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=2000))]
    nodes: u32,
}

const BENCHES: [&str; 3] = ["numbers", "pass", "simulate"];
/// A bench that compares its own figures with its budget. The table below has its name and its function.
pub type Judge = fn(&Workspace) -> Result<Outcome>;
const JUDGES: [(&str, Judge); 5] = [
    ("probes", kernel::probes),
    ("aggregates", kernel::aggregates),
    ("walk", walk::million),
    ("pods", pods::minute),
    ("near", near::near),
];
/// The bench whose size the options tell.
const FLEET: &str = "fleet";
/// Benches of `cargo xtask test`, with fewer files and seconds.
pub const JUDGES_OF_TEST: [(&str, Judge); 3] = [
    ("cost of the kernel side, probes", kernel::probes),
    ("cost of the walk", walk::tenth),
    ("cost of many pods", pods::quarter),
];
/// Benches of `cargo xtask test --long` only: linking a bench with the agent's release settings takes a minute.
pub const JUDGES_OF_LONG_TEST: [(&str, Judge); 2] =
    [("cost of the kernel side, aggregates", kernel::aggregates), ("cost near a threshold", near::near)];
/// The bench of the promise. It is compiled in release mode, as the agent is; the benches above use the profile of the tests.
pub const RELEASED_OF_TEST: [&str; 1] = ["pass"];

/// The bench with a promise: one step over a thousand pods with three containers each. 0.30 ms were measured.
const PROMISED: &str = "pass/1000";
const PROMISED_NANOS: f64 = 500_000.0;
const WANTED_NANOS: f64 = 200_000.0;

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let names = || BENCHES.into_iter().chain(JUDGES.map(|(name, _)| name)).chain([FLEET]);
    if let Some(unknown) = options.benches.iter().find(|wanted| !names().any(|name| name == *wanted)) {
        bail!("there is no bench {unknown}; there are {}", names().collect::<Vec<_>>().join(", "));
    }
    setup::ensure(workspace, setup::BUILD)?;
    let is_wanted = |name: &str| options.benches.is_empty() || options.benches.iter().any(|wanted| wanted == name);
    let mut kept = !BENCHES.iter().any(|name| is_wanted(name)) || measure(is_wanted)?;
    for (name, judge) in JUDGES {
        if is_wanted(name) {
            kept &= judge(workspace)?.is_not_broken();
        }
    }
    if is_wanted(FLEET) {
        kept &= fleet::fleet(options.nodes)?.is_not_broken();
        kept &= fleet::at_release(options.nodes, workspace)?.is_not_broken();
    }
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures the decision only.
///
/// # Errors
/// When the promise is broken, or could not be measured.
pub fn check_promise() -> Result<()> {
    if measure(|name| name == "pass")? { Ok(()) } else { bail!("one pass takes longer than promised") }
}

/// Runs the wanted benches and prints their figures. Returns whether the promise is kept.
fn measure(is_wanted: impl Fn(&str) -> bool) -> Result<bool> {
    let mut measured = Vec::new();
    let mut allowance = None;
    let mut lines = Vec::new();
    for bench in BENCHES.iter().filter(|name| is_wanted(name)) {
        println!("== measuring {bench}");
        for line in lines_of(bench, "bench", &[])? {
            measured.extend(Measured::parse(&line));
            allowance = allowance.or(self::allowance(&line));
            lines.extend(["simulate ", "allocations "].iter().any(|start| line.starts_with(start)).then_some(line));
        }
    }
    for line in lines {
        println!("{line}");
    }
    Ok(report(&measured, is_wanted("pass").then_some(allowance.unwrap_or(1.0))))
}

/// Parses `allowance 1.310`: the factor by which a promised figure may be exceeded on this machine now, by its reference work.
fn allowance(line: &str) -> Option<f64> {
    line.strip_prefix("allowance ")?.parse().ok()
}

/// Runs one bench with these variables in its environment, and returns what it prints.
fn lines_of(name: &str, profile: &str, variables: &[(&str, &str)]) -> Result<Vec<String>> {
    let mut command = match profile {
        "dev" => cmd::cargo_for_tests(),
        _ => cmd::cargo_for_release(Arch::host()),
    };
    // Cargo builds for the whole workspace: a single package selects other features of its dependencies, which cargo would
    // compile again.
    command
        .args(["bench", "--quiet", "--bench", name, "--profile", profile])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped());
    let shown = cmd::shown(&command);
    let mut child = command.spawn().with_context(|| format!("cannot run `{shown}`"))?;
    let stdout = child.stdout.take().context("standard output of cargo bench")?;
    let lines = BufReader::new(stdout).lines().collect::<Result<Vec<_>, _>>();
    let status = child.wait().with_context(|| format!("waiting for `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    lines.with_context(|| format!("reading from `{shown}`"))
}

#[derive(Debug, Clone, PartialEq)]
struct Measured {
    name: String,
    /// The most likely time, and the bounds within which it lies with 95 % confidence.
    low: f64,
    nanos: f64,
    high: f64,
}

impl Measured {
    /// Parses `pass/1000               time:   [301.23 µs 304.56 µs 308.01 µs]`.
    fn parse(line: &str) -> Option<Self> {
        let (name, times) = line.split_once("time:")?;
        let times = times.trim().strip_prefix('[')?.strip_suffix(']')?;
        let words: Vec<&str> = times.split_whitespace().collect();
        let [low, low_unit, nanos, unit, high, high_unit] = words[..] else { return None };
        let nanos_of = |number: &str, unit| Some(number.parse::<f64>().ok()? * factor(unit)?);
        Some(Self {
            name: name.trim().to_owned(),
            low: nanos_of(low, low_unit)?,
            nanos: nanos_of(nanos, unit)?,
            high: nanos_of(high, high_unit)?,
        })
    }

    /// Returns the number of pods, if the bench varies it.
    fn pods(&self) -> Option<f64> {
        self.name.strip_prefix("pass/")?.parse().ok()
    }
}

fn factor(unit: &str) -> Option<f64> {
    match unit {
        "ps" => Some(1e-3),
        "ns" => Some(1.0),
        "µs" | "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    }
}

fn text(nanos: f64) -> String {
    match nanos {
        _ if nanos < 1e3 => format!("{nanos:.1} ns"),
        _ if nanos < 1e6 => format!("{:.1} µs", nanos / 1e3),
        _ => format!("{:.2} ms", nanos / 1e6),
    }
}

/// Prints the figures. Returns whether the promise is kept, within the allowance `due_within`. A promise that is due and was not
/// measured is broken.
fn report(measured: &[Measured], due_within: Option<f64>) -> bool {
    println!("{:<20} {:>12} {:>26}  growth", "bench (CPU time)", "time", "95 % between");
    let mut before: Option<(f64, f64)> = None;
    for one in measured {
        let between = format!("{} and {}", text(one.low), text(one.high));
        let growth = one.pods().and_then(|pods| growth(before, pods, one.nanos)).unwrap_or_default();
        println!("{:<20} {:>12} {between:>26}  {growth}", one.name, text(one.nanos));
        before = one.pods().map(|pods| (pods, one.nanos));
    }
    let promised = measured.iter().find(|one| one.name == PROMISED);
    match promised {
        None if due_within.is_some() => {
            println!("BROKEN: {PROMISED} was not measured");
            false
        }
        None => true,
        Some(one) => {
            let budget = PROMISED_NANOS * due_within.unwrap_or(1.0);
            let kept = one.nanos <= budget;
            let verdict = if kept { "kept" } else { "BROKEN" };
            let wanted = if one.nanos <= WANTED_NANOS { "reached" } else { "not reached" };
            println!(
                "promise: one pass over 1,000 pods takes at most {}, {} on this machine now: {verdict}; the aim of {} is {wanted}",
                text(PROMISED_NANOS),
                text(budget),
                text(WANTED_NANOS)
            );
            kept
        }
    }
}

/// Compares a figure with the line before: `12.9 times; n log n would be 13.3`.
fn growth(before: Option<(f64, f64)>, pods: f64, nanos: f64) -> Option<String> {
    let (fewer, sooner) = before?;
    let expected = pods * pods.ln() / (fewer * fewer.ln());
    Some(format!("{:.1} times; n log n would be {expected:.1}", nanos / sooner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, nanos: f64) -> Measured {
        Measured { name: name.to_owned(), low: nanos, nanos, high: nanos }
    }

    #[test]
    fn lines_of_criterion_are_parsed() {
        let line = "pass/1000               time:   [301.23 µs 0.3 ms 308010 ns]";
        let expected = Measured { name: "pass/1000".to_owned(), low: 301_230.0, nanos: 300_000.0, high: 308_010.0 };
        assert_eq!(Measured::parse(line), Some(expected));
        for line in ["Benchmarking pass/1000: Warming up for 1.0000 s", "time: x", "change time: [1 % 2 % 3 %]"] {
            assert_eq!(Measured::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_broken_or_unmeasured_promise_fails() {
        assert!(report(&[measured("pass/1000", 499_000.0)], Some(1.0)));
        assert!(!report(&[measured("pass/1000", 501_000.0)], Some(1.0)));
        assert!(report(&[measured("pass/1000", 501_000.0)], Some(1.2)));
        assert!(!report(&[measured("pass/100", 1.0)], Some(1.0)));
        assert!(report(&[], None));
    }

    #[test]
    fn growth_is_compared_with_n_log_n() {
        assert_eq!(growth(Some((10.0, 1.0)), 100.0, 15.0).unwrap(), "15.0 times; n log n would be 20.0");
        assert_eq!(growth(None, 10.0, 1.0), None);
    }
}
