//! Names of cgroups are bytes (tests/FIELD.md, "Names that are not UTF-8").

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::super::culprit::evicted;
use super::super::pressure::EVERYTHING_MIB;
use super::{Crowd, LIMIT, config};
use crate::agent::{Agent, forget_decisions};
use crate::cgroups::{ROOT, enable_controllers};
use crate::config::AgentConfig;
use crate::http;
use crate::incidents;
use crate::stage::Stage;

const OUTER: &[u8] = b"\xff";
/// "café" in Latin-1, cut or typed by a program that knows no UTF-8.
const INNER: &[u8] = b"caf\xc3";
const METRIC: &str = "workload_memory_working_set_bytes";
const MEASURED_WITHIN: Duration = Duration::from_secs(20);
/// An incident is complete when the outcome of the eviction is known.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);

/// edgebitio/edgebit-agent#39: an agent that takes the name for text never signals a process there, or fails to list any workload.
pub fn any_name(stage: &mut Stage<'_>) -> Result<()> {
    incidents::forget()?;
    let outer = Path::new(ROOT).join(OsStr::from_bytes(OUTER));
    round(stage, &outer, r"\377")?;
    // A cgroup that holds another with processes has none itself.
    enable_controllers(&outer)?;
    round(stage, &outer.join(OsStr::from_bytes(INNER)), r"\377/caf\303")
}

/// The workload in this cgroup leaks, which the agent calls `name`.
fn round(stage: &mut Stage<'_>, directory: &Path, name: &str) -> Result<()> {
    forget_decisions()?;
    let mut crowd = Crowd::default();
    let ballast = crowd.host_service(stage, "ballast.service", ("hold --name ballast --mib 400", -1000))?;
    stage.wait_resident(&ballast, 400)?;
    let config = AgentConfig { workload_memory: true, extra: incidents::configuration(), ..config() };
    let first = stage.work_in_directory(directory, name, "hold --name first --mib 8")?;
    crowd.members.push((None, first.clone()));
    stage.wait_resident(&first, 8)?;
    let agent = stage.agent(&config)?;
    let is_measured = stage.until(MEASURED_WITHIN, |stage| {
        // A scrape is more work for the agent than a look at a process.
        stage.pause(Duration::from_millis(200));
        is_in_metrics(&agent, name)
    });
    stage.check(is_measured, || format!("{METRIC} does not have the workload {name}"));
    let work = format!("ramp --name leaker --rate 60 --to {EVERYTHING_MIB}");
    let leaker = stage.work_in_directory(directory, name, &work)?;
    crowd.members.push((None, leaker.clone()));
    crowd.only_these_die(stage, &agent, &[&leaker], LIMIT)?;
    for worker in [&first, &leaker] {
        stage.check_killed(worker);
    }
    stage.check_alive(&[&ballast]);
    let evicted = evicted(&agent);
    stage.check_equal("evicted, by the log", &evicted, &vec![name.to_owned()]);
    check_incident(stage, name)?;
    check_metrics(&agent)?;
    stage.stop(&agent);
    crowd.end(stage);
    Ok(())
}

fn is_in_metrics(agent: &Agent, name: &str) -> bool {
    agent.metrics().is_ok_and(|metrics| metrics.sum(METRIC, &[("workload", name)]).is_some())
}

/// Asserts that the journal has the eviction under this name.
fn check_incident(stage: &mut Stage<'_>, name: &str) -> Result<()> {
    let mut named = Vec::new();
    let found = stage.until(RECORDED_WITHIN, |stage| {
        // Each reading starts a program.
        stage.pause(Duration::from_millis(200));
        let evictions = incidents::journal().unwrap_or_default();
        named = evictions.iter().map(|incident| incident.text("/eviction/workload").to_owned()).collect();
        named.iter().any(|workload| workload == name)
    });
    stage.check(found, || format!("no incident of {name}; the journal names {named:?}"));
    Ok(())
}

/// Fails if the metrics cannot be parsed, or are not UTF-8, which an exposition format has to be.
fn check_metrics(agent: &Agent) -> Result<()> {
    agent.metrics().context("the metrics after the eviction")?;
    let (_, text) = http::get(agent.address, "/metrics")?;
    // What is not UTF-8 is replaced when an answer is read.
    if let Some(line) = text.lines().find(|line| line.contains(char::REPLACEMENT_CHARACTER)) {
        bail!("a line of the metrics is not UTF-8: {line}");
    }
    Ok(())
}
