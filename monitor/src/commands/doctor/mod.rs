//! `node-pressure-monitor doctor`: what this machine has for the agent, what will not work on it, and how to mend that.
//!
//! Facts, then rules, then words: what was found is data, what that means is decided from the data alone.

mod doctor_text;
mod examine;
mod facts;
mod filesystem_facts;
mod findings;
pub(super) mod host_facts;
mod runtime_facts;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

use crate::config::MonitorConfig;

use super::input::CommandError;
use facts::Facts;
use findings::{Finding, findings};
pub use host_facts::capability_names;

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// Configuration file of the agent; without one the defaults are examined
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

const HELP: &str = r#"Looks at what the agent would find when it starts, as root and in the namespaces in which it is to run. Needs no agent at work and
disturbs none: the kernel's programs are loaded, so that the verifier has its say, and not attached; nothing is mounted, locked or written.

With --output json the answer is one object:

  {"version", "enforcing": "safe"|"unsafe", "findings": [{"severity": "unsafe"|"degraded"|"note", "about", "sentence", "mend": TEXT|null}],
   "mode", "kernel", "cgroup", "probes", "oomKillsToldBy", "pressureStallInformation", "kernelLog", "swapBytes", "capabilities",
   "privateNamespaces", "filesystems", "filesystemLayout": "single"|"dedicatedImageFs"|"splitImageFs", "kubelet", "runtimes",
   "otherInstance"}

Each sentence is the one that the agent says of it. unsafe: enforcing would touch the wrong workload, or none; degraded: something is done
without, or not at all; note: worth knowing.

Exit status: 0 enforcing would be safe; 1 it would not, or the configuration is wrong, or the answer cannot be written; 2 wrong usage, or
a file that cannot be read."#;

/// Where the agent's configuration is by the manifests and the unit under `config/`.
const USUAL_CONFIGURATION: &str = "/etc/node-pressure-monitor/monitor.yaml";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// One object
    Json,
}

/// Why the exit status is not zero.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The configuration.
    #[error(transparent)]
    Input(#[from] CommandError),
    /// The answer says why.
    #[error("enforcing would be unsafe here: {0}")]
    Unsafe(String),
    /// It could not even look.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl DoctorError {
    /// Exit status, as `--help` documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(error) => error.exit_code(),
            Self::Unsafe(_) | Self::Failed(_) => 1,
        }
    }
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    version: &'static str,
    enforcing: &'static str,
    findings: &'a [Finding],
    #[serde(flatten)]
    facts: &'a Facts,
}

/// Examines this machine.
///
/// # Errors
/// When enforcing would be unsafe, the configuration is wrong or cannot be read, or the answer cannot be written.
pub fn run(options: &Options) -> Result<(), DoctorError> {
    let config = configuration(options)?;
    // Some of what the agent listens to needs a loop to listen in.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a loop")?;
    let usual = Some(Path::new(USUAL_CONFIGURATION));
    let unread = usual.filter(|usual| options.config.is_none() && usual.exists());
    let facts = runtime.block_on(examine::examine(&config, unread));
    let findings = findings(&facts);
    let against: Vec<&str> = findings.iter().filter(|it| it.is_unsafe()).map(|it| it.about.as_str()).collect();
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        enforcing: if against.is_empty() { "safe" } else { "unsafe" },
        findings: &findings,
        facts: &facts,
    };
    let answer = match options.output {
        Format::Text => doctor_text::render(&report),
        Format::Json => serde_json::to_string(&report).context("cannot write the answer as JSON")? + "\n",
    };
    match io::stdout().write_all(answer.as_bytes()) {
        // Whoever reads has seen enough; the status is told all the same.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.map_err(CommandError::Output)?,
    }
    if against.is_empty() { Ok(()) } else { Err(DoctorError::Unsafe(against.join(", "))) }
}

fn configuration(options: &Options) -> Result<MonitorConfig, CommandError> {
    let Some(path) = &options.config else { return Ok(MonitorConfig::default()) };
    let bytes = MonitorConfig::read(path).map_err(|errors| CommandError::Usage(errors.to_string()))?;
    let loaded = MonitorConfig::parse_bytes(&path.display().to_string(), bytes);
    Ok(loaded.map_err(|errors| CommandError::Wrong(errors.to_string()))?.config)
}
