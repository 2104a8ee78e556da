//! Runs the agent from its own image, with only the rights that the DaemonSet grants.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::cluster_eyes::{Seen, condition, is_evicted, taint};
use super::pressure::{EVERYTHING_MIB, PACED_BELOW_MIB, RATE_MIB};
use crate::agent::Agent;
use crate::config::AgentConfig;
use crate::containers::daemon::{DaemonPod, NAME};
use crate::containers::translation::items;
use crate::containers::{Node, Storage, cri};
use crate::control_plane::{ControlPlane, Kubelet};
use crate::http;
use crate::stage::Stage;
use crate::units::mib;

const PROGRAM: &str = "/usr/bin/node-pressure-monitor";
const CONFIG: &str = "--config=/etc/node-pressure-monitor/monitor.yaml";
/// The time limit for a container to start and for its program to be ready.
const START: Duration = Duration::from_secs(60);
const SLEEP: &str = "while :; do sleep 5; done";

pub fn image(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::Shared)?;
    let on_host = stage.agent(&AgentConfig::observe())?;
    let expected = probes(&on_host)?;
    stage.stop(&on_host);

    let plane = ControlPlane::start()?;
    let kubelet = Kubelet::start(&plane)?;
    let daemon = DaemonPod::start(stage, &node, &plane)?;
    let agent = &daemon.agent;
    stage.figure("image", mib(daemon.image_bytes), "MiB");
    is_ready(stage, &daemon);
    is_confined(stage, &daemon)?;
    let attached = probes(agent)?;
    stage.check_equal("probes attached, in the container and on the host", &attached, &expected);
    let (_, readyz) = http::get(agent.address, daemon.probe("readinessProbe")?)?;
    stage.note(format!("{} probes attached; readyz: {}", attached.len(), readyz.trim()));
    let page = cri::exec(&daemon.id, &[PROGRAM, "doctor", CONFIG])?;
    stage.page(&page);
    let is_safe = page.contains("enforcing would be safe");
    stage.check(is_safe, || "doctor says that enforcing would be unsafe in the container".to_owned());

    let around = (&plane, &node, &*stage);
    let (quiet, _) = kubelet.run(around, "quiet", &json!({"requests": {"memory": "64Mi"}}), SLEEP)?;
    let (hog, container) = kubelet.run(around, "hog", &json!({}), SLEEP)?;
    let seen = Seen { plane: &plane, agent };
    // The agent's own pod is one of the three.
    seen.pods(stage, 3);
    // The agent starts in observe mode, and a reload sets enforce.
    daemon.configure(|text| {
        text.replace("mode: observe", "mode: enforce")
            .replace("evictionPressureTransitionPeriod: 5m", "evictionPressureTransitionPeriod: 3s")
    })?;
    let reloaded = stage.until(START, |_| !agent.events("configuration_applied").is_empty());
    stage.check(reloaded, || "the changed ConfigMap was not read again".to_owned());

    let work = format!("ramp --name hog --rate {RATE_MIB} --to {EVERYTHING_MIB} --fast-until {PACED_BELOW_MIB}");
    let worker = stage.work_in(&hog.scope(stage.layout(), &container), "hog", &work, 1000)?;
    let gone = stage.until(Duration::from_secs(40), |_| hog.is_gone());
    stage.check(gone, || "the hog still lives after 40 s".to_owned());
    stage.check_killed(&worker);
    stage.check_no_oom_kill()?;
    let by_agent = stage.signals_of(agent)?.0;
    let hit = by_agent.iter().any(|signal| signal.number == libc::SIGKILL && signal.target == worker.pid);
    stage.check(hit, || "it was not the agent that killed the hog".to_owned());
    seen.eventually(stage, "the pod is Failed and Evicted", |plane| Ok(is_evicted(&plane.pod("hog")?)));
    seen.eventually(stage, "an event Evicted on the pod", |_| Ok(!seen.events_of("hog", "Evicted")?.is_empty()));
    seen.eventually(stage, "the taint came and went", |plane| {
        Ok(seen.taint().is_some() && taint(&plane.node()?, "memory").is_none())
    });
    let runs = quiet.is_running()?;
    stage.check(runs, || "the quiet pod does not run any more".to_owned());
    ends_well(stage, &daemon, &plane)?;
    drop(kubelet);
    drop(node);
    Ok(())
}

/// Returns the names of the attached probes.
fn probes(agent: &Agent) -> Result<Vec<String>> {
    let metrics = agent.metrics()?;
    let attached = metrics.all("probe_attached").filter(|series| series.value > 0.0);
    let mut names: Vec<String> = attached.map(|series| series.label("probe").to_owned()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Asserts readiness by the probes that the kubelet would use.
fn is_ready(stage: &mut Stage<'_>, daemon: &DaemonPod) {
    let begun = std::time::Instant::now();
    for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let mut answer = String::new();
        let came =
            stage.until(START, |_| match daemon.probe(name).and_then(|path| http::get(daemon.agent.address, path)) {
                Ok((200, _)) => true,
                Ok((code, text)) => {
                    answer = format!("{code} {text}");
                    false
                }
                Err(error) => {
                    answer = format!("{error:#}");
                    false
                }
            });
        let log = || daemon.agent.tail(5).join(" / ");
        stage.check(came, || format!("{name} fails: {answer}; {}", log()));
    }
    stage.figure("ready_after", begun.elapsed().as_secs_f64(), "s");
}

/// Asserts from the kernel that the agent has the rights of the manifest and no others.
fn is_confined(stage: &mut Stage<'_>, daemon: &DaemonPod) -> Result<()> {
    let path = format!("/proc/{}/status", daemon.agent.pid);
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default().to_owned()
    };
    let wanted = items(&daemon.container["securityContext"]["capabilities"]["add"]).count();
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        let bits = u64::from_str_radix(&field(set), 16).with_context(|| format!("{path}: {set}"))?;
        stage.check_equal(set, &usize::try_from(bits.count_ones())?, &wanted);
    }
    stage.check_equal("NoNewPrivs", &field("NoNewPrivs").as_str(), &"1");
    // 2 means a filter: the runtime's default profile.
    stage.check_equal("Seccomp", &field("Seccomp").as_str(), &"2");
    let path = format!("/proc/{}/mountinfo", daemon.agent.pid);
    let mounts = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).context("no root in mountinfo")?;
    let options = root.split(' ').nth(5).unwrap_or_default();
    stage.check(options.split(',').any(|option| option == "ro"), || format!("its root is mounted {options}"));
    stage.note(format!("{wanted} capabilities, no new ones, seccomp filter, root mounted {options}"));
    Ok(())
}

/// Stops the agent as the kubelet does, and asserts that the API server never refused a request.
fn ends_well(stage: &mut Stage<'_>, daemon: &DaemonPod, plane: &ControlPlane) -> Result<()> {
    cri::stop_container(&daemon.id, 30)?;
    stage.check_equal("the container's exit code", &cri::exit_code(&daemon.id)?, &0);
    let node = plane.node()?;
    let left = condition(&node, "MonitorMemoryPressure");
    stage.check(left.is_none(), || format!("MonitorMemoryPressure was left behind: {left:?}"));
    let refused: Vec<String> = plane
        .requests()
        .into_iter()
        .filter(|(_, record)| matches!(record.carried_out, Some(401 | 403)))
        .map(|(_, record)| format!("{} {}", record.method, record.path))
        .collect();
    stage.check(refused.is_empty(), || format!("the service account of {NAME} may not: {refused:?}"));
    Ok(())
}
