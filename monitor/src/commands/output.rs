//! What the commands print besides their answers.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::time::Duration;

use serde::ser::Serializer;

use crate::config::config_error::Printable;

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
#[must_use]
pub fn printable(what: impl fmt::Display) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write!(Printable(&mut text), "{what}");
    text
}

/// Maximum number of names in a note; the rest is only counted.
pub const NAMES: usize = 3;

/// Returns the first `most` names, and how many more there are.
pub fn few(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > most { format!("{shown} and {} more", names.len() - most) } else { shown }
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
