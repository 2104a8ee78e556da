//! Replays every eviction that the agent recorded: `simulate` on the output of `incidents export` must choose the same step and
//! victim, with the same explanation. And the simulated node, which is made from the same record, must end with the same victim, but for few.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::agent::PROGRAM;
use crate::console;
use crate::incidents::JOURNAL;

/// The directories of journals in this guest: the one that scenarios configure, and the default.
const JOURNALS: [&str; 2] = [JOURNAL, "/var/lib/node-pressure-monitor/incidents"];
/// The simulated node.
const WORLDS: &str = "/bin/worlds";
const POLICY: &str = "/tmp/replay.policy.json";
const TRACE: &str = "/tmp/replay.jsonl";

/// The evictions that this boot has replayed.
#[derive(Debug, Default)]
pub struct Replays {
    seen: HashSet<String>,
    pub same: u32,
    pub all: u32,
    /// Those that the simulated node has played, and those of them that ended with the same victim.
    pub played: u32,
    pub played_alike: u32,
}

/// So many of a hundred evictions end with the same victim in the simulated node.
const ALIKE_PERCENT: u32 = 95;
/// One of fewer evictions may differ.
const JUDGED_FROM: u32 = 40;

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
                    Ok(()) => {
                        self.same += 1;
                        differences.extend(self.play(&id).err().map(|error| format!("world of {id}: {error:#}")));
                    }
                    Err(error) => differences.push(format!("replay of {id}: {error:#}")),
                }
            }
        }
        differences
    }

    /// Plays the exported eviction in the simulated node.
    fn play(&mut self, id: &str) -> Result<()> {
        for line in run(WORLDS, &["--episodes", TRACE, "--rules", POLICY])?.lines() {
            self.played += u32::from(!line.starts_with("left out"));
            self.played_alike += u32::from(line == "same");
            if line != "same" {
                console::note("replay", format!("{id} in the simulated node: {line}"));
            }
        }
        Ok(())
    }

    /// Returns what is wrong with the simulated node; `None` if enough evictions end with the same victim.
    pub fn too_few_alike(&self) -> Option<String> {
        let Self { played, played_alike, .. } = self;
        let is_enough = *played < JUDGED_FROM || played_alike * 100 >= played * ALIKE_PERCENT;
        (!is_enough)
            .then(|| format!("{played_alike} of {played} evictions end with the same victim in the simulated node"))
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
    run(PROGRAM, &["incidents", "--directory", journal, "export", id, "--policy", POLICY, "--output", TRACE])?;
    let answer = run(PROGRAM, &["simulate", "--config", POLICY, TRACE])?;
    let trace = fs::read_to_string(TRACE).context("read the trace")?;
    ensure!(
        answer.matches("\"replayed\"").count() == trace.lines().count(),
        "not every turn was replayed: {answer:.300}"
    );
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("run {program}"))?;
    let (answer, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let what = arguments.first().copied().unwrap_or_default();
    ensure!(output.status.success(), "{what} ended with {}: {error} {answer:.600}", output.status);
    Ok(answer.into_owned())
}
