//! Cost of the eBPF programs: each probe by the kernel's own count, and reading the aggregates.

use anyhow::{Context as _, Result, bail};

use crate::paths::Workspace;

/// The most that a counting probe may delay the task that triggers it; 49 to 141 ns were measured.
const PROBE_NANOS: f64 = 150.0;
/// Probes that send a record each time, or examine an OOM kill. They run as rarely as the events that they report.
const NOT_COUNTING: [&str; 3] = ["oom:mark_victim", "oom:oom_score_adj_update", "kprobe:oom_kill_process"];
/// A program that does nothing. Its time is the share of the kernel's count in the times of the others.
const EMPTY: &str = "empty";
/// A probe with fewer hits is not judged, because the first hits pay for cold caches.
const ENOUGH_HITS: u64 = 100;
/// The budget for reading the counters of a thousand cgroups; 2.4 ms were measured.
const AGGREGATES_MILLIS: f64 = 5.0;

#[derive(Debug, PartialEq)]
struct Probe {
    name: String,
    hits: u64,
    nanos: f64,
}

impl Probe {
    /// Parses `probe oom:mark_victim 5 hits 18968 ns`.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["probe", name, hits, "hits", nanos, "ns"] = words[..] else { return None };
        Some(Self { name: name.to_owned(), hits: hits.parse().ok()?, nanos: nanos.parse().ok()? })
    }

    fn verdict(&self, allowance: f64) -> &'static str {
        match self {
            _ if self.hits == 0 => "not provoked here",
            _ if self.name == EMPTY => "the count itself, part of the others",
            _ if NOT_COUNTING.contains(&self.name.as_str()) => "not a counting probe",
            _ if self.hits < ENOUGH_HITS => "too few hits to tell",
            _ if self.nanos <= PROBE_NANOS * allowance => "kept",
            _ => "BROKEN",
        }
    }
}

/// Outcome of comparing a bench with its promise.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Kept,
    Broken,
    /// Nothing was measured on this machine, for this reason.
    Skipped(String),
}

impl Outcome {
    pub(super) const fn of(kept: bool) -> Self {
        if kept { Self::Kept } else { Self::Broken }
    }

    /// Prints why nothing was measured. Returns whether no promise is broken.
    pub(super) fn is_not_broken(&self) -> bool {
        if let Self::Skipped(reason) = self {
            println!("SKIPPED {reason}");
        }
        *self != Self::Broken
    }
}

pub fn probes(_: &Workspace) -> Result<Outcome> {
    // The dev profile suffices: the kernel's own time does not depend on the agent's optimization, and tests have compiled the
    // profile before.
    let lines = lines_of("probes", "dev")?;
    let probes: Vec<Probe> = lines.iter().filter_map(|line| Probe::parse(line)).collect();
    if let Some(skipped) = skipped(&lines) {
        return Ok(skipped);
    }
    let allowance = allowance(&lines)?;
    let budget = PROBE_NANOS * allowance;
    println!(
        "{:<40} {:>8} {:>10}  promise: {PROBE_NANOS:.0} ns, {budget:.0} ns on this machine now",
        "probe", "hits", "ns a hit"
    );
    for probe in &probes {
        println!("{:<40} {:>8} {:>10.0}  {}", probe.name, probe.hits, probe.nanos, probe.verdict(allowance));
    }
    let judged = probes.iter().filter(|probe| ["kept", "BROKEN"].contains(&probe.verdict(allowance))).count();
    if judged == 0 {
        bail!("no probe was hit often enough to tell what it costs");
    }
    Ok(Outcome::of(probes.iter().all(|probe| probe.verdict(allowance) != "BROKEN")))
}

/// Measures reading all aggregates.
pub fn aggregates(_: &Workspace) -> Result<Outcome> {
    let lines = lines_of("aggregates", "bench")?;
    if let Some(skipped) = skipped(&lines) {
        return Ok(skipped);
    }
    let Some(millis) = lines.iter().find_map(|line| millis(line)) else {
        bail!("the bench printed no time");
    };
    let budget = AGGREGATES_MILLIS * allowance(&lines)?;
    let kept = millis <= budget;
    let verdict = if kept { "kept" } else { "BROKEN" };
    println!(
        "promise: reading the aggregates of 1,000 cgroups takes at most {AGGREGATES_MILLIS} ms, {budget:.2} on this machine now: {millis:.2} ms, {verdict}"
    );
    Ok(Outcome::of(kept))
}

fn allowance(lines: &[String]) -> Result<f64> {
    lines.iter().find_map(|line| super::allowance(line)).context("the bench printed no allowance")
}

/// Parses `aggregates 1000 cgroups: 1.221 ms`.
fn millis(line: &str) -> Option<f64> {
    line.strip_prefix("aggregates 1000 cgroups: ")?.strip_suffix(" ms")?.parse().ok()
}

fn lines_of(bench: &str, profile: &str) -> Result<Vec<String>> {
    println!("== measuring {bench}");
    super::lines_of(bench, profile, &[])
}

pub(super) fn skipped(lines: &[String]) -> Option<Outcome> {
    let reasons: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("SKIPPED ")).collect();
    (!reasons.is_empty()).then(|| Outcome::Skipped(reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_counting_probe_that_was_hit_often_is_judged() {
        for (line, verdict) in [
            ("probe ext4:ext4_free_inode 2002 hits 132 ns", "kept"),
            ("probe ext4:ext4_free_inode 2002 hits 151 ns", "BROKEN"),
            ("probe vmscan:mm_vmscan_throttled 1 hits 671 ns", "too few hits to tell"),
            ("probe oom:oom_score_adj_update 1001 hits 227 ns", "not a counting probe"),
            ("probe xfs:xfs_create 0 hits 0 ns", "not provoked here"),
            ("probe empty 5000 hits 160 ns", "the count itself, part of the others"),
        ] {
            assert_eq!(Probe::parse(line).map(|probe| probe.verdict(1.0)), Some(verdict), "{line}");
        }
        assert_eq!(Probe::parse("probes: files are made on ext4"), None);
    }

    #[test]
    fn an_unmeasured_promise_is_skipped() {
        let lines = ["probes: files are made on ext4".to_owned(), "SKIPPED probes: needs root".to_owned()];
        assert_eq!(skipped(&lines), Some(Outcome::Skipped("probes: needs root".to_owned())));
        assert_eq!(skipped(&lines[..1]), None);
    }

    #[test]
    fn the_time_of_the_aggregates_is_parsed() {
        assert_eq!(millis("aggregates 1000 cgroups: 1.221 ms"), Some(1.221));
        assert_eq!(millis("aggregates: 1000 cgroups made and busied in 1.9 s"), None);
    }
}
