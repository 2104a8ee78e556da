//! The example of a machine's lifecycle hook in `config/openshift/journal-hook`, with a CustomResourceDefinition of Machines.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::ending::tidy;
use super::scene::{ENFORCING, Scene, TIME_LIMIT, is_killed, leak};
use crate::cluster::{Cluster, NAME, programs};
use crate::control_plane::NODE;
use crate::init::JOURNAL_HOOK;
use crate::stage::Stage;

const MACHINES: &str = "openshift-machine-api";
const JOURNALS: &str = "/tmp/journals";
const OVERLAY: &str = "/tmp/journal-hook.d";

/// Returns Machines with the fields of OpenShift's `machine.openshift.io/v1beta1` that a hook uses: two of this node, and one whose node does
/// not exist. The hook holds all of them.
fn machines() -> String {
    let machine = |name: &str, point: &str| {
        format!(
            "---
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {{name: {name}, namespace: {MACHINES}, finalizers: [machine.machine.openshift.io]}}
spec:
  lifecycleHooks:
    {point}:
      - {{name: Another, owner: another-controller}}
      - {{name: NodePressureJournal, owner: node-pressure-monitor/journal-hook}}
"
        )
    };
    let after_the_drain = ["here", "elsewhere"].map(|name| machine(name, "preTerminate"));
    format!("{}{}", after_the_drain.concat(), machine("early", "preDrain"))
}

const DEFINITION: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: openshift-machine-api}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machines.machine.openshift.io}
spec:
  group: machine.openshift.io
  names: {kind: Machine, plural: machines, singular: machine}
  scope: Namespaced
  versions:
    - name: v1beta1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Returns a kustomization that replaces the parts which only an OpenShift cluster has: the image with `oc`, which is kubectl here, and a
/// persistent volume. The CronJob is suspended, because the scenario creates the jobs.
fn overlay() -> String {
    let kubectl = programs::path("kubectl");
    format!(
        "
resources: [./example]
patches:
  - target: {{kind: CronJob}}
    patch: |
      apiVersion: batch/v1
      kind: CronJob
      metadata: {{name: journal-hook}}
      spec:
        suspend: true
        jobTemplate:
          spec:
            template:
              spec:
                securityContext: {{runAsUser: 65532}}
                containers:
                  - name: deliver
                    image: localhost/busybox:1
                    imagePullPolicy: Never
                    volumeMounts:
                      - {{name: oc, mountPath: /bin/oc}}
                      # Of a kubectl that is not linked statically.
                      - {{name: lib, mountPath: /lib}}
                      - {{name: lib64, mountPath: /lib64}}
                volumes:
                  - {{name: oc, hostPath: {{path: {kubectl}}}}}
                  - {{name: lib, hostPath: {{path: /usr/lib}}}}
                  - {{name: lib64, hostPath: {{path: /usr/lib64}}}}
                  - {{name: journals, persistentVolumeClaim: null, hostPath: {{path: {JOURNALS}}}}}
"
    )
}

