//! The end of an evicted pod and its replacement, by its owner and its restartPolicy.

use anyhow::{Context, Result};
use serde_json::Value;

use super::ending::tidy;
use super::scene::{
    BETWEEN_LOOKS, ENFORCING, LASTS, TIME_LIMIT, deploy, evicted_event_count, has_ended, is_killed, killed_at,
    killed_count, leak, pod_spec, ready_pod_of, status_taken_ms, template, text,
};
use super::times::{Victim, ready_since, record_times};
use crate::agent::Agent;
use crate::cluster::pod_history::{PodHistory, StatusChange};
use crate::cluster::{Cluster, is_ready};
use crate::scenarios::cluster_eyes::condition;
use crate::stage::Stage;
use crate::units::milliseconds_between;

/// The condition of an evicted pod, in the text of a [`StatusChange`].
const DISRUPTION_TARGET: &str = "DisruptionTarget=";
const JOB: &str = "job";
const RESTARTING_JOB: &str = "job-on-failure";

/// A pod of one kind, which leaks.
struct Case {
    app: &'static str,
    manifest: String,
    then: Then,
}

/// The expected state after an eviction of a pod of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The failed pod stays, and there is no other.
    Stays,
    /// The failed pod stays, and its controller creates another.
    StaysAndReplaced,
    /// The controller deletes the failed pod, and creates another.
    Replaced,
}

/// One eviction, from the kill on.
struct Eviction {
    app: &'static str,
    then: Then,
    name: String,
    uid: String,
    killed: u64,
    /// When the API server had taken the agent's status, in milliseconds since the kill.
    taken: f64,
}

pub fn owners(stage: &mut Stage<'_>) -> Result<()> {
    let cluster = Cluster::of(stage)?;
    let agent = deploy(stage, &cluster, ENFORCING, str::to_owned)?;
    let mut evictions = Vec::new();
    for case in cases() {
        evictions.push(evict(stage, &cluster, &agent, case)?);
    }
    stage.pause(LASTS);
    stage.page(&cluster.kubectl(&["get", "pods", "-o", "wide"])?);
    for eviction in &evictions {
        lasts(stage, &cluster, eviction)?;
    }
    stage.check_equal("the agent's eviction records", &agent.events("eviction").len(), &evictions.len());
    let counted = u32::try_from(evictions.len()).context("evictions")?;
    stage.check_equal("evictions_total{outcome=killed}", &killed_count(&agent)?, &f64::from(counted));
    tidy(stage, &cluster)
}

fn cases() -> Vec<Case> {
    let bare = |app, policy| Case { app, manifest: bare(app, policy), then: Then::Stays };
    let policy = "{rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}]}";
    let job =
        format!("backoffLimit: 0, podFailurePolicy: {policy}, template: {}", template(JOB, "restartPolicy: Never"));
    // Kubernetes allows no podFailurePolicy here.
    let restarting_job = format!("template: {}", template(RESTARTING_JOB, "restartPolicy: OnFailure"));
    let set = |app: &str, fields: &str| {
        format!("{fields}selector: {{matchLabels: {{app: {app}}}}}, template: {}", template(app, ""))
    };
    vec![
        bare("always", "Always"),
        bare("on-failure", "OnFailure"),
        bare("never", "Never"),
        Case { app: JOB, manifest: object("batch/v1", "Job", JOB, &job), then: Then::StaysAndReplaced },
        Case {
            app: RESTARTING_JOB,
            manifest: object("batch/v1", "Job", RESTARTING_JOB, &restarting_job),
            then: Then::StaysAndReplaced,
        },
        Case {
            app: "stateful",
            manifest: object("apps/v1", "StatefulSet", "stateful", &set("stateful", "serviceName: stateful, ")),
            then: Then::Replaced,
        },
        Case {
            app: "daemon",
            manifest: object("apps/v1", "DaemonSet", "daemon", &set("daemon", "")),
            then: Then::Replaced,
        },
    ]
}

/// A pod without a controller.
fn bare(app: &str, policy: &str) -> String {
    let spec = pod_spec(&format!("restartPolicy: {policy}"));
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {app}, namespace: default, labels: {{app: {app}}}}}
spec: {spec}
"
    )
}

fn object(version: &str, kind: &str, name: &str, spec: &str) -> String {
    format!(
        "
apiVersion: {version}
kind: {kind}
metadata: {{name: {name}, namespace: default}}
spec: {{{spec}}}
"
    )
}

/// Lets one pod leak until the agent has evicted it, and checks the result.
fn evict(stage: &mut Stage<'_>, cluster: &Cluster, agent: &Agent, case: Case) -> Result<Eviction> {
    let Case { app, manifest, then } = case;
    cluster.apply(&manifest)?;
    let pod = ready_pod_of(stage, cluster, app, "")?;
    stage.note(format!("{app}: the pod is ready"));
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    let history = PodHistory::of(&name)?;
    let worker = leak(stage, &pod)?;
    is_killed(stage, agent, &worker)?;
    let killed = killed_at(stage, agent, &worker)?;
    let replacement = settles(stage, cluster, (app, then), &uid)?;
    let taken = status_taken_ms(killed, &name)?;
    let eviction = Eviction { app, then, name, uid, killed, taken };
    let changes = history.changes();
    print_eviction(stage, &eviction, &changes, replacement.as_ref());
    record_times(stage, agent, Some(killed), Victim { app, name: &eviction.name, uid: &eviction.uid })?;
    judge(stage, cluster, &eviction, &changes)?;
    Ok(eviction)
}

