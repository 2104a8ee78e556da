//! OOM kills whose victim is not the process that allocated: the agent attributes them to the victim.

use std::time::Duration;

use anyhow::{Context, Result};

use super::pressure::EVERYTHING_MIB;
use crate::agent::{Agent, Record};
use crate::cgroups::{Cgroup, Pod, PodSpec};
use crate::config::AgentConfig;
use crate::evidence::kmsg::OomReport;
use crate::evidence::trace::{MARK_VICTIM, Trace};
use crate::processes::{self, Ended};
use crate::stage::{Stage, Worker};
use crate::units::MIB;

/// One pod's process hits the limit of a memory cgroup, and the kernel kills another pod's process.
pub fn memcg(stage: &mut Stage<'_>) -> Result<()> {
    let agent = stage.agent(&AgentConfig::observe())?;
    let (victim_pod, allocator_pod) = pods(stage)?;
    // The limit is on all pods together, as the kubelet enforces node allocatable.
    Cgroup::create(stage.layout(), "kubepods.slice")?.limit(160 * MIB)?;
    let victim = victim(stage, &victim_pod, 90)?;
    let work = format!("ramp --name allocator --rate 60 --to 300 --stop-when-gone {}", victim.pid);
    let allocator = stage.work(&allocator_pod, &work)?;
    judge(stage, &agent, (&victim_pod, &victim), (&allocator_pod, &allocator), "CONSTRAINT_MEMCG")?;
    stage.stop(&agent);
    Ok(())
}

/// The machine runs out of memory.
pub fn global(stage: &mut Stage<'_>) -> Result<()> {
    let agent = stage.agent(&AgentConfig::observe())?;
    let (victim_pod, allocator_pod) = pods(stage)?;
    let victim = victim(stage, &victim_pod, 200)?;
    let work = format!(
        "ramp --name allocator --rate 60 --to {EVERYTHING_MIB} --fast-until 150 --stop-when-gone {}",
        victim.pid
    );
    // The allocator uses more memory than the victim. Only its score protects it.
    let allocator = stage.work_in(allocator_pod.container()?, "allocator", &work, -500)?;
    judge(stage, &agent, (&victim_pod, &victim), (&allocator_pod, &allocator), "CONSTRAINT_NONE")?;
    stage.stop(&agent);
    Ok(())
}

fn pods(stage: &Stage<'_>) -> Result<(Pod, Pod)> {
    let victim = stage.pod("victim", PodSpec::burstable(32))?;
    let allocator = stage.pod("allocator", PodSpec::best_effort())?;
    Ok((victim, allocator))
}

fn victim(stage: &mut Stage<'_>, pod: &Pod, mib: u64) -> Result<Worker> {
    let work = format!("hold --name victim --mib {mib}");
    let worker = stage.work_in(pod.container()?, "victim", &work, 1000)?;
    stage.wait_resident(&worker, mib)?;
    Ok(worker)
}

