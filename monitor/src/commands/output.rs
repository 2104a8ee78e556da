//! How the commands say things.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::time::Duration;

use serde::ser::Serializer;

use crate::config::config_error::Printable;

/// Tells something that is no error, on one line of stderr.
pub fn note(what: impl fmt::Display) {
    line(format_args!("node-pressure-monitor: {}", printable(what)));
}

/// Tells why there is no answer. It may have several lines, in which no name has a line break any more.
pub fn complain(why: impl fmt::Display) {
    let why = why.to_string();
    let lines: Vec<String> = why.split('\n').map(printable).collect();
    line(format_args!("node-pressure-monitor: {}", lines.join("\n")));
}

/// Tells something that is hardly meant.
pub fn warn(what: impl fmt::Display) {
    line(format_args!("warning: {}", printable(what)));
}

fn line(text: fmt::Arguments<'_>) {
    // Whoever closed stderr does not want to know, and an answer is worth more than a note.
    let _ = writeln!(io::stderr(), "{text}");
}

/// The text as it may go to a terminal: on one line, and without what a terminal takes for a command.
#[must_use]
pub fn printable(what: impl fmt::Display) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write!(Printable(&mut text), "{what}");
    text
}

/// For JSON: a whole number where it is one.
///
/// # Errors
/// When it cannot be written.
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
    fn names_cannot_command_a_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\nc\u{9b}d\u{202e}e é"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}d\u{fffd}e é");
    }
}
