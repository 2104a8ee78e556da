//! Soft thresholds: a disruption budget refuses, and a drained node defers.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::ending::tidy;
use super::scene::{
    APP, ENFORCING, GROWTH_TIME_LIMIT, LASTS, Scene, TIME_LIMIT, end, event_count, evicted_event_count, killed_count,
    print_since, ready_pod, ready_pod_of, start, text, work,
};
use super::times::{Victim, record_times};
use crate::cluster::pod_history::PodHistory;
use crate::cluster::{Cluster, NAME, is_ready};
use crate::control_plane::NODE;
use crate::evidence::meminfo;
use crate::init::MANIFESTS;
use crate::processes::Ended;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, monotonic_ns};

/// The soft threshold, and the available memory above the hard threshold at which the workload stops growing, in MiB.
const THRESHOLD: u64 = 500;
const STOP_AT: u64 = 400;
/// The other pod's memory in MiB: its end brings the node above the threshold.
const SPARE_MIB: u64 = 300;
const SPARE: &str = "spare";
/// The reason of the event that the agent sends when it evicts.
const MET: &str = "MonitorEvictionThresholdMet";
/// No pod of the Deployment may be evicted.
const BUDGET: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: hog, namespace: default}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: hog}}}
";

/// A disruption budget refuses the eviction of the larger pod. The next pod is evicted through the Eviction API, under the policy that limits
/// evictions to the agent's node.
pub fn budget(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, uid, .. } = Scene::with(stage, ENFORCING, soft)?;
    let policy = format!("{MANIFESTS}/own-node-evictions");
    cluster.kubectl(&["apply", "-k", &policy])?;
    protect(stage, &cluster)?;
    let spare = start(stage, &cluster, SPARE)?;
    let (spare_name, spare_uid) = (text(&spare["metadata"]["name"]), text(&spare["metadata"]["uid"]));
    let history = PodHistory::of(&spare_name)?;
    let holder = work(stage, &spare, &format!("hold --name {SPARE} --mib {SPARE_MIB}"))?;
    stage.wait_resident(&holder, SPARE_MIB)?;
    stage.note("the other pod holds its memory");
    let begun = monotonic_ns();
    stage.boot.sampler.start();
    let hog = grow(stage, &pod)?;
    let refused = stage.until(GROWTH_TIME_LIMIT, |_| !agent.events("eviction_refused").is_empty());
    stage.check(refused, || format!("no budget has refused an eviction: {}", agent.tail(10).join(" / ")));
    stage.note("a budget has refused an eviction");
    let gone = stage.until(TIME_LIMIT, |stage| stage.reaper.ended(holder.pid).is_some());
    stage.check(gone, || format!("the other pod was not evicted: {}", agent.tail(10).join(" / ")));
    ready_pod_of(stage, &cluster, SPARE, &spare_uid)?;
    stage.check_alive(&[&hog]);
    let after = cluster.admin.pod(&name)?;
    stage.check_equal("the UID of the pod with a budget", &text(&after["metadata"]["uid"]), &uid);
    stage.check(is_ready(&after), || "the pod with a budget is not ready".to_owned());
    let (by_agent, _) = stage.signals_of(&agent)?;
    // On a slow machine the kubelet is late, and the agent kills the remaining processes.
    let is_of_spare = by_agent.iter().all(|signal| signal.target != hog.pid);
    stage.check(is_of_spare, || format!("the agent sent signals to the pod with a budget: {by_agent:?}"));
    stage.check_no_oom_kill()?;
    stage.check_equal("events Evicted of the other pod", &evicted_event_count(&cluster, &spare_name)?, &1);
    stage.check_equal("evictions_total{outcome=killed}", &killed_count(&agent)?, &1.0);
    let has_condition =
        history.changes().iter().any(|change| change.text.contains("DisruptionTarget=EvictionByEvictionAPI"));
    stage.check(has_condition, || {
        "the other pod did not get the condition DisruptionTarget from the Eviction API".to_owned()
    });
    stage.boot.sampler.stop();
    record_times(stage, &agent, None, Victim { app: SPARE, name: &spare_name, uid: &spare_uid })?;
    print_since(stage, begun, &history)?;
    cluster.kubectl(&["delete", "pdb", APP])?;
    cluster.kubectl(&["delete", "-k", &policy])?;
    end(stage, &hog);
    tidy(stage, &cluster)
}

