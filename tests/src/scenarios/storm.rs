//! Provokes a hundred thousand reclaim events, and the agent streams every one.

use std::time::Duration;

use anyhow::Result;

use super::accounts::{MEMCG_RECLAIM_END, check_books, check_stalls, end, quiescent};
use crate::cgroups::{Layout, PodSpec};
use crate::config::AgentConfig;
use crate::evidence::trace::Trace;
use crate::processes;
use crate::reference::EMULATED_READS;
use crate::stage::{Stage, Worker};
use crate::units::monotonic_ns;

const EVENTS: u64 = 100_000;
/// The agent's CPU time for one event on the reference machine: 5 % of a core at 33,000 events a second. 1.1 to 1.4 µs were
/// measured. A share of a core would depend on how fast the guest reclaims.
const PROMISED_MICROS: f64 = 1.5;

pub fn storm(stage: &mut Stage<'_>) -> Result<()> {
    if !Trace::has(MEMCG_RECLAIM_END) {
        stage.skip("this kernel has no vmscan:mm_vmscan_memcg_reclaim_end");
        return Ok(());
    }
    let agent = stage.agent(&AgentConfig { stall_threshold: Some("0s"), ..AgentConfig::observe() })?;
    let boot = stage.boot;
    let count = boot.trace.count(MEMCG_RECLAIM_END)?;
    let before = agent.metrics()?.sum("reclaim_stall_seconds_count", &[]).unwrap_or(0.0);
    let cpu_before = processes::cpu_time(agent.pid)?;
    let begun = monotonic_ns();
    let workers = askers(stage, 2)?;
    let enough = stage.until(Duration::from_secs(100), |stage| {
        stage.pause(Duration::from_millis(50));
        count.hits().is_ok_and(|hits| hits >= EVENTS)
    });
    end(stage, &workers);
    let span = Duration::from_nanos(monotonic_ns() - begun).as_secs_f64();
    let cpu = Duration::from_nanos(processes::cpu_time(agent.pid)? - cpu_before).as_secs_f64();
    let hits = count.hits()?;
    stage.check(enough, || format!("only {hits} reclaim events in {span:.0} s"));
    let books = quiescent(stage, &agent);
    check_books(stage, &books);
    check_stalls(stage, &agent, before, hits)?;
    let slowness = EMULATED_READS.slowness()?;
    let events = f64::from(u32::try_from(hits).unwrap_or(u32::MAX));
    let (micros, limit) = (cpu * 1e6 / events, PROMISED_MICROS * slowness.allowance());
    stage.check(micros <= limit, || {
        format!("the agent used {micros:.2} µs of a CPU for each event, {limit:.2} are allowed")
    });
    stage.figure("slowness", slowness.cpu, "times");
    stage.figure("agent_cpu_per_event", micros, "us");
    stage.figure("storm", span, "s");
    stage.figure("rate", events / span, "events/s");
    stage.figure("agent_cpu", cpu / span * 100.0, "% of a core");
    stage.figure("lost", books.values().map(|book| book.lost).sum(), "events");
    stage.stop(&agent);
    Ok(())
}

/// Starts pods whose processes request reclaim as fast as possible.
fn askers(stage: &Stage<'_>, count: u32) -> Result<Vec<Worker>> {
    let knob = match stage.layout() {
        Layout::V1 => "memory.force_empty",
        Layout::V2 => "memory.reclaim",
    };
    (0..count)
        .map(|_| {
            let pod = stage.pod("asker", PodSpec::best_effort())?;
            let knob = pod.container()?.directory().join(knob);
            stage.work(&pod, &format!("memcg-stall --name asker --mib 4 --knob {}", knob.display()))
        })
        .collect()
}