fn judge(
    stage: &mut Stage<'_>,
    agent: &Agent,
    (victim_pod, victim): (&Pod, &Worker),
    (allocator_pod, allocator): (&Pod, &Worker),
    constraint: &str,
) -> Result<()> {
    let victim_pid = victim.pid;
    let gone = stage.until(Duration::from_secs(40), |stage| stage.reaper.ended(victim_pid).is_some());
    stage.check(gone, || "no OOM kill in 40 s".to_owned());
    let ended = stage.reaper.ended(victim_pid);
    stage.check_equal("the victim's end", &ended, &Some(Ended::Signaled(libc::SIGKILL)));
    // Some kernels kill again before the first victim's memory is free (7.2, for a global OOM), so the kernel's count is the expected one.
    let kills = stage.oom_kills()?;
    stage.check(kills >= 1, || "/proc/vmstat oom_kill has not risen".to_owned());
    let reports = stage.oom_reports();
    stage.check_equal("OOM kills in /dev/kmsg", &u64::try_from(reports.len())?, &kills);
    if kills == 1 {
        stage.check_alive(&[allocator]);
    } else {
        stage.note(format!("the kernel killed {kills} times"));
    }
    let report = reports.iter().find(|report| report.victim_pid == victim_pid).cloned().unwrap_or_default();
    check_kernel(stage, &report, victim_pod, victim_pid, constraint);

    stage.until(Duration::from_secs(5), |_| agent.events("oom_kill").len() >= reports.len());
    let records = agent.events("oom_kill");
    stage.check_equal("oom_kill records", &records.len(), &reports.len());
    let of_victim = |record: &&Record| record.number("victim_pid") == u64::try_from(victim_pid).ok();
    let record = records.iter().find(of_victim);
    stage.check(record.is_some(), || "the agent has no record with event=oom_kill of the victim".to_owned());
    if let Some(record) = record {
        check_record(stage, record, (victim_pod, victim_pid), (allocator_pod, allocator.pid), &report)?;
    }
    let victim_workload = victim_pod.workload().to_owned();
    let counted = stage.until(Duration::from_secs(5), |_| {
        agent
            .metrics()
            .is_ok_and(|metrics| metrics.sum("oom_kills_total", &[("workload", &victim_workload)]) == Some(1.0))
    });
    stage.check(counted, || format!("oom_kills_total of {victim_workload} is not 1"));
    let all = agent.metrics()?.sum("oom_kills_total", &[]);
    stage.check_equal("oom_kills_total of all workloads", &all, &Some(f64::from(u32::try_from(kills)?)));
    // The allocator must not use memory in the next scenario.
    processes::signal(allocator.pid, libc::SIGKILL);
    Ok(())
}

fn check_kernel(stage: &mut Stage<'_>, report: &OomReport, victim_pod: &Pod, victim_pid: i32, constraint: &str) {
    stage.check_equal("kmsg: constraint", &report.constraint.as_str(), &constraint);
    stage.check_equal("kmsg: victim", &report.victim_pid, &victim_pid);
    // If the victim allocated, the scenario would prove nothing.
    stage.check(report.trigger_comm != "victim", || "kmsg: the victim itself allocated".to_owned());
    let expected = format!("/{}", victim_pod.containers.first().map_or("", |container| &container.path));
    stage.check_equal("kmsg: task_memcg", &report.task_memcg, &expected);
}

fn check_record(
    stage: &mut Stage<'_>,
    record: &Record,
    (victim_pod, victim_pid): (&Pod, i32),
    (allocator_pod, allocator_pid): (&Pod, i32),
    report: &OomReport,
) -> Result<()> {
    let pid = |pid: i32| u64::try_from(pid).context("pid");
    stage.check_equal("victim_pid", &record.number("victim_pid"), &Some(pid(victim_pid)?));
    stage.check_equal("victim_comm", &record.text("victim_comm"), &report.victim_comm.as_str());
    stage.check_equal("victim_workload", &record.text("victim_workload"), &victim_pod.workload());
    stage.check_equal("victim_cgroup_id", &record.number("victim_cgroup_id"), &Some(victim_pod.container()?.id()?));
    stage.check_equal("trigger_comm", &record.text("trigger_comm"), &report.trigger_comm.as_str());
    if report.trigger_comm == "allocator" {
        stage.check_equal("trigger_pid", &record.number("trigger_pid"), &Some(pid(allocator_pid)?));
        stage.check_equal("trigger_workload", &record.text("trigger_workload"), &allocator_pod.workload());
        let cgroup = Some(allocator_pod.container()?.id()?);
        stage.check_equal("trigger_cgroup_id", &record.number("trigger_cgroup_id"), &cgroup);
    } else {
        // On a machine without free memory any thread's allocation may be the one that fails.
        stage.note(format!("{} allocated, not the scenario's allocator", report.trigger_comm));
        stage.check(record.number("trigger_pid") != Some(pid(victim_pid)?), || "trigger_pid is the victim".to_owned());
    }
    if Trace::says(MARK_VICTIM, "anon_rss") {
        let anon = record.number("anon_rss_bytes").unwrap_or(0);
        stage.check(anon > 50 * MIB, || format!("anon_rss_bytes is {anon}"));
    }
    Ok(())
}
