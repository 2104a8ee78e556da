//! CPU time of the agent while memory is a little above a threshold, compared with the budget.

use anyhow::{Result, bail};

use super::kernel::{self, Outcome};
use super::lines_of;
use crate::build;
use crate::paths::Workspace;

pub fn near(workspace: &Workspace) -> Result<Outcome> {
    println!("== measuring near");
    build::release(&["node-pressure-monitor"])?;
    let agent = workspace.release("node-pressure-monitor");
    let lines = lines_of("near", "dev", &[("NEAR_AGENT", &agent.to_string_lossy())])?;
    lines.iter().for_each(|line| println!("{line}"));
    if let Some(skipped) = kernel::skipped(&lines) {
        return Ok(skipped);
    }
    let figures: Vec<(f64, f64)> = lines.iter().filter_map(|line| figures(line)).collect();
    if figures.is_empty() {
        bail!("the bench printed no figures");
    }
    let is_kept = figures.iter().all(|(cpu, budget)| cpu <= budget);
    println!("promise: little above a threshold: {}", if is_kept { "kept" } else { "BROKEN" });
    Ok(Outcome::of(is_kept))
}

/// Parses `near 100 MiB above: 0.214 % of a core of 0.450, 52 samples/s`. Returns the share and the budget.
fn figures(line: &str) -> Option<(f64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["near", _, "MiB", "above:", cpu, "%", "of", "a", "core", "of", budget, _, "samples/s"] = words[..] else {
        return None;
    };
    Some((cpu.parse().ok()?, budget.strip_suffix(',')?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_parsed() {
        assert_eq!(figures("near 100 MiB above: 0.214 % of a core of 0.450, 52 samples/s"), Some((0.214, 0.45)));
        assert_eq!(figures("SKIPPED near: needs root"), None);
    }
}
