//! `node-pressure-monitor doctor`: checks what the agent can do on this machine, and how to fix the rest.
//!
//! [`examine`] collects [`Facts`], [`findings`] decides from the facts alone what they mean, and [`doctor_text`] renders both.

mod candidate_facts;
mod decision_facts;
mod doctor_text;
mod examine;
mod facts;
mod filesystem_facts;
mod findings;
pub(super) mod host_facts;
mod runtime_facts;
mod threshold_facts;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::input::{self, CommandError};
use super::output::{self, TextOrJson};
use facts::Facts;
use findings::{Finding, findings};
pub use host_facts::capability_names;

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// Configuration file of the agent; default: the defaults are examined
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

const HELP: &str = r#"Checks what the agent would find at its start. Run the command as root, in the namespaces in which the agent is to run. It needs no
running agent and disturbs none: it loads the eBPF programs for the kernel's verifier without attaching them, and it mounts, locks and writes
nothing.

--output json prints one object:

  {"version", "enforcing": "safe"|"unsafe", "findings": [{"severity": "unsafe"|"degraded"|"note", "about", "sentence", "mend": TEXT|null}],
   "mode", "pool", "kernel", "cgroup", "probes", "oomKillsToldBy", "pressureStallInformation", "kernelLog", "swapBytes", "capabilities",
   "privateNamespaces", "filesystems", "filesystemLayout": "single"|"dedicatedImageFs"|"splitImageFs", "kubelet", "runtimes",
   "candidates": "pods"|"everything", "needed": [{"workload", "protection", "by", "process": NUMBER|null}],
   "otherInstance", "otherKillers": [{"name", "pid", "thresholds": [TEXT]|null}],
   "setUp": {"name": "first"|"instead"|"watch"|"none of the three"|"unknown", "because"}|null,
   "thresholds": [{"threshold", "kind", "quantity", "available", "capacity", "met", "isPlausible", "reportedOnly": TEXT|null,
                   "evicts": TEXT|null}], "unobserved": [{"threshold", "kind", "reason"}],
   "patterns": [{"field", "pattern", "matches": NUMBER, "examples": [TEXT], "hint": TEXT|null}],
   "podsLimit": {"limit", "available", "guardedBy": [TEXT]}|null,
   "decisions": {"file", "unused": TEXT|null, "armed": [TEXT], "waiting": [{"threshold", "sinceSeconds"}],
                 "budgets": [{"cause", "spent", "allowed"}]}|null}

Each sentence is the one that the agent logs. unsafe: with mode enforce the agent would evict the wrong workload, or none; degraded: the
agent lacks a capability; note: worth knowing. setUp is the division of work with the kubelet that runs on this machine, as config/README.md
names it.

Exit status: 0 enforcing would be safe; 1 enforcing would be unsafe, the configuration is wrong, or the answer cannot be written; 2 wrong
usage, or a file that cannot be read."#;

/// The path of the agent's configuration in the manifests and the unit under `config/`.
const USUAL_CONFIGURATION: &str = "/etc/node-pressure-monitor/monitor.yaml";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    version: &'static str,
    enforcing: &'static str,
    findings: &'a [Finding],
    #[serde(flatten)]
    facts: &'a Facts,
}

pub fn run(options: &Options) -> Result<(), CommandError> {
    let given = options.config.as_deref().map(input::load).transpose()?;
    let config = given.map(|(_, loaded)| loaded.config).unwrap_or_default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the async runtime")?;
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
        TextOrJson::Text => doctor_text::render(&report),
        TextOrJson::Json => serde_json::to_string(&report).context("cannot write the answer as JSON")? + "\n",
    };
    output::answer(|out| out.write_all(answer.as_bytes())).map_err(CommandError::Output)?;
    if against.is_empty() {
        return Ok(());
    }
    Err(CommandError::Wrong(format!("enforcing would be unsafe here: {}", against.join(", "))))
}
