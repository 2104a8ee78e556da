//! What the commands read, and how they say what is wrong with it.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::error::Category;

use crate::config::{ConfigWarning, MonitorConfig, Policy};
use crate::units::Amount;
use crate::workloads::Summary;

use super::output::{self, printable};

/// What the reader says in words of the program, and what an operator calls it.
const WORDS: [(&str, &str); 5] = [
    ("expected struct ", "expected an object: "),
    ("expected i32", "expected a whole number"),
    ("expected i64", "expected a whole number"),
    ("expected u64", "expected a whole number, not below zero"),
    ("floating point `", "fraction `"),
];

/// Something wrong in a JSON text, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Counted from one; zero where none can be given.
    pub line: usize,
    /// Counted from one, in bytes; zero where none can be given.
    pub column: usize,
    /// The path to the field, e.g. `node.capacity.memory`; empty when the text as a whole is meant.
    pub field: String,
    /// What is wrong.
    pub reason: String,
}

impl Fault {
    /// About the text as a whole.
    #[must_use]
    pub fn whole(reason: impl Into<String>) -> Self {
        Self { line: 1, column: 1, field: String::new(), reason: reason.into() }
    }

    fn new(field: &str, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let reason = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        let reason = match error.classify() {
            Category::Eof => format!("cut off: {reason}"),
            Category::Syntax => format!("not JSON: {reason}"),
            Category::Data | Category::Io => {
                WORDS.iter().fold(reason.to_owned(), |text, (of, to)| text.replace(of, to))
            }
        };
        // Where the text breaks off or is no JSON, the path ends in what could not be read.
        let field = field.trim_end_matches(['.', '?']).to_owned();
        Self { line, column, field, reason }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", printable(&self.field))?;
        }
        f.write_str(&printable(&self.reason))
    }
}

/// Reads JSON. What is right is read at full speed; only what is wrong is read again, to learn in which field.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| locate::<T>(text, &error))
}

#[cold]
fn locate<'de, T: Deserialize<'de>>(text: &'de str, error: &serde_json::Error) -> Fault {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(located) => Fault::new(&located.path().to_string(), located.inner()),
        Ok(_) => Fault::new("", error),
    }
}

/// Why a command could not do what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A file that was named cannot be read.
    #[error("{file}: cannot be read: {source}; check the path and its permissions")]
    Unreadable {
        /// The file's name as given.
        file: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// What was asked for makes no sense, or the policy cannot be read.
    #[error("{0}")]
    Usage(String),
    /// A file was read, and it is wrong.
    #[error("{0}")]
    Wrong(String),
    /// A file that the command should write cannot be written.
    #[error("{file}: cannot be written: {source}; name a writable place")]
    Unwritable {
        /// The file's name.
        file: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The answer could not be written.
    #[error("the answer cannot be written: {0}")]
    Output(#[source] io::Error),
}

impl CommandError {
    /// Exit status, as `--help` documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Wrong(_) | Self::Unwritable { .. } | Self::Output(_) => 1,
            Self::Unreadable { .. } | Self::Usage(_) => 2,
        }
    }

    /// Tells whether whoever read the answer has had enough of it, as `head` does: nothing to complain about.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Tells whether a file is standard input.
#[must_use]
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads a configuration file without looking at what is in it; - is standard input. Returns what messages call it, too.
///
/// # Errors
/// When it cannot be read.
pub fn configuration(path: &Path) -> Result<(String, Vec<u8>), CommandError> {
    if is_stdin(path) {
        let name = "standard input".to_owned();
        match MonitorConfig::read_from(io::stdin()) {
            Ok(bytes) => Ok((name, bytes)),
            Err(source) => Err(CommandError::Unreadable { file: name, source }),
        }
    } else {
        let bytes = MonitorConfig::read(path).map_err(|errors| CommandError::Usage(errors.to_string()))?;
        Ok((path.display().to_string(), bytes))
    }
}

/// Reads the policy from a configuration file of any kind, and tells what swap does to it. What else can hardly be meant is only
/// counted: `check-config` tells it.
///
/// # Errors
/// When it cannot be read, or is wrong: then with everything that is wrong with it.
pub fn policy(path: &Path) -> Result<Policy, CommandError> {
    monitor(path).map(|config| config.policy)
}

/// The same with all else that the file says.
///
/// # Errors
/// As [`policy`].
pub fn monitor(path: &Path) -> Result<MonitorConfig, CommandError> {
    let (name, bytes) = configuration(path)?;
    let loaded = MonitorConfig::parse_bytes(&name, bytes).map_err(|errors| CommandError::Wrong(errors.to_string()))?;
    let (swap, others): (Vec<_>, Vec<_>) = loaded.warnings.iter().partition(|warning| is_about_swap(warning));
    for warning in swap {
        output::warn(warning);
    }
    let (count, file) = (others.len(), path.display());
    match count {
        0 => {}
        1 => output::note(format_args!("{name}: 1 warning; `check-config {file}` tells it")),
        _ => output::note(format_args!("{name}: {count} warnings; `check-config {file}` tells them")),
    }
    Ok(loaded.config)
}

/// Whoever reads an answer about memory must know of it.
fn is_about_swap(ConfigWarning(warning): &ConfigWarning) -> bool {
    ["failSwapOn", "memorySwap", "fail-swap-on"].iter().any(|field| warning.field.contains(field))
}

/// What is to be said of a node that swaps; nothing where it has no swap.
#[must_use]
pub fn swap_words(summary: &Summary) -> Option<String> {
    let swap = summary.node.swap?;
    let used = swap.swap_usage_bytes.unwrap_or(0);
    let total = used.saturating_add(swap.swap_available_bytes.unwrap_or(0));
    let bytes = |bytes| Amount::from_units(i64::try_from(bytes).unwrap_or(i64::MAX)).bytes().to_string();
    (total > 0).then(|| {
        format!(
            "swap is on ({} of {} used), and memory.available is blind to it: swap neither adds to it nor counts as used, and memory \
             that is swapped out leaves the working set, so it stays high while the node thrashes",
            bytes(used),
            bytes(total)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::Pod;

    #[test]
    fn a_fault_names_field_and_column() {
        let text = r#"{"metadata": {"name": "a"}, "spec": {"containers": [{"name": 5}]}}"#;
        let fault = parse::<Pod>(text).unwrap_err();
        assert_eq!(fault.field, "spec.containers[0].name");
        assert_eq!((fault.line, fault.column), (1, 62));
        assert_eq!(fault.reason, "invalid type: integer `5`, expected a string");
    }

    #[test]
    fn syntax_and_the_end_are_told_apart() {
        let fault = |text| parse::<Pod>(text).unwrap_err().to_string();
        assert!(fault("{\"spec\": {").starts_with("spec: cut off: "), "{}", fault("{\"spec\": {"));
        assert!(fault("{\"spec\": }").starts_with("spec: not JSON: "), "{}", fault("{\"spec\": }"));
        assert!(fault("{} x").starts_with("not JSON: trailing characters"), "{}", fault("{} x"));
    }
}
