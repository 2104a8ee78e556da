//! Writes the outcomes of a boot into the tables of `tests/RESULTS.md`: the last outcome of each scenario in each environment.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::boot::Verdict;
use super::protocol::Outcome;
use super::record::Run;
use super::scenario::Guest;
use crate::cmd;

/// The file with the tables, below the root of the workspace.
const FILE: &str = "tests/RESULTS.md";
/// The directory with the screens of scenarios, by their names.
const SCREENS: &str = "tests/screens";
/// Figures that a cell has beside the outcome.
const SHOWN: [(&str, &str); 4] = [
    ("probes", " probes attached"),
    ("crossing_to_kill_ms", " ms to the kill"),
    ("kill_to_status_sent_ms", " ms to the request of the status"),
    ("kill_to_status_taken_ms", " ms to the status"),
];

/// Adds the outcomes of one boot to the table for this guest.
pub fn write(root: &Path, guest: Guest, verdict: &Verdict) -> Result<()> {
    if guest == Guest::Cluster && !verdict.is_known {
        bail!("nothing is recorded: the cluster did not start, so its versions are not known");
    }
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let date = cmd::output(Command::new("date").args(["--utc", "+%Y-%m-%d"]))?;
    let text = updated(&text, guest, verdict, date.trim()).with_context(|| format!("in {}", path.display()))?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("the outcomes are in {}", path.display());
    write_screens(root, verdict, date.trim())
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

/// Returns the text with the table for this guest updated. The other tables and the prose stay.
fn updated(text: &str, guest: Guest, verdict: &Verdict, date: &str) -> Result<String> {
    let mark = format!("<!-- {} -->", table_of(guest));
    let lines: Vec<&str> = text.lines().collect();
    let marked = lines.iter().position(|line| *line == mark).with_context(|| format!("there is no line {mark}"))?;
    let (before, rest) = lines.split_at(marked + 1);
    let rows = rest.iter().take_while(|line| line.starts_with('|')).count();
    let (old, after) = rest.split_at(rows);
    let mut table = Table::parse(old).with_context(|| format!("no table below {mark}"))?;
    for (scenario, cell) in cells(verdict, date) {
        // There are many machines for five scenarios, and many scenarios for three clusters.
        match guest {
            Guest::Cluster => table.set(scenario, &verdict.environment, &cell),
            Guest::Plain | Guest::Containerd => table.set(&verdict.environment, scenario, &cell),
        }
    }
    let table = table.lines();
    let all = before.iter().copied().chain(table.iter().map(String::as_str)).chain(after.iter().copied());
    Ok(all.flat_map(|line| [line, "\n"]).collect())
}

/// Returns the cell of each scenario. A boot with a problem of its own proves nothing.
fn cells<'v>(verdict: &'v Verdict, date: &str) -> Vec<(&'v str, String)> {
    let problem = if verdict.problems.is_empty() { "" } else { ", in a boot with a problem" };
    let runs = verdict.runs.iter().map(|run| (run.name.as_str(), format!("{}{problem}", cell(run, date))));
    let missing = verdict.missing.iter().map(|name| (*name, format!("FAIL {date}, no outcome")));
    runs.chain(missing).collect()
}

