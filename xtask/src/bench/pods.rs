//! CPU time and memory of the agent on a node of five hundred changing pods, compared with the budget.

use anyhow::{Result, bail};

use super::kernel::{self, Outcome};
use super::lines_of;
use crate::build;
use crate::paths::Workspace;

const LONG: &str = "60";
/// The duration in seconds for `cargo xtask test`.
const SHORT: &str = "15";

pub fn minute(workspace: &Workspace) -> Result<Outcome> {
    pods(workspace, LONG)
}

pub fn quarter(workspace: &Workspace) -> Result<Outcome> {
    pods(workspace, SHORT)
}

fn pods(workspace: &Workspace, seconds: &str) -> Result<Outcome> {
    println!("== measuring pods, {seconds} s");
    build::release(&["node-pressure-monitor"])?;
    let agent = workspace.release("node-pressure-monitor");
    // The bench itself needs no optimization: it measures the released agent.
    let lines = lines_of("pods", "dev", &[("PODS_SECONDS", seconds), ("PODS_AGENT", &agent.to_string_lossy())])?;
    lines.iter().for_each(|line| println!("{line}"));
    if let Some(skipped) = kernel::skipped(&lines) {
        return Ok(skipped);
    }
    let Some(figures) = lines.iter().find_map(|line| Figures::parse(line)) else {
        bail!("the bench printed no figures");
    };
    let verdict = if figures.are_kept() { "kept" } else { "BROKEN" };
    println!(
        "promise: 500 pods with 100 changes a second take at most {:.2} % of a core on this machine now and {} MiB: {:.2} %, {:.1} MiB, {verdict}",
        figures.cpu_budget, figures.memory_budget, figures.cpu, figures.memory
    );
    Ok(Outcome::of(figures.are_kept()))
}

#[derive(Debug, PartialEq)]
struct Figures {
    /// Per cent of one core.
    cpu: f64,
    cpu_budget: f64,
    /// Memory in MiB.
    memory: f64,
    memory_budget: f64,
}

impl Figures {
    /// Parses `pods 500 pods, 100.2 changes/s: 0.61 % of a core of 2, 24.1 MiB of 40`.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["pods", _, "pods,", _, "changes/s:", cpu, "%", "of", "a", "core", "of", most, memory, "MiB", "of", limit] =
            words[..]
        else {
            return None;
        };
        Some(Self {
            cpu: cpu.parse().ok()?,
            cpu_budget: most.strip_suffix(',')?.parse().ok()?,
            memory: memory.parse().ok()?,
            memory_budget: limit.parse().ok()?,
        })
    }

    fn are_kept(&self) -> bool {
        self.cpu <= self.cpu_budget && self.memory <= self.memory_budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_compared_with_their_budgets() {
        let line = "pods 500 pods, 100.2 changes/s: 0.61 % of a core of 2, 24.1 MiB of 40";
        let figures = Figures::parse(line).unwrap();
        assert_eq!(figures, Figures { cpu: 0.61, cpu_budget: 2.0, memory: 24.1, memory_budget: 40.0 });
        assert!(figures.are_kept());
        assert!(!Figures { cpu: 2.1, ..figures }.are_kept());
        assert_eq!(Figures::parse("pods: without changes 0.10 % of a core, 23.0 MiB"), None);
    }
}
