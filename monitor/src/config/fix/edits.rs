//! Places of corrections in the bytes of a text.

use crate::config::document_walk::{ASSUMED_GRACE, Change, Mend};
use crate::config::file_kinds::Source;
use crate::config::yaml::{Node, Value};

/// Bytes that another text replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub start: usize,
    pub end: usize,
    pub text: String,
}

impl Edit {
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end.max(other.start + 1) && other.start < self.end.max(self.start + 1)
    }

    fn insertion(at: usize, text: String) -> Self {
        Self { start: at, end: at, text }
    }
}

/// Returns the edit of a correction, or `None` where its place cannot be told for certain.
pub fn edit(file_name: &str, text: &str, mend: &Mend) -> Option<Edit> {
    let lines = Lines::of(text);
    let within = |old: &str, new: String| {
        let line = lines.get(mend.line)?;
        let start = line.start + find(line.content, mend.column, old)?;
        Some(Edit { start, end: start + old.len(), text: new })
    };
    let quoted = |text: &str| [format!("\"{text}\""), format!("'{text}'")];
    match &mend.change {
        Change::Replace(old, new) => within(old, new.clone()),
        Change::Unquote(old) => quoted(old).iter().find_map(|quoted| within(quoted, old.clone())),
        Change::List(old) => {
            let forms = quoted(old).into_iter().chain([old.clone()]);
            forms.into_iter().find_map(|form| within(&form, format!("[{form}]")))
        }
        Change::RemoveRepeated => lines.removal(mend),
        Change::AddField(name, value) => {
            let source = Source::locate(file_name, text).ok()?;
            let Value::Mapping(pairs) = &source.node.value else { return None };
            lines.addition(&pairs.first()?.0, name, value)
        }
        Change::AddGrace(signal) => {
            let source = Source::locate(file_name, text).ok()?;
            lines.grace(&source.node, signal.as_str())
        }
    }
}

/// Returns the place of `old` in a line: at the column, behind a quote there, or where else it occurs once as a whole word.
fn find(line: &str, column: usize, old: &str) -> Option<usize> {
    if old.is_empty() {
        return None;
    }
    let is_part = |it: char| it.is_alphanumeric() || "._-%".contains(it);
    let is_whole = |at: usize| {
        let (before, after) = (&line[..at], &line[at + old.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    };
    let at_column = line.char_indices().nth(column.checked_sub(1)?).map(|(at, _)| at);
    let starts = at_column.filter(|at| line[*at..].starts_with(old));
    let behind =
        at_column.map(|at| at + 1).filter(|at| line[at - 1..].starts_with(['"', '\'']) && line[*at..].starts_with(old));
    if let Some(at) = starts.or(behind).filter(|at| is_whole(*at)) {
        return Some(at);
    }
    let mut places = line.match_indices(old).map(|(at, _)| at).filter(|at| is_whole(*at));
    places.next().filter(|_| places.next().is_none())
}

#[derive(Debug, Clone, Copy)]
struct Line<'t> {
    start: usize,
    /// Without its line break.
    content: &'t str,
    /// With the line break.
    end: usize,
}

impl<'t> Line<'t> {
    fn indent(&self) -> &'t str {
        &self.content[..self.content.len() - self.content.trim_start().len()]
    }
}