const fn table_of(guest: Guest) -> &'static str {
    match guest {
        Guest::Plain | Guest::Containerd => "machines",
        Guest::Cluster => "clusters",
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

/// A table in Markdown. The first column names the rows.
struct Table<'a> {
    corner: &'a str,
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

impl<'a> Table<'a> {
    fn parse(lines: &[&'a str]) -> Option<Self> {
        let [head, _dashes, rows @ ..] = lines else { return None };
        let (corner, columns) = Self::cells(head)?;
        let rows = rows.iter().filter_map(|row| Self::cells(row)).map(|(name, cells)| (name.to_owned(), cells));
        Some(Self { corner, columns, rows: rows.collect() })
    }

    fn cells(line: &str) -> Option<(&str, Vec<String>)> {
        let mut cells = line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
        Some((cells.next()?, cells.map(str::to_owned).collect()))
    }

    /// Sets a cell. A new row comes last, and so does a new column.
    fn set(&mut self, row: &str, column: &str, cell: &str) {
        let at = self.columns.iter().position(|known| known == column).unwrap_or_else(|| {
            self.columns.push(column.to_owned());
            self.columns.len() - 1
        });
        if !self.rows.iter().any(|(name, _)| name == row) {
            self.rows.push((row.to_owned(), Vec::new()));
        }
        for (_, cells) in self.rows.iter_mut().filter(|(name, _)| name == row) {
            cells.resize(self.columns.len(), String::new());
            cell.clone_into(&mut cells[at]);
        }
    }

    fn lines(&self) -> Vec<String> {
        let line = |name: &str, cells: &[String]| {
            let cells = (0..self.columns.len()).map(|index| cells.get(index).map_or("", String::as_str));
            format!("| {name} |{}", cells.map(|cell| format!(" {cell} |")).collect::<String>())
        };
        let dashes = "---|".repeat(self.columns.len() + 1);
        let head = [line(self.corner, &self.columns), format!("|{dashes}")];
        head.into_iter().chain(self.rows.iter().map(|(name, cells)| line(name, cells))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    const BEFORE: &str = "\
# Results

<!-- machines -->
| machine | probes |
|---|---|
| Linux 5.10 | pass 2026-11-23 |

The end.
<!-- clusters -->
| scenario |
|---|
";

    fn run_there(guest: Guest, environment: &str, name: &str, figures: &[&str]) -> String {
        let mut verdict = Verdict::made_up("6.12 v2", &[(name, Outcome::Pass)]);
        verdict.environment = environment.to_owned();
        for run in &mut verdict.runs {
            run.figures = figures.iter().map(|figure| (*figure).to_owned()).collect();
            run.reason = "3 of 3 runs, 7 assertions".to_owned();
        }
        updated(BEFORE, guest, &verdict, "2026-11-26").unwrap()
    }

    #[test]
    fn a_cell_is_replaced_and_the_rest_stays() {
        let text = run_there(Guest::Plain, "Linux 5.10", "probes", &["probes=19 "]);
        let cell = "pass 2026-11-26, 3 of 3 runs, 19 probes attached";
        assert_eq!(text, BEFORE.replace("pass 2026-11-23", cell));
    }

    #[test]
    fn a_new_row_and_a_new_column_come_last() {
        let text = run_there(
            Guest::Plain,
            "Linux 6.1",
            "ramp",
            &["crossing_to_kill_ms_median=80.4 ms", "crossing_to_kill_ms_max=99 ms"],
        );
        let table = "\
| machine | probes | ramp |
|---|---|---|
| Linux 5.10 | pass 2026-11-23 |  |
| Linux 6.1 |  | pass 2026-11-26, 3 of 3 runs, 80 ms to the kill |
";
        assert!(text.contains(table), "{text}");
    }

    #[test]
    fn a_failure_and_a_missing_outcome_replace_a_pass() {
        let mut verdict = Verdict::made_up("6.12 v2", &[("probes", Outcome::Fail)]);
        verdict.environment = "Linux 5.10".to_owned();
        verdict.runs[0].reason = "2 of 3 runs; the probe was not hit".to_owned();
        verdict.missing = vec!["ramp"];
        verdict.problems = vec!["the kernel panicked".to_owned()];
        let text = updated(BEFORE, Guest::Plain, &verdict, "2026-11-26").unwrap();
        let row =
            "| Linux 5.10 | FAIL 2026-11-26, 2 of 3 runs, in a boot with a problem | FAIL 2026-11-26, no outcome |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn a_cluster_is_a_column() {
        let text = run_there(Guest::Cluster, "CRI-O", "cluster-ramp", &[]);
        assert!(
            text.ends_with("| scenario | CRI-O |\n|---|---|\n| cluster-ramp | pass 2026-11-26, 3 of 3 runs |\n"),
            "{text}"
        );
    }

    #[test]
    fn a_file_without_the_table_is_an_error() {
        let verdict = Verdict::made_up("6.12 v2", &[]);
        let told = |text: &str| updated(text, Guest::Plain, &verdict, "2026-11-26").unwrap_err().to_string();
        assert_eq!(told("# Results\n"), "there is no line <!-- machines -->");
        assert_eq!(told("<!-- machines -->\n"), "no table below <!-- machines -->");
    }
}
