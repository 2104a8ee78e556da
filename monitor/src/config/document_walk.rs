//! Walks a located tree field by field, collecting everything that is wrong instead of stopping at the first.

mod scalars;

use std::collections::HashMap;

use super::config_error::{ConfigError, ConfigWarning};
use super::yaml::{Node, Value};

/// Nobody reads on after so many, and a file made to be wrong everywhere must not fill the memory with what is said about it.
const MOST_ERRORS: usize = 200;
/// As much of a value as is needed to recognize it.
const LONGEST_VALUE: usize = 120;
/// Longer than any reason of ours, but some repeat the value.
const LONGEST_REASON: usize = 1000;

/// Collects errors and warnings of one file.
#[derive(Debug)]
pub struct Walk<'a> {
    file: &'a str,
    errors: Vec<ConfigError>,
    /// Errors that were not noted, because there are too many.
    more: usize,
    warnings: Vec<ConfigWarning>,
}

/// A map's fields, checked for duplicates and unknown names.
#[derive(Debug)]
pub struct Fields<'n> {
    path: String,
    entries: Vec<(&'n str, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// Returns a field's path and value; nothing when it is absent or null.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(String, &'n Node)> {
        let found = self.entries.iter().find(|(key, node)| *key == name && node.value != Value::Null);
        found.map(|(key, node)| (self.path_of(key), *node))
    }

    /// Returns every field's name, path and value, in the order written, the null ones too.
    pub fn iter(&self) -> impl Iterator<Item = (&'n str, String, &'n Node)> + '_ {
        self.entries.iter().map(|(key, node)| (*key, self.path_of(key), *node))
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl<'a> Walk<'a> {
    /// Starts on a file.
    #[must_use]
    pub fn new(file: &'a str) -> Self {
        Self { file, errors: Vec::new(), more: 0, warnings: Vec::new() }
    }

    /// Returns what was wrong and what is worth saying, each in the order of lines.
    #[must_use]
    pub fn finish(mut self) -> (Vec<ConfigError>, Vec<ConfigWarning>) {
        self.errors.sort_by_key(|error| (error.line, error.column));
        self.warnings.sort_by_key(|warning| (warning.0.line, warning.0.column));
        if let Some(last) = self.errors.last().filter(|_| self.more > 0) {
            let reason = format!("{} more errors", self.more);
            let fix = Some("correct the first ones and check again".to_owned());
            self.errors.push(ConfigError { field: String::new(), value: None, reason, fix, ..last.clone() });
        }
        (self.errors, self.warnings)
    }

    /// Notes that something is wrong at a node.
    pub fn error(&mut self, field: &str, node: &Node, reason: impl Into<String>, fix: &str) {
        self.error_in(field, node, scalar(node), reason, fix);
    }

    /// Notes that something is wrong with a part of what stands at a node.
    pub fn error_in(&mut self, field: &str, node: &Node, value: Option<&str>, reason: impl Into<String>, fix: &str) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(self.note(field, node, value, &reason.into(), fix));
        } else {
            self.more += 1;
        }
    }

    /// Tells whether something is wrong at a node already.
    #[must_use]
    pub fn has_error_at(&self, node: &Node) -> bool {
        self.errors.iter().any(|error| (error.line, error.column) == (node.line, node.column))
    }

    /// Notes that something at a node is not wrong, but not likely meant either.
    pub fn warning(&mut self, field: &str, node: &Node, reason: impl Into<String>, fix: &str) {
        self.warning_in(field, node, scalar(node), reason, fix);
    }

    /// Notes the same of a part of what stands at a node.
    pub fn warning_in(&mut self, field: &str, node: &Node, value: Option<&str>, reason: impl Into<String>, fix: &str) {
        if self.warnings.len() < MOST_ERRORS {
            self.warnings.push(ConfigWarning(self.note(field, node, value, &reason.into(), fix)));
        }
    }

    fn note(&self, field: &str, node: &Node, value: Option<&str>, reason: &str, fix: &str) -> ConfigError {
        ConfigError {
            file: self.file.to_owned(),
            line: node.line,
            column: node.column,
            field: cut(field, LONGEST_VALUE),
            value: value.map(|value| cut(value, LONGEST_VALUE)),
            reason: cut(reason, LONGEST_REASON),
            fix: (!fix.is_empty()).then(|| fix.to_owned()),
        }
    }

    /// Takes a map apart. A name that is not `known` is an error that proposes the nearest one; so is a duplicate.
    pub fn fields<'n>(&mut self, path: &str, node: &'n Node, known: &[&str]) -> Fields<'n> {
        self.fields_or(path, node, known, |_| "unknown field".to_owned())
    }

    /// As `fields`, with the caller's words for a name that is not known.
    pub fn fields_or<'n>(
        &mut self,
        path: &str,
        node: &'n Node,
        known: &[&str],
        unknown: impl Fn(&str) -> String,
    ) -> Fields<'n> {
        let mut fields = Fields { path: path.to_owned(), entries: Vec::new() };
        let Value::Mapping(pairs) = &node.value else {
            let reason = format!("must be a map, not {}", node.value.kind());
            self.error(path, node, reason, &format!("fields: {}", known.join(", ")));
            return fields;
        };
        for (name, key, value) in self.pairs(path, pairs) {
            if !known.contains(&name) {
                let fix = self.propose(name, known);
                self.error_in(&fields.path_of(name), key, None, unknown(name), &fix);
            } else {
                fields.entries.push((name, value));
            }
        }
        fields
    }

    /// Says what to write instead of a name that is not known.
    pub fn propose(&self, name: &str, known: &[&str]) -> String {
        if self.errors.len() >= MOST_ERRORS {
            // It is only counted.
            return String::new();
        }
        match nearest(name, known) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => format!("known here: {}", known.join(", ")),
        }
    }

    /// Takes a map apart of which only the `known` names matter. A name that is nearly one of them is worth a warning.
    pub fn known_fields<'n>(&mut self, path: &str, node: &'n Node, known: &[&str]) -> Fields<'n> {
        let mut fields = Fields { path: path.to_owned(), entries: Vec::new() };
        let Value::Mapping(pairs) = &node.value else {
            let reason = format!("must be a map, not {}", node.value.kind());
            self.error(path, node, reason, "write its fields, or leave it out");
            return fields;
        };
        for (name, key, value) in self.pairs(path, pairs) {
            if known.contains(&name) {
                fields.entries.push((name, value));
            } else if let Some(meant) = misspelt(name, known) {
                let fix = format!("did you mean {meant}?");
                self.warning_in(&fields.path_of(name), key, None, "an unknown field, which means nothing", &fix);
            }
        }
        fields
    }

    /// Returns the names, keys and values of a map, once each.
    fn pairs<'n>(&mut self, path: &str, pairs: &'n [(Node, Node)]) -> Vec<(&'n str, &'n Node, &'n Node)> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let mut unique = Vec::new();
        for (key, value) in pairs {
            let Some(name) = scalar(key) else {
                continue;
            };
            if let Some(line) = seen.get(name) {
                let field = Fields { path: path.to_owned(), entries: Vec::new() }.path_of(name);
                let reason = format!("given twice, first in line {line}");
                self.error_in(&field, key, None, reason, "remove one of them");
            } else {
                seen.insert(name, key.line);
                unique.push((name, key, value));
            }
        }
        unique
    }
}

