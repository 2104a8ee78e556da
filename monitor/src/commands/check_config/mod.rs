//! `node-pressure-monitor check-config`: explains a configuration file, lists all its errors, or mends those that have one likely meaning.

mod config_json;
mod config_table;

use std::io::Write as _;
use std::path::PathBuf;

use crate::config::document_walk::WrittenThreshold;
use crate::config::file_kinds::threshold_fields::ABOVE_HALF;
use crate::config::{
    ConfigError, ConfigWarning, FileKind, Loaded, MonitorConfig, OtherFiles, Threshold, ThresholdValue, fix, schema,
};
use crate::eviction::allocatable::{Allocatable, allocatable};
use crate::eviction::at_capacity::{self, Remark};
use crate::eviction::decider::is_plausible;
use crate::units::{Quantity, Signal};

use super::input::{self, CommandError, KubeletFiles};
use super::output::{self, TableOrJson};

/// Options of `check-config`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// Configuration file: a KubeletConfiguration (also in a ConfigMap, in OpenShift 4's KubeletConfig, in EKS' NodeConfig, in Karpenter's
    /// EC2NodeClass, in Talos' machine configuration, or as answered by /configz), a kubelet's flags (also config.yaml of k3s and RKE2, with the
    /// config.yaml.d beside it), OpenShift 3 kubeletArguments, or a MonitorConfiguration; - is standard input
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    file: Option<PathBuf>,
    /// Print the file with the mistakes mended that have one likely meaning; standard error names each change, what it assumes, and what
    /// is left to do
    #[arg(long, conflicts_with_all = ["output", "capacity", "pool", "root", "config_dir", "flags", "item"])]
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
    #[command(flatten)]
    files: KubeletFiles,
}

const HELP: &str = r#"--output json prints one object:

  {"kind", "mode", "pools": [{"name", "mode"}], "semantics",
   "thresholds": [{"signal", "operator": "LessThan", "quantity": "100Mi"|null, "percentage": 0.1|null, "gracePeriodSeconds",
                   "minReclaim": {"quantity"} | {"percentage"} | null, "amount": NUMBER of those in --capacity}],
   "ranking": {"name", "keys": {by resource}}, "quirks": {by name: true as in the kubelet, false corrected}, "oomScoreAdj",
   "evictionMaxPodGracePeriod", "evictionPressureTransitionPeriodSeconds", "localStorageCapacityIsolation",
   "systemReserved", "kubeReserved", "hardThresholdsReserved",
   "allocatable": {by resource, of those in --capacity that are no signals}, "warnings": [{"line", "column", "field", "value", "reason", "fix"}]}

The command prints warnings on standard error, too.

--capacity also takes signals: memory.available=24Gi. It shows the amount that each percentage stands for. Warnings name a threshold above half
of its capacity, a soft threshold that is not above the hard one, of nodefs and imagefs the one that never acts where both are one filesystem
(imagefs has no capacity here, or the same), and a threshold that the reservations do not cover.

The kubelet merges its file, the drop-ins of --config-dir and its flags, in this order. A file that flags name and that --root does not lead to is
named: it is an error where the hard thresholds depend on it, and a warning elsewhere. No defaults are put in its place.

--fix renames a field to the only similar name, corrects the unit of an amount (100mi, 100 Mi, 100MB) or a duration (30, 5min), takes quotes
from numbers, adds a missing colon, apiVersion, kind or grace period, and removes a line that repeats another one. Comments, the order and all
other bytes stay. --fix does not choose between two meanings: such a mistake stays. Standard error names what a change assumes. A valid file is
printed as it is.

Exit status: 0 the file is valid, with --fix after the changes; 1 the file has errors, with --fix ones that are left, or reserves more than
--capacity (standard error lists the errors), or the answer cannot be written; 2 wrong usage, or a file that cannot be read."#;

/// Returns warnings about thresholds that cannot be meant for a node of this capacity. Percentages are judged without one.
fn above_half(loaded: &Loaded, capacity: &Capacity<'_>) -> Vec<ConfigWarning> {
    let policy = &loaded.config.policy;
    let warning = |written: &WrittenThreshold| {
        let is_it = |it: &&Threshold| it.signal == written.signal && it.is_hard() == written.is_hard;
        let threshold = policy.thresholds.iter().find(is_it)?;
        let amount = capacity.of(threshold.signal)?;
        let is_judged = matches!(threshold.value, ThresholdValue::Percentage(_));
        if is_judged || is_plausible(threshold, amount.value_bytes(), policy.quirks) {
            return None;
        }
        let reason = format!("{ABOVE_HALF}; --capacity has {} of it", amount.canonical());
        Some(written.warning(reason, "correct the value; if it is meant, set evictions.actOnPresentPressure: true"))
    };
    loaded.written.iter().filter_map(warning).collect()
}

