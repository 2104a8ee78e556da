//! The requests of many agents' API clients, compared with those of kubelets.

use anyhow::{Result, bail};

use super::kernel::Outcome;
use super::lines_of;
use crate::api_server::{self, Server};
use crate::paths::Workspace;
use crate::vm::kubernetes;

/// Measures hollow agents of so many nodes at the API server that `KUBECONFIG` names, or at the test API server. It takes seven minutes.
pub fn fleet(nodes: u32) -> Result<Outcome> {
    println!("== measuring fleet, {nodes} nodes");
    measure(nodes, None)
}

/// Measures the same at the API server of the first release in `KUBERNETES_BIN`.
pub fn at_release(nodes: u32, workspace: &Workspace) -> Result<Outcome> {
    let Some(release) = api_server::releases(workspace)?.into_iter().next() else {
        return Ok(Outcome::Skipped(format!("fleet, at a real API server: {}", kubernetes::ADVICE)));
    };
    println!("== measuring fleet, {nodes} nodes, {}", release.versions);
    let server = Server::start(workspace, &release, None)?;
    measure(nodes, Some(&server.kubeconfig().to_string_lossy()))
}

fn measure(nodes: u32, kubeconfig: Option<&str>) -> Result<Outcome> {
    let nodes = nodes.to_string();
    let mut variables = vec![("FLEET_NODES", nodes.as_str())];
    variables.extend(kubeconfig.map(|path| ("KUBECONFIG", path)));
    // The bench counts requests, which do not depend on optimization.
    let lines = lines_of("fleet", "dev", &variables)?;
    lines.iter().for_each(|line| println!("{line}"));
    let Some(figures) = lines.iter().find_map(|line| Figures::parse(line)) else {
        bail!("the bench printed no figures");
    };
    let verdict = if figures.are_kept() { "kept" } else { "BROKEN" };
    let expiry = figures
        .expiry
        .map_or(String::new(), |(count, most)| format!(", and {most:.0} after its versions have expired: {count:.0}"));
    println!(
        "promise: {nodes} idle agents send at most {:.1} requests/s besides renewals of watches, a fifth of what as many kubelets send: {:.1}; at \
         most {:.0} in the busiest second after a restart of the API server: {:.0}{expiry}; {verdict}",
        figures.idle.1, figures.idle.0, figures.restart.1, figures.restart.0
    );
    Ok(Outcome::of(figures.are_kept()))
}

/// Measured figures, each with its budget.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    /// Requests a second.
    idle: (f64, f64),
    /// Requests in the busiest second after a restart.
    restart: (f64, f64),
    /// The same after the versions have expired; none with a real API server.
    expiry: Option<(f64, f64)>,
}

impl Figures {
    /// Parses `fleet 1000 nodes: idle 17.09 requests/s of 21.33, restart 640 requests in a second of 1500`, and `, expiry ` as `restart`.
    fn parse(line: &str) -> Option<Self> {
        let (_, figures) = line.strip_prefix("fleet ")?.split_once(" nodes: ")?;
        let figure = |name: &str| -> Option<(f64, f64)> {
            let figure = figures.split(", ").find_map(|one| one.strip_prefix(name))?;
            let (value, budget) = figure.trim().split_once(' ')?;
            Some((value.parse().ok()?, budget.rsplit(' ').next()?.parse().ok()?))
        };
        Some(Self { idle: figure("idle")?, restart: figure("restart")?, expiry: figure("expiry") })
    }

    /// An idle fleet without requests has lost its heartbeats.
    fn are_kept(&self) -> bool {
        let others = [Some(self.idle), Some(self.restart), self.expiry];
        self.idle.0 > 0.0 && others.into_iter().flatten().all(|(value, budget)| value <= budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_compared_with_their_budgets() {
        let line = "fleet 1000 nodes: idle 17.09 requests/s of 21.33, restart 640 requests in a second of 1500";
        let figures = Figures::parse(line).unwrap();
        assert_eq!(figures, Figures { idle: (17.09, 21.33), restart: (640.0, 1500.0), expiry: None });
        let with_expiry = Figures::parse(&format!("{line}, expiry 470 requests in a second of 800")).unwrap();
        assert_eq!(with_expiry, Figures { expiry: Some((470.0, 800.0)), ..figures });
        assert!(figures.are_kept() && with_expiry.are_kept());
        assert!(!Figures { restart: (1501.0, 1500.0), ..figures }.are_kept());
        assert!(!Figures { expiry: Some((801.0, 800.0)), ..figures }.are_kept());
        assert!(!Figures { idle: (0.0, 21.33), ..figures }.are_kept());
        assert_eq!(Figures::parse("fleet: 1000 nodes with two pods each"), None);
    }
}
