//! Ten kinds of OOM kills: compares the agent's incident of each with the kernel's report, and checks its post-mortem page.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::gallery_cases::{self as cases, Case};
use crate::agent::Agent;
use crate::cgroups::{Cgroup, Layout};
use crate::config::AgentConfig;
use crate::evidence::kmsg::OomReport;
use crate::evidence::trace::{MARK_VICTIM, Trace};
use crate::incidents::{self, Incident};
use crate::stage::Stage;

/// The columns of a terminal.
const WIDTH: usize = 100;

/// The facts of one OOM kill, known from the way it was provoked.
#[derive(Debug)]
pub struct Truth {
    pub title: &'static str,
    /// The constraint in the kernel's spelling.
    pub constraint: &'static str,
    /// The cgroup whose limit was hit, or `None` for a global OOM kill.
    pub limit: Option<Cgroup>,
    pub victims: Vec<Dead>,
    /// The process that allocated, and its workload; `None` if it may be any process.
    pub trigger: Option<(i32, String)>,
    /// The kind of memory that the victim had most of, or `None` if the victim had almost no memory.
    pub heaviest: Option<&'static str>,
}

/// One victim.
#[derive(Debug)]
pub struct Dead {
    pub pid: i32,
    pub workload: String,
    /// The path of the cgroup of the victim's container.
    pub container: String,
}

/// The interval of the kernel's rate limit for OOM reports.
const REPORTS_HELD_BACK: Duration = Duration::from_secs(5);

pub fn gallery(stage: &mut Stage<'_>) -> Result<()> {
    incidents::forget()?;
    // The threshold and the dry runs are off: the kernel must be the only killer.
    let config = AgentConfig { hard: None, extra: incidents::configuration(), ..AgentConfig::observe() };
    let agent = stage.agent(&config)?;
    // The kernel reports at most ten OOM kills in five seconds. The scenario before may have used them all.
    stage.pause(REPORTS_HELD_BACK);
    for record in agent.events("degraded") {
        stage.note(format!("degraded: {} {}", record.text("capability"), record.text("reason")));
    }
    let mut shown = 0;
    for case in cases::ALL {
        let Case { title, layouts, play } = case;
        if !layouts.contains(&stage.layout()) {
            continue;
        }
        let truth = play(stage, title).with_context(|| format!("bringing about: {title}"))?;
        let reports = stage.oom_reports();
        judge(stage, &agent, &truth, &reports).with_context(|| format!("judging: {title}"))?;
        cases::clear(stage)?;
        shown += 1;
    }
    let expected = if stage.layout() == Layout::V2 { 10 } else { 9 };
    stage.check_equal("OOM kills in the gallery", &shown, &expected);
    stage.figure("incidents", f64::from(shown), "");
    stage.stop(&agent);
    Ok(())
}

fn judge(stage: &mut Stage<'_>, agent: &Agent, truth: &Truth, reports: &[OomReport]) -> Result<()> {
    let title = truth.title;
    let first = truth.victims.first().map_or(0, |victim| victim.pid);
    let id = incident_of(stage, agent, first)?;
    let incident = incidents::record(&id)?;
    stage.check_equal(&format!("{title}: kind"), &incident.text("/kind"), &"OomKill");
    stage.check_equal(&format!("{title}: source"), &incident.text("/oomKill/source"), &"ebpf");
    stage.check_equal(&format!("{title}: constraint"), &incident.text("/oomKill/constraint"), &truth.constraint);
    check_limit(stage, &incident, truth)?;
    check_victims(stage, &incident, truth);
    if let Some((pid, workload)) = &truth.trigger {
        let found = (incident.number("/oomKill/trigger/pid"), incident.text("/oomKill/trigger/workload"));
        stage.check_equal(&format!("{title}: trigger"), &found, &(u64::try_from(*pid).ok(), workload.as_str()));
    }
    let Some(report) = reports.iter().find(|report| truth.victims.iter().any(|dead| dead.pid == report.victim_pid))
    else {
        bail!("/dev/kmsg has nothing of pid {first}");
    };
    check_kernel(stage, &incident, truth, report);
    check_page(stage, &incident, truth)
}

/// Returns the incident of a victim by the id in the log. The journal contains it a moment after the log.
fn incident_of(stage: &mut Stage<'_>, agent: &Agent, pid: i32) -> Result<String> {
    let mut id = None;
    stage.until(Duration::from_secs(10), |stage| {
        stage.pause(Duration::from_millis(50));
        let records = agent.events("oom_kill");
        let record = records.iter().find(|record| record.number("victim_pid") == u64::try_from(pid).ok());
        id = record.map(|record| record.text("incident").to_owned()).filter(|id| incidents::record(id).is_ok());
        id.is_some()
    });
    id.with_context(|| format!("no incident of pid {pid} in the journal after 10 s"))
}