/// Returns warnings about thresholds that cannot act at this capacity, without those that are known of the file alone.
fn cannot_act(loaded: &Loaded, capacity: &Capacity<'_>) -> Vec<ConfigWarning> {
    let policy = &loaded.config.policy;
    let capacities = |signal| capacity.of(signal).map(Quantity::value_bytes);
    let has_reservation = !(policy.reservations.system.is_empty() && policy.reservations.kube.is_empty());
    let is_reserving = loaded.kind != FileKind::Monitor || has_reservation;
    let remarks = at_capacity::remarks(policy, &capacities, capacity.is_one_disk()).into_iter();
    let remarks = remarks.filter(|remark| is_reserving || !remark.is_of_reservation);
    remarks.filter_map(|remark| warning_of(loaded, remark)).collect()
}

/// Returns a remark at the place of its threshold; `None` where a warning of the file says the same.
fn warning_of(loaded: &Loaded, remark: Remark) -> Option<ConfigWarning> {
    let Remark { signal, is_hard, reason, fix, is_of_reservation } = remark;
    let written = loaded.written.iter().find(|it| it.signal == signal && it.is_hard == is_hard);
    let warning = match written {
        Some(written) => written.warning(reason, fix),
        // That a default never acts is nobody's mistake.
        None if is_hard && !is_of_reservation => return None,
        None => {
            let field = signal.as_str().to_owned();
            ConfigWarning(ConfigError { field, ..ConfigError::whole_file("", reason, fix) })
        }
    };
    let says_the_same = |known: &ConfigWarning| {
        let (known, new) = (&known.0, &warning.0);
        match is_of_reservation {
            true => signal == Signal::MemoryAvailable && known.reason.contains("does not cover the largest threshold"),
            false => known.field == new.field && known.reason.starts_with("not above the hard threshold"),
        }
    };
    (!loaded.warnings.iter().any(says_the_same)).then_some(warning)
}

/// The amounts of `--capacity`, by resource or by signal.
#[derive(Debug)]
pub struct Capacity<'o>(&'o [(String, Quantity)]);

impl Capacity<'_> {
    fn named(&self, name: &str) -> Option<&Quantity> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, amount)| amount)
    }

    /// Returns the amount for a signal itself.
    fn own(&self, signal: Signal) -> Option<&Quantity> {
        let resource = match signal {
            Signal::MemoryAvailable => "memory",
            Signal::NodeFsAvailable => "ephemeral-storage",
            Signal::PidAvailable => "pid",
            _ => return self.named(signal.as_str()),
        };
        self.named(signal.as_str()).or_else(|| self.named(resource))
    }

    /// Whether images are taken to be on nodefs: their filesystem has no capacity of its own, or the same.
    fn is_one_disk(&self) -> bool {
        let node = self.own(Signal::NodeFsAvailable);
        let image = self.own(Signal::ImageFsAvailable);
        image.is_none() || image == node
    }

    /// Returns the amount for a signal. That of images is nodefs' where both are one.
    pub fn of(&self, signal: Signal) -> Option<&Quantity> {
        self.own(signal).or_else(|| self.own(at_capacity::as_node_fs(signal)).filter(|_| self.is_one_disk()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
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
    let invalid = |errors| CommandError::Wrong(format!("the configuration is invalid\n{errors}"));
    let text = MonitorConfig::text_of(&name, bytes).map_err(invalid)?;
    let parse = |others: OtherFiles<'_>| MonitorConfig::parse_with(&name, &text, others);
    let mut loaded = options.files.with(file, parse).map_err(invalid)?;
    if let Some(pool) = &options.pool {
        let found = loaded.config.pools.iter().find(|it| *it.name == **pool);
        let found = found.ok_or_else(|| CommandError::Usage(format!("--pool: the file has no pool {pool}")))?;
        // The places of thresholds are those of the file's own.
        (loaded.config, loaded.written) = (found.config.clone(), Vec::new());
    }
    let capacity = Capacity(&options.capacity);
    let more = above_half(&loaded, &capacity).into_iter().chain(cannot_act(&loaded, &capacity));
    let more: Vec<_> = more.collect();
    loaded.warnings.extend(more.into_iter().map(|ConfigWarning(warning)| {
        let file = if warning.file.is_empty() { name.clone() } else { warning.file };
        ConfigWarning(ConfigError { file, ..warning })
    }));
    for warning in &loaded.warnings {
        output::warn(warning);
    }
    let resources: Vec<_> =
        options.capacity.iter().filter(|(name, _)| name.parse::<Signal>().is_err()).cloned().collect();
    let left = allocatable(&loaded.config.policy, &resources)
        .map_err(|error| CommandError::Wrong(format!("{error} Reserve less, or correct --capacity.")))?;
    let text = match options.output {
        TableOrJson::Table => config_table::render(&name, &loaded, &left, &capacity),
        TableOrJson::Json => config_json::render(&loaded, &left, &capacity).map_err(CommandError::Output)?,
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
