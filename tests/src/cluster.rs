//! A Kubernetes cluster of one node in this guest: etcd, API server, controller manager, scheduler, and a kubelet on containerd or
//! CRI-O.

pub mod audit;
mod network;
mod pki;
pub mod pod_history;
pub mod programs;

use std::fs;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::agent::Agent;
use crate::cgroups::{Layout, container_of};
use crate::console;
use crate::containers::runtime::Runtime;
use crate::containers::{self, Node, Storage};
use crate::control_plane::{Admin, NODE};
use crate::init::{self, MANIFESTS, copy_tree};
use crate::scenarios::cluster_eyes::condition;
use crate::stage::Stage;

use programs::Program;

/// The time limit of a step. A control plane starts slowly under emulation.
const TIME_LIMIT: Duration = Duration::from_secs(240);
/// The name of the namespace and of every object that deploys the agent.
pub const NAME: &str = "node-pressure-monitor";

/// The copy of the manifests that a scenario deploys.
const DEPLOYED: &str = "/tmp/manifests";

/// A running cluster, which lives as long as the guest.
#[derive(Debug)]
pub struct Cluster {
    pub admin: Admin,
    _node: ManuallyDrop<Node>,
}

impl Cluster {
    /// Returns the cluster of this boot, and starts it if this is the first scenario.
    pub fn of(stage: &Stage<'_>) -> Result<Rc<Self>> {
        if let Some(cluster) = stage.boot.cluster.borrow().as_ref() {
            return Ok(Rc::clone(cluster));
        }
        let cluster = Rc::new(Self::start(stage)?);
        *stage.boot.cluster.borrow_mut() = Some(Rc::clone(&cluster));
        Ok(cluster)
    }

    fn start(stage: &Stage<'_>) -> Result<Self> {
        let begun = Instant::now();
        let note_step = |what: &str| stage.note(format!("{what} after {:.0} s", begun.elapsed().as_secs_f64()));
        let device = init::option("npm.kubernetes").context("the disk of Kubernetes' programs is not there")?;
        pki::make()?;
        programs::arrange(&device)?;
        network::arrange()?;
        // The cluster owns the node's containers until the guest ends.
        let node = ManuallyDrop::new(Node::start(stage, Storage::Shared)?);
        node.import_as(NAME, &format!("localhost/{NAME}:0.1.0"))?;
        note_step(&format!("{} runs", Runtime::here().name()));
        Program::Etcd.start()?;
        Program::ApiServer.start()?;
        let admin = Admin::of_kubeconfig(&Self::admin_kubeconfig())?;
        wait_for(Program::ApiServer, "API server", || {
            Ok(admin.find("/api/v1/namespaces/kube-system").is_ok_and(|found| found.is_some()))
        })?;
        note_step("the API server answers");
        let cluster = Self { admin, _node: node };
        wait_for(Program::ApiServer, "healthy API server", || Ok(cluster.is_healthy()))?;
        note_step("the API server is healthy");
        for program in [Program::ControllerManager, Program::Scheduler, Program::Kubelet] {
            program.start()?;
        }
        wait_for(Program::Kubelet, "ready node", || cluster.is_ready())?;
        wait_for(Program::ControllerManager, "service account of the namespace", || {
            Ok(cluster.admin.find("/api/v1/namespaces/default/serviceaccounts/default")?.is_some())
        })?;
        note_step("the node is Ready");
        stage.versions(&versions(&cluster.admin.node()?));
        Ok(cluster)
    }

    /// Returns whether the API server answers and is healthy.
    pub fn is_healthy(&self) -> bool {
        self.kubectl(&["get", "--raw", "/readyz"]).is_ok()
    }

    fn is_ready(&self) -> Result<bool> {
        Ok(self.admin.find(&format!("/api/v1/nodes/{NODE}"))?.is_some_and(|node| is_ready(&node)))
    }

    pub fn admin_kubeconfig() -> PathBuf {
        pki::file("admin.conf")
    }

    /// Returns a kubectl command with the administrator's kubeconfig.
    pub fn kubectl_command() -> Command {
        let mut command = Command::new(programs::path("kubectl"));
        command.arg(format!("--kubeconfig={}", Self::admin_kubeconfig().display()));
        command
    }

