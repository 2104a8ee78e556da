//! `node-pressure-monitor check-config`: explains a configuration file, lists all its errors, or mends those that have one likely meaning.

mod config_json;
mod config_table;

use std::io::Write as _;
use std::path::PathBuf;

use crate::config::document_walk::WrittenThreshold;
use crate::config::file_kinds::threshold_fields::ABOVE_HALF;
use crate::config::{ConfigWarning, Loaded, MonitorConfig, Threshold, ThresholdValue, fix, schema};
use crate::eviction::allocatable::{Allocatable, allocatable};
use crate::eviction::decider::is_plausible;
use crate::units::{Quantity, Signal};

use super::input::{self, CommandError};
use super::output::{self, TableOrJson};

/// Options of `check-config`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// Configuration file: a KubeletConfiguration (also in a ConfigMap, in OpenShift 4's KubeletConfig, or as answered by /configz), a
    /// kubelet's flags (also kubelet-arg of k3s and RKE2), OpenShift 3 kubeletArguments, or a MonitorConfiguration; - is standard input
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    file: Option<PathBuf>,
    /// Print the file with the mistakes mended that have one likely meaning; standard error names each change, what it assumes, and what
    /// is left to do
    #[arg(long, conflicts_with_all = ["output", "capacity", "pool"])]
    fix: bool,
    /// Print the JSON Schema of a MonitorConfiguration, for editors
    #[arg(long, exclusive = true)]
    schema: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = TableOrJson::Table)]
    output: TableOrJson,
    /// Capacity of a node, to compute its allocatable resources and to judge the thresholds, e.g. memory=10Gi,nodefs.inodesFree=6M
    #[arg(long, value_name = "RESOURCE=AMOUNT,...", value_delimiter = ',', value_parser = input::resource_amount)]
    capacity: Vec<(String, Quantity)>,
    /// Explain the configuration of the nodes in this pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
}

const HELP: &str = r#"--output json prints one object:

  {"kind", "mode", "pools": [{"name", "mode"}], "semantics",
   "thresholds": [{"signal", "operator": "LessThan", "quantity": "100Mi"|null, "percentage": 0.1|null, "gracePeriodSeconds",
                   "minReclaim": {"quantity"} | {"percentage"} | null}],
   "ranking": {"name", "keys": {by resource}}, "quirks": {by name: true as in the kubelet, false corrected}, "oomScoreAdj",
   "evictionMaxPodGracePeriod", "evictionPressureTransitionPeriodSeconds", "localStorageCapacityIsolation",
   "systemReserved", "kubeReserved", "hardThresholdsReserved",
   "allocatable": {by resource, of those in --capacity that are no signals}, "warnings": [{"line", "column", "field", "value", "reason", "fix"}]}

The command prints warnings on standard error, too.

--capacity also takes signals: memory.available=24Gi. A threshold above half of its capacity gets a warning.

--fix renames a field to the only similar name, corrects the unit of an amount (100mi, 100 Mi, 100MB) or a duration (30, 5min), takes quotes
from numbers, adds a missing colon, apiVersion, kind or grace period, and removes a line that repeats another one. Comments, the order and all
other bytes stay. --fix does not choose between two meanings: such a mistake stays. Standard error names what a change assumes. A valid file is
printed as it is.

Exit status: 0 the file is valid, with --fix after the changes; 1 the file has errors, with --fix ones that are left, or reserves more than
--capacity (standard error lists the errors), or the answer cannot be written; 2 wrong usage, or a file that cannot be read."#;

const OF_RESOURCES: [(&str, Signal); 3] = [
    ("memory", Signal::MemoryAvailable),
    ("ephemeral-storage", Signal::NodeFsAvailable),
    ("pid", Signal::PidAvailable),
];

