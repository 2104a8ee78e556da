//! The summary of the results: the outcomes of each environment in one row.

use std::collections::BTreeSet;

use anyhow::Result;

use super::{Kind, Table, edited};
use crate::contract::minors;
use crate::outcome::Outcome;

/// The columns beside the environment.
const COLUMNS: [&str; 2] = ["passed", "runs"];

/// Returns the text of the results with their summary.
pub fn written(results: &str) -> Result<String> {
    let summary = of(results)?;
    edited(results, Kind::Compatibility, |table| *table = summary)
}

fn of(results: &str) -> Result<Table> {
    let table = |kind| Table::of(results, kind);
    let (clusters, machines, contract) = (table(Kind::Clusters)?, table(Kind::Machines)?, table(Kind::Contract)?);
    let mut summary = Table::empty("environment", &COLUMNS);
    for (index, cluster) in clusters.columns().iter().enumerate() {
        let cells: Vec<&str> = clusters.column(index).collect();
        add(&mut summary, cluster, &scenarios(&cells), &dates(&cells));
    }
    for layout in names(&machines).filter_map(|name| part(name, 0)).collect::<BTreeSet<_>>() {
        let rows = || machines.rows().filter(|(name, _)| part(name, 0) == Some(layout));
        let columns = 0..machines.columns().len();
        let cells: Vec<&str> = rows()
            .flat_map(|(_, cells)| columns.clone().map(|index| cells.get(index).map_or("", String::as_str)))
            .collect();
        let environment = machines_of(layout, &rows().map(|(name, _)| name).collect::<Vec<_>>());
        add(&mut summary, &environment, &scenarios(&cells), &dates(&cells));
    }
    for (server, cells) in contract.rows() {
        let runs = contract.columns().iter().zip(cells).filter_map(|(beside, cell)| {
            let (_, tests) = cell.split_once(", ")?;
            let (tests, skipped) = tests.split_once(", ").unwrap_or((tests, "none skipped"));
            Some(format!("{tests} {beside}, {skipped}"))
        });
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        add(&mut summary, &format!("the API server of {server}"), &runs.collect::<Vec<_>>().join("; "), &dates(&cells));
    }
    let missing = minors::missing(contract.rows().map(|(server, _)| server));
    if !missing.is_empty() {
        add(&mut summary, &format!("the API servers of {}", minors::listed(&missing)), "not run", "");
    }
    Ok(summary)
}

fn add(summary: &mut Table, environment: &str, passed: &str, dates: &str) {
    for (column, cell) in COLUMNS.into_iter().zip([passed, dates]) {
        summary.set(environment, column, cell);
    }
}

/// Returns `15 of 18 scenarios, 1 failed, 1 skipped, 1 not run`.
fn scenarios(cells: &[&str]) -> String {
    let count = |word: &str| cells.iter().filter(|cell| cell.split(' ').next() == Some(word)).count();
    let [passed, failed, skipped] = [Outcome::Pass, Outcome::Fail, Outcome::Skip].map(|outcome| count(outcome.word()));
    let others = [(failed, "failed"), (skipped, "skipped"), (cells.len() - passed - failed - skipped, "not run")];
    let others = others.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!(", {count} {word}"));
    format!("{passed} of {} scenarios{}", cells.len(), others.collect::<String>())
}

/// Returns `2026-11-23 to 2026-11-26`, or an empty text.
fn dates(cells: &[&str]) -> String {
    let outcomes = [Outcome::Pass, Outcome::Fail, Outcome::Skip].map(Outcome::word);
    let date = |cell: &str| {
        let (word, rest) = cell.split_once(' ')?;
        outcomes.contains(&word).then(|| rest.split(',').next().unwrap_or_default().to_owned())
    };
    let dates: BTreeSet<String> = cells.iter().filter_map(|cell| date(cell)).collect();
    match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(first), _) => first.clone(),
        (None, _) => String::new(),
    }
}

fn names(machines: &Table) -> impl Iterator<Item = &str> {
    machines.rows().map(|(name, _)| name)
}

/// Returns a part of a machine's name: the cgroup layout, the architecture, or how it ran.
fn part(name: &str, index: usize) -> Option<&str> {
    name.split_once(", cgroup ")?.1.split(", ").nth(index)
}

/// Returns `Linux 5.10 to 7.2, cgroup v2, amd64 and arm64, emulated, without Kubernetes`.
fn machines_of(layout: &str, names: &[&str]) -> String {
    let kernels: BTreeSet<(u32, u32)> = names.iter().filter_map(|name| kernel(name)).collect();
    let kernels = match (kernels.first(), kernels.last()) {
        (Some((major, minor)), Some((last_major, last_minor))) if kernels.len() > 1 => {
            format!(" {major}.{minor} to {last_major}.{last_minor}")
        }
        (Some((major, minor)), _) => format!(" {major}.{minor}"),
        (None, _) => String::new(),
    };
    let [architectures, hosts] = [1, 2].map(|index| {
        let parts = names.iter().filter_map(|name| part(name, index));
        parts.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" and ")
    });
    format!("Linux{kernels}, cgroup {layout}, {architectures}, {hosts}, without Kubernetes")
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
# Results

<!-- compatibility -->
| environment |
|---|
| an old one |

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
    #[test]
    fn each_environment_has_its_outcomes_and_dates() {
        let text = written(RESULTS).unwrap();
        let table = "\
# Results

<!-- compatibility -->
| environment | passed | runs |
|---|---|---|
| Kubernetes 1.36.2, cri-o | 2 of 3 scenarios, 1 skipped | 2026-11-24 to 2026-11-27 |
| Kubernetes 1.36.2, containerd | 1 of 3 scenarios, 1 failed, 1 not run | 2026-11-23 to 2026-11-25 |
| Linux 6.1, cgroup v1, arm64, emulated, without Kubernetes | 0 of 2 scenarios, 1 failed, 1 not run | 2026-11-22 |
| Linux 6.12, cgroup v2, amd64, emulated, without Kubernetes | 2 of 2 scenarios | 2026-11-23 |
| the API server of Kubernetes 1.36.2, etcd 3.4.23 | 186 of 186 tests with its controller manager, 8 parts skipped; 183 of 186 tests alone, 8 parts skipped | 2026-11-25 to 2026-11-26 |
| the API server of Kubernetes 1.30.14, etcd 3.4.23 | 186 of 186 tests alone, 8 parts skipped | 2026-11-24 |
| the API servers of Kubernetes 1.31, 1.32, 1.33, 1.34, 1.35 | not run |  |

";
        let (head, rest) = text.split_at(table.len());
        assert_eq!(head, table);
        assert!(rest.starts_with("<!-- clusters -->"), "{rest}");
    }

    #[test]
    fn results_without_a_table_are_an_error() {
        let story = written("# Results\n").unwrap_err().to_string();
        assert_eq!(story, "there is no line <!-- clusters -->");
    }
}
