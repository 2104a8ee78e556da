//! Walks a located tree field by field, collecting everything that is wrong instead of stopping at the first.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::duration::parse_go_duration;
use super::error::ConfigError;
use super::quantity::Quantity;
use super::units::Bytes;
use super::yaml::{Node, Value};

/// Collects errors of one file.
#[derive(Debug)]
pub struct Walk<'a> {
    file: &'a str,
    errors: Vec<ConfigError>,
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
        self.entries.iter().find(|(key, _)| *key == name).map(|(key, node)| (self.path_of(key), *node))
    }

    /// Returns every field's name, path and value, in the order written, without the null ones.
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
        Self { file, errors: Vec::new() }
    }

    /// Returns what was wrong, in the order of lines.
    #[must_use]
    pub fn into_errors(mut self) -> Vec<ConfigError> {
        self.errors.sort_by_key(|error| (error.line, error.column));
        self.errors
    }

    /// Notes that something is wrong at a node.
    pub fn error(&mut self, field: &str, node: &Node, reason: impl Into<String>, fix: &str) {
        let value = match &node.value {
            Value::Scalar { text, .. } => Some(text.clone()),
            _ => None,
        };
        self.errors.push(ConfigError {
            file: self.file.to_owned(),
            line: node.line,
            column: node.column,
            field: field.to_owned(),
            value,
            reason: reason.into(),
            fix: (!fix.is_empty()).then(|| fix.to_owned()),
        });
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
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (key, value) in pairs {
            let Value::Scalar { text: name, .. } = &key.value else {
                continue;
            };
            let field = fields.path_of(name);
            if let Some(line) = seen.get(name.as_str()) {
                let reason = format!("given twice, first in line {line}");
                self.key_error(&field, key, reason, "remove one of them".to_owned());
                continue;
            }
            seen.insert(name, key.line);
            if !known.contains(&name.as_str()) {
                let fix = match nearest(name, known) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => format!("known here: {}", known.join(", ")),
                };
                self.key_error(&field, key, unknown(name), fix);
            } else if value.value != Value::Null {
                fields.entries.push((name, value));
            }
        }
        fields
    }

    fn key_error(&mut self, field: &str, key: &Node, reason: String, fix: String) {
        self.errors.push(ConfigError {
            file: self.file.to_owned(),
            line: key.line,
            column: key.column,
            field: field.to_owned(),
            value: None,
            reason,
            fix: Some(fix),
        });
    }

    /// Reads text, quoted or not.
    pub fn text<'n>(&mut self, field: &str, node: &'n Node, fix: &str) -> Option<&'n str> {
        if let Value::Scalar { text, .. } = &node.value {
            return Some(text);
        }
        let reason = format!("must be a plain value, not {}", node.value.kind());
        self.error(field, node, reason, fix);
        None
    }

    /// Reads one of the given names.
    pub fn choice<T: Clone>(&mut self, field: &str, node: &Node, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let fix = format!("write {}", names.join(" or "));
        let text = self.text(field, node, &fix)?;
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
        if found.is_none() {
            self.error(field, node, "not one of the choices", &fix);
        }
        found
    }

    /// Reads an amount of bytes above zero.
    pub fn bytes(&mut self, field: &str, node: &Node, example: &str) -> Option<Bytes> {
        let fix = format!("write e.g. {example}");
        let text = self.text(field, node, &fix)?;
        let quantity = match Quantity::parse(text) {
            Ok(quantity) => quantity,
            Err(error) => {
                self.error(field, node, error.to_string(), &fix);
                return None;
            }
        };
        match u64::try_from(quantity.value_bytes()) {
            Ok(bytes) if bytes > 0 => Some(Bytes(bytes)),
            _ => {
                self.error(field, node, "must be positive", &fix);
                None
            }
        }
    }

    /// Reads a duration that is not negative.
    pub fn duration(&mut self, field: &str, node: &Node, example: &str) -> Option<Duration> {
        let fix = format!("write e.g. {example}");
        let text = self.text(field, node, &fix)?;
        match parse_go_duration(text) {
            Ok(nanos) => {
                let duration = nanos.to_duration();
                if duration.is_none() {
                    self.error(field, node, "must not be negative", &fix);
                }
                duration
            }
            Err(error) => {
                self.error(field, node, error.to_string(), &fix);
                None
            }
        }
    }

    /// Reads a duration above zero.
    pub fn positive_duration(&mut self, field: &str, node: &Node, example: &str) -> Option<Duration> {
        let duration = self.duration(field, node, example)?;
        if duration.is_zero() {
            let fix = format!("write e.g. {example}");
            self.error(field, node, "must be longer than zero", &fix);
            return None;
        }
        Some(duration)
    }

    /// Reads a whole number of at least `minimum`, which must not stand in quotes.
    pub fn whole_number(&mut self, field: &str, node: &Node, minimum: u32, example: &str) -> Option<u32> {
        let fix = format!("write e.g. {example}");
        let text = self.text(field, node, &fix)?;
        let quoted = matches!(node.value, Value::Scalar { quoted: true, .. });
        match text.parse::<u32>() {
            Ok(number) if !quoted && number >= minimum => Some(number),
            Ok(_) if quoted => {
                self.error(field, node, "must be a number, not text", "remove the quotes");
                None
            }
            _ => {
                let reason = format!("must be a whole number from {minimum} to {}", u32::MAX);
                self.error(field, node, reason, &fix);
                None
            }
        }
    }

    /// Reads an address and port to listen on.
    pub fn address(&mut self, field: &str, node: &Node) -> Option<SocketAddr> {
        const FIX: &str = "write e.g. 127.0.0.1:9946 or \"[::1]:9946\"";
        let text = self.text(field, node, FIX)?;
        let address = text.parse().ok();
        if address.is_none() {
            self.error(field, node, "must be an IP address and a port", FIX);
        }
        address
    }

    /// Reads an absolute path.
    pub fn path(&mut self, field: &str, node: &Node, example: &str) -> Option<PathBuf> {
        let fix = format!("write e.g. {example}");
        let text = self.text(field, node, &fix)?;
        if text.starts_with('/') {
            return Some(PathBuf::from(text));
        }
        self.error(field, node, "must be an absolute path", &fix);
        None
    }
}

/// Returns the known name that was most likely meant, if any is near.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // Far longer than any field's name, and the work grows with it.
    if name.len() > 64 {
        return None;
    }
    known
        .iter()
        .map(|candidate| (edit_distance(name, candidate), *candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(2))
        .map(|(_, candidate)| candidate)
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
        let known = ["evictionHard", "evictionSoft", "mode", "memory.available"];
        for (name, expected) in [
            ("evictionhard", Some("evictionHard")),
            ("evictonHard", Some("evictionHard")),
            ("eviction_soft", Some("evictionSoft")),
            ("memory.avail", Some("memory.available")),
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
