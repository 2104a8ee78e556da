//! The other two divisions of work with the kubelet: the agent evicts alone, or watches.

use anyhow::Result;

use super::ending::tidy;
use super::scene::{
    Scene, TIME_LIMIT, dead_pods, end, events_of, is_evicted_and_replaced, is_set_up, killed_count, leak, print_since,
    ready_pod, start_many, work,
};
use crate::cluster::programs::{Program, configure_kubelet};
use crate::cluster::{Cluster, is_ready};
use crate::evidence::{kubelet_available, meminfo};
use crate::processes;
use crate::scenarios::cluster_eyes::taint;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, monotonic_ns};

/// A kubelet that evicts nothing.
pub const WITHOUT_EVICTION: &str = "evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}\n";
/// The threshold of the agent and of the kubelet in MiB. With the kubelet's default of 100 the kernel's OOM killer may come first, because the
/// kubelet does not count the kernel's own memory as used.
const THRESHOLD: u64 = 300;
/// MiB below the threshold.
const BELOW: u64 = 40;
/// The Deployment of pods that can be evicted beside the one that leaks.
pub const OTHERS: &str = "others";
pub const OTHER_PODS: u32 = 2;
/// MiB that each of these pods holds.
const OTHER_MIB: u64 = 80;

/// The kubelet's eviction is off, and the agent has its thresholds.
pub fn instead(stage: &mut Stage<'_>) -> Result<()> {
    let scene = Scene::begin(stage, "instead")?;
    restart_until_ready(stage, &scene.cluster, WITHOUT_EVICTION)?;
    is_set_up(stage, &scene.cluster, "instead")?;
    let others = others(stage, &scene.cluster)?;
    let worker = leak(stage, &scene.pod)?;
    is_evicted_and_replaced(stage, &scene, &worker)?;
    run_on(stage, &others);
    tidy(stage, &scene.cluster)?;
    restart_kubelet(stage, "", || true)
}

/// The agent observes, and the kubelet evicts.
pub fn watch(stage: &mut Stage<'_>) -> Result<()> {
    let with_threshold =
        |text: &str| text.replace("memory.available: 100Mi", &format!("memory.available: {THRESHOLD}Mi"));
    let Scene { cluster, agent, pod, name, uid, history } = Scene::with(stage, "", with_threshold)?;
    let fields = format!("evictionHard: {{memory.available: {THRESHOLD}Mi}}\n");
    restart_until_ready(stage, &cluster, &fields)?;
    let others = others(stage, &cluster)?;
    let begun = monotonic_ns();
    let total = meminfo("MemTotal")? / MIB;
    let worker = work(stage, &pod, &format!("ramp --name hog --rate 20 --to {total} --fast-until 700"))?;
    // The kubelet does not count the kernel's own memory as used, and looks every ten seconds.
    let layout = stage.layout();
    let is_low = || kubelet_available(layout).is_ok_and(|bytes| bytes < (THRESHOLD - BELOW) * MIB);
    let low = stage.until(TIME_LIMIT, |_| is_low());
    processes::signal(worker.pid, libc::SIGSTOP);
    stage.check(low, || "the kubelet's figure has not fallen below its threshold".to_owned());
    let (available, by_kubelet) = (meminfo("MemAvailable")? / MIB, kubelet_available(layout)? / MIB);
    stage.note(format!("the pod has stopped growing at {available} MiB, {by_kubelet} MiB by the kubelet's figure"));
    let evicted = stage.until(TIME_LIMIT, |_| {
        // The kernel may free page cache, and the figure then rises above the threshold before the kubelet looks.
        processes::signal(worker.pid, if is_low() { libc::SIGSTOP } else { libc::SIGCONT });
        events_of(&cluster, &name).is_ok_and(|events| events.iter().any(|event| event["reason"] == "Evicted"))
    });
    stage.check(evicted, || "the kubelet has not evicted the pod".to_owned());
    let tainted = cluster.admin.node()?;
    stage.check_equal("the agent's taint", &taint(&tainted, "memory"), &None);
    ready_pod(stage, &cluster, &uid)?;
    let events = events_of(&cluster, &name)?;
    for event in events.iter().filter(|event| event["reason"] == "Evicted") {
        stage.check_equal("the component that evicted the pod", &event["source"]["component"], &"kubelet".into());
    }
    let (by_agent, _) = stage.signals_of(&agent)?;
    stage.check(by_agent.is_empty(), || format!("the agent sent signals in mode observe: {by_agent:?}"));
    let acted = agent.events("eviction").iter().filter(|record| record.text("action") != "would_kill").count();
    stage.check_equal("evictions by the agent", &acted, &0);
    stage.check_equal("evictions_total{outcome=killed}", &killed_count(&agent)?, &0.0);
    stage.check_equal("pods that are Failed and Evicted", &dead_pods(&cluster)?.len(), &1);
    stage.check_no_oom_kill()?;
    let foreseen = agent.events("eviction").iter().filter(|record| record.is_of_pod(&uid)).count();
    stage.note(format!("dry runs of the agent that name the pod: {foreseen}"));
    print_since(stage, begun, &history)?;
    run_on(stage, &others);
    tidy(stage, &cluster)?;
    restart_kubelet(stage, "", || true)
}

/// Starts pods that are candidates too, with less memory than the one that leaks.
pub fn others(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<Vec<Worker>> {
    let pods = start_many(stage, cluster, OTHERS, OTHER_PODS)?;
    let mut holders = Vec::new();
    for pod in &pods {
        let holder = work(stage, pod, &format!("hold --name {OTHERS} --mib {OTHER_MIB}"))?;
        stage.wait_resident(&holder, OTHER_MIB)?;
        holders.push(holder);
    }
    stage.note(format!("{OTHER_PODS} other pods hold {OTHER_MIB} MiB each"));
    Ok(holders)
}

/// Asserts that the other pods still run, and then ends their workloads.
pub fn run_on(stage: &mut Stage<'_>, others: &[Worker]) {
    stage.check_alive(&others.iter().collect::<Vec<_>>());
    for holder in others {
        end(stage, holder);
    }
}

/// Starts the kubelet anew with these further fields of its configuration, and waits until the node is ready.
pub fn restart_until_ready(stage: &mut Stage<'_>, cluster: &Cluster, fields: &str) -> Result<()> {
    restart_kubelet(stage, fields, || cluster.admin.node().is_ok_and(|node| is_ready(&node)))
}

/// Starts the kubelet anew with these further fields of its configuration, and waits until `is_there` holds.
pub fn restart_kubelet(stage: &mut Stage<'_>, fields: &str, is_there: impl Fn() -> bool) -> Result<()> {
    Program::Kubelet.stop()?;
    configure_kubelet(fields)?;
    Program::Kubelet.start()?;
    let came = stage.until(TIME_LIMIT, |_| is_there());
    stage.check(came, || "the kubelet is not back".to_owned());
    Ok(())
}