/// Waits for the expected state of the evicted pod and its replacement. Returns the replacement.
fn settles(stage: &mut Stage<'_>, cluster: &Cluster, (app, then): (&str, Then), uid: &str) -> Result<Option<Value>> {
    let mut pods = Vec::new();
    let is_old = |pod: &Value| pod["metadata"]["uid"] == uid;
    let came = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        pods = cluster.pods_of("default", &format!("app={app}")).unwrap_or_default();
        let (ended, gone) = (pods.iter().any(|pod| has_ended(pod, uid)), !pods.iter().any(is_old));
        let replaced = pods.iter().any(|pod| !is_old(pod) && is_ready(pod));
        match then {
            Then::Stays => ended,
            Then::StaysAndReplaced => ended && replaced,
            Then::Replaced => gone && replaced,
        }
    });
    stage.check(came, || format!("{app}: not {then:?} after {TIME_LIMIT:?}: {}", Value::from(pods.clone())));
    Ok(pods.into_iter().find(|pod| !is_old(pod) && is_ready(pod)))
}

/// Prints in one line the changes of the pod since the kill.
fn print_eviction(stage: &mut Stage<'_>, eviction: &Eviction, changes: &[StatusChange], replacement: Option<&Value>) {
    let Eviction { app, uid, killed, taken, .. } = eviction;
    let seconds = |at: u64| milliseconds_between(*killed, at) / 1000.0;
    let mut steps = vec![format!("status taken {:.2} s after the kill", taken / 1000.0)];
    let later = changes.iter().filter(|change| change.at_ns >= *killed);
    steps.extend(
        later
            .filter(|one| one.uid == *uid || one.uid.is_empty())
            .map(|one| format!("{:.1} s {}", seconds(one.at_ns), one.text)),
    );
    if let Some(at) = replacement.and_then(ready_since) {
        steps.push(format!("replacement ready after {:.0} s", seconds(at)));
    }
    stage.note(format!("{app}: {}", steps.join("; ")));
}

fn judge(stage: &mut Stage<'_>, cluster: &Cluster, eviction: &Eviction, changes: &[StatusChange]) -> Result<()> {
    let Eviction { app, name, uid, .. } = eviction;
    let own = || changes.iter().filter(|change| change.uid == *uid);
    let restarts = own().map(|change| change.restarts).max().unwrap_or(0);
    stage.check_equal(&format!("{app}: restarts of the evicted pod's container"), &restarts, &0);
    let has_condition = own().any(|change| change.text.contains(DISRUPTION_TARGET));
    stage.check(has_condition, || format!("{app}: no condition DisruptionTarget"));
    stage.check_equal(&format!("{app}: events Evicted"), &evicted_event_count(cluster, name)?, &1);
    if [JOB, RESTARTING_JOB].contains(app) {
        let first = |is_it: &dyn Fn(&str) -> bool| own().position(|change| is_it(&change.text));
        let failed = first(&|text| text.starts_with("Failed/") && !text.contains(DISRUPTION_TARGET));
        let is_kubelet_first =
            failed.is_some_and(|at| first(&|text| text.contains(DISRUPTION_TARGET)).is_none_or(|other| at < other));
        job_has_not_failed(stage, cluster, app, is_kubelet_first)?;
    }
    Ok(())
}

/// Asserts that the Job has not failed. If the kubelet's status came first, the Job's controller counts a failed pod that does not have the
/// condition `DisruptionTarget` yet.
fn job_has_not_failed(stage: &mut Stage<'_>, cluster: &Cluster, name: &str, is_kubelet_first: bool) -> Result<()> {
    let job = cluster.admin.get(&format!("/apis/batch/v1/namespaces/default/jobs/{name}"))?;
    stage.note(format!("{name}: its status is {}", job["status"]));
    let failed = condition(&job, "Failed") == Some("True") || condition(&job, "FailureTarget") == Some("True");
    // Without a podFailurePolicy the evicted pod counts as a failure. A Job allows six.
    let counted = job["status"]["failed"].as_u64().unwrap_or(0);
    let expected = u64::from(name == RESTARTING_JOB);
    if is_kubelet_first && (failed || counted != expected) {
        stage.note(format!(
            "{name}: the kubelet's status was there before the agent's, and the pod counts as a failure"
        ));
        return Ok(());
    }
    stage.check_equal(&format!("{name}: failures that it counts"), &counted, &expected);
    stage.check(!failed, || format!("{name} has failed"));
    Ok(())
}

/// Asserts that a failed pod that its controller does not delete is still Failed and Evicted, with the condition `DisruptionTarget`.
fn lasts(stage: &mut Stage<'_>, cluster: &Cluster, eviction: &Eviction) -> Result<()> {
    let Eviction { app, then, name, uid, .. } = eviction;
    if *then == Then::Replaced {
        return Ok(());
    }
    let pod = cluster.admin.find_pod(name)?.unwrap_or_default();
    stage.check(has_ended(&pod, uid), || format!("{app}: Failed and Evicted did not last: {}", pod["status"]));
    let disruption_target = condition(&pod, "DisruptionTarget").map(str::to_owned);
    stage.check_equal(&format!("{app}: the condition DisruptionTarget"), &disruption_target, &Some("True".to_owned()));
    let others = cluster.pods_of("default", &format!("app={app}"))?.len() - 1;
    stage.check_equal(&format!("{app}: other pods"), &others, &usize::from(*then == Then::StaysAndReplaced));
    Ok(())
}
