//! How the commands print their answers, and notes, warnings and errors beside them.

use std::fmt::{self, Write as _};
use std::io::{self, BufWriter, StdoutLock, Write as _};
use std::time::Duration;

use clap::ValueEnum;
use serde::ser::{Serialize, Serializer};

use crate::config::config_error::Printable;
use crate::units::{Amount, Resource};

/// The formats of an answer in sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextOrJson {
    /// Text for humans
    Text,
    /// JSON in the form that is described below
    Json,
}

/// The formats of an answer in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableOrJson {
    /// Table for humans
    Table,
    /// JSON in the form that is described below
    Json,
}

/// Writes the answer to stdout. A reader that closes the pipe is no error.
pub fn answer(write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints a note on one line of stderr.
pub fn note(what: impl fmt::Display) {
    line(format_args!("node-pressure-monitor: {}", printable(what)));
}

/// Prints an error on stderr. Each of its lines is made printable.
pub fn complain(why: impl fmt::Display) {
    let why = why.to_string();
    let lines: Vec<String> = why.split('\n').map(printable).collect();
    line(format_args!("node-pressure-monitor: {}", lines.join("\n")));
}

/// Prints a warning on one line of stderr.
pub fn warn(what: impl fmt::Display) {
    line(format_args!("warning: {}", printable(what)));
}

fn line(text: fmt::Arguments<'_>) {
    // A closed stderr must not cost the answer.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Returns the text on one line without control characters, safe for a terminal.
pub fn printable(what: impl fmt::Display) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write!(Printable(&mut text), "{what}");
    text
}

/// Returns the rows with their cells padded to the widest of their column, `gap` blanks apart, without blanks at the end of a line.
/// `is_right` chooses the columns of numbers, which are aligned right.
pub fn aligned(rows: &[Vec<String>], gap: usize, is_right: impl Fn(usize) -> bool) -> String {
    let width = |column| rows.iter().filter_map(|row| row.get::<usize>(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..).map_while(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let padded = if is_right(column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line.push_str(&padded);
            line.extend(std::iter::repeat_n(' ', gap));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns an amount of a resource with its unit; the amount may be negative.
pub fn amount(amount: Amount, resource: Resource) -> String {
    let (sign, magnitude) = if amount.is_negative() { ("-", Amount::ZERO - amount) } else { ("", amount) };
    if resource.is_bytes() { format!("{sign}{}", magnitude.bytes()) } else { format!("{sign}{}", magnitude.units()) }
}

/// Maximum number of names in a note; the rest is only counted.
pub const NAMES: usize = 3;

/// Returns the first `most` names, and how many more there are.
pub fn few(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > most { format!("{shown} and {} more", names.len() - most) } else { shown }
}

/// Pairs that are serialized as a map in their order.
#[derive(Debug)]
pub struct Pairs<K, V>(pub Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for Pairs<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Serializes a duration in seconds, as an integer if it is whole.
pub fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    if duration.subsec_nanos() == 0 {
        serializer.serialize_u64(duration.as_secs())
    } else {
        serializer.serialize_f64(duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_control_a_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\nc\u{9b}d\u{202e}e é"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}d\u{fffd}e é");
    }
}
