//! `cargo xtask fuzz`: libFuzzer searches for an input that breaks a claim.

use std::fs::{self, File};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, bail};

use crate::cmd;
use crate::paths::Workspace;
use crate::setup;

/// Fuzzes every parser, and the decision itself; exits with 1 when a claim was broken, and names the input that broke it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask fuzz --seconds 60\n  cargo xtask fuzz quantity threshold")]
pub struct Options {
    /// How long to search, for each target.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Targets; all when none is named.
    targets: Vec<String>,
}

/// The time limit for one input. The slowest known input takes a thousandth of it.
const SECONDS_PER_INPUT: u32 = 5;
const MEGABYTES: u32 = 2048;

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    setup::ensure(workspace, setup::FUZZ)?;
    let place = Place::of(workspace)?;
    let targets = chosen(&place.targets()?, &options.targets)?;
    place.build()?;

    let width = thread::available_parallelism().map_or(1, NonZero::get).min(targets.len());
    println!(
        "{} targets, {} s each, {width} at a time; logs in {}",
        targets.len(),
        options.seconds,
        place.work.display()
    );
    println!("{:<20} {:>12} {:>9} {:>7} {:>7}  findings", "target", "runs", "per s", "edges", "corpus");
    let queue = Mutex::new(targets.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || -> Result<usize> {
        let mut findings = 0;
        while let Some(target) = next() {
            findings += usize::from(search(&place, &target, options.seconds)?.finding.is_some());
        }
        Ok(findings)
    };
    let findings = thread::scope(|scope| {
        let workers: Vec<_> = (0..width).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| bail!("a worker panicked")));
        joined.sum::<Result<usize>>()
    })?;
    if findings == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "A finding stays found: mend it, and commit its input as monitor/fuzz/seeds/TARGET/NAME, which `cargo test` replays."
    );
    Ok(ExitCode::FAILURE)
}

/// The paths of the fuzz package and of its output.
struct Place {
    crate_dir: PathBuf,
    /// The directory of builds, findings, logs, and the corpora that grow from run to run.
    work: PathBuf,
    host: String,
    config: PathBuf,
}

impl Place {
    fn of(workspace: &Workspace) -> Result<Self> {
        let version = cmd::output(Command::new("rustc").arg("-vV"))?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("`rustc -vV` names no host")?;
        Ok(Self {
            crate_dir: workspace.root.join("monitor/fuzz"),
            work: workspace.target.join("fuzz"),
            host: host.to_owned(),
            config: workspace.root.join("config/monitor.yaml"),
        })
    }

    fn targets(&self) -> Result<Vec<String>> {
        let dir = self.crate_dir.join("fuzz_targets");
        let entries = fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))?;
        let names = entries.flatten().filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()));
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Builds without a sanitizer: the fuzzed code has no unsafe code and panics at every overflow. The targets run several times
    /// faster, and any stable compiler can build them.
    fn build(&self) -> Result<()> {
        let mut build = cmd::cargo();
        build.args(["fuzz", "build", "--sanitizer", "none", "--target", &self.host, "--fuzz-dir"]);
        build.arg(&self.crate_dir).arg("--target-dir").arg(&self.work);
        cmd::run(&mut build)
    }

    fn program(&self, target: &str) -> PathBuf {
        self.work.join(&self.host).join("release").join(target)
    }

    fn dir(&self, parts: &[&str]) -> Result<PathBuf> {
        let dir = parts.iter().fold(self.work.clone(), |dir, part| dir.join(part));
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        Ok(dir)
    }
}

fn chosen(all: &[String], named: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        bail!("there is no target {unknown}; there are {}", all.join(", "));
    }
    Ok(if named.is_empty() { all } else { named }.to_vec())
}

fn dictionary(target: &str) -> &'static str {
    match target {
        _ if target.starts_with("config_") => "config.dict",
        "quantity" | "duration" | "threshold" => "numbers.dict",
        _ => "json.dict",
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    runs: u64,
    per_second: u64,
    edges: u64,
    corpus: u64,
    /// The broken claim, and the input that breaks it.
    finding: Option<String>,
}

