//! The rules of a kill: which workloads may die for a shortage, and in which order.

pub mod any_name;
pub mod arming;
pub mod benefit;
pub mod budgets;
pub mod chaos;
pub mod cluster;
pub mod crossing;
pub mod effect;
pub mod identity;
pub mod own_limit;
pub mod pending;
pub mod runtime_slice;
pub mod swap_rule;

use std::time::Duration;

use anyhow::Result;

use super::pressure::EVERYTHING_MIB;
use crate::agent::Agent;
use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::processes::Ended;
use crate::stage::{Stage, Worker};

/// The time limit from the start of a leak to the end of its pod.
const LIMIT: Duration = Duration::from_secs(25);
/// The time after the last expected death in which a wrong one would appear. It is longer than the wait for freed memory.
const AFTERMATH: Duration = Duration::from_secs(3);

/// Returns a configuration with the defaults that concern a kill. One shortage lasts for the whole scenario.
fn config() -> AgentConfig {
    AgentConfig { transition: "5m", act_on_present_pressure: false, ..AgentConfig::default() }
}

/// The workloads of one scenario, with one process each.
#[derive(Debug, Default)]
struct Crowd {
    members: Vec<(Option<Pod>, Worker)>,
}

impl Crowd {
    /// Starts a crowd with a Guaranteed pod that uses most of the guest's memory, so that a leak is short.
    fn with_ballast(stage: &mut Stage<'_>, mib: u64) -> Result<Self> {
        let mut crowd = Self::default();
        crowd.hold(stage, "ballast", PodSpec::guaranteed(mib + 48), mib)?;
        Ok(crowd)
    }

    /// Starts a pod that holds memory, and waits until it has touched it.
    fn hold(&mut self, stage: &mut Stage<'_>, label: &str, spec: PodSpec, mib: u64) -> Result<Worker> {
        let worker = self.pod(stage.pod(label, spec)?, stage, &format!("hold --name {label} --mib {mib}"))?;
        stage.wait_resident(&worker, mib)?;
        Ok(worker)
    }

    /// Starts so many equal pods that hold memory.
    fn hold_many(&mut self, stage: &mut Stage<'_>, label: &str, (count, mib): (u32, u64), spec: PodSpec) -> Result<()> {
        (1..=count).try_for_each(|number| self.hold(stage, &format!("{label}-{number}"), spec, mib).map(drop))
    }

    /// Starts a pod that leaks this many MiB a second, from a little above the threshold on.
    fn leak(
        &mut self,
        stage: &mut Stage<'_>,
        label: &str,
        spec: PodSpec,
        (rate, further): (u64, &str),
    ) -> Result<Worker> {
        let work = format!("ramp --name {label} --rate {rate} --to {EVERYTHING_MIB} {further}");
        self.pod(stage.pod(label, spec)?, stage, &work)
    }

    /// Starts a pod that leaks as fast as it can.
    fn leak_at_once(&mut self, stage: &mut Stage<'_>, label: &str, spec: PodSpec) -> Result<Worker> {
        let work = format!("ramp --name {label} --rate max --to {EVERYTHING_MIB}");
        self.pod(stage.pod(label, spec)?, stage, &work)
    }

    /// Starts a workload in this pod.
    fn pod(&mut self, pod: Pod, stage: &Stage<'_>, work: &str) -> Result<Worker> {
        let worker = stage.work(&pod, work)?;
        self.members.push((Some(pod), worker.clone()));
        Ok(worker)
    }

    /// Starts a workload as a service of the host.
    fn host_service(
        &mut self,
        stage: &mut Stage<'_>,
        path: &str,
        (work, oom_score_adj): (&str, i32),
    ) -> Result<Worker> {
        let worker = stage.host_service(path, work, oom_score_adj)?;
        self.members.push((None, worker.clone()));
        Ok(worker)
    }

    /// Returns the labels of the dead workloads, in the order of their first SIGKILL. Processes of one pod have one label.
    fn dead(&self, stage: &mut Stage<'_>) -> Result<Vec<String>> {
        let signals = stage.boot.trace.signals()?;
        let mut dead: Vec<(u64, String)> = Vec::new();
        for (_, worker) in &self.members {
            let Some(ended) = stage.reaper.ended(worker.pid) else { continue };
            let kill = signals.iter().find(|signal| signal.number == libc::SIGKILL && signal.target == worker.pid);
            let how = if ended == Ended::Signaled(libc::SIGKILL) { String::new() } else { format!(" ({ended:?})") };
            dead.push((kill.map_or(u64::MAX, |kill| kill.at_ns), format!("{}{how}", worker.label)));
        }
        dead.sort();
        let mut labels: Vec<String> = dead.into_iter().map(|(_, label)| label).collect();
        labels.dedup();
        Ok(labels)
    }

    /// Returns the labels of the workloads that the kernel's OOM killer has killed.
    fn killed_by_kernel(&self, stage: &Stage<'_>) -> Result<Vec<String>> {
        let signals = stage.boot.trace.signals()?;
        let is_victim =
            |pid: i32| signals.iter().any(|it| it.is_of_kernel && it.number == libc::SIGKILL && it.target == pid);
        let victims = self.members.iter().filter(|(_, worker)| is_victim(worker.pid));
        Ok(victims.map(|(_, worker)| worker.label.clone()).collect())
    }

    /// Waits until these workers and no more than a wrong one have had time to die, and asserts who died, in this order.
    fn only_these_die(
        &self,
        stage: &mut Stage<'_>,
        agent: &Agent,
        expected: &[&Worker],
        limit: Duration,
    ) -> Result<()> {
        stage.until(limit, |stage| expected.iter().all(|worker| stage.reaper.ended(worker.pid).is_some()));
        stage.pause(AFTERMATH);
        let dead = self.dead(stage)?;
        let expected: Vec<&str> = expected.iter().map(|worker| worker.label.as_str()).collect();
        stage.check_equal("killed, in this order", &dead, &expected.iter().map(|label| (*label).to_owned()).collect());
        if dead != expected {
            note_evictions(stage, agent);
        }
        stage.check_no_oom_kill()
    }

    /// Ends every workload, so that another round can begin.
    fn end(self, stage: &mut Stage<'_>) {
        let workers: Vec<Worker> = self.members.into_iter().map(|(_, worker)| worker).collect();
        super::accounts::end(stage, &workers);
    }
}

/// Prints why the agent evicted what it evicted. The log's last lines show only the effects.
fn note_evictions(stage: &Stage<'_>, agent: &Agent) {
    for record in agent.events("eviction") {
        let fields = ["workload", "action", "explanation", "passed_over"];
        let [workload, action, explanation, passed_over] = fields.map(|field| record.text(field));
        stage.note(format!("{action} {workload}: {explanation}; passed over: {passed_over}"));
    }
}
