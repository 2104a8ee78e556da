//! `node-pressure-monitor check-config`: what a configuration file means, or everything that is wrong with it.

mod config_json;
mod config_table;

use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::config::{ConfigErrors, Loaded, MonitorConfig};
use crate::eviction::allocatable::{Allocatable, ReservationError, allocatable};
use crate::units::Quantity;

use super::input::{self, CommandError};
use super::output;

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
    /// The file cannot be read, or what was asked for makes no sense.
    #[error(transparent)]
    Input(#[from] CommandError),
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
            Self::Input(error) => error.exit_code(),
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

/// The first resource that is there before.
fn twice(capacity: &[(String, Quantity)]) -> Option<&(String, Quantity)> {
    let is_before = |index: usize, name: &str| capacity.iter().take(index).any(|(before, _)| before == name);
    capacity.iter().enumerate().find(|(index, (name, _))| is_before(*index, name)).map(|(_, pair)| pair)
}

/// Runs the command.
///
/// # Errors
/// When the file is wrong or cannot be read, or the answer cannot be written.
pub fn run(options: &Options) -> Result<(), CheckError> {
    if let Some((_, resource)) = twice(&options.capacity) {
        let reason = format!("--capacity: {resource} is given twice; give the amount that the node has");
        return Err(CommandError::Usage(reason).into());
    }
    let (name, bytes) = input::configuration(&options.file)?;
    let loaded = MonitorConfig::parse_bytes(&name, bytes).map_err(CheckError::Wrong)?;
    for warning in &loaded.warnings {
        output::warn(warning);
    }
    let left = allocatable(&loaded.config.policy, &options.capacity)?;
    let text = match options.output {
        Format::Table => config_table::render(&name, &loaded, &left),
        Format::Json => config_json::render(&loaded, &left)?,
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads on the other end has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
