//! Reads a parsed document field by field, and collects every error instead of stopping at the first.

mod mend;
mod scalars;
mod shape;

use std::collections::HashMap;

use super::config_error::{ConfigError, ConfigWarning};
use super::file_lines::FileLines;
use super::yaml::fix::without_colon;
use super::yaml::{Node, Value};
use crate::units::Signal;

pub use mend::{ASSUMED_GRACE, Change, Mend};
pub use shape::{Shape, Shapes};

/// Further errors are only counted, because a file that is wrong everywhere must not fill the memory.
const MOST_ERRORS: usize = 200;
/// Characters of a value that an error repeats.
const LONGEST_VALUE: usize = 120;
/// Longer than any reason, except those that repeat a value.
const LONGEST_REASON: usize = 1000;

#[derive(Debug)]
pub struct Walk<'a> {
    file: &'a str,
    /// The files whose parts are in the document beside those of `file`.
    lines: FileLines,
    errors: Vec<ConfigError>,
    /// Errors beyond [`MOST_ERRORS`].
    more: usize,
    warnings: Vec<ConfigWarning>,
    pub thresholds: Vec<WrittenThreshold>,
    /// Corrections that remove errors, each certain enough to be made.
    pub mends: Vec<Mend>,
    /// The shapes that the readers accept. Recorded for the schema only.
    pub shapes: Option<Shapes>,
}

/// Where a threshold is written, so that a later warning can name the place.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenThreshold {
    pub signal: Signal,
    pub is_hard: bool,
    place: ConfigError,
}

impl WrittenThreshold {
    pub fn warning(&self, reason: String, fix: &str) -> ConfigWarning {
        ConfigWarning(ConfigError { reason, fix: Some(fix.to_owned()), ..self.place.clone() })
    }
}

/// A value of the document, and its path for messages.
#[derive(Debug, Clone)]
pub struct Field<'n> {
    pub path: String,
    pub node: &'n Node,
}

