//! The taint with the effect NoExecute, which evicts running pods by their tolerations.

use anyhow::{Context, Result};
use serde_json::Value;

use super::ending::tidy;
use super::scene::{ENFORCING, PATIENCE, Scene, is_killed, killed_at, leak, long_pressure, start, start_with, text};
use super::times::is_taint;
use crate::cluster::audit::{self, Request};
use crate::cluster::story::Story;
use crate::control_plane::NODE;
use crate::scenarios::cluster_eyes::taint_with;
use crate::stage::Stage;
use crate::units::milliseconds_between;

/// How long one pod tolerates the taint, in seconds.
const TOLERATED: u32 = 10;
/// The reason that the taint eviction controller gives on a pod.
const BY_TAINT: &str = "DisruptionTarget=DeletionByTaintManager";

/// A condition that lasts sets the taint: one pod goes at once, one after the time that it tolerates the taint, and one stays.
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
    let (first, second) = (Story::of(&name(&stranger))?, Story::of(&name(&patient))?);
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    let killed = killed_at(stage, &agent, &worker)?;
    let is_set = stage
        .until(PATIENCE, |_| cluster.admin.node().is_ok_and(|node| taint_with(&node, "memory", "NoExecute").is_some()));
    stage.check(is_set, || format!("no taint with the effect NoExecute: {}", agent.tail(10).join(" / ")));
    let (at_once, later) = (went(stage, &first)?, went(stage, &second)?);
    // The API server logs a request after others have seen what it did.
    let set = taint_set_at(killed)?;
    stage.timeline(0.0, "the taint arrives at the API server");
    stage.timeline(milliseconds_between(set, at_once), "the pod without a toleration is evicted");
    stage.timeline(milliseconds_between(set, later), "the pod that tolerates the taint for 10 s is evicted");
    // A controller decides how late they go.
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

/// Waits until the taint eviction controller has evicted the pod. Returns when that was seen.
fn went(stage: &mut Stage<'_>, story: &Story) -> Result<u64> {
    let mut seen = None;
    let went = stage.until(PATIENCE, |_| {
        seen = story.chapters().into_iter().find(|chapter| chapter.text.contains(BY_TAINT));
        seen.is_some()
    });
    stage.check(went, || format!("not evicted by the taint: {:?}", story.chapters()));
    Ok(seen.map_or(0, |chapter| chapter.at_ns))
}
