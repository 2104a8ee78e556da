//! The verdict about one boot.

use std::path::PathBuf;

use super::record::Run;
use crate::outcome::{Counts, Outcome};

#[derive(Debug)]
pub struct Verdict {
    pub label: String,
    /// The versions of the programs that ran, and the machine.
    pub environment: String,
    /// The guest has reported the versions.
    pub is_known: bool,
    pub release: String,
    pub runs: Vec<Run>,
    /// Problems other than failed scenarios.
    pub problems: Vec<String>,
    /// Requested scenarios without an outcome.
    pub missing: Vec<&'static str>,
    pub retried: bool,
    pub seconds: f64,
    pub counts: Counts,
    pub(super) retry: bool,
    pub log: Option<PathBuf>,
}

impl Verdict {
    pub fn passed(&self) -> bool {
        self.counts.failed == 0 && self.problems.is_empty()
    }

    pub fn is_worth_a_retry(&self) -> bool {
        self.retry
    }

    /// Returns the scenarios that failed, and those that the boot did not reach.
    pub fn failed(&self) -> Vec<&str> {
        let failed = self.runs.iter().filter(|run| run.outcome == Outcome::Fail).map(|run| run.name.as_str());
        failed.chain(self.missing.iter().copied()).collect()
    }

    /// Replaces the outcomes of failed scenarios by those of a later boot. Keeps the first reasons.
    pub fn overruled_by(mut self, later: Self) -> Self {
        for run in self.runs.iter_mut().filter(|run| run.outcome == Outcome::Fail) {
            let Some(again) = later.runs.iter().find(|again| again.name == run.name) else { continue };
            let before = std::mem::take(&mut run.reason);
            *run = Run { reason: format!("{}; at first: {before}", again.reason), ..again.clone() };
        }
        let missing = std::mem::replace(&mut self.missing, later.missing);
        for name in &missing {
            self.runs.extend(later.runs.iter().find(|again| again.name == *name).cloned());
        }
        if !missing.is_empty() {
            // The first boot ended early, and the second boot ran the remaining scenarios.
            self.problems.clear();
        }
        self.problems.extend(later.problems);
        self.seconds += later.seconds;
        self.counts = Counts::default();
        self.runs.iter().for_each(|run| self.counts.add(run.outcome));
        self
    }
}

#[cfg(test)]
impl Verdict {
    /// Makes a verdict for unit tests.
    pub fn made_up(label: &str, outcomes: &[(&str, Outcome)]) -> Self {
        let mut counts = Counts::default();
        let mut run = |&(name, outcome): &(&str, Outcome)| {
            counts.add(outcome);
            let reason = "made up".to_owned();
            Run { name: name.to_owned(), outcome, seconds: 1.0, reason, figures: Vec::new(), screen: Vec::new() }
        };
        let runs = outcomes.iter().map(&mut run).collect();
        Self {
            label: label.to_owned(),
            environment: label.to_owned(),
            is_known: true,
            release: "6.1.0-1".to_owned(),
            runs,
            problems: Vec::new(),
            missing: Vec::new(),
            retried: false,
            seconds: 1.0,
            counts,
            retry: false,
            log: None,
        }
    }
}
