//! The configuration of a node follows its labels.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use node_pressure_apiserver::stage::lease_path;
use serde_json::{Value, json};

use crate::agent::{Agent, LOCK, PROGRAM};
use crate::config::AgentConfig;
use crate::control_plane::{ControlPlane, NODE, pod_path};
use crate::processes;
use crate::stage::Stage;
use crate::units::monotonic_ns;

const POOL: &str = "batch";
/// Time limit of a change that the agent learns by its watch.
const SOON: Duration = Duration::from_secs(20);
/// Time limit until the Lease tells it: what the Lease carries is composed every minute, and the heartbeat follows within ten seconds.
const ON_THE_LEASE: Duration = Duration::from_secs(90);

fn config(plane: &ControlPlane) -> Result<AgentConfig> {
    let kubeconfig = plane.kubeconfig()?;
    let extra = format!(
        "kubernetes: {{kubeconfig: {}, nodeName: {NODE}, heartbeat: 10s}}\n\
         pools:\n  - name: {POOL}\n    nodeSelector: {{pool: {POOL}}}\n    mode: enforce\n",
        kubeconfig.display()
    );
    Ok(AgentConfig { enforce: false, extra, ..AgentConfig::default() })
}

/// Returns the pool that the agent's metric names.
fn pool(agent: &Agent) -> Option<String> {
    let metrics = agent.metrics().ok()?;
    let named: Vec<String> = metrics.all("pool_info").map(|series| series.label("pool").to_owned()).collect();
    named.first().cloned().filter(|_| named.len() == 1)
}

/// Asserts the pool and the mode that a change of labels brings.
fn follows(stage: &mut Stage<'_>, agent: &Agent, name: &str, mode: &str) {
    let came = stage.until(SOON, |_| pool(agent).as_deref() == Some(name));
    stage.check(came, || format!("the pool is {:?}, expected {name:?}", pool(agent)));
    let applied = agent.events("configuration_applied");
    let last = applied.last().map(|record| (record.text("pool").to_owned(), record.text("mode").to_owned()));
    stage.check_equal("the last configuration", &last, &Some((name.to_owned(), mode.to_owned())));
}

/// A node without the label observes, with it it enforces, and its agent remembers that while the API server is away.
pub fn pools(stage: &mut Stage<'_>) -> Result<()> {
    let plane = ControlPlane::start()?;
    let config = config(&plane)?;
    let agent = stage.agent(&config)?;
    let known = stage.until(SOON, |_| pool(&agent).as_deref() == Some(""));
    stage.check(known, || format!("the pool is {:?}, expected none", pool(&agent)));
    plane.merge(&format!("/api/v1/nodes/{NODE}"), &json!({"metadata": {"labels": {"pool": POOL}}}))?;
    follows(stage, &agent, POOL, "enforce");
    let lease = || plane.find(&lease_path(NODE)).ok().flatten().unwrap_or_default();
    stage.check_equal("the holder of the Lease", &lease()["spec"]["holderIdentity"], &json!(NODE));
    let named = || lease()["metadata"]["annotations"]["node-pressure-monitor/pool"].clone();
    let came = stage.until(ON_THE_LEASE, |_| named() == POOL);
    stage.check(came, || format!("the pool on the Lease is {}, expected {POOL:?}", named()));
    doctor_names_it(stage, &agent)?;

    processes::signal(agent.pid, libc::SIGKILL);
    let gone = stage.until(SOON, |stage| stage.reaper.ended(agent.pid).is_some());
    stage.check(gone, || "the first agent did not die".to_owned());
    drop(plane);
    let second = stage.agent(&config)?;
    stage.check_equal("the pool while the API server is away", &pool(&second), &Some(POOL.to_owned()));
    stage.stop(&second);

    let plane = ControlPlane::start()?;
    let third = stage.agent(&self::config(&plane)?)?;
    follows(stage, &third, "", "observe");
    stage.stop(&third);
    gives_up(stage, &plane)
}

fn doctor_names_it(stage: &mut Stage<'_>, agent: &Agent) -> Result<()> {
    let output = Command::new(PROGRAM)
        .args(["doctor", "--output", "json", "--config"])
        .arg(&agent.config)
        .output()
        .context("start doctor")?;
    let facts: Value = serde_json::from_slice(&output.stdout).context("what doctor prints is not JSON")?;
    stage.check_equal("pool and mode by doctor", &(&facts["pool"], &facts["mode"]), &(&json!(POOL), &json!("enforce")));
    Ok(())
}

/// An eviction that an earlier agent began ends when the node turns out to be in no pool that evicts.
fn gives_up(stage: &mut Stage<'_>, plane: &ControlPlane) -> Result<()> {
    fs::remove_file(format!("{LOCK}.labels")).context("remove the record of the labels")?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the id of the boot")?;
    let intent = json!({
        "uid": "e1", "namespace": "default", "name": "begun", "method": "fail", "isCertain": true, "graceSeconds": 1,
        "cause": "memory.available", "message": "", "isMarked": true, "isTold": true,
        "decidedAt": jiff::Timestamp::now(), "decidedMonoNs": monotonic_ns(),
    });
    let line = json!({"is": "intent", "boot": boot.trim(), "intent": intent});
    fs::write(format!("{LOCK}.evictions"), format!("{line}\n")).context("write the ledger")?;
    plane.refuse(&pod_path("begun"));
    let agent = stage.agent(&config(plane)?)?;
    let resumed = agent.events("eviction_resumed").len();
    stage.check_equal("the evictions that are resumed while the pool is not known", &resumed, &1);
    let ended = stage.until(SOON, |_| !agent.events("eviction_abandoned").is_empty());
    stage.check(ended, || "the eviction was not abandoned in a pool that observes".to_owned());
    stage.stop(&agent);
    Ok(())
}
