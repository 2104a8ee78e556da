//! The console output of one boot, and its problems. A boot fails unless its output proves success.

use std::time::Duration;

use super::protocol::{self, Crash, Line};
use super::scenario::Request;
use crate::outcome::{Counts, Outcome};

/// The outcome of one scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub name: String,
    pub outcome: Outcome,
    pub seconds: f64,
    pub reason: String,
    /// Measurements of the guest: `KEY=NUMBER UNIT`.
    pub figures: Vec<String>,
    /// Lines that the scenario showed as a person sees them.
    pub screen: Vec<String>,
}

/// A started scenario without an outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    pub name: String,
    pub since: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// QEMU exited by itself.
    Exited,
    /// xtask stopped the boot, for this reason.
    Stopped(String),
}

/// The parsed console output of one boot.
#[derive(Debug, Default)]
pub struct Record {
    pub runs: Vec<Run>,
    pub running: Option<Running>,
    pub end: Option<Counts>,
    /// The versions of what runs in the guest beside the kernel.
    pub versions: Option<String>,
    /// The figures since the last outcome.
    figures: Vec<String>,
    screen: Vec<String>,
    /// The first sign of a crash, with its line.
    pub crash: Option<(Crash, String)>,
    malformed: Vec<String>,
}

impl Record {
    /// Adds one console line; `at` is the time since the start of the boot.
    pub fn take<'a>(&mut self, line: &'a str, at: Duration) -> Option<Line<'a>> {
        if self.crash.is_none()
            && let Some(crash) = protocol::crash(line)
        {
            self.crash = Some((crash, line.trim().to_owned()));
        }
        let parsed = protocol::parse(line)?;
        match &parsed {
            Line::Start { name } => {
                self.running = Some(Running { name: (*name).to_owned(), since: at });
            }
            Line::Outcome { name, outcome, reason } => {
                let since = self.running.take_if(|running| running.name == *name).map_or(at, |running| running.since);
                self.runs.push(Run {
                    name: (*name).to_owned(),
                    outcome: *outcome,
                    seconds: at.saturating_sub(since).as_secs_f64(),
                    reason: (*reason).to_owned(),
                    figures: std::mem::take(&mut self.figures),
                    screen: std::mem::take(&mut self.screen),
                });
            }
            Line::End(counts) => self.end = Some(*counts),
            Line::Malformed(text) => self.malformed.push((*text).to_owned()),
            Line::Figure { text, .. } => self.figures.push((*text).to_owned()),
            Line::Screen { text } => self.screen.push((*text).to_owned()),
            Line::Versions { text } => self.versions = Some((*text).to_owned()),
            Line::Note { .. } | Line::Page { .. } | Line::Timeline { .. } => {}
        }
        Some(parsed)
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for run in &self.runs {
            counts.add(run.outcome);
        }
        counts
    }

    /// Returns the requested scenarios without an outcome. A repeated scenario has one outcome for all its runs.
    pub fn missing(&self, requests: &[Request]) -> Vec<&'static str> {
        let names = requests.iter().map(|request| request.entry.name);
        names.filter(|name| !self.runs.iter().any(|run| run.name == *name)).collect()
    }

    /// Returns the problems of this boot, except failed outcomes.
    pub fn problems(&self, requests: &[Request], ending: &Ending) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some((crash, line)) = &self.crash {
            let what = if *crash == Crash::Oops { "the kernel faulted" } else { "the kernel panicked" };
            problems.push(format!("{what}: {line}"));
        }
        if let Ending::Stopped(reason) = ending {
            problems.push(reason.clone());
        }
        if let Some(running) = &self.running {
            problems.push(format!("{} started and never came to an outcome", running.name));
        }
        for name in self.missing(requests) {
            if self.running.as_ref().is_none_or(|running| running.name != name) {
                problems.push(format!("{name}: no outcome"));
            }
        }
        for text in &self.malformed {
            problems.push(format!("the guest wrote a line that makes no sense: `@@ {text}`"));
        }
        match self.end {
            None => problems.push("the guest ended without `@@ end`".to_owned()),
            Some(end) if end != self.counts() => problems.push(format!(
                "the guest counted {} passed, {} failed, {} skipped, and its outcome lines say otherwise",
                end.passed, end.failed, end.skipped
            )),
            Some(_) => {}
        }
        problems
    }

    /// Returns whether to boot again: the kernel itself faulted (see `vm::boot`) before any scenario failed.
    pub fn is_worth_a_retry(&self) -> bool {
        matches!(self.crash, Some((Crash::Oops, _))) && self.counts().failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(lines: &[&str]) -> Record {
        let mut record = Record::default();
        for (second, line) in (0..).zip(lines) {
            record.take(line, Duration::from_secs(second));
        }
        record
    }

    fn requests(expressions: &[&str]) -> Vec<Request> {
        expressions.iter().map(|expression| Request::parse(expression).unwrap()).collect()
    }

    fn problems(lines: &[&str], expressions: &[&str]) -> Vec<String> {
        record(lines).problems(&requests(expressions), &Ending::Exited)
    }

    const RAMP: [&str; 3] = ["@@ scenario ramp start", "@@ outcome ramp pass", "@@ end passed=1 failed=0 skipped=0"];

    #[test]
    fn a_proven_success_has_no_problems() {
        assert_eq!(problems(&RAMP, &["ramp"]), Vec::<String>::new());
        let record = record(&RAMP);
        assert_eq!((record.runs[0].name.as_str(), record.runs[0].seconds), ("ramp", 1.0));
    }

    #[test]
    fn a_missing_end_is_a_failure() {
        assert_eq!(problems(&RAMP[..2], &["ramp"]), ["the guest ended without `@@ end`"]);
    }

    #[test]
    fn silence_is_a_failure() {
        assert_eq!(problems(&[], &["ramp"]), ["ramp: no outcome", "the guest ended without `@@ end`"]);
    }

    #[test]
    fn a_missing_outcome_is_a_failure_also_with_an_end() {
        assert_eq!(problems(&RAMP, &["ramp", "swarm"]), ["swarm: no outcome"]);
        assert_eq!(problems(&RAMP, &["ramp*3"]), Vec::<String>::new());
    }

    #[test]
    fn an_unfinished_scenario_is_a_failure() {
        let lines = ["@@ scenario ramp start", "@@ end passed=0 failed=0 skipped=0"];
        assert_eq!(problems(&lines, &["ramp"]), ["ramp started and never came to an outcome"]);
    }

    #[test]
    fn counts_that_disagree_are_a_failure() {
        let lines = [RAMP[0], RAMP[1], "@@ end passed=2 failed=0 skipped=0"];
        assert!(problems(&lines, &["ramp"])[0].contains("say otherwise"));
    }

    #[test]
    fn a_garbled_line_is_a_failure() {
        let lines = ["@@ figure", RAMP[0], RAMP[1], RAMP[2]];
        assert!(problems(&lines, &["ramp"])[0].contains("makes no sense"));
    }

    #[test]
    fn a_crash_is_a_failure_and_an_oops_is_worth_a_retry() {
        let lines = ["[    1.0] Oops: int3: 0000 [#1] SMP", "[    1.1] Kernel panic - not syncing: Fatal exception"];
        assert!(problems(&lines, &["ramp"])[0].starts_with("the kernel faulted: [    1.0] Oops"));
        assert!(record(&lines).is_worth_a_retry());
    }

    #[test]
    fn a_panic_or_an_oops_after_a_failure_is_not_retried() {
        assert!(!record(&["[    1.1] Kernel panic - not syncing: Attempted to kill init!"]).is_worth_a_retry());
        assert!(!record(&["@@ outcome ramp fail x", "[    1.0] Oops: 0000 [#1]"]).is_worth_a_retry());
    }

    #[test]
    fn a_boot_that_had_to_be_stopped_is_a_failure() {
        let ending = Ending::Stopped("no output for 90 s".to_owned());
        assert_eq!(record(&RAMP).problems(&requests(&["ramp"]), &ending), ["no output for 90 s"]);
    }
}
