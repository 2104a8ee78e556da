//! The requests of many agents' API clients, compared with those of kubelets.

use anyhow::{Result, bail};

use super::kernel::Outcome;
use super::lines_of;

/// Measures hollow agents of so many nodes, which takes about five minutes.
pub fn fleet(nodes: u32) -> Result<Outcome> {
    println!("== measuring fleet, {nodes} nodes");
    // The bench counts requests, which do not depend on optimization.
    let lines = lines_of("fleet", "dev", &[("FLEET_NODES", &nodes.to_string())])?;
    lines.iter().for_each(|line| println!("{line}"));
    let Some(figures) = lines.iter().find_map(|line| Figures::parse(line)) else {
        bail!("the bench printed no figures");
    };
    let verdict = if figures.are_kept() { "kept" } else { "BROKEN" };
    println!(
        "promise: {nodes} idle agents send at most {:.1} requests/s besides renewals of watches, a fifth of what as many kubelets send, and \
         at most {:.0} in the busiest second after a restart of the API server, or after its versions have expired: {:.1}, {:.0}, {verdict}",
        figures.idle_budget, figures.restart_budget, figures.idle, figures.restart
    );
    Ok(Outcome::of(figures.are_kept()))
}

#[derive(Debug, PartialEq)]
struct Figures {
    /// Requests a second.
    idle: f64,
    idle_budget: f64,
    /// Requests in the busiest second.
    restart: f64,
    restart_budget: f64,
}

impl Figures {
    /// Parses `fleet 1000 nodes: idle 17.09 requests/s of 21.33, restart 640 requests in a second of 1500`.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["fleet", _, "nodes:", "idle", idle, "requests/s", "of", most_idle, rest @ ..] = &words[..] else {
            return None;
        };
        let ["restart", restart, "requests", "in", "a", "second", "of", most_restart] = rest else { return None };
        Some(Self {
            idle: idle.parse().ok()?,
            idle_budget: most_idle.strip_suffix(',')?.parse().ok()?,
            restart: restart.parse().ok()?,
            restart_budget: most_restart.parse().ok()?,
        })
    }

    /// An idle fleet without requests has lost its heartbeats.
    fn are_kept(&self) -> bool {
        self.idle > 0.0 && self.idle <= self.idle_budget && self.restart <= self.restart_budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_compared_with_their_budgets() {
        let line = "fleet 1000 nodes: idle 17.09 requests/s of 21.33, restart 640 requests in a second of 1500";
        let figures = Figures::parse(line).unwrap();
        assert_eq!(figures, Figures { idle: 17.09, idle_budget: 21.33, restart: 640.0, restart_budget: 1500.0 });
        assert!(figures.are_kept());
        assert!(!Figures { restart: 1501.0, ..figures }.are_kept());
        assert!(!Figures { idle: 0.0, ..Figures::parse(line).unwrap() }.are_kept());
        assert_eq!(Figures::parse("fleet: 1000 nodes with two pods each"), None);
    }
}
