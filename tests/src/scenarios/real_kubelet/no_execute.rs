//! The taint with the effect NoExecute, which evicts running pods by their tolerations.

use anyhow::Result;
use serde_json::Value;

use super::ending::tidy;
use super::scene::{ENFORCING, PATIENCE, Scene, is_killed, leak, long_pressure, start, start_with, text};
use crate::cluster::story::Story;
use crate::control_plane::NODE;
use crate::scenarios::cluster_eyes::taint_with;
use crate::stage::Stage;
use crate::units::{milliseconds_between, monotonic_ns};

/// How long one pod tolerates the taint, in seconds.
const TOLERATED: u32 = 10;
/// The longest time that an emulated control plane takes to evict a pod, in seconds.
const SLOW: f64 = 20.0;
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
    let is_set = stage
        .until(PATIENCE, |_| cluster.admin.node().is_ok_and(|node| taint_with(&node, "memory", "NoExecute").is_some()));
    let set = monotonic_ns();
    stage.check(is_set, || format!("no taint with the effect NoExecute: {}", agent.tail(10).join(" / ")));
    let (at_once, later) = (went(stage, &first)?, went(stage, &second)?);
    stage.timeline(0.0, "the taint is seen");
    stage.timeline(milliseconds_between(set, at_once), "the pod without a toleration is evicted");
    stage.timeline(milliseconds_between(set, later), "the pod that tolerates the taint for 10 s is evicted");
    // The taint may have been seen a little after it was set, and the controllers are slow under emulation.
    let [first, second] = [at_once, later].map(|at| milliseconds_between(set, at) / 1_000.0);
    let (least, most) = (f64::from(TOLERATED) - 2.0, f64::from(TOLERATED) + SLOW);
    let are_in_time = first < second && first <= SLOW && (least..=most).contains(&second);
    stage.check(are_in_time, || {
        format!("the pods were evicted {first:.1} s and {second:.1} s after the taint was seen")
    });
    stage.page(&cluster.kubectl(&["get", "pods", "-o", "wide"])?);
    stage.page(&cluster.kubectl(&["get", "node", NODE, "-o", "jsonpath={.spec.taints}"])?);
    let after = cluster.admin.pod(&name(&loyal))?;
    let stays =
        after["metadata"]["uid"] == loyal["metadata"]["uid"] && after["metadata"]["deletionTimestamp"].is_null();
    stage.check(stays, || format!("the pod that tolerates the taint was evicted: {after}"));
    tidy(stage, &cluster)
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
