//! The files that commands read, and the errors about them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::error::Category;

use crate::config::{ConfigErrors, ConfigWarning, Loaded, MonitorConfig, OtherFiles, Policy};
use crate::report::LoggingError;
use crate::units::{Amount, Quantity, signed};
use crate::workloads::Summary;

use super::instance::LockError;
use super::output::{self, printable};

/// Words of the JSON reader and their replacements in error texts.
const WORDS: [(&str, &str); 5] = [
    ("expected struct ", "expected an object: "),
    ("expected i32", "expected a whole number"),
    ("expected i64", "expected a whole number"),
    ("expected u64", "expected a whole number, not below zero"),
    ("floating point `", "fraction `"),
];

/// An error in a JSON text, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Counted from one; zero if unknown.
    pub line: usize,
    /// Counted from one, in bytes; zero if unknown.
    pub column: usize,
    /// The path to the field, e.g. `node.capacity.memory`; empty for the whole text.
    pub field: String,
    pub reason: String,
}

impl Fault {
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
        // If the text is cut off or is no JSON, the path ends in an unreadable part.
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

/// Parses JSON. Only a wrong text is parsed a second time, to find the field.
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

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("{file}: cannot be read: {source}; check the path and its permissions")]
    Unreadable { file: String, source: io::Error },
    /// The options contradict one another, or the policy cannot be read.
    #[error("{0}")]
    Usage(String),
    /// The contents of a file are wrong.
    #[error("{0}")]
    Wrong(String),
    #[error("{file}: cannot be written: {source}; name a writable place")]
    Unwritable { file: String, source: io::Error },
    #[error("the answer cannot be written: {0}")]
    Output(#[source] io::Error),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl CommandError {
    /// Exit status, as `--help` documents it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unreadable { .. } | Self::Usage(_) | Self::Logging(_) => 2,
            Self::Lock(LockError::AlreadyRunning { .. }) => 3,
            Self::Wrong(_) | Self::Unwritable { .. } | Self::Output(_) | Self::Lock(_) | Self::Failed(_) => 1,
        }
    }

    /// Whether the reader of the answer closed the pipe, as `head` does, which is no error.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Returns the event loop of a command that asks the API server.
pub fn event_loop() -> Result<tokio::runtime::Runtime, CommandError> {
    let unusable = |error: io::Error| CommandError::Wrong(format!("cannot start: {error}"));
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unusable)
}

pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Parses an amount of a resource, e.g. `memory=10Gi`.
pub fn resource_amount(text: &str) -> Result<(String, Quantity), String> {
    let (resource, amount) = text.split_once('=').ok_or("write RESOURCE=AMOUNT, e.g. memory=10Gi")?;
    let amount = Quantity::parse(amount).map_err(|error| format!("{amount:?}: {error}"))?;
    if resource.is_empty() || amount.is_negative() {
        return Err("write RESOURCE=AMOUNT, e.g. memory=10Gi".to_owned());
    }
    Ok((resource.to_owned(), amount))
}

/// Parses a list of values by resource, in which a resource occurs once.
pub fn by_resource<T>(
    text: &str,
    parse: impl Fn(&str) -> Result<(String, T), String>,
) -> Result<Vec<(String, T)>, String> {
    let mut all: Vec<(String, T)> = Vec::new();
    for part in text.split(',') {
        let (resource, value) = parse(part.trim())?;
        if all.iter().any(|(before, _)| *before == resource) {
            return Err(format!("{resource} is given twice; give it once"));
        }
        all.push((resource, value));
    }
    Ok(all)
}

/// Reads a configuration file without parsing it; - is standard input. Returns the file's name for messages, too.
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

