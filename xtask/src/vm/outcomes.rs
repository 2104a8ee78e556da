//! Writes the outcomes of a boot into the tables of `tests/RESULTS.md`: the last outcome of each scenario in each environment.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::record::Run;
use super::scenario::Guest;
use super::verdict::Verdict;
use crate::outcome::Outcome;
use crate::results::{self, Kind, Table};

/// The directory with the screens of scenarios, by their names.
const SCREENS: &str = "tests/screens";
/// Figures that a cell has beside the outcome.
const SHOWN: [(&str, &str); 4] = [
    ("probes", " probes attached"),
    ("crossing_to_kill_ms", " ms to the kill"),
    ("kill_to_status_sent_ms", " ms to the request of the status"),
    ("kill_to_status_taken_ms", " ms to the status"),
];
/// Start of the figures with the seconds of an eviction's steps: `since_crossing/hog/taint=0.43 s`.
const SINCE_CROSSING: &str = "since_crossing/";

/// Adds the outcomes of one boot to the table for this guest.
pub fn write(root: &Path, guest: Guest, verdict: &Verdict) -> Result<()> {
    if guest == Guest::Cluster && !verdict.is_known {
        bail!("nothing is recorded: the cluster did not start, so its versions are not known");
    }
    let date = results::today()?;
    results::write(root, table_of(guest), |table| set_all(table, guest, verdict, &date))?;
    if guest == Guest::Cluster {
        results::write(root, Kind::Times, |table| set_times(table, verdict, &date))?;
    }
    write_screens(root, verdict, &date)
}

