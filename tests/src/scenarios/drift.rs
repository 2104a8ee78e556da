//! The agent counts each lowered `oom_score_adj` once, restores the score, and counts that.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::scores::score_of;
use crate::agent::Agent;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::stage::Stage;

/// The processes of the pod: a parent and its children.
const PROCESSES: u32 = 4;
/// The number of CAP_SYS_RESOURCE in linux/capability.h.
const SYS_RESOURCE: i32 = 24;

pub fn drift(stage: &mut Stage<'_>) -> Result<()> {
    let pod = stage.pod("besteffort", PodSpec::best_effort())?;
    stage.work(&pod, &format!("hold --name besteffort --mib 8 --children {}", PROCESSES - 1))?;
    stage.until(Duration::from_secs(10), |_| pod.cgroup.processes().len() == 4);
    let agent = stage.agent(&AgentConfig::default())?;
    let all = f64::from(PROCESSES);
    wait_counts(stage, &agent, [all; 2], "at the start");
    stage.check_equal("the agent's own score", &score_of(agent.pid)?, &-999);

    // The scenario changes the scores of two processes and of the agent.
    let meddled: Vec<i32> = pod.cgroup.processes().into_iter().take(2).collect();
    for pid in &meddled {
        set(*pid, 0)?;
    }
    let mended = stage
        .until(Duration::from_secs(15), |_| meddled.iter().all(|pid| score_of(*pid).is_ok_and(|score| score == 1000)));
    stage.check(mended, || format!("{meddled:?} keep their wrong scores"));
    wait_counts(stage, &agent, [all + 2.0; 2], "after two more");
    set(agent.pid, 0)?;
    let own = stage.until(Duration::from_secs(15), |_| score_of(agent.pid).is_ok_and(|score| score == -999));
    stage.check(own, || "the agent's own score stays 0".to_owned());
    let logged = agent.events("oom_score_adj_drift").len();
    stage.check(logged >= 1, || "drift is not logged".to_owned());
    stage.stop(&agent);

    // A process needs CAP_SYS_RESOURCE to lower a score.
    let config = AgentConfig { without_capabilities: vec![SYS_RESOURCE], ..AgentConfig::default() };
    let agent = stage.agent(&config)?;
    let named = stage.until(Duration::from_secs(10), |_| {
        agent.events("degraded").iter().any(|record| record.to_string().contains("CAP_SYS_RESOURCE"))
    });
    stage.check(named, || "without CAP_SYS_RESOURCE no degradation names it".to_owned());
    stage.stop(&agent);
    Ok(())
}

fn set(pid: i32, score: i32) -> Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    fs::write(&path, score.to_string()).with_context(|| format!("write {path}"))
}

/// Waits until the agent's counters of drifted and repaired scores have these values.
fn wait_counts(stage: &mut Stage<'_>, agent: &Agent, expected: [f64; 2], when: &str) {
    let mut found = [0.0; 2];
    stage.until(Duration::from_secs(15), |_| {
        let metrics = agent.metrics().unwrap_or_default();
        found = ["oom_score_adj_drifted_total", "oom_score_adj_repaired_total"]
            .map(|name| metrics.sum(name, &[]).unwrap_or(f64::NAN));
        found == expected
    });
    stage.check_equal(&format!("drifted and repaired {when}"), &found, &expected);
}
