//! The summary of the results in `README.md`: the outcomes of each environment in one row.

use std::collections::BTreeSet;

use anyhow::Result;

use super::{Kind, Table, edited};
use crate::contract::minors;
use crate::vm::Outcome;

/// The columns beside the environment.
const COLUMNS: [&str; 2] = ["passed", "last run"];

/// Returns the README's text with the summary of these results.
pub fn written(readme: &str, results: &str) -> Result<String> {
    let summary = of(results)?;
    edited(readme, Kind::Compatibility, |table| *table = summary)
}

fn of(results: &str) -> Result<Table> {
    let table = |kind| Table::of(results, kind);
    let (clusters, machines, contract) = (table(Kind::Clusters)?, table(Kind::Machines)?, table(Kind::Contract)?);
    let mut summary = Table::empty("environment", &COLUMNS);
    for (index, cluster) in clusters.columns().iter().enumerate() {
        add(&mut summary, cluster, &scenarios(clusters.column(index)), last(clusters.column(index)));
    }
    let cells = || machines.rows().flat_map(|(_, cells)| cells).map(String::as_str);
    add(&mut summary, &all(&machines), &scenarios(cells()), last(cells()));
    for (server, cells) in contract.rows() {
        let runs = contract.columns().iter().zip(cells).filter_map(|(beside, cell)| {
            let (_, tests) = cell.split_once(", ")?;
            Some(format!("{} {beside}", tests.split(',').next()?))
        });
        let cells = cells.iter().map(String::as_str);
        add(&mut summary, &format!("the API server of {server}"), &runs.collect::<Vec<_>>().join(", "), last(cells));
    }
    let missing = minors::missing(contract.rows().map(|(server, _)| server));
    if !missing.is_empty() {
        add(&mut summary, &format!("the API servers of {}", minors::listed(&missing)), "not run", "");
    }
    Ok(summary)
}

fn add(summary: &mut Table, environment: &str, passed: &str, last: &str) {
    for (column, cell) in COLUMNS.into_iter().zip([passed, last]) {
        summary.set(environment, column, cell);
    }
}

/// Returns `16 of 17 scenarios`. A scenario that was skipped, or that never ran, is not counted.
fn scenarios<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let (passed, failed): (Vec<_>, Vec<_>) = cells.filter_map(outcome).partition(|(is_pass, _)| *is_pass);
    format!("{} of {} scenarios", passed.len(), passed.len() + failed.len())
}

/// Returns the date of the last run, or an empty text.
fn last<'a>(cells: impl Iterator<Item = &'a str>) -> &'a str {
    cells.filter_map(outcome).map(|(_, date)| date).max().unwrap_or_default()
}

/// Returns whether a cell's run passed, and its date.
fn outcome(cell: &str) -> Option<(bool, &str)> {
    let (word, rest) = cell.split_once(' ')?;
    let is_pass = Outcome::Pass.word() == word;
    (is_pass || Outcome::Fail.word() == word).then_some((is_pass, rest.split(',').next()?))
}

/// Returns `Linux 5.10 to 7.2, cgroup v1 and v2, amd64 and arm64, emulated, without Kubernetes`.
fn all(machines: &Table) -> String {
    let names = || machines.rows().map(|(machine, _)| machine);
    let mut kernels: Vec<(u32, u32)> = names().filter_map(kernel).collect();
    kernels.sort_unstable();
    kernels.dedup();
    let kernels = match kernels.as_slice() {
        [(major, minor), .., (last_major, last_minor)] => format!(" {major}.{minor} to {last_major}.{last_minor}"),
        [(major, minor)] => format!(" {major}.{minor}"),
        [] => String::new(),
    };
    let [layouts, architectures, hosts] = [0, 1, 2].map(|index| {
        let parts = names().filter_map(|name| name.split_once(", cgroup ")?.1.split(", ").nth(index));
        parts.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" and ")
    });
    format!("Linux{kernels}, cgroup {layouts}, {architectures}, {hosts}, without Kubernetes")
}

/// Returns the first two numbers of the kernel's version: `Linux 6.12.117+deb12-cloud, cgroup v2` → 6, 12.
fn kernel(machine: &str) -> Option<(u32, u32)> {
    let mut numbers = machine.strip_prefix("Linux ")?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = "\
<!-- clusters -->
| scenario | Kubernetes 1.36.2, cri-o | Kubernetes 1.36.2, containerd |
|---|---|---|
| cluster-ramp | pass 2026-11-26, 68 ms to the kill | FAIL 2026-11-25, no outcome |
| cluster-disk | pass 2026-11-24 |
| cluster-install | skip 2026-11-27 | pass 2026-11-23 |
<!-- machines -->
| machine | probes | ramp |
|---|---|---|
| Linux 6.12.117+deb12-cloud, cgroup v2, amd64, emulated | pass 2026-11-23, 20 probes attached | pass 2026-11-23 |
| Linux 6.1 (Debian 12, backported), cgroup v1, arm64, emulated |  | FAIL 2026-11-22 |
<!-- contract -->
| API server | with its controller manager | alone |
|---|---|---|
| Kubernetes 1.36.2, etcd 3.4.23 | pass 2026-11-26, 186 of 186 tests, 8 parts skipped | FAIL 2026-11-25, 183 of 186 tests, 8 parts skipped |
| Kubernetes 1.30.14, etcd 3.4.23 |  | pass 2026-11-24, 186 of 186 tests, 8 parts skipped |
";
    const README: &str = "\
# Agent

<!-- compatibility -->
| environment |
|---|
| an old one |

The end.
";

    #[test]
    fn each_environment_has_its_outcomes_and_the_last_date() {
        let text = written(README, RESULTS).unwrap();
        let table = "\
# Agent

<!-- compatibility -->
| environment | passed | last run |
|---|---|---|
| Kubernetes 1.36.2, cri-o | 2 of 2 scenarios | 2026-11-26 |
| Kubernetes 1.36.2, containerd | 1 of 2 scenarios | 2026-11-25 |
| Linux 6.1 to 6.12, cgroup v1 and v2, amd64 and arm64, emulated, without Kubernetes | 2 of 3 scenarios | 2026-11-23 |
| the API server of Kubernetes 1.36.2, etcd 3.4.23 | 186 of 186 tests with its controller manager, 183 of 186 tests alone | 2026-11-26 |
| the API server of Kubernetes 1.30.14, etcd 3.4.23 | 186 of 186 tests alone | 2026-11-24 |
| the API servers of Kubernetes 1.31, 1.32, 1.33, 1.34, 1.35 | not run |  |

The end.
";
        assert_eq!(text, table);
    }

    #[test]
    fn results_without_a_table_are_an_error() {
        let story = written(README, "# Results\n").unwrap_err().to_string();
        assert_eq!(story, "there is no line <!-- clusters -->");
    }
}
