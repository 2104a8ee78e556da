//! Two hundred small processes of one pod exceed the pod's request together.

use std::fs::{self, OpenOptions};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::judge::{self, Expected, THRESHOLD};
use super::pressure::Bystanders;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::processes;
use crate::stage::Stage;
use crate::units::{mib, milliseconds_between};

const CONTAINERS: u32 = 4;
const EACH: u32 = 50;
const GATE: &str = "/tmp/gate";

pub fn swarm(stage: &mut Stage<'_>) -> Result<()> {
    // Each bystander is larger than any process of the swarm, so a choice by process size would kill a bystander first.
    let bystanders = Bystanders::start(stage, 150, 80)?;
    let agent = stage.agent(&AgentConfig::default())?;
    let spec = PodSpec { containers: CONTAINERS, ..PodSpec::burstable(64) };
    let pod = stage.pod("swarm", spec)?;
    let _ = fs::remove_file(GATE);
    rustix::fs::mkfifoat(rustix::fs::CWD, GATE, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .with_context(|| format!("mkfifo {GATE}"))?;
    for container in &pod.containers {
        // 200 times 4 MiB is more than the guest has left.
        let work = format!("swarm --name swarm --count {EACH} --kib-each 4096 --over-ms 6000 --gate {GATE}");
        stage.work_in(container, "swarm", &work, 0)?;
    }
    let expected_count = usize::try_from(CONTAINERS * (EACH + 1)).context("count")?;
    let complete = stage.until(Duration::from_secs(30), |_| pod.cgroup.processes().len() == expected_count);
    if !complete {
        bail!("the swarm has {} of {expected_count} processes", pod.cgroup.processes().len());
    }
    let victims = pod.cgroup.processes();
    let fattest = victims.iter().filter_map(|pid| processes::resident(*pid).ok()).max();
    stage.boot.sampler.start();
    // The FIFO stays open for late processes. It is also open for reading, so that open(2) does not wait for a reader.
    let _open = OpenOptions::new().read(true).write(true).open(GATE).with_context(|| format!("open {GATE}"))?;
    let expected = Expected {
        agent: &agent,
        victim: &pod,
        victims: &victims,
        bystanders: &bystanders.all(),
        threshold: THRESHOLD,
    };
    let timing = judge::eviction(stage, &expected, Duration::from_secs(40))?;
    stage.figure("processes", f64::from(CONTAINERS * (EACH + 1)), "processes");
    if let Some(timing) = timing {
        let act = milliseconds_between(timing.first_kill_ns, timing.last_kill_ns);
        judge::timeline(stage, &timing, THRESHOLD)?;
        stage.figure("first_to_last_kill_ms", act, "ms");
    }
    if let Some(fattest) = fattest {
        stage.note(format!("before the ramp the fattest of the swarm had {:.1} MiB", mib(fattest)));
    }
    let killed = agent.metrics()?.sum("evictions_total", &[("outcome", "killed")]).unwrap_or(0.0);
    stage.check_equal("evictions_total{outcome=killed}", &killed, &1.0);
    stage.stop(&agent);
    Ok(())
}
