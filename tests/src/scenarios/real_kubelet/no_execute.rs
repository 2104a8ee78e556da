//! The taint with the effect NoExecute, which evicts running pods by their tolerations.

use anyhow::{Context, Result};
use serde_json::Value;

use super::ending::tidy;
use super::scene::{ENFORCING, Scene, TIME_LIMIT, is_killed, killed_at, leak, long_pressure, start, start_with, text};
use super::times::is_taint;
use crate::cluster::audit::{self, Request};
use crate::cluster::pod_history::PodHistory;
use crate::control_plane::NODE;
use crate::scenarios::cluster_eyes::taint_with;
use crate::stage::Stage;
use crate::units::milliseconds_between;

/// How long one pod tolerates the taint, in seconds.
const TOLERATED: u32 = 10;
/// The reason that the taint eviction controller gives on a pod.
const BY_TAINT: &str = "DisruptionTarget=DeletionByTaintManager";

/// A condition that lasts sets the taint: one pod is evicted at once, one after the time that it tolerates the taint, and one stays.
pub fn no_execute(stage: &mut Stage<'_>) -> Result<()> {
    let soon = |text: &str| {
        long_pressure(text).replace("conditions: own", "conditions: own\n      taints: {noExecute: {after: 5s}}")
    };
    let Scene { cluster, agent, pod, .. } = Scene::with(stage, ENFORCING, soon)?;
    let tolerating = |for_a_time: &str| {
        format!(
            "tolerations: [{{key: node-pressure-monitor/memory-pressure, operator: Exists, effect: NoExecute{for_a_time}}}]"
        )
    };
    let stranger = start(stage, &cluster, "stranger")?;
    let patient = start_with(stage, &cluster, "patient", &tolerating(&format!(", tolerationSeconds: {TOLERATED}")))?;
    let loyal = start_with(stage, &cluster, "loyal", &tolerating(""))?;
    let name = |pod: &Value| text(&pod["metadata"]["name"]);
    let (first, second) = (PodHistory::of(&name(&stranger))?, PodHistory::of(&name(&patient))?);
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    let killed = killed_at(stage, &agent, &worker)?;
    let is_set = stage.until(TIME_LIMIT, |_| {
        cluster.admin.node().is_ok_and(|node| taint_with(&node, "memory", "NoExecute").is_some())
    });
    stage.check(is_set, || format!("no taint with the effect NoExecute: {}", agent.tail(10).join(" / ")));
    let (at_once, later) = (is_evicted_by_taint(stage, &first)?, is_evicted_by_taint(stage, &second)?);
    // The API server logs a request after other clients have seen its effect.
    let set = taint_set_at(killed)?;
    stage.timeline(0.0, "the taint arrives at the API server");
    stage.timeline(milliseconds_between(set, at_once), "the pod without a toleration is evicted");
    stage.timeline(milliseconds_between(set, later), "the pod that tolerates the taint for 10 s is evicted");
    // How late the pods are evicted depends on a controller: there is no upper limit.
    let [first, second] = [at_once, later].map(|at| milliseconds_between(set, at) / 1_000.0);
    stage.check((0.0..second).contains(&first) && second >= f64::from(TOLERATED), || {
        format!("the pods were evicted {first:.1} s and {second:.1} s after the taint was set")
    });
    stage.page(&cluster.kubectl(&["get", "pods", "-o", "wide"])?);
    stage.page(&cluster.kubectl(&["get", "node", NODE, "-o", "jsonpath={.spec.taints}"])?);
    let after = cluster.admin.pod(&name(&loyal))?;
    let stays =
        after["metadata"]["uid"] == loyal["metadata"]["uid"] && after["metadata"]["deletionTimestamp"].is_null();
    stage.check(stays, || format!("the pod that tolerates the taint was evicted: {after}"));
    tidy(stage, &cluster)
}

/// Returns when the API server got the agent's taint with the effect NoExecute.
fn taint_set_at(since: u64) -> Result<u64> {
    let is_it = |request: &Request| {
        is_taint(request) && request.arrived_ns >= since && request.body.to_string().contains("NoExecute")
    };
    Ok(audit::requests()?.into_iter().find(is_it).context("the agent has not set the taint")?.arrived_ns)
}

/// Asserts that the taint eviction controller evicts the pod. Returns when the eviction was seen.
fn is_evicted_by_taint(stage: &mut Stage<'_>, history: &PodHistory) -> Result<u64> {
    let mut seen = None;
    let is_evicted = stage.until(TIME_LIMIT, |_| {
        seen = history.changes().into_iter().find(|change| change.text.contains(BY_TAINT));
        seen.is_some()
    });
    stage.check(is_evicted, || format!("not evicted by the taint: {:?}", history.changes()));
    Ok(seen.map_or(0, |change| change.at_ns))
}
