//! The agent is installed as config/README.md describes: by `kubectl apply -k` and by the Helm chart.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::ending::{NO_POLICY, show};
use super::removal::{clean_up, nothing_is_left, wait_for_job};
use super::scene::TIME_LIMIT;
use crate::agent::Agent;
use crate::cluster::{Cluster, NAME, programs};
use crate::init::CHART;
use crate::stage::Stage;

/// Installs the manifests and the chart without a change, and removes them. The chart is upgraded to another set-up in between.
pub fn install(stage: &mut Stage<'_>) -> Result<()> {
    let cluster = Cluster::of(stage)?;
    warns_without_policy(stage, &cluster)?;
    let agent = cluster.deploy(stage, "", str::to_owned)?;
    check_mode(stage, &agent, "observe")?;
    note_pods(stage, &cluster, "kubectl apply -k config/kubernetes")?;
    stage.screen(&format!("$ kubectl -n {NAME} get pods"));
    stage.screen(&cluster.kubectl(&["-n", NAME, "get", "pods"])?);
    show(stage, &cluster)?;
    cluster.remove()?;
    clean_up(stage, &cluster)?;
    nothing_is_left(stage, &cluster)?;
    if Path::new(&programs::path("helm")).exists() {
        by_chart(stage, &cluster)
    } else {
        stage.skip("the chart: helm is neither in PATH nor named by HELM");
        Ok(())
    }
}

/// Asserts that the agent warns where no admission policy limits its token to its own node. In the other scenarios a policy does.
fn warns_without_policy(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let agent = cluster.deploy(stage, "base", str::to_owned)?;
    let warned = stage.until(TIME_LIMIT, |_| !agent.events(NO_POLICY).is_empty());
    stage.check(warned, || format!("the agent does not warn: {}", agent.tail(10).join(" / ")));
    cluster.remove()
}

fn by_chart(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    helm(&["install", NAME, CHART])?;
    let observing = cluster.agent(stage)?;
    check_mode(stage, &observing, "observe")?;
    note_pods(stage, cluster, "helm install")?;

    upgrade("evict=first")?;
    let enforces = stage.until(TIME_LIMIT, |stage| {
        cluster.agent(stage).and_then(|agent| mode(&agent)).is_ok_and(|mode| mode == "enforce")
    });
    stage.check(enforces, || "the upgrade to evict=first did not make the agent enforce".to_owned());

    upgrade("removal=true")?;
    wait_for_job(cluster)?;
    helm(&["uninstall", NAME, "--wait"])?;
    nothing_is_left(stage, cluster)
}

fn upgrade(value: &str) -> Result<()> {
    helm(&["upgrade", NAME, CHART, "--reuse-values", "--set", value])
}

fn helm(words: &[&str]) -> Result<()> {
    let output = Command::new(programs::path("helm"))
        .args(words)
        .env("KUBECONFIG", Cluster::admin_kubeconfig())
        .env("HOME", "/tmp")
        .output()
        .context("start helm")?;
    if !output.status.success() {
        bail!("helm {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Returns the agent's mode, by its metric.
fn mode(agent: &Agent) -> Result<&'static str> {
    let metrics = agent.metrics()?;
    let is = |mode: &str| metrics.sum("mode", &[("mode", mode)]).is_some_and(|value| value > 0.5);
    Ok(["observe", "enforce"].into_iter().find(|mode| is(mode)).unwrap_or("no mode"))
}

fn check_mode(stage: &mut Stage<'_>, agent: &Agent, expected: &'static str) -> Result<()> {
    stage.check_equal("mode", &mode(agent)?, &expected);
    Ok(())
}

fn note_pods(stage: &Stage<'_>, cluster: &Cluster, how: &str) -> Result<()> {
    stage.note(format!("after {how}:"));
    cluster.kubectl(&["-n", NAME, "get", "pods"])?.lines().for_each(|line| stage.note(line));
    Ok(())
}
