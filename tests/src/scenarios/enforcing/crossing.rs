//! What a decision costs: the system calls of the agent from the sample that crosses the threshold to its signal.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Crowd, LIMIT, config};
use crate::agent::{Agent, forget_decisions};
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::calls::{self, Call, Calls};
use crate::evidence::trace::Trace;
use crate::stage::Stage;
use crate::units::milliseconds_between;

const LEAKER: &str = "app.slice/leaky.service";
/// Most calls for a pod, and for a service, whose processes have to be looked at once more.
const MOST: [usize; 2] = [12, 20];
const RAMP: &str = "ramp --name leaker --rate 40 --to 960 --fast-until 200";

/// For so long after a kill each sample below a threshold reads the lists of the CPUs (`/proc/zoneinfo`) as well, which takes two calls.
const KILLED_LATELY: Duration = Duration::from_secs(11);
const RECORDED_WITHIN: Duration = Duration::from_secs(5);
/// An agent that has just started takes what it finds dying for killed now.
const SETTLES: Duration = KILLED_LATELY;

/// A victim: its work, and whether it is a pod.
struct Victim {
    name: &'static str,
    work: String,
    is_pod: bool,
}

pub fn calls(stage: &mut Stage<'_>) -> Result<()> {
    if !Trace::has("raw_syscalls/sys_enter") {
        stage.skip("this kernel does not record system calls");
        return Ok(());
    }
    let large = format!("{RAMP} --children 99 --open-files 500");
    let victims = [
        Victim { name: "pod", work: RAMP.to_owned(), is_pod: true },
        Victim { name: "large pod", work: large.clone(), is_pod: true },
        Victim { name: "service", work: format!("{RAMP} --open-files 10"), is_pod: false },
        Victim { name: "large service", work: large, is_pod: false },
    ];
    for (round, victim) in victims.into_iter().enumerate() {
        if round > 0 {
            stage.pause(KILLED_LATELY);
        }
        let most = if victim.is_pod { MOST[0] } else { MOST[1] };
        let (calls, milliseconds) = of_crossing(stage, &victim)?;
        let names = calls::names(&calls);
        stage.note(format!("{}: {} calls in {milliseconds:.2} ms: {names}", victim.name, calls.len()));
        // Two reads and the kill itself: an empty record shows nothing.
        stage.check(calls.len() >= 3, || format!("{}: only {} calls are recorded", victim.name, calls.len()));
        stage.check(calls.len() <= most, || {
            format!(
                "{}: {} calls from the sample to the signal, {most} are promised: {names}",
                victim.name,
                calls.len()
            )
        });
    }
    Ok(())
}

/// Prints how many samples were late by how much.
fn note_lateness(stage: &Stage<'_>, agent: &Agent, name: &str) -> Result<()> {
    let metrics = agent.metrics()?;
    let within = |bound: &str| metrics.sum("sample_lateness_seconds_bucket", &[("le", bound)]).unwrap_or(0.0);
    let [all, five, ten, twenty, forty] = ["+Inf", "0.005", "0.01", "0.02", "0.04"].map(within);
    stage.note(format!(
        "{name}: {all} samples were due; later than 5, 10, 20, 40 ms: {}, {}, {}, {}",
        all - five,
        all - ten,
        all - twenty,
        all - forty
    ));
    Ok(())
}

/// Returns the calls from the sample that crossed to the signal, and the time that they took.
fn of_crossing(stage: &mut Stage<'_>, victim: &Victim) -> Result<(Vec<Call>, f64)> {
    forget_decisions()?;
    let mut crowd = Crowd::with_ballast(stage, 350)?;
    let extra = format!("evictions:\n  candidates: everything\n  services: [\"{LEAKER}\"]\n");
    let agent = stage.agent(&AgentConfig { extra, ..config() })?;
    stage.boot.trace.clear()?;
    let leaker = if victim.is_pod {
        let pod = stage.pod("leaker", PodSpec::best_effort())?;
        stage.work(&pod, "hold --name first --mib 1")?;
        // In a pod that was just made the agent looks again whether the kubelet has marked it.
        stage.pause(SETTLES);
        crowd.pod(pod, stage, &victim.work)?
    } else {
        crowd.host_service(stage, LEAKER, (&victim.work, 0))?
    };
    let calls = Calls::of(agent.pid)?;
    let gone = stage.until(LIMIT, |stage| stage.reaper.ended(leaker.pid).is_some());
    calls.stop()?;
    stage.check(gone, || format!("the {} lives on after {LIMIT:?}", victim.name));
    let (by_agent, _) = stage.signals_of(&agent)?;
    let kill = by_agent.iter().find(|signal| signal.number == libc::SIGKILL).context("no SIGKILL from the agent")?;
    // The agent writes the record after the kill.
    let kill_record = || agent.events("eviction").into_iter().find(|record| record.text("action") == "kill");
    stage.until(RECORDED_WITHIN, |_| kill_record().is_some());
    let record = kill_record();
    let sampled = record.and_then(|record| record.number("sampled_mono_ns")).context("no time of the sample")?;
    let recorded = calls.recorded()?.into_iter();
    let between: Vec<Call> = recorded.filter(|call| (sampled..=kill.at_ns).contains(&call.at_ns)).collect();
    stage.note(format!("{}: read {}", victim.name, calls.files_read(&between)));
    note_lateness(stage, &agent, victim.name)?;
    stage.stop(&agent);
    crowd.end(stage);
    Ok((between, milliseconds_between(sampled, kill.at_ns)))
}