/// While the node is drained a soft threshold is met. The drain waits for a disruption budget, and the agent for the drain.
pub fn drain(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, uid, history, .. } = Scene::with(stage, ENFORCING, soft)?;
    protect(stage, &cluster)?;
    let drain = Cluster::kubectl_command()
        .args(["drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s"])
        .spawn()
        .context("start kubectl drain")?;
    let drain = i32::try_from(drain.id()).context("the process id of kubectl")?;
    let cordoned =
        stage.until(TIME_LIMIT, |_| cluster.admin.node().is_ok_and(|node| node["spec"]["unschedulable"] == true));
    stage.check(cordoned, || "the node is not cordoned".to_owned());
    // The agent learns of the cordon by its watch.
    stage.pause(Duration::from_secs(3));
    let (begun, before) = (monotonic_ns(), event_count(&cluster, NODE, NAME, MET)?);
    let hog = grow(stage, &pod)?;
    let deferred = stage.until(GROWTH_TIME_LIMIT, |_| !agent.events("eviction_deferred").is_empty());
    stage.check(deferred, || format!("no eviction was deferred: {}", agent.tail(10).join(" / ")));
    stage.pause(LASTS);
    stage.check_alive(&[&hog]);
    let met = event_count(&cluster, NODE, NAME, MET)? - before;
    stage.check_equal("events MonitorEvictionThresholdMet while nothing is evicted", &met, &0);
    cluster.kubectl(&["delete", "pdb", APP])?;
    // The stage collects every child.
    stage.until(TIME_LIMIT, |stage| stage.reaper.ended(drain).is_some());
    let drained = stage.reaper.ended(drain);
    stage.check_equal("the end of kubectl drain", &drained, &Some(Ended::Exited(0)));
    stage.check_equal("evictions by the agent", &agent.events("eviction").len(), &0);
    let (by_agent, _) = stage.signals_of(&agent)?;
    stage.check(by_agent.is_empty(), || format!("the agent sent signals: {by_agent:?}"));
    print_since(stage, begun, &history)?;
    cluster.kubectl(&["uncordon", NODE])?;
    ready_pod(stage, &cluster, &uid)?;
    tidy(stage, &cluster)
}

/// Adds a soft threshold above the hard one.
fn soft(text: &str) -> String {
    let soft = format!(
        "evictionSoft: {{memory.available: {THRESHOLD}Mi}}\n    evictionSoftGracePeriod: {{memory.available: 3s}}\n    evictionHard:"
    );
    text.replace("evictionHard:", &soft)
}

/// Creates the budget, and waits until it counts its pod.
fn protect(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    cluster.apply(BUDGET)?;
    let path = format!("/apis/policy/v1/namespaces/default/poddisruptionbudgets/{APP}");
    let counts = |budget: &Value| budget["status"]["expectedPods"] == 1;
    let came = stage.until(TIME_LIMIT, |_| cluster.admin.get(&path).is_ok_and(|budget| counts(&budget)));
    stage.check(came, || format!("the disruption budget does not count its pod: {:?}", cluster.admin.get(&path)));
    stage.note("the disruption budget counts its pod");
    Ok(())
}

fn grow(stage: &Stage<'_>, pod: &Value) -> Result<Worker> {
    let total = meminfo("MemTotal")? / MIB;
    work(stage, pod, &format!("ramp --name {APP} --rate max --to {total} --stop-at {STOP_AT}"))
}
