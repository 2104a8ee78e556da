//! Two hundred OOM kills, each attributed to its workload. Victims live for milliseconds, and half of the containers are removed at once.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::gallery_cases::runtime_id;
use crate::agent::{Agent, Record};
use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::processes::Ended;
use crate::stage::Stage;
use crate::work::doom::{Death, NUMBER, deaths};

/// The longest life of a young victim.
const YOUNG: Duration = Duration::from_millis(50);
/// The number of young victims for each kind of container (kept, or removed at once), and the same number of old victims.
const EACH: u32 = 50;
/// The time that an old victim waits before it allocates.
const OLD_MS: u32 = 60;

/// A process that makes victims in one pod.
#[derive(Debug)]
struct Driver {
    pod: Pod,
    pid: i32,
    account: PathBuf,
}

pub fn oom_many(stage: &mut Stage<'_>) -> Result<()> {
    let agent = stage.agent(&AgentConfig::observe())?;
    let mut killed: Vec<(String, Death)> = Vec::new();
    // Young victims have one driver at a time, because a second driver would slow it down. All old ones are made at once.
    for remove in [false, true] {
        let young = format!("--count {EACH} --younger-than-ms {}", YOUNG.as_millis());
        let driver = start(stage, &format!("young{}", u32::from(remove)), &young, remove)?;
        killed.extend(finish(stage, vec![driver])?);
    }
    let mut drivers = Vec::new();
    for number in 0..4 {
        let old = format!("--count {} --age-ms {OLD_MS}", EACH / 2);
        drivers.push(start(stage, &format!("old{number}"), &old, number % 2 == 1)?);
    }
    killed.extend(finish(stage, drivers)?);

    let young = killed.iter().filter(|(_, death)| death.lived < YOUNG).count();
    stage.check(killed.len() >= 200, || format!("only {} kills", killed.len()));
    // A slow machine makes fewer young victims. The agent is not the cause.
    if young < 100 {
        stage.note(format!("only {young} victims were younger than {YOUNG:?}: this machine is slow"));
    }
    stage.check_equal("/proc/vmstat oom_kill", &usize::try_from(stage.oom_kills()?)?, &killed.len());
    let mut ages: Vec<Duration> = killed.iter().map(|(_, death)| death.lived).collect();
    ages.sort_unstable();
    stage.figure("kills", f64::from(u32::try_from(killed.len())?), "");
    stage.figure("young_victims", f64::from(u32::try_from(young)?), "");
    for (key, at) in [("age_youngest_ms", 0), ("age_quarter_ms", ages.len() / 4), ("age_middle_ms", ages.len() / 2)] {
        let age = ages.get(at).copied().unwrap_or_default();
        stage.figure(key, age.as_secs_f64() * 1e3, "ms");
    }
    judge_records(stage, &agent, &killed);
    judge_counters(stage, &agent, &killed)?;
    stage.stop(&agent);
    Ok(())
}

fn start(stage: &mut Stage<'_>, label: &str, arguments: &str, remove: bool) -> Result<Driver> {
    let pod = stage.pod(label, PodSpec::best_effort())?;
    let container = pod.container()?.path.clone();
    // Each victim gets a new container of the pod, and the driver removes this container.
    let container = if remove { numbered(&container).context("the container's name")? } else { container };
    let account = PathBuf::from(format!("/tmp/{label}.account"));
    let text = format!(
        "work doom --layout {} --container {container} {arguments} --account {} {}",
        stage.layout().name(),
        account.display(),
        if remove { "--remove" } else { "" },
    );
    let arguments: Vec<&str> = text.split_whitespace().collect();
    let pid = stage.service("/proc/self/exe", &arguments)?;
    Ok(Driver { pod, pid, account })
}

/// Returns the container's name with a placeholder for its last digits. A runtime's id has 64 digits.
pub fn numbered(container: &str) -> Option<String> {
    let unit = container.strip_suffix(".scope")?;
    Some(format!("{}{NUMBER}.scope", unit.get(..unit.len().checked_sub(NUMBER.len())?)?))
}

fn finish(stage: &mut Stage<'_>, drivers: Vec<Driver>) -> Result<Vec<(String, Death)>> {
    let mut killed = Vec::new();
    for Driver { pod, pid, account } in drivers {
        stage.until(Duration::from_secs(40), |stage| stage.reaper.ended(pid).is_some());
        let ended = stage.reaper.ended(pid);
        stage.check_equal(&format!("the end of who makes {}", pod.label), &ended, &Some(Ended::Exited(0)));
        killed.extend(deaths(&account)?.into_iter().map(|death| (pod.workload().to_owned(), death)));
    }
    Ok(killed)
}

/// Asserts one record for each kill, with the victim's real workload, container and cgroup.
fn judge_records(stage: &mut Stage<'_>, agent: &Agent, killed: &[(String, Death)]) {
    let mut records = Vec::new();
    stage.until(Duration::from_secs(10), |_| {
        records = agent.events("oom_kill");
        records.len() >= killed.len()
    });
    stage.check_equal("oom_kill records", &records.len(), &killed.len());
    let by_pid: HashMap<u64, &Record> =
        records.iter().filter_map(|record| Some((record.number("victim_pid")?, record))).collect();
    let wrong: Vec<String> =
        killed.iter().filter_map(|(workload, death)| misattributed(&by_pid, workload, death)).collect();
    for problem in wrong.iter().take(3) {
        stage.note(problem);
    }
    stage.check(wrong.is_empty(), || {
        format!(
            "{} of {} kills are not in the right bill: {}",
            wrong.len(),
            killed.len(),
            wrong.first().map_or("", |problem| problem)
        )
    });
    stage.figure("attributed", 100.0 * share(killed.len() - wrong.len(), killed.len()), "%");
}

fn share(part: usize, whole: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    number(part) / number(whole.max(1))
}

/// Returns the error of a kill's record, or the absence of a record.
fn misattributed(records: &HashMap<u64, &Record>, workload: &str, death: &Death) -> Option<String> {
    let Death { pid, container_id, container, .. } = death;
    let Some(record) = u64::try_from(*pid).ok().and_then(|pid| records.get(&pid)) else {
        return Some(format!("no record of pid {pid} in {container}"));
    };
    let found = (record.text("victim_workload"), record.text("container"), record.number("victim_cgroup_id"));
    let expected = (workload, runtime_id(container), Some(*container_id));
    (found != expected).then(|| format!("pid {pid}: found {found:?}, expected {expected:?}"))
}

/// Checks the counters by workload, which outlive the containers.
fn judge_counters(stage: &mut Stage<'_>, agent: &Agent, killed: &[(String, Death)]) -> Result<()> {
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    for (workload, _) in killed {
        *expected.entry(workload.clone()).or_default() += 1.0;
    }
    let mut found = BTreeMap::new();
    stage.until(Duration::from_secs(5), |_| {
        found = counted(agent).unwrap_or_default();
        found == expected
    });
    for (workload, kills) in found.iter().filter(|(workload, kills)| expected.get(*workload) != Some(kills)) {
        stage.note(format!("oom_kills_total of {workload}: {kills}"));
    }
    stage.check(found == expected, || "oom_kills_total by workload is not what was killed".to_owned());
    Ok(())
}

fn counted(agent: &Agent) -> Result<BTreeMap<String, f64>> {
    let metrics = agent.metrics()?;
    let mut found = BTreeMap::new();
    for series in metrics.all("oom_kills_total").filter(|series| series.value > 0.0) {
        *found.entry(series.label("workload").to_owned()).or_default() += series.value;
    }
    Ok(found)
}