/// A machine is held until it is drained and its journal is stored. A machine without a node is released at once.
pub fn journal_hook(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, uid, .. } = Scene::begin(stage, ENFORCING)?;
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    cluster.apply(DEFINITION)?;
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/machines.machine.openshift.io", "--timeout=2m"])?;
    cluster.apply(&machines())?;
    for machine in ["here", "early"] {
        set_status(&cluster, machine, &format!(r#"{{"nodeRef":{{"name":"{NODE}"}}}}"#))?;
    }
    set_status(
        &cluster,
        "elsewhere",
        r#"{"nodeRef":{"name":"elsewhere"},"conditions":[{"type":"Drained","status":"True"}]}"#,
    )?;
    deploy(&cluster)?;

    deliver(stage, &cluster, "before", "Complete")?;
    expect_hooks(stage, &cluster, "here", &["Another", "NodePressureJournal"])?;
    expect_hooks(stage, &cluster, "elsewhere", &["Another", "NodePressureJournal"])?;

    cluster.kubectl(&["-n", MACHINES, "delete", "machines", "--all", "--wait=false"])?;
    deliver(stage, &cluster, "deleting", "Complete")?;
    expect_hooks(stage, &cluster, "here", &["Another", "NodePressureJournal"])?;
    expect_hooks(stage, &cluster, "elsewhere", &["Another"])?;
    stage.check(!journal().exists(), || "the journal was stored before the node was drained".to_owned());

    let drained = format!(r#"{{"nodeRef":{{"name":"{NODE}"}},"conditions":[{{"type":"Drained","status":"True"}}]}}"#);
    set_status(&cluster, "here", &drained)?;
    // The journal cannot be written, so the machine waits.
    fs::set_permissions(JOURNALS, fs::Permissions::from_mode(0o555)).with_context(|| format!("close {JOURNALS}"))?;
    deliver(stage, &cluster, "full", "Failed")?;
    expect_hooks(stage, &cluster, "here", &["Another", "NodePressureJournal"])?;
    fs::set_permissions(JOURNALS, fs::Permissions::from_mode(0o777)).with_context(|| format!("open {JOURNALS}"))?;
    deliver(stage, &cluster, "drained", "Complete")?;
    expect_hooks(stage, &cluster, "here", &["Another"])?;
    expect_evidence(stage, &uid)?;

    // The hook has left the machine of the other lifecycle point alone until now.
    expect_hooks(stage, &cluster, "early", &["Another", "NodePressureJournal"])?;
    fs::remove_dir_all(journal()).context("remove the stored journal")?;
    cluster.kubectl(&["-n", NAME, "set", "env", "cronjob/journal-hook", "POINT=preDrain"])?;
    deliver(stage, &cluster, "early", "Complete")?;
    expect_hooks(stage, &cluster, "early", &["Another"])?;
    expect_evidence(stage, &uid)?;

    cluster.kubectl(&["delete", "-k", OVERLAY, "--wait"])?;
    for machine in ["here", "elsewhere", "early"] {
        let words = ["-n", MACHINES, "patch", "machine", machine, "--type=merge", "-p"];
        cluster.kubectl(&[&words[..], &[r#"{"metadata":{"finalizers":null}}"#]].concat())?;
    }
    // OpenShift's API server does not let this namespace be deleted.
    cluster.kubectl(&["delete", "crd/machines.machine.openshift.io", "--wait"])?;
    tidy(stage, &cluster)
}

/// Asserts that the stored journal has the ranking by which this pod was evicted.
fn expect_evidence(stage: &mut Stage<'_>, uid: &str) -> Result<()> {
    let mut evidence = 0;
    for entry in fs::read_dir(journal()).context("read the stored journal")? {
        let path = entry.context("read the stored journal")?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let stored: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        // The list of incidents has no ranking.
        evidence += usize::from(stored.to_string().contains(uid) && text.contains("ranking"));
    }
    stage.check(evidence > 0, || "no stored incident has the ranking of the evicted pod".to_owned());
    Ok(())
}

fn journal() -> &'static Path {
    Path::new("/tmp/journals/guest")
}

fn deploy(cluster: &Cluster) -> Result<()> {
    fs::create_dir_all(JOURNALS).with_context(|| format!("create {JOURNALS}"))?;
    // The job's user is not root.
    fs::set_permissions(JOURNALS, fs::Permissions::from_mode(0o777)).with_context(|| format!("open {JOURNALS}"))?;
    fs::create_dir_all(OVERLAY).with_context(|| format!("create {OVERLAY}"))?;
    crate::init::copy_tree(Path::new(JOURNAL_HOOK), &Path::new(OVERLAY).join("example"))?;
    let path = format!("{OVERLAY}/kustomization.yaml");
    fs::write(&path, overlay()).with_context(|| format!("write {path}"))?;
    cluster.kubectl(&["apply", "-k", OVERLAY]).map(drop)
}

fn set_status(cluster: &Cluster, machine: &str, status: &str) -> Result<()> {
    let patch = format!(r#"{{"status":{status}}}"#);
    let words = ["-n", MACHINES, "patch", "machine", machine, "--subresource=status", "--type=merge", "-p", &patch];
    cluster.kubectl(&words).map(drop)
}

/// Runs the job once, as the CronJob does every minute, and asserts how it ends.
fn deliver(stage: &mut Stage<'_>, cluster: &Cluster, name: &str, expected: &str) -> Result<()> {
    let job = format!("job/{name}");
    cluster.kubectl(&["-n", NAME, "create", "job", "--from=cronjob/journal-hook", name])?;
    let has_ended = |kind: &str| {
        let condition = format!("jsonpath={{.status.conditions[?(@.type==\"{kind}\")].status}}");
        cluster.kubectl(&["-n", NAME, "get", &job, "-o", &condition]).is_ok_and(|status| status == "True")
    };
    let ended = stage.until(TIME_LIMIT, |_| has_ended("Complete") || has_ended("Failed"));
    for line in cluster.kubectl(&["-n", NAME, "logs", &job]).unwrap_or_default().lines() {
        stage.note(line);
    }
    stage.check(ended && has_ended(expected), || format!("{job} did not end as {expected}"));
    Ok(())
}

fn expect_hooks(stage: &mut Stage<'_>, cluster: &Cluster, machine: &str, expected: &[&str]) -> Result<()> {
    let template = "jsonpath={.spec.lifecycleHooks.*[*].name}";
    let hooks = cluster.kubectl(&["-n", MACHINES, "get", "machine", machine, "-o", template])?;
    stage.check_equal(&format!("the hooks of machine {machine}"), &hooks, &expected.join(" "));
    Ok(())
}