#[derive(Debug)]
struct Lines<'t> {
    lines: Vec<Line<'t>>,
    line_break: &'static str,
}

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Self {
        let mut start = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            let content = line.strip_suffix('\n').unwrap_or(line);
            let content = content.strip_suffix('\r').unwrap_or(content);
            let found = Line { start, content, end: start + line.len() };
            start = found.end;
            found
        });
        let lines = lines.collect();
        Self { lines, line_break: if text.contains("\r\n") { "\r\n" } else { "\n" } }
    }

    /// Returns a line by its number, counted from one.
    fn get(&self, number: usize) -> Option<Line<'t>> {
        self.lines.get(number.checked_sub(1)?).copied()
    }

    /// Returns the line of a node and the byte in the text where the node begins.
    fn place(&self, node: &Node) -> Option<(Line<'t>, usize)> {
        let line = self.get(node.line)?;
        let at = line.content.char_indices().nth(node.column.checked_sub(1)?)?.0;
        Some((line, line.start + at))
    }

    /// Removes a pair that has its line alone. A comment behind it stays.
    fn removal(&self, mend: &Mend) -> Option<Edit> {
        let line = self.get(mend.line)?;
        let name = mend.field.rsplit('.').next()?;
        // Signals have dots in their names.
        let is_alone = line.indent().chars().count() + 1 == mend.column
            && line.content.trim_start().split(':').next()?.trim_matches(['"', '\'']).ends_with(name)
            && !line.content.contains(['{', '[', '|', '>', ',']);
        let comment = line.content.find(" #").map(|at| at + 1);
        let text = comment
            .map_or_else(String::new, |at| format!("{}{}{}", line.indent(), &line.content[at..], self.line_break));
        is_alone.then_some(Edit { start: line.start, end: line.end, text })
    }

    /// Adds a pair before the first pair of a map.
    fn addition(&self, first: &Node, name: &str, value: &str) -> Option<Edit> {
        let (line, at) = self.place(first)?;
        if line.content[..at - line.start].trim().is_empty() {
            let text = format!("{}{name}: {value}{}", line.indent(), self.line_break);
            return Some(Edit::insertion(line.start, text));
        }
        Some(Edit::insertion(at, format!("{}, ", self.pair(at, name, value)?)))
    }

    /// Returns a pair for a map in braces, in JSON's spelling where the next name has it.
    fn pair(&self, at: usize, name: &str, value: &str) -> Option<String> {
        let line = self.lines.iter().find(|line| line.start <= at && at < line.end)?;
        let is_json = line.content[at - line.start..].starts_with('"');
        Some(if is_json { format!("\"{name}\": \"{value}\"") } else { format!("{name}: {value}") })
    }

    /// Adds a grace period for a soft threshold.
    fn grace(&self, root: &Node, signal: &str) -> Option<Edit> {
        const SECTION: &str = "evictionSoftGracePeriod";
        let Value::Mapping(pairs) = &root.value else { return None };
        let pair = |name: &str| pairs.iter().find(|(key, _)| key.text() == Some(name));
        let (soft, _) = pair("evictionSoft")?;
        let is_json = |at: usize| self.pair(at, "", "").is_some_and(|pair| pair.starts_with('"'));
        let (section_key, section) = match pair(SECTION) {
            Some((key, value)) => (key, &value.value),
            None => {
                let (line, at) = self.place(soft)?;
                if !line.content[..at - line.start].trim().is_empty() {
                    let text = if is_json(at) {
                        format!("\"{SECTION}\": {{\"{signal}\": \"{ASSUMED_GRACE}\"}}, ")
                    } else {
                        format!("{SECTION}: {{{signal}: {ASSUMED_GRACE}}}, ")
                    };
                    return Some(Edit::insertion(at, text));
                }
                // The comment above a field stays with it.
                let is_comment =
                    |number: &usize| self.get(*number).is_some_and(|it| it.content.trim_start().starts_with('#'));
                let first = (1..soft.line).rev().take_while(is_comment).last().unwrap_or(soft.line);
                let (indent, end) = (line.indent(), self.line_break);
                let text = format!("{indent}{SECTION}:{end}{indent}  {signal}: {ASSUMED_GRACE}{end}");
                return Some(Edit::insertion(self.get(first)?.start, text));
            }
        };
        match section {
            Value::Mapping(entries) => match entries.first() {
                Some((first, _)) => self.addition(first, signal, ASSUMED_GRACE),
                None => {
                    // `{}` behind the name.
                    let (line, at) = self.place(section_key)?;
                    let braces = at + line.content[at - line.start..].find("{}")? + 1;
                    let text = if is_json(at) {
                        format!("\"{signal}\": \"{ASSUMED_GRACE}\"")
                    } else {
                        format!("{signal}: {ASSUMED_GRACE}")
                    };
                    Some(Edit::insertion(braces, text))
                }
            },
            Value::Null => {
                let (line, at) = self.place(section_key)?;
                let is_block =
                    line.content[..at - line.start].trim().is_empty() && line.end > line.start + line.content.len();
                let text = format!("{}  {signal}: {ASSUMED_GRACE}{}", line.indent(), self.line_break);
                is_block.then(|| Edit::insertion(line.end, text))
            }
            Value::Scalar { .. } | Value::Sequence(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_at_its_column_or_once() {
        for (line, column, old, expected) in [
            ("a: 100MB", 4, "100MB", Some(3)),
            ("a: '100MB' # 100MB", 4, "100MB", Some(4)),
            ("é: 100MB", 4, "100MB", Some(4)),
            ("x 100MB y", 1, "100MB", Some(2)),
            ("x 100MB 100MB", 1, "100MB", None),
            ("a: 100MBx", 4, "100MB", None),
            ("a: 1", 4, "2", None),
        ] {
            assert_eq!(find(line, column, old), expected, "{line}");
        }
    }
}
