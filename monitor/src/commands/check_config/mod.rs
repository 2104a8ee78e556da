//! `node-pressure-monitor check-config`: what a configuration file means, or everything that is wrong with it.

mod json;
mod table;

use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::config::{ConfigErrors, Loaded, MonitorConfig, Quantity};
use crate::eviction::allocatable::{Allocatable, ReservationError, allocatable};

/// Options of `check-config`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// The file: a KubeletConfiguration, OpenShift 3 kubeletArguments, or a MonitorConfiguration; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// What a node has, to say what is left for pods, e.g. memory=10Gi,ephemeral-storage=100Gi
    #[arg(long, value_name = "RESOURCE=AMOUNT,...", value_delimiter = ',', value_parser = parse_capacity)]
    capacity: Vec<(String, Quantity)>,
}

const HELP: &str = r#"With --output json the answer is one object:

  {"kind", "semantics",
   "thresholds": [{"signal", "operator": "LessThan", "quantity": "100Mi"|null, "percentage": 0.1|null, "gracePeriodSeconds",
                   "minReclaim": {"quantity"} | {"percentage"} | null}],
   "ranking": {"name", "keys": {by resource}}, "quirks": {by name: true as in the kubelet, false mended}, "oomScoreAdj",
   "evictionMaxPodGracePeriod", "evictionPressureTransitionPeriodSeconds", "localStorageCapacityIsolation",
   "systemReserved", "kubeReserved", "hardThresholdsReserved",
   "allocatable": {by resource, of those in --capacity}, "warnings": [{"line", "column", "field", "value", "reason", "fix"}]}

Warnings are on standard error, too.

Exit status: 0 the file is right; 1 it is wrong, or reserves more than --capacity (everything is on standard error), or the answer
cannot be written; 2 wrong usage, or a file that cannot be read."#;

/// How to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Rows for people
    Table,
    /// One object
    Json,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(ConfigErrors),
    /// The file is wrong.
    #[error("the configuration is wrong\n{0}")]
    Wrong(ConfigErrors),
    /// More is reserved than there is.
    #[error("{0} Reserve less, or correct --capacity.")]
    Reserved(#[from] ReservationError),
    /// The answer cannot be written.
    #[error("cannot write the answer: {0}")]
    Output(#[from] std::io::Error),
}

impl CheckError {
    /// Exit status, as `--help` documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unreadable(_) => 2,
            Self::Wrong(_) | Self::Reserved(_) | Self::Output(_) => 1,
        }
    }
}

fn parse_capacity(text: &str) -> Result<(String, Quantity), String> {
    let (resource, amount) = text.split_once('=').ok_or("write RESOURCE=AMOUNT, e.g. memory=10Gi")?;
    let amount = Quantity::parse(amount).map_err(|error| format!("{amount:?}: {error}"))?;
    if resource.is_empty() || amount.is_negative() {
        return Err("write RESOURCE=AMOUNT, e.g. memory=10Gi".to_owned());
    }
    Ok((resource.to_owned(), amount))
}

/// Runs the command.
///
/// # Errors
/// When the file is wrong or cannot be read, or the answer cannot be written.
pub fn run(options: &Options) -> Result<(), CheckError> {
    let (name, bytes) = if options.file.as_os_str() == "-" {
        ("standard input".to_owned(), MonitorConfig::read_from(std::io::stdin())?)
    } else {
        let bytes = MonitorConfig::read(&options.file).map_err(CheckError::Unreadable)?;
        (options.file.display().to_string(), bytes)
    };
    let loaded = MonitorConfig::parse_bytes(&name, bytes).map_err(CheckError::Wrong)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    let left = allocatable(&loaded.config.policy, &options.capacity)?;
    let text = match options.output {
        Format::Table => table::render(&name, &loaded, &left),
        Format::Json => json::render(&loaded, &left)?,
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads on the other end has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Writes an amount of a resource: bytes in powers of 1024, all else in powers of 1000.
fn amount_text(resource: &str, amount: crate::config::Amount) -> String {
    let bytes = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    Quantity::from_amount(amount, bytes).canonical()
}