/// The fields of a map, without duplicates and unknown names.
#[derive(Debug, Default)]
pub struct Fields<'n> {
    path: String,
    entries: Vec<(&'n str, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// Returns a field, or `None` when it is absent or null.
    pub fn get(&self, name: &str) -> Option<Field<'n>> {
        self.iter().find(|(key, field)| *key == name && field.node.value != Value::Null).map(|(_, field)| field)
    }

    /// Returns every field with its name, in the order written, null fields included.
    pub fn iter(&self) -> impl Iterator<Item = (&'n str, Field<'n>)> + '_ {
        self.entries.iter().map(|(key, node)| (*key, Field { path: join(&self.path, key), node }))
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl<'a> Walk<'a> {
    pub fn new(file: &'a str) -> Self {
        Self {
            file,
            lines: FileLines::default(),
            errors: Vec::new(),
            more: 0,
            warnings: Vec::new(),
            thresholds: Vec::new(),
            mends: Vec::new(),
            shapes: None,
        }
    }

    /// Starts the walk through a document that is made of several files.
    pub fn of_files(file: &'a str, lines: FileLines) -> Self {
        Self { lines, ..Self::new(file) }
    }

    /// Records what the reader of a field accepts.
    pub fn describe(&mut self, field: &Field<'_>, shape: impl FnOnce() -> Shape) {
        if let Some(shapes) = &mut self.shapes {
            shapes.add(&field.path, shape());
        }
    }

    /// Records that a map must have a field.
    pub fn require(&mut self, path: &str, name: &str) {
        if let Some(shapes) = &mut self.shapes {
            shapes.require(path, name);
        }
    }

    /// Returns the errors and the warnings, each in the order of lines.
    pub fn finish(mut self) -> (Vec<ConfigError>, Vec<ConfigWarning>) {
        let order = |error: &ConfigError| (self.lines.order(&error.file), error.line, error.column);
        self.errors.sort_by_key(order);
        self.warnings.sort_by_key(|warning| order(&warning.0));
        if let Some(last) = self.errors.last().filter(|_| self.more > 0) {
            let reason = format!("{} more errors", self.more);
            let fix = Some("correct the first ones and check again".to_owned());
            self.errors.push(ConfigError { field: String::new(), value: None, reason, fix, ..last.clone() });
        }
        (self.errors, self.warnings)
    }

    /// Whether an error or a warning names the place of a node.
    pub fn has_note_at(&self, node: &Node) -> bool {
        let (file, line) = self.place(node.line);
        let is_it = |it: &ConfigError| (&*it.file, it.line, it.column) == (file, line, node.column);
        self.errors.iter().any(is_it) || self.warnings.iter().any(|warning| is_it(&warning.0))
    }

    pub fn error(&mut self, field: &Field<'_>, reason: impl Into<String>, fix: &str) {
        self.error_at(&field.path, field.node, field.node.text(), reason, fix);
    }

    /// Records an error about a path, at the place of a node. `value` is the text that the message repeats.
    pub fn error_at(&mut self, path: &str, node: &Node, value: Option<&str>, reason: impl Into<String>, fix: &str) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(self.note(path, node, value, &reason.into(), fix));
        } else {
            self.more += 1;
        }
    }

    pub fn has_error_at(&self, node: &Node) -> bool {
        let (file, line) = self.place(node.line);
        self.errors.iter().any(|error| (&*error.file, error.line, error.column) == (file, line, node.column))
    }

    /// Records a warning about a field: its value is valid, but probably not intended.
    pub fn warning(&mut self, field: &Field<'_>, reason: impl Into<String>, fix: &str) {
        self.warning_at(&field.path, field.node, field.node.text(), reason, fix);
    }

    /// Records a warning about a path, at the place of a node. `value` is the text that the message repeats.
    pub fn warning_at(&mut self, path: &str, node: &Node, value: Option<&str>, reason: impl Into<String>, fix: &str) {
        let warning = ConfigWarning(self.note(path, node, value, &reason.into(), fix));
        // A file of several is looked at alone, and again in what they make together.
        if self.warnings.len() < MOST_ERRORS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Adds warnings of another walk.
    pub fn take_warnings(&mut self, warnings: Vec<ConfigWarning>) {
        self.warnings.extend(warnings);
    }

    /// Remembers where a threshold is written. `value` is the text that a warning repeats.
    pub fn note_threshold(&mut self, signal: Signal, is_hard: bool, field: &Field<'_>, value: &str) {
        let place = self.note(&field.path, field.node, Some(value), "", "");
        self.thresholds.push(WrittenThreshold { signal, is_hard, place });
    }

    /// Returns the file of a line, and the line's number there.
    fn place(&self, line: usize) -> (&str, usize) {
        let (file, line) = self.lines.place(line);
        (file.unwrap_or(self.file), line)
    }

    fn note(&self, path: &str, node: &Node, value: Option<&str>, reason: &str, fix: &str) -> ConfigError {
        let (file, line) = self.place(node.line);
        ConfigError {
            file: file.to_owned(),
            line,
            column: node.column,
            field: cut(path, LONGEST_VALUE),
            value: value.map(|value| cut(value, LONGEST_VALUE)),
            reason: cut(reason, LONGEST_REASON),
            fix: (!fix.is_empty()).then(|| fix.to_owned()),
        }
    }

    /// Sets `target` to the value that `read` returns for a given field. An absent field leaves `target` as it is.
    pub fn set<'n, T>(
        &mut self,
        target: &mut T,
        field: Option<Field<'n>>,
        read: impl FnOnce(&mut Self, &Field<'n>) -> Option<T>,
    ) {
        if let Some(value) = field.and_then(|field| read(self, &field)) {
            *target = value;
        }
    }

    /// Reads the fields of a map. `known` are their names, separated by blanks. An unknown name is an error that proposes the nearest
    /// known name; a duplicate is an error too.
    pub fn fields<'n>(&mut self, field: &Field<'n>, known: &str) -> Fields<'n> {
        let known: Vec<_> = known.split(' ').collect();
        self.fields_or(field, &known, |_| "unknown field".to_owned())
    }

    /// Reads the fields of a map within a map. An absent map has no fields.
    pub fn section<'n>(&mut self, fields: &Fields<'n>, name: &str, known: &str) -> Fields<'n> {
        fields.get(name).map(|field| self.fields(&field, known)).unwrap_or_default()
    }

    /// Does the same as [`Self::fields`], with the caller's list of names and reason for an unknown one.
    pub fn fields_or<'n>(&mut self, field: &Field<'n>, known: &[&str], unknown: impl Fn(&str) -> String) -> Fields<'n> {
        self.describe(field, || Shape::Map(known.iter().map(|name| (*name).to_owned()).collect()));
        let mut entries = Vec::new();
        for (name, key, value) in self.pairs(field, &format!("fields: {}", known.join(", "))) {
            if known.contains(&name) {
                entries.push((name, value));
            } else if let Some(pair) = without_colon(name).filter(|_| value.value == Value::Null) {
                self.error_at(&field.path, key, Some(name), NO_COLON, &format!("write `{pair}`"));
                self.mend(&field.path, key, Change::Replace(name.to_owned(), pair), None);
            } else {
                let fix = self.propose(name, known);
                let path = join(&field.path, name);
                self.error_at(&path, key, None, unknown(name), &fix);
                // An error that is only counted is not mended.
                let meant = if self.errors.len() < MOST_ERRORS { only_near(name, known) } else { None };
                if let Some(meant) = meant.filter(|meant| field.node.field(meant).is_none()) {
                    self.mend(&path, key, Change::Replace(name.to_owned(), meant.to_owned()), None);
                }
            }
        }
        Fields { path: field.path.clone(), entries }
    }

    /// Reads a map whose names are free.
    pub fn entries<'n>(&mut self, field: &Field<'n>, fix: &str) -> Vec<(&'n str, Field<'n>)> {
        self.describe(field, || Shape::Names);
        let pairs = self.pairs(field, fix).into_iter();
        pairs.map(|(name, _, node)| (name, Field { path: join(&field.path, name), node })).collect()
    }

    /// Reads a document that repeats parts of this one: errors and warnings about places that have one are left out.
    pub fn within<T>(&mut self, read: impl FnOnce(&mut Walk<'_>) -> T) -> T {
        let mut inner = Walk::of_files(self.file, self.lines.clone());
        let found = read(&mut inner);
        let is_known = |known: &[ConfigError], new: &ConfigError| {
            let place = |error: &ConfigError| (error.file.clone(), error.line, error.column);
            known.iter().any(|known| place(known) == place(new))
        };
        inner.errors.retain(|error| !is_known(&self.errors, error));
        let warned: Vec<ConfigError> = self.warnings.iter().map(|warning| warning.0.clone()).collect();
        inner.warnings.retain(|warning| !is_known(&warned, &warning.0));
        let room = MOST_ERRORS.saturating_sub(self.errors.len());
        self.more += inner.errors.len().saturating_sub(room);
        self.errors.extend(inner.errors.into_iter().take(room));
        self.warnings.extend(inner.warnings);
        self.take_mends(inner.mends);
        found
    }

    pub fn propose(&self, name: &str, known: &[&str]) -> String {
        if self.errors.len() >= MOST_ERRORS {
            // The error is only counted.
            return String::new();
        }
        match nearest(name, known) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => format!("known here: {}", known.join(", ")),
        }
    }

    /// Reads the `known` fields of a map and ignores other names. A name close to a known one is a warning.
    pub fn known_fields<'n>(&mut self, field: &Field<'n>, known: &str) -> Fields<'n> {
        let known: Vec<_> = known.split(' ').collect();
        let mut entries = Vec::new();
        for (name, key, value) in self.pairs(field, "write its fields, or leave it out") {
            if known.contains(&name) {
                entries.push((name, value));
            } else if let Some(meant) = misspelt(name, &known) {
                let fix = format!("did you mean {meant}?");
                self.warning_at(&join(&field.path, name), key, None, "an unknown field, which has no effect", &fix);
            }
        }
        Fields { path: field.path.clone(), entries }
    }

    /// Returns the names, keys and values of a map, without duplicates. `fix` is for a value that is not a map.
    fn pairs<'n>(&mut self, field: &Field<'n>, fix: &str) -> Vec<(&'n str, &'n Node, &'n Node)> {
        let Value::Mapping(pairs) = &field.node.value else {
            match field.node.text().and_then(without_colon) {
                Some(pair) => {
                    self.error(field, NO_COLON, &format!("write `{pair}` in a line below it, indented"));
                    let old = field.node.text().unwrap_or_default();
                    self.mend_text(field, old, format!("{{{pair}}}"), None);
                }
                None => self.error(field, format!("must be a map, not {}", field.node.value.kind()), fix),
            }
            return Vec::new();
        };
        let mut seen: HashMap<&str, (usize, &Node)> = HashMap::new();
        let mut unique = Vec::new();
        for (key, value) in pairs {
            let Some(name) = key.text() else {
                continue;
            };
            if let Some((line, first)) = seen.get(name) {
                let reason = format!("given twice, first in line {}", self.place(*line).1);
                let path = join(&field.path, name);
                self.error_at(&path, key, None, reason, "remove one of them");
                if first.text().is_some() && first.value == value.value && value.line == key.line {
                    self.mend(&path, key, Change::RemoveRepeated, None);
                }
            } else {
                seen.insert(name, (key.line, value));
                unique.push((name, key, value));
            }
        }
        unique
    }
}