/// The other files of a kubelet whose configuration is spread over several.
#[derive(Debug, Default, clap::Args)]
pub struct KubeletFiles {
    /// Directory below which the files are that FILE's flags name with --config and --config-dir: / on the node itself
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// Directory of drop-ins (*.conf) that the kubelet merges over FILE
    #[arg(long, value_name = "DIRECTORY")]
    config_dir: Option<PathBuf>,
    /// File with the kubelet's flags, which count over FILE and its drop-ins
    #[arg(long, value_name = "FILE")]
    flags: Option<PathBuf>,
    /// The object that is meant, where FILE is a list of several
    #[arg(long, value_name = "NAME")]
    item: Option<String>,
}

impl KubeletFiles {
    /// Calls `read` with these files beside `own`.
    pub fn with<T>(&self, own: &Path, read: impl FnOnce(OtherFiles<'_>) -> T) -> T {
        let Self { root, config_dir, flags, item } = self;
        let named = |path: &str| root.as_deref().unwrap_or(Path::new("/")).join(path.trim_start_matches('/'));
        let named: &dyn Fn(&str) -> PathBuf = &named;
        read(OtherFiles {
            named: root.is_some().then_some(named),
            config_dir: config_dir.as_deref(),
            flags: flags.as_deref(),
            own: (!is_stdin(own)).then_some(own),
            item: item.as_deref(),
        })
    }
}

/// Reads and parses a configuration file. Returns the file's name for messages, too.
/// The error about a wrong file lists all errors in it.
pub fn load(path: &Path) -> Result<(String, Loaded), CommandError> {
    let (name, bytes) = configuration(path)?;
    let wrong = |errors: ConfigErrors| CommandError::Wrong(errors.to_string());
    let text = MonitorConfig::text_of(&name, bytes).map_err(wrong)?;
    let parse = |others: OtherFiles<'_>| MonitorConfig::parse_with(&name, &text, others);
    let loaded = KubeletFiles::default().with(path, parse).map_err(wrong)?;
    Ok((name, loaded))
}

/// Reads the policy from a configuration file of any kind. See [`monitor`].
pub fn policy(path: &Path) -> Result<Policy, CommandError> {
    monitor(path).map(|config| config.policy)
}

/// Reads a configuration file of any kind. Warnings about swap are printed; the others are only counted.
pub fn monitor(path: &Path) -> Result<MonitorConfig, CommandError> {
    let (name, loaded) = load(path)?;
    let (swap, others): (Vec<_>, Vec<_>) = loaded.warnings.iter().partition(|warning| is_about_swap(warning));
    for warning in swap {
        output::warn(warning);
    }
    let (count, file) = (others.len(), path.display());
    if count > 0 {
        let warnings = if count == 1 { "warning" } else { "warnings" };
        output::note(format_args!("{name}: {count} {warnings}; see `check-config {file}`"));
    }
    Ok(loaded.config)
}

/// Swap changes the meaning of figures about memory, so its warnings are always printed.
fn is_about_swap(ConfigWarning(warning): &ConfigWarning) -> bool {
    ["failSwapOn", "memorySwap", "fail-swap-on"].iter().any(|field| warning.field.contains(field))
}

/// Returns a note about a node with swap; `None` without swap.
pub fn swap_words(summary: &Summary) -> Option<String> {
    let swap = summary.node.swap?;
    let used = swap.swap_usage_bytes.unwrap_or(0);
    let total = used.saturating_add(swap.swap_available_bytes.unwrap_or(0));
    let bytes = |bytes| Amount::from_units(signed(bytes)).bytes().to_string();
    (total > 0).then(|| {
        format!(
            "swap is on ({} of {} used), and memory.available is blind to it: the signal excludes swap, and swapped memory leaves the \
             working set, so memory.available stays high while the node thrashes",
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
    fn syntax_errors_differ_from_a_cut_text() {
        let fault = |text| parse::<Pod>(text).unwrap_err().to_string();
        assert!(fault("{\"spec\": {").starts_with("spec: cut off: "), "{}", fault("{\"spec\": {"));
        assert!(fault("{\"spec\": }").starts_with("spec: not JSON: "), "{}", fault("{\"spec\": }"));
        assert!(fault("{} x").starts_with("not JSON: trailing characters"), "{}", fault("{} x"));
    }
}