fn search(place: &Place, target: &str, seconds: u64) -> Result<Outcome> {
    let corpus = place.dir(&["corpus", target])?;
    let findings = place.dir(&["findings"])?;
    let log = place.work.join(format!("{target}.log"));
    let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    let mut command = Command::new(place.program(target));
    command.arg(&corpus).arg(place.crate_dir.join("seeds").join(target));
    command.arg(format!("-dict={}", place.crate_dir.join("dictionaries").join(dictionary(target)).display()));
    if target == "config_monitor" {
        command.arg(format!("-seed_inputs={}", place.config.display()));
    }
    command.arg(format!("-artifact_prefix={}/{target}-", findings.display()));
    command.args([format!("-max_total_time={seconds}"), format!("-timeout={SECONDS_PER_INPUT}")]);
    command.args([format!("-rss_limit_mb={MEGABYTES}"), "-print_final_stats=1".to_owned()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let status = command.status().with_context(|| format!("cannot run `{}`", cmd::shown(&command)))?;
    let output = fs::read(&log).with_context(|| format!("reading {}", log.display()))?;
    let mut outcome = parse(&String::from_utf8_lossy(&output));
    if !status.success() && outcome.finding.is_none() {
        outcome.finding = Some(format!("{status}, see {}", log.display()));
    }
    report(place, target, &outcome);
    Ok(outcome)
}

fn report(place: &Place, target: &str, outcome: &Outcome) {
    let Outcome { runs, per_second, edges, corpus, finding } = outcome;
    let finding = finding.as_deref().unwrap_or("none");
    println!("{target:<20} {runs:>12} {per_second:>9} {edges:>7} {corpus:>7}  {finding}");
    if let Some((_, artifact)) = finding.rsplit_once(WRITTEN) {
        println!("{:20} again: {} {artifact}", "", relative(&place.program(target)));
    }
}

fn relative(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}

/// libFuzzer's message before the path of the input.
const WRITTEN: &str = "Test unit written to ";

/// Parses libFuzzer's log: lines of state, the failure if there is one, and the figures at the end.
fn parse(log: &str) -> Outcome {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let mut outcome = Outcome::default();
    let mut story = Vec::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(runs) = line.strip_prefix("stat::number_of_executed_units:") {
            outcome.runs = number(runs).unwrap_or(0);
        } else if let Some(rate) = line.strip_prefix("stat::average_exec_per_sec:") {
            outcome.per_second = number(rate).unwrap_or(0);
        } else if line.starts_with('#') {
            outcome.edges = field(line, "cov:").unwrap_or(outcome.edges);
            outcome.corpus = field(line, "corp:").unwrap_or(outcome.corpus);
        } else if line.contains("' panicked at ") || line.contains(" panicked at ") && line.starts_with("thread ") {
            story.extend(lines.peek().map(|claim| (*claim).to_owned()));
        } else if let Some((_, what)) =
            line.split_once("ERROR: libFuzzer: ").filter(|(_, what)| *what != "deadly signal")
        {
            story.push(what.to_owned());
        } else if let Some((_, path)) = line.split_once(WRITTEN) {
            story.push(format!("{WRITTEN}{path}"));
        }
    }
    outcome.finding = (!story.is_empty()).then(|| story.join("; "));
    outcome
}

/// Parses a number of `#123 NEW cov: 831 ft: 1402 corp: 402/8Kb …`.
fn field(line: &str, name: &str) -> Option<u64> {
    let mut words = line.split_whitespace().skip_while(|word| *word != name);
    words.nth(1)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_search_are_parsed() {
        let log = "INFO: Seed: 1\n#2\tINITED cov: 97 ft: 98 corp: 1/1b exec/s: 0 rss: 40Mb\n\
                   #90\tNEW    cov: 831 ft: 1402 corp: 402/8Kb lim: 4 exec/s: 0 rss: 40Mb L: 1/1 MS: 1 CrossOver-\n\
                   #91\tDONE   cov: 832 ft: 1402 corp: 403/8Kb\nstat::number_of_executed_units: 91\nstat::average_exec_per_sec:     30\n";
        assert_eq!(parse(log), Outcome { runs: 91, per_second: 30, edges: 832, corpus: 403, finding: None });
    }

    #[test]
    fn a_finding_is_reported_with_its_input() {
        let log = "#9\tNEW cov: 8 ft: 1 corp: 4/8b\n\nthread '<unnamed>' (7) panicked at src/numbers.rs:40:5:\nassertion failed: 1 == 2\n\
                   ==7== ERROR: libFuzzer: deadly signal\nartifact_prefix='x'; Test unit written to /x/quantity-crash-51\n";
        let finding = parse(log).finding.unwrap();
        assert_eq!(finding, "assertion failed: 1 == 2; Test unit written to /x/quantity-crash-51");
        let hang = parse("==7== ERROR: libFuzzer: timeout after 5 seconds\n").finding.unwrap();
        assert_eq!(hang, "timeout after 5 seconds");
    }

    #[test]
    fn unknown_targets_are_refused_with_the_known_ones() {
        let all = ["a".to_owned(), "b".to_owned()];
        assert_eq!(chosen(&all, &[]).unwrap(), all);
        assert!(chosen(&all, &["c".to_owned()]).unwrap_err().to_string().ends_with("a, b"));
    }
}
