//! Replays every eviction that the agent recorded: `simulate` on the output of `incidents export` must choose the same step and
//! victim, with the same explanation.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::agent::PROGRAM;
use crate::incidents::JOURNAL;

/// The directories of journals in this guest: the one that scenarios configure, and the default.
const JOURNALS: [&str; 2] = [JOURNAL, "/var/lib/node-pressure-monitor/incidents"];
const POLICY: &str = "/tmp/replay.policy.json";
const TRACE: &str = "/tmp/replay.jsonl";

/// The evictions that this boot has replayed.
#[derive(Debug, Default)]
pub struct Replays {
    seen: HashSet<String>,
    pub same: u32,
    pub all: u32,
}

impl Replays {
    /// Replays the evictions recorded since the last call; returns the differences.
    pub fn replay_new(&mut self) -> Vec<String> {
        let mut differences = Vec::new();
        for journal in JOURNALS.into_iter().filter(|journal| Path::new(journal).exists()) {
            for id in recorded(journal) {
                if !self.seen.insert(format!("{journal} {id}")) {
                    continue;
                }
                self.all += 1;
                match replay(journal, &id) {
                    Ok(()) => self.same += 1,
                    Err(error) => differences.push(format!("replay of {id}: {error:#}")),
                }
            }
        }
        differences
    }
}

/// Returns the ids of evictions that have a trace. The scenario that broke a journal reports an unreadable one.
fn recorded(journal: &str) -> Vec<String> {
    let arguments = ["incidents", "--directory", journal, "--limit", "100000", "--output", "json"];
    let Ok(output) = Command::new(PROGRAM).args(arguments).output() else { return Vec::new() };
    let id = |line: &str| {
        let incident: Value = serde_json::from_str(line).ok()?;
        incident.pointer("/eviction/trace/0")?;
        incident.get("id")?.as_str().map(str::to_owned)
    };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(id).collect()
}

fn replay(journal: &str, id: &str) -> Result<()> {
    run(&["incidents", "--directory", journal, "export", id, "--policy", POLICY, "--output", TRACE])?;
    let answer = run(&["simulate", "--config", POLICY, TRACE])?;
    let trace = fs::read_to_string(TRACE).context("read the trace")?;
    ensure!(
        answer.matches("\"replayed\"").count() == trace.lines().count(),
        "not every turn was replayed: {answer:.300}"
    );
    Ok(())
}

fn run(arguments: &[&str]) -> Result<String> {
    let output = Command::new(PROGRAM).args(arguments).output().with_context(|| format!("run {PROGRAM}"))?;
    let (answer, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let what = arguments.first().copied().unwrap_or_default();
    ensure!(output.status.success(), "{what} ended with {}: {error} {answer:.600}", output.status);
    Ok(answer.into_owned())
}