fn check_limit(stage: &mut Stage<'_>, incident: &Incident, truth: &Truth) -> Result<()> {
    let title = truth.title;
    match &truth.limit {
        None => stage.check(incident.at("/oomKill/limit").is_none(), || format!("{title}: a global kill has a limit")),
        Some(limit) => {
            stage.check_equal(
                &format!("{title}: limit"),
                &incident.text("/oomKill/limit/cgroup"),
                &limit.path.as_str(),
            );
            let id = incident.number("/oomKill/limit/cgroupId");
            // A removed container has no directory to read.
            if let Ok(expected) = limit.id() {
                stage.check_equal(&format!("{title}: limit's id"), &id, &Some(expected));
            } else {
                stage.check(id.is_some(), || format!("{title}: no id of the limit's cgroup"));
            }
        }
    }
    Ok(())
}

fn check_victims(stage: &mut Stage<'_>, incident: &Incident, truth: &Truth) {
    let title = truth.title;
    let found = incident.list("/oomKill/victims");
    let mut pids: Vec<u64> = found.iter().filter_map(|victim| victim.number("/pid")).collect();
    let mut expected: Vec<u64> = truth.victims.iter().filter_map(|dead| u64::try_from(dead.pid).ok()).collect();
    pids.sort_unstable();
    expected.sort_unstable();
    stage.check_equal(&format!("{title}: victims"), &pids, &expected);
    let group = incident.at("/oomKill/group").and_then(serde_json::Value::as_bool);
    stage.check_equal(&format!("{title}: group"), &group, &Some(truth.victims.len() > 1));
    for victim in &found {
        let Some(dead) = truth.victims.iter().find(|dead| u64::try_from(dead.pid).ok() == victim.number("/pid")) else {
            continue;
        };
        let found = (victim.text("/workload"), victim.text("/container"));
        let container = cases::runtime_id(&dead.container);
        stage.check_equal(&format!("{title}: workload and container"), &found, &(dead.workload.as_str(), container));
        stage.check(victim.at("/ageMs").is_some(), || format!("{title}: no age of pid {}", dead.pid));
    }
    let Some(expected) = truth.heaviest.filter(|_| Trace::says(MARK_VICTIM, "anon_rss")) else { return };
    let part = |key: &str| found.iter().filter_map(|victim| victim.number(key)).max().unwrap_or(0);
    let parts = ["/anonBytes", "/fileBytes", "/shmemBytes"].map(|key| (part(key), key));
    let heaviest = parts.iter().max().map_or("", |(_, key)| key);
    stage.check_equal(&format!("{title}: where the memory was"), &heaviest, &expected);
}

/// Compares an incident with the kernel's own report.
fn check_kernel(stage: &mut Stage<'_>, incident: &Incident, truth: &Truth, report: &OomReport) {
    let title = truth.title;
    let constraint = match report.constraint.as_str() {
        "CONSTRAINT_NONE" => "none",
        "CONSTRAINT_MEMCG" => "memcg",
        other => other,
    };
    stage.check_equal(&format!("{title}: kmsg's constraint"), &constraint, &truth.constraint);
    let comm = incident.text("/oomKill/trigger/comm");
    stage.check_equal(&format!("{title}: trigger by kmsg"), &comm, &report.trigger_comm.as_str());
    let limit = truth.limit.as_ref().map(|limit| format!("/{}", limit.path)).unwrap_or_default();
    stage.check_equal(&format!("{title}: limit by kmsg"), &report.oom_memcg, &limit);
    let container = truth.victims.first().map(|dead| format!("/{}", dead.container)).unwrap_or_default();
    stage.check_equal(&format!("{title}: container by kmsg"), &report.task_memcg, &container);
}

fn check_page(stage: &mut Stage<'_>, incident: &Incident, truth: &Truth) -> Result<()> {
    let title = truth.title;
    let page = incidents::page(incident.id())?;
    let wide = page.lines().find(|line| line.chars().count() > WIDTH);
    stage.check(wide.is_none(), || format!("{title}: wider than {WIDTH}: {}", wide.unwrap_or("")));
    for dead in &truth.victims {
        stage.check(page.contains(&dead.pid.to_string()), || format!("{title}: the page has no pid {}", dead.pid));
    }
    stage.check(page.lines().count() > 10, || format!("{title}: the page has {} lines", page.lines().count()));
    stage.page(&format!("\n######## {title}\n\n{page}"));
    Ok(())
}