/// Returns warnings about thresholds that cannot be meant for a node of this capacity. Percentages are judged without one.
fn above_half(loaded: &Loaded, capacity: &[(String, Quantity)]) -> Vec<ConfigWarning> {
    let policy = &loaded.config.policy;
    let capacity_of = |signal: Signal| {
        let of_resource = OF_RESOURCES.iter().find(|(_, of)| *of == signal).map(|(resource, _)| *resource);
        let named = |name: &str| capacity.iter().find(|(given, _)| given == name).map(|(_, amount)| amount);
        named(signal.as_str()).or_else(|| of_resource.and_then(named))
    };
    let warning = |written: &WrittenThreshold| {
        let is_it = |it: &&Threshold| it.signal == written.signal && it.is_hard() == written.is_hard;
        let threshold = policy.thresholds.iter().find(is_it)?;
        let capacity = capacity_of(threshold.signal)?;
        let is_judged = matches!(threshold.value, ThresholdValue::Percentage(_));
        if is_judged || is_plausible(threshold, capacity.value_bytes(), policy.quirks) {
            return None;
        }
        let reason = format!("{ABOVE_HALF}; --capacity has {} of it", capacity.canonical());
        Some(written.warning(reason, "correct the value; if it is meant, set evictions.actOnPresentPressure: true"))
    };
    loaded.written.iter().filter_map(warning).collect()
}

/// Returns the first resource that is given twice.
fn twice(capacity: &[(String, Quantity)]) -> Option<&(String, Quantity)> {
    let is_before = |index: usize, name: &str| capacity.iter().take(index).any(|(before, _)| before == name);
    capacity.iter().enumerate().find(|(index, (name, _))| is_before(*index, name)).map(|(_, pair)| pair)
}

pub fn run(options: &Options) -> Result<(), CommandError> {
    if let Some((_, resource)) = twice(&options.capacity) {
        let reason = format!("--capacity: {resource} is given twice; give the amount that the node has");
        return Err(CommandError::Usage(reason));
    }
    let Some(file) = options.file.as_ref().filter(|_| !options.schema) else {
        return output::answer(|out| out.write_all(schema::SCHEMA.as_bytes())).map_err(CommandError::Output);
    };
    let (name, bytes) = input::configuration(file)?;
    if options.fix {
        return mend(&name, bytes);
    }
    let mut loaded = MonitorConfig::parse_bytes(&name, bytes)
        .map_err(|errors| CommandError::Wrong(format!("the configuration is invalid\n{errors}")))?;
    if let Some(pool) = &options.pool {
        let found = loaded.config.pools.iter().find(|it| *it.name == **pool);
        let found = found.ok_or_else(|| CommandError::Usage(format!("--pool: the file has no pool {pool}")))?;
        // The places of thresholds are those of the file's own.
        (loaded.config, loaded.written) = (found.config.clone(), Vec::new());
    }
    loaded.warnings.extend(above_half(&loaded, &options.capacity));
    for warning in &loaded.warnings {
        output::warn(warning);
    }
    let resources: Vec<_> =
        options.capacity.iter().filter(|(name, _)| name.parse::<Signal>().is_err()).cloned().collect();
    let left = allocatable(&loaded.config.policy, &resources)
        .map_err(|error| CommandError::Wrong(format!("{error} Reserve less, or correct --capacity.")))?;
    let text = match options.output {
        TableOrJson::Table => config_table::render(&name, &loaded, &left),
        TableOrJson::Json => config_json::render(&loaded, &left).map_err(CommandError::Output)?,
    };
    output::answer(|out| out.write_all(text.as_bytes())).map_err(CommandError::Output)
}

/// Prints the mended file, and what was changed and is left on standard error.
fn mend(name: &str, bytes: Vec<u8>) -> Result<(), CommandError> {
    let invalid = |errors| CommandError::Wrong(format!("the configuration is invalid\n{errors}"));
    let text = MonitorConfig::text_of(name, bytes).map_err(invalid)?;
    let mended = fix::mend(name, &text);
    output::answer(|out| out.write_all(mended.text.as_bytes())).map_err(CommandError::Output)?;
    for change in &mended.changes {
        output::note(format_args!("{name}: {change}"));
    }
    let left =
        |errors| format!("errors are left for you to correct, here with the lines of the printed file\n{errors}");
    mended.left.map_or(Ok(()), |errors| Err(CommandError::Wrong(left(errors))))
}
