//! The values that the reader of a field accepts. A walk can record them; the JSON Schema of the configuration is made of such a record.

use std::collections::BTreeMap;

/// The values that one reader accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// A map with these names.
    Map(Vec<String>),
    /// A map with free names.
    Names,
    List,
    /// Any plain value.
    Text,
    Choice(Vec<String>),
    Boolean,
    /// A whole number from the first to the last.
    WholeNumber(String, String),
    /// A positive quantity.
    Bytes,
    /// A quantity that may be zero.
    Amount,
    Duration,
    PositiveDuration,
    /// A duration that is no value of a field, but of an entry.
    GracePeriod,
    /// A share of one, in percent.
    Percentage,
    /// The value of a threshold.
    Threshold,
    /// The value of a minimum reclaim.
    MinimumReclaim,
    Address,
    AbsolutePath,
    /// Text that this regular expression matches.
    Pattern(&'static str),
}

/// The shapes of the fields of a document, by their paths. A list's items have the path of the list and `[]`.
#[derive(Debug, Default)]
pub struct Shapes {
    pub fields: BTreeMap<String, Vec<Shape>>,
    /// The names that a map must have, by the path of the map.
    pub required: BTreeMap<String, Vec<String>>,
}

impl Shapes {
    pub fn add(&mut self, path: &str, shape: Shape) {
        let shapes = self.fields.entry(without_indexes(path)).or_default();
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }

    pub fn require(&mut self, path: &str, name: &str) {
        let names = self.required.entry(without_indexes(path)).or_default();
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
}

/// Replaces each `[0]` by `[]`.
fn without_indexes(path: &str) -> String {
    let mut general = String::with_capacity(path.len());
    let mut is_index = false;
    for character in path.chars() {
        is_index = character != ']' && (is_index || character == '[');
        if !is_index || character == '[' {
            general.push(character);
        }
    }
    general
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_left_out() {
        for (path, expected) in [("a.b", "a.b"), ("a[0].b[12]", "a[].b[]"), ("", "")] {
            assert_eq!(without_indexes(path), expected);
        }
    }
}
