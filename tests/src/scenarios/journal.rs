//! Incidents are complete, equal over HTTP and on the disk, and survive a SIGKILL of the agent.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};

use super::judge;
use super::pressure::{Bystanders, ramping_pod};
use crate::agent::Agent;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::incidents::{self, Incident};
use crate::processes;
use crate::stage::Stage;

/// The number of times that the agent is killed while it writes.
const CRASHES: u32 = 2;
/// An incident is on the disk this long after it was reported, also on a busy machine.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

pub fn journal(stage: &mut Stage<'_>) -> Result<()> {
    incidents::forget()?;
    let config = AgentConfig { extra: incidents::configuration(), ..AgentConfig::default() };
    let bystanders = Bystanders::start(stage, 250, 100)?;
    let agent = stage.agent(&config)?;
    let (pod, hog) = ramping_pod(stage, "hog", PodSpec::best_effort())?;
    judge::wait_gone(stage, &pod, Duration::from_secs(25));
    stage.check_killed(&hog);
    stage.check_alive(&bystanders.all());
    let eviction = wait_for(stage, |incident| {
        incident.text("/kind") == "Eviction" && incident.text("/eviction/outcome") == "gone"
    })?;
    check_complete(stage, &eviction, pod.workload());
    let over_http = incidents::served(agent.address, eviction.id())?;
    stage.check(over_http == eviction, || "HTTP and the journal do not agree on the eviction".to_owned());
    let (listed, kept) = (incidents::listed(agent.address)?, incidents::journal()?);
    let kept: Vec<&str> = kept.iter().map(Incident::id).collect();
    stage.check_equal(
        "ids over HTTP and on disk",
        &listed.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        &kept.into_iter().collect(),
    );
    stage.page(&incidents::page(eviction.id())?);
    stage.stop(&agent);
    crashes(stage, &config)
}

/// Polls the journal. Each read starts a program, so the interval is long.
fn wait_for(stage: &mut Stage<'_>, is_it: impl Fn(&Incident) -> bool) -> Result<Incident> {
    let mut found = None;
    stage.until(Duration::from_secs(10), |stage| {
        stage.pause(Duration::from_millis(200));
        found = incidents::journal().unwrap_or_default().into_iter().find(&is_it);
        found.is_some()
    });
    found.context("no such incident in the journal after 10 s")
}

fn check_complete(stage: &mut Stage<'_>, incident: &Incident, workload: &str) {
    stage.check_equal("eviction: workload", &incident.text("/eviction/workload"), &workload);
    stage.check_equal("eviction: signal", &incident.text("/eviction/signal"), &"memory.available");
    stage.check_equal("eviction: mode", &incident.text("/eviction/mode"), &"enforce");
    let first = incident.list("/ranking").into_iter().next();
    let first = first.as_ref().map_or("", |place| place.text("/workload"));
    stage.check_equal("first of the ranking", &first, &workload);
    let samples = incident.list("/signals/memory.available/samples").len();
    stage.check(samples > 20, || format!("only {samples} samples of memory.available"));
    for list in ["/ranking/0/keys", "/topConsumers", "/steps", "/pressure"] {
        let filled = incident.at(list).is_some_and(|value| match value {
            serde_json::Value::Array(items) => !items.is_empty(),
            serde_json::Value::Object(fields) => !fields.is_empty(),
            _ => false,
        });
        stage.check(filled, || format!("the eviction's {list} is empty"));
    }
    for number in ["/eviction/availableBytes", "/eviction/thresholdBytes", "/memory/totalBytes"] {
        stage.check(incident.number(number).is_some(), || format!("the eviction has no {number}"));
    }
}

/// Kills the agent during a series of OOM kills, and asserts that the written incidents can be read.
fn crashes(stage: &mut Stage<'_>, config: &AgentConfig) -> Result<()> {
    let config = AgentConfig { enforce: false, ..config.clone() };
    let pod = stage.pod("doomed", PodSpec::best_effort())?;
    let text = format!(
        "work doom --name doomed --layout {} --container {} --count 100000 --account /tmp/journal.account",
        stage.layout().name(),
        pod.container()?.path
    );
    stage.service("/proc/self/exe", &text.split_whitespace().collect::<Vec<_>>())?;
    let mut promised = BTreeSet::new();
    for crash in 0..CRASHES {
        let agent = stage.agent(&config)?;
        let enough = stage.until(Duration::from_secs(20), |_| reported(&agent).len() > 8);
        stage.check(enough, || format!("agent {crash} reported too few incidents"));
        let ids = reported(&agent);
        // OOM kills go on meanwhile. The time is irregular, so that the SIGKILL may interrupt a write.
        stage.pause(WRITTEN_WITHIN + Duration::from_millis(37 * u64::from(crash)));
        processes::signal(agent.pid, libc::SIGKILL);
        let pid = agent.pid;
        stage.until(Duration::from_secs(5), |stage| stage.reaper.ended(pid).is_some());
        promised.extend(ids);
    }
    let kept: BTreeSet<String> = incidents::journal()?.iter().map(|incident| incident.id().to_owned()).collect();
    let lost: Vec<&String> = promised.iter().filter(|id| !kept.contains(*id)).collect();
    stage.check(lost.is_empty(), || format!("{} of {} incidents are lost: {lost:?}", lost.len(), promised.len()));
    stage.check(promised.len() >= 8, || format!("only {} incidents", promised.len()));
    stage.figure("incidents_kept", f64::from(u32::try_from(kept.len())?), "");
    Ok(())
}

fn reported(agent: &Agent) -> Vec<String> {
    agent.events("incident").iter().map(|record| record.text("id").to_owned()).collect()
}
