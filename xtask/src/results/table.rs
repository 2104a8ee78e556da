//! A table in Markdown.

use anyhow::{Context as _, Result};

use super::Kind;

/// A table in Markdown. The first column names the rows.
#[derive(Debug)]
pub struct Table {
    corner: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

/// Returns the text with this table edited. The other tables and the prose stay.
pub fn edited(text: &str, kind: Kind, edit: impl FnOnce(&mut Table)) -> Result<String> {
    let (before, old, after) = split(text, kind)?;
    let mut table = Table::parse(&old).with_context(|| no_table(kind))?;
    edit(&mut table);
    let table = table.lines();
    let all = before.into_iter().chain(table.iter().map(String::as_str)).chain(after);
    Ok(all.flat_map(|line| [line, "\n"]).collect())
}

fn no_table(kind: Kind) -> String {
    format!("no table below {}", kind.mark())
}

/// Returns the lines before the rows of a table, the rows, and the lines after them.
fn split(text: &str, kind: Kind) -> Result<(Vec<&str>, Vec<&str>, Vec<&str>)> {
    let mark = kind.mark();
    let mut before: Vec<&str> = text.lines().collect();
    let marked = before.iter().position(|line| *line == mark).with_context(|| format!("there is no line {mark}"))?;
    let mut old = before.split_off(marked + 1);
    let rows = old.iter().take_while(|line| line.starts_with('|')).count();
    let after = old.split_off(rows);
    Ok((before, old, after))
}

impl Table {
    /// Returns a table without rows.
    pub fn empty(corner: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { corner: corner.to_owned(), columns, rows: Vec::new() }
    }

    /// Returns this table of the text.
    pub fn of(text: &str, kind: Kind) -> Result<Self> {
        Self::parse(&split(text, kind)?.1).with_context(|| no_table(kind))
    }

    fn parse(lines: &[&str]) -> Option<Self> {
        let [head, _dashes, rows @ ..] = lines else { return None };
        let (corner, columns) = Self::cells(head)?;
        Some(Self { corner, columns, rows: rows.iter().filter_map(|row| Self::cells(row)).collect() })
    }

    fn cells(line: &str) -> Option<(String, Vec<String>)> {
        let mut cells = line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(|cell| cell.trim().to_owned());
        Some((cells.next()?, cells.collect()))
    }

    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns each row's name and cells. The last cells of a row may be missing.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.rows.iter().map(|(name, cells)| (name.as_str(), cells.as_slice()))
    }

    /// Returns the cells of a column. A missing one is empty.
    pub fn column(&self, index: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |(_, cells)| cells.get(index).map_or("", String::as_str))
    }

    /// Sets a cell. A new row comes last, and so does a new column.
    pub fn set(&mut self, row: &str, column: &str, cell: &str) {
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

    /// Clears the cells of a row.
    pub fn clear(&mut self, row: &str) {
        self.rows.iter_mut().filter(|(name, _)| name == row).for_each(|(_, cells)| cells.clear());
    }

    fn lines(&self) -> Vec<String> {
        let line = |name: &str, cells: &[String]| {
            let cells = (0..self.columns.len()).map(|index| cells.get(index).map_or("", String::as_str));
            format!("| {name} |{}", cells.map(|cell| format!(" {cell} |")).collect::<String>())
        };
        let dashes = "---|".repeat(self.columns.len() + 1);
        let head = [line(&self.corner, &self.columns), format!("|{dashes}")];
        head.into_iter().chain(self.rows.iter().map(|(name, cells)| line(name, cells))).collect()
    }
}

/// A file with two of the tables, for tests.
#[cfg(test)]
pub const EXAMPLE: &str = "\
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_replaced_and_the_rest_stays() {
        let text = edited(EXAMPLE, Kind::Machines, |table| table.set("Linux 5.10", "probes", "FAIL")).unwrap();
        assert_eq!(text, EXAMPLE.replace("pass 2026-11-23", "FAIL"));
    }

    #[test]
    fn a_new_row_and_a_new_column_come_last() {
        let text = edited(EXAMPLE, Kind::Machines, |table| table.set("Linux 6.1", "ramp", "pass")).unwrap();
        let table = "\
| machine | probes | ramp |
|---|---|---|
| Linux 5.10 | pass 2026-11-23 |  |
| Linux 6.1 |  | pass |
";
        assert!(text.contains(table), "{text}");
    }

    #[test]
    fn a_text_without_the_table_is_an_error() {
        let error = |text: &str| edited(text, Kind::Machines, |_| ()).unwrap_err().to_string();
        assert_eq!(error("# Results\n"), "there is no line <!-- machines -->");
        assert_eq!(error("<!-- machines -->\n"), "no table below <!-- machines -->");
    }
}