    /// Runs kubectl as the administrator; returns its output.
    pub fn kubectl(&self, words: &[&str]) -> Result<String> {
        let output = Self::kubectl_command().args(words).output().context("start kubectl")?;
        if !output.status.success() {
            bail!("kubectl {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command of the agent's program with `--output json` in the agent's pod; returns its output. The exit status is ignored: a finding
    /// makes it 1.
    pub fn in_agent(&self, words: &[&str]) -> Result<Value> {
        let daemon_set = format!("daemonset/{NAME}");
        let mut command = Self::kubectl_command();
        command.args(["-n", NAME, "exec", &daemon_set, "-c", "monitor", "--", "/usr/bin/node-pressure-monitor"]);
        command.args(words).args(["--output", "json", "--config", "/etc/node-pressure-monitor/monitor.yaml"]);
        let output = command.output().context("start kubectl exec")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).with_context(|| format!("{}: {}", words.join(" "), errors.trim()))
    }

    /// Creates the objects of this text.
    pub fn apply(&self, yaml: &str) -> Result<()> {
        let path = "/tmp/apply.yaml";
        fs::write(path, yaml).with_context(|| format!("write {path}"))?;
        self.kubectl(&["apply", "-f", path]).map(drop)
    }

    /// Deploys a variant of the manifests as config/README.md describes, with this change of its configuration, and waits until the agent is
    /// ready. The objects that a failed scenario has left are removed first.
    pub fn deploy(&self, stage: &mut Stage<'_>, variant: &str, change: impl Fn(&str) -> String) -> Result<Agent> {
        let copy = Path::new(DEPLOYED);
        if copy.exists() {
            // The scenario that failed may have stopped the kubelet.
            let _was_stopped = Program::Kubelet.stop();
            programs::configure_kubelet("")?;
            Program::Kubelet.start()?;
            self.remove()?;
            self.kubectl(&["delete", "-k", &format!("{MANIFESTS}/removal"), "--ignore-not-found", "--wait"])?;
        }
        copy_tree(Path::new(MANIFESTS), copy)?;
        let configuration = copy.join(if variant.is_empty() { "base" } else { variant }).join("configuration.yaml");
        let text = fs::read_to_string(&configuration).context("read the configuration")?;
        fs::write(&configuration, change(&text)).context("write the configuration")?;
        self.kubectl(&["apply", "-k", &copy.join(variant).display().to_string()])?;
        self.agent(stage)
    }

    /// Removes every object of the manifests and of the namespace `default`.
    pub fn remove(&self) -> Result<()> {
        self.kubectl(&[
            "-n",
            "default",
            "delete",
            "deployments,statefulsets,daemonsets,jobs,pods,pdb",
            "--all",
            "--wait",
        ])?;
        self.kubectl(&["delete", "-k", DEPLOYED, "--ignore-not-found", "--wait"])?;
        fs::remove_dir_all(DEPLOYED).context("remove the scenario's manifests")
    }

    /// Waits for the ready agent of this node.
    pub fn agent(&self, stage: &mut Stage<'_>) -> Result<Agent> {
        let mut last = Value::Null;
        let mut found = None;
        let came = stage.until(TIME_LIMIT, |stage| {
            let pods = self.pods_of(NAME, "app.kubernetes.io/component=agent").unwrap_or_default();
            last = pods.into_iter().next().unwrap_or_default();
            // The status may still describe a container that has ended.
            found = if is_ready(&last) { attached(stage.layout(), &last).ok() } else { None };
            found.is_some()
        });
        if !came {
            self.print_events(NAME);
        }
        found.with_context(|| format!("the agent's pod is not ready: {}", last["status"]["containerStatuses"]))
    }

    /// Prints the events of a namespace, to explain a failure.
    pub fn print_events(&self, namespace: &str) {
        let events = self.admin.get(&format!("/api/v1/namespaces/{namespace}/events")).unwrap_or_default();
        for event in events["items"].as_array().into_iter().flatten() {
            let (reason, message) = (&event["reason"], &event["message"]);
            console::note("event", format!("{reason} {}: {message}", event["involvedObject"]["name"]));
        }
    }

    /// Returns the pods of a namespace with this label.
    pub fn pods_of(&self, namespace: &str, label: &str) -> Result<Vec<Value>> {
        let label = label.replace('/', "%2F").replace('=', "%3D");
        let list = self.admin.get(&format!("/api/v1/namespaces/{namespace}/pods?labelSelector={label}"))?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }
}

/// Returns the agent that runs in this pod.
fn attached(layout: Layout, pod: &Value) -> Result<Agent> {
    let (metadata, container) = (&pod["metadata"], &pod["status"]["containerStatuses"][0]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, uid) = (text(&metadata["name"]), text(&metadata["uid"]));
    let scope = container_of(layout, &uid, &container_id(pod)?)?;
    let pid = *scope.processes().first().context("the agent's container has no process")?;
    let address = format!("{}:9946", text(&pod["status"]["podIP"]));
    let address: SocketAddr = address.parse().with_context(|| format!("the agent's address {address}"))?;
    let log = format!("/var/log/pods/{NAME}_{name}_{uid}/monitor/{}.log", container["restartCount"]);
    Ok(Agent::attach(pid, address, log.into()))
}

/// Returns the versions of Kubernetes and of the container runtime, as the kubelet reports them.
fn versions(node: &Value) -> String {
    let info = |field: &str| node["status"]["nodeInfo"][field].as_str().unwrap_or("unknown");
    let kubernetes = info("kubeletVersion").trim_start_matches('v');
    format!("Kubernetes {kubernetes}, {}", info("containerRuntimeVersion").replace("://", " "))
}

/// Returns whether a node or a pod is ready.
pub fn is_ready(object: &Value) -> bool {
    condition(object, "Ready") == Some("True")
}

/// Returns the id of a pod's first container.
pub fn container_id(pod: &Value) -> Result<String> {
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().context("the pod has no container yet")?;
    Ok(id.rsplit('/').next().unwrap_or_default().to_owned())
}

/// Waits until `there` holds. On failure, prints the end of the program's log.
fn wait_for(program: Program, what: &str, there: impl FnMut() -> Result<bool>) -> Result<()> {
    containers::wait_for(what, TIME_LIMIT, there).inspect_err(|_| {
        for line in program.tail(25) {
            console::note(program.name(), line.chars().take(300).collect::<String>());
        }
    })
}