/// Keeps the screens of the scenarios that passed.
fn write_screens(root: &Path, verdict: &Verdict, date: &str) -> Result<()> {
    let directory = root.join(SCREENS);
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    let shown = verdict.runs.iter().filter(|run| run.outcome == Outcome::Pass && !run.screen.is_empty());
    for run in shown {
        let path = directory.join(format!("{}.txt", run.name));
        let lines: Vec<&str> = run.screen.iter().map(|line| line.trim_end()).collect();
        let text = format!("{}, {date}, {}\n\n{}\n", run.name, verdict.environment, lines.join("\n"));
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Sets the cells of this guest in its table.
fn set_all(table: &mut Table, guest: Guest, verdict: &Verdict, date: &str) {
    for (scenario, cell) in cells(verdict, date) {
        // There are many machines for five scenarios, and many scenarios for three clusters.
        match guest {
            Guest::Cluster => table.set(scenario, &verdict.environment, &cell),
            Guest::Plain | Guest::Containerd => table.set(&verdict.environment, scenario, &cell),
        }
    }
}

/// Sets the steps of the evictions in the scenarios that passed. A row has the steps of one run only.
fn set_times(table: &mut Table, verdict: &Verdict, date: &str) {
    for run in verdict.runs.iter().filter(|run| run.outcome == Outcome::Pass) {
        let steps: Vec<(&str, &str, &str)> = run.figures.iter().filter_map(|figure| step(figure)).collect();
        let row = |app: &str| format!("{}: {app}; {}", run.name, verdict.environment);
        for (app, ..) in &steps {
            table.clear(&row(app));
            table.set(&row(app), "date", date);
        }
        for (app, step, seconds) in &steps {
            table.set(&row(app), step, seconds);
        }
    }
}

/// Returns the workload, the step and its seconds. After several runs a figure is the median.
fn step(figure: &str) -> Option<(&str, &str, &str)> {
    let (key, value) = figure.strip_prefix(SINCE_CROSSING)?.split_once('=')?;
    let (app, step) = key.strip_suffix("_median").unwrap_or(key).split_once('/')?;
    let is_extreme = step.ends_with("_min") || step.ends_with("_max");
    (!is_extreme).then_some((app, step, value.split(' ').next()?))
}

/// Returns the cell of each scenario. A boot with a problem of its own proves nothing.
fn cells<'v>(verdict: &'v Verdict, date: &str) -> Vec<(&'v str, String)> {
    let problem = if verdict.problems.is_empty() { "" } else { ", in a boot with a problem" };
    let runs = verdict.runs.iter().map(|run| (run.name.as_str(), format!("{}{problem}", cell(run, date))));
    let missing = verdict.missing.iter().map(|name| (*name, format!("FAIL {date}, no outcome")));
    runs.chain(missing).collect()
}

const fn table_of(guest: Guest) -> Kind {
    match guest {
        Guest::Plain | Guest::Containerd => Kind::Machines,
        Guest::Cluster => Kind::Clusters,
    }
}

/// Returns a cell: `pass 2026-11-26, 80 ms to the kill`. After several runs a figure is the median.
fn cell(run: &Run, date: &str) -> String {
    let shown = |(key, unit): &(&str, &str)| {
        let value = run.figures.iter().rev().find_map(|figure| {
            let value = figure.strip_prefix(key)?;
            value.strip_prefix("_median").unwrap_or(value).strip_prefix('=')
        })?;
        let number: f64 = value.split(' ').next()?.parse().ok()?;
        Some(format!(", {number:.0}{unit}"))
    };
    // The guest's reason begins with the number of runs.
    let runs =
        run.reason.split([',', ';']).next().filter(|runs| runs.ends_with(" runs") && !runs.ends_with("of 1 runs"));
    let runs = runs.map(|runs| format!(", {runs}")).unwrap_or_default();
    format!("{} {date}{runs}{}", run.outcome.word(), SHOWN.iter().filter_map(shown).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::EXAMPLE;

    fn run_there(guest: Guest, environment: &str, name: &str, figures: &[&str]) -> String {
        let mut verdict = Verdict::made_up("6.12 v2", &[(name, Outcome::Pass)]);
        verdict.environment = environment.to_owned();
        for run in &mut verdict.runs {
            run.figures = figures.iter().map(|figure| (*figure).to_owned()).collect();
            run.reason = "3 of 3 runs, 7 assertions".to_owned();
        }
        updated(guest, &verdict)
    }

    fn updated(guest: Guest, verdict: &Verdict) -> String {
        let edit = |table: &mut Table| set_all(table, guest, verdict, "2026-11-26");
        results::edited(EXAMPLE, table_of(guest), edit).unwrap()
    }

    #[test]
    fn a_cell_has_the_number_of_runs_and_the_figures() {
        let text = run_there(Guest::Plain, "Linux 5.10", "probes", &["probes=19 "]);
        let cell = "pass 2026-11-26, 3 of 3 runs, 19 probes attached";
        assert_eq!(text, EXAMPLE.replace("pass 2026-11-23", cell));
    }

    #[test]
    fn a_figure_of_several_runs_is_the_median() {
        let text = run_there(
            Guest::Plain,
            "Linux 6.1",
            "ramp",
            &["crossing_to_kill_ms_median=80.4 ms", "crossing_to_kill_ms_max=99 ms"],
        );
        let row = "| Linux 6.1 |  | pass 2026-11-26, 3 of 3 runs, 80 ms to the kill |\n";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn a_failure_and_a_missing_outcome_replace_a_pass() {
        let mut verdict = Verdict::made_up("6.12 v2", &[("probes", Outcome::Fail)]);
        verdict.environment = "Linux 5.10".to_owned();
        verdict.runs[0].reason = "2 of 3 runs; the probe was not hit".to_owned();
        verdict.missing = vec!["ramp"];
        verdict.problems = vec!["the kernel panicked".to_owned()];
        let text = updated(Guest::Plain, &verdict);
        let row =
            "| Linux 5.10 | FAIL 2026-11-26, 2 of 3 runs, in a boot with a problem | FAIL 2026-11-26, no outcome |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn the_times_of_a_row_are_those_of_one_run() {
        let old = "| cluster-ramp: hog; CRI-O | 2026-11-25 | 9 | 9 |\n";
        let text = format!("<!-- times -->\n| eviction | date | kill | taint |\n|---|---|---|---|\n{old}");
        let mut verdict =
            Verdict::made_up("6.12 v2", &[("cluster-ramp", Outcome::Pass), ("cluster-disk", Outcome::Fail)]);
        verdict.environment = "CRI-O".to_owned();
        for run in &mut verdict.runs {
            let figures =
                ["crossing_to_kill_ms=60 ms", "since_crossing/hog/kill=0.06 s", "since_crossing/hog/event=1.2 s"];
            run.figures = figures.map(str::to_owned).to_vec();
        }
        let text = results::edited(&text, Kind::Times, |table| set_times(table, &verdict, "2026-11-28")).unwrap();
        let rows = "| eviction | date | kill | taint | event |\n|---|---|---|---|---|\n\
                    | cluster-ramp: hog; CRI-O | 2026-11-28 | 0.06 |  | 1.2 |\n";
        assert_eq!(text, format!("<!-- times -->\n{rows}"));
        let of_many = ["since_crossing/hog/kill_median=0.07 s", "since_crossing/hog/kill_max=0.1 s"].map(step);
        assert_eq!(of_many, [Some(("hog", "kill", "0.07")), None]);
    }

    #[test]
    fn a_cluster_is_a_column() {
        let text = run_there(Guest::Cluster, "CRI-O", "cluster-ramp", &[]);
        assert!(
            text.ends_with("| scenario | CRI-O |\n|---|---|\n| cluster-ramp | pass 2026-11-26, 3 of 3 runs |\n"),
            "{text}"
        );
    }
}