/// Returns the text at a node, if it is a plain value.
fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the known name of which this can only be a misspelling.
fn misspelt<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // Most fields of a file are none of ours: the lengths tell nearly all of them apart.
    known.iter().copied().find(|known| known.len().abs_diff(name.len()) <= 2 && edit_distance(name, known) <= 2)
}

/// Returns the known name that was most likely meant, if any is near.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // Far longer than any field's name, and the work grows with it.
    if name.len() > 64 {
        return None;
    }
    known
        .iter()
        .filter(|candidate| is_same_thing(name, candidate))
        .map(|candidate| (edit_distance(name, candidate), *candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(2))
        .map(|(_, candidate)| candidate)
}

/// Tells whether two names with a dot may mean the same before it: `s20.available` is no misspelling of `pid.available`.
fn is_same_thing(name: &str, candidate: &str) -> bool {
    let (Some((name, _)), Some((candidate, _))) = (name.split_once('.'), candidate.split_once('.')) else {
        return true;
    };
    let is_short_for = name.len() >= 3 && candidate.starts_with(name);
    is_short_for || edit_distance(name, candidate) <= (candidate.len() / 3).max(1)
}

/// Counts the insertions, deletions and replacements between two names; case makes no difference.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_proposed_when_it_is_near() {
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
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
