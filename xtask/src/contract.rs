//! `cargo xtask contract`: runs the contract tests against a real API server of each version of Kubernetes at hand.

pub mod minors;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::api_server::{self, Release, Server};
use crate::outcome::{Counts, Outcome};
use crate::paths::Workspace;
use crate::results::{self, Kind};
use crate::setup;
use crate::test::{Tally, compile_contract_tests, contract_tests};
use crate::vm::{SKIPPED, kubernetes};

/// Runs the contract tests against a real API server of each version of Kubernetes in KUBERNETES_BIN, beside its controller manager and alone.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example, with two versions:\n  KUBERNETES_BIN=1.35/kubernetes/server/bin:1.36/kubernetes/server/bin cargo xtask contract --record"
)]
pub struct Options {
    /// Only the tests whose names contain this; nothing is recorded then.
    filter: Option<String>,

    /// Write the outcomes into the table of tests/RESULTS.md.
    #[arg(long, conflicts_with = "filter")]
    record: bool,
}

/// The programs beside the API server and its etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Controllers,
    Nothing,
}

impl Beside {
    const ALL: [Self; 2] = [Self::Controllers, Self::Nothing];

    const fn word(self) -> &'static str {
        match self {
            Self::Controllers => "with its controller manager",
            Self::Nothing => "alone",
        }
    }
}

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let start = Instant::now();
    let releases = api_server::releases(workspace)?;
    if releases.is_empty() {
        println!(
            "skipped: contract tests with {}: {}",
            minors::listed(&minors::missing([].into_iter())),
            kubernetes::ADVICE
        );
        return Ok(ExitCode::from(SKIPPED));
    }
    setup::ensure(workspace, setup::BUILD)?;
    compile_contract_tests()?;
    let mut all = Tally::default();
    for (release, beside) in releases.iter().flat_map(|release| Beside::ALL.map(|beside| (release, beside))) {
        let name = format!("{} {}", release.versions, beside.word());
        let tally = test(workspace, release, beside, &name, options.filter.as_deref());
        println!("== {name}: {}", tally.line());
        if options.record && tally.counts.passed > 0 {
            record(&workspace.root, release, beside, &tally)?;
        }
        all.take(&name, tally);
    }
    let missing = minors::missing(releases.iter().map(|release| release.versions.as_str()));
    if !missing.is_empty() {
        let several = "not in KUBERNETES_BIN, which may name several directories, separated by ':'";
        all.skip(format!("{}: {several}: {}", minors::listed(&missing), kubernetes::ADVICE));
    }
    all.print(start);
    Ok(all.code())
}

/// Starts the API server and runs the tests against it.
fn test(workspace: &Workspace, release: &Release, beside: Beside, name: &str, filter: Option<&str>) -> Tally {
    let mut tally = Tally::default();
    let controllers = match (beside, &release.controller_manager) {
        (Beside::Nothing, _) => None,
        (Beside::Controllers, Some(program)) => Some(program.as_path()),
        (Beside::Controllers, None) => {
            tally.skip("there is no kube-controller-manager beside the kube-apiserver".to_owned());
            return tally;
        }
    };
    let tested = Server::start(workspace, release, controllers)
        .context("starting the API server")
        .and_then(|server| contract_tests(workspace, &mut tally, name, Some(&server.kubeconfig()), filter));
    if let Err(error) = tested {
        tally.fail(format!("{error:#}"));
    }
    tally
}

fn record(root: &Path, release: &Release, beside: Beside, tally: &Tally) -> Result<()> {
    let cell = cell(tally.counts, &results::today()?);
    results::write(root, Kind::Contract, |table| table.set(&release.versions, beside.word(), &cell))
}

/// Returns a cell: `pass 2026-11-26, 186 of 186 tests, 9 parts skipped`.
fn cell(Counts { passed, failed, skipped }: Counts, date: &str) -> String {
    let outcome = if failed == 0 { Outcome::Pass } else { Outcome::Fail };
    format!("{} {date}, {passed} of {} tests, {skipped} parts skipped", outcome.word(), passed + failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_outcome_the_date_and_the_counts() {
        let counts = Counts { passed: 186, failed: 0, skipped: 9 };
        assert_eq!(cell(counts, "2026-11-26"), "pass 2026-11-26, 186 of 186 tests, 9 parts skipped");
        let counts = Counts { passed: 184, failed: 2, skipped: 9 };
        assert_eq!(cell(counts, "2026-11-26"), "FAIL 2026-11-26, 184 of 186 tests, 9 parts skipped");
    }
}