/// The reason where a name and its value are one text.
const NO_COLON: &str = "no colon with a blank after it is between the name and the value";

fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a known name that differs by at most two edits.
fn misspelt<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // Comparing the lengths first spares the distance for most fields, which are not known here.
    known.iter().copied().find(|known| known.len().abs_diff(name.len()) <= 2 && edit_distance(name, known) <= 2)
}

/// Returns the nearest known name, when it is near enough to be meant.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // No field's name is so long, and the work grows with the length.
    if name.len() > 64 {
        return None;
    }
    known
        .iter()
        .filter(|candidate| has_same_subject(name, candidate))
        .map(|candidate| (edit_distance(name, candidate), *candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(2))
        .map(|(_, candidate)| candidate)
}

/// Returns the nearest known name, when no other is as near.
pub fn only_near<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let meant = nearest(name, known)?;
    let distance = edit_distance(name, meant);
    let is_rival = |other: &&str| *other != meant && edit_distance(name, other) <= distance;
    (!known.iter().any(is_rival)).then_some(meant)
}

/// Returns whether the parts before the dot may mean the same: `s20.available` is no misspelling of `pid.available`.
fn has_same_subject(name: &str, candidate: &str) -> bool {
    let (Some((name, _)), Some((candidate, _))) = (name.split_once('.'), candidate.split_once('.')) else {
        return true;
    };
    let is_short_for = name.len() >= 3 && candidate.starts_with(name);
    is_short_for || edit_distance(name, candidate) <= (candidate.len() / 3).max(1)
}

fn edit_distance(a: &str, b: &str) -> usize {
    strsim::levenshtein(&a.to_lowercase(), &b.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_near_name_is_proposed() {
        let known = ["evictionHard", "evictionSoft", "mode", "memory.available", "pid.available", "nodefs.inodesFree"];
        for (name, expected) in [
            ("evictionhard", Some("evictionHard")),
            ("evictonHard", Some("evictionHard")),
            ("eviction_soft", Some("evictionSoft")),
            ("memory.avail", Some("memory.available")),
            ("mem.available", Some("memory.available")),
            ("memroy.available", Some("memory.available")),
            ("Pids.available", Some("pid.available")),
            ("pidavailable", Some("pid.available")),
            ("nodefs.inodesfree", Some("nodefs.inodesFree")),
            ("s20.available", None),
            ("cpu.available", None),
            ("fs.available", None),
            ("mod", Some("mode")),
            ("kubeReserved", None),
            ("x", None),
        ] {
            assert_eq!(nearest(name, &known), expected, "{name}");
        }
    }
}
