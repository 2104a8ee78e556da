//! `incidents export`: the trace of an eviction and its policy, for `simulate` to replay.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::incidents::Incident;
use crate::incidents::model::{RawJson, is_file_name};

use super::super::input::CommandError;
use super::super::output;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Export {
    /// The eviction: its id, the beginning of it that no other has, or last
    #[arg(value_name = "ID")]
    pub id: String,
    /// File to which the policy is written; default: ID.policy.json
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// File to which the trace is written; default: standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const HELP: &str = "The trace has one JSON object a line, oldest first. `simulate` replays the decision:

  node-pressure-monitor incidents export last --policy policy.json --output trace.jsonl
  node-pressure-monitor simulate --config policy.json trace.jsonl

A record keeps at most a sixteenth of the journal's maxSize of its trace. A note says when older lines were cut: the replay then begins later.

Exit status: 0 written; 1 the journal or the configuration is wrong, there is no such incident, it has no trace, or a file cannot be \
written; 2 wrong usage, or a file that cannot be read.";

impl Export {
    /// Writes policy and trace of `incident`. Existing files are replaced.
    pub fn run(&self, incident: &Incident) -> Result<(), CommandError> {
        let id = &incident.id;
        let kept = incident.eviction.as_ref().filter(|eviction| !eviction.trace.is_empty());
        let Some((eviction, policy)) = kept.and_then(|eviction| Some((eviction, eviction.policy.as_ref()?))) else {
            let reason = match &incident.eviction {
                None => "only evictions have one".to_owned(),
                Some(eviction) => eviction.trace_cut.map_or_else(
                    || "an agent that recorded none wrote it".to_owned(),
                    |cut| {
                        format!(
                            "its newest line exceeds the limit of {} bytes; raise incidents.maxSize",
                            cut.limit_bytes
                        )
                    },
                ),
            };
            return Err(CommandError::Wrong(format!("incident {id} has no trace to export: {reason}")));
        };
        let policy_file = match &self.policy {
            Some(file) => file.clone(),
            None if is_file_name(id) => PathBuf::from(format!("{id}.policy.json")),
            None => {
                return Err(CommandError::Wrong(format!(
                    "id of the incident: {} names no file; name one with --policy",
                    output::printable(id)
                )));
            }
        };
        write_file(&policy_file, std::slice::from_ref(policy))?;
        output::note(format_args!("the policy is in {}", policy_file.display()));
        if let Some(cut) = eviction.trace_cut {
            output::note(format_args!(
                "the trace lacks its {} oldest lines ({} bytes), which exceeded the limit of {} bytes: a replay begins later",
                cut.lines, cut.bytes, cut.limit_bytes
            ));
        }
        match &self.output {
            Some(file) => write_file(file, &eviction.trace),
            None => output::answer(|out| write_lines(out, &eviction.trace)).map_err(CommandError::Output),
        }
    }
}

fn write_file(path: &Path, lines: &[RawJson]) -> Result<(), CommandError> {
    let unwritable = |source| CommandError::Unwritable { file: path.display().to_string(), source };
    File::create(path).and_then(|file| write_lines(file, lines)).map_err(unwritable)
}

fn write_lines(out: impl Write, lines: &[RawJson]) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    lines.iter().try_for_each(|line| writeln!(out, "{}", line.text()))?;
    out.flush()
}
