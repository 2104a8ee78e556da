//! Connections to agents through `kubectl port-forward`, which reaches every node that the API server reaches.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::ClusterOptions;
use crate::cluster::fleet::{self, AgentPod};
use crate::commands::agent_client::{Agent, token_of};
use crate::commands::input::CommandError;

/// Of an agent's pod, as the manifests have it.
const PORT: u16 = 9946;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Agents that are asked at the same time: each costs a process here and a stream at the API server.
const AT_ONCE: usize = 8;

/// Asks agents in the cluster.
#[derive(Clone)]
pub(super) struct Agents {
    kubectl: Arc<Kubectl>,
    /// An agent without an address: each tunnel has its own.
    agent: Agent,
    pods: Arc<[AgentPod]>,
}

#[derive(Debug)]
struct Kubectl {
    program: OsString,
    arguments: Vec<OsString>,
}

/// An agent's answer, or the reason why there is none.
pub(super) type Answer = Result<Bytes, String>;

impl Agents {
    /// Finds the agents' pods: of one node, or all.
    pub(super) async fn find(cluster: &ClusterOptions, node: Option<&str>) -> Result<Self, CommandError> {
        let token = token_of(cluster.token_file.as_ref())?;
        let agent = match &cluster.certificate {
            Some(certificate) => Agent::pinned("", token, certificate)?,
            None => Agent::new("", token),
        };
        let pods = fleet::agent_pods(&cluster.access(), node).await.map_err(CommandError::Wrong)?;
        let program = cluster.kubectl.clone().into_os_string();
        Ok(Self { kubectl: Arc::new(Kubectl { program, arguments: arguments(cluster) }), agent, pods: pods.into() })
    }

    /// Connects to the agent of one node.
    pub(super) async fn connect(&self, node: &str) -> Result<(Agent, Tunnel), String> {
        let pod = self.pods.iter().find(|pod| pod.node == node);
        let pod = pod.ok_or_else(|| format!("no running pod of the agent is on the node {node}"))?;
        let tunnel = Tunnel::open(&self.kubectl, &pod.name).await?;
        Ok((self.agent.at(&tunnel.address.to_string()), tunnel))
    }

    /// Asks the agent of one node.
    pub(super) async fn ask(&self, node: &str, path: &str) -> Answer {
        let (agent, _tunnel) = self.connect(node).await?;
        agent.get(path).await.map_err(|refusal| refusal.to_string())
    }

    /// Asks the agents of these nodes the same. The answers come in no order.
    pub(super) async fn ask_each(&self, nodes: Vec<String>, path: &str) -> Vec<(String, Answer)> {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut asking = JoinSet::new();
        for node in nodes {
            let (agents, places, path) = (self.clone(), Arc::clone(&places), path.to_owned());
            asking.spawn(async move {
                let _place = places.acquire().await;
                let answer = agents.ask(&node, &path).await;
                (node, answer)
            });
        }
        asking.join_all().await
    }
}

/// Returns the arguments before the pod's name.
fn arguments(cluster: &ClusterOptions) -> Vec<OsString> {
    let ClusterOptions { kubeconfig, context, agent_namespace, .. } = cluster;
    let mut arguments: Vec<OsString> = Vec::new();
    if let Some(kubeconfig) = kubeconfig {
        arguments.extend(["--kubeconfig".into(), kubeconfig.into()]);
    }
    if let Some(context) = context {
        arguments.extend(["--context".into(), context.into()]);
    }
    arguments.extend(["--namespace".into(), agent_namespace.into(), "port-forward".into()]);
    arguments
}

/// `kubectl port-forward` to one pod. Dropping it ends kubectl.
#[derive(Debug)]
pub(super) struct Tunnel {
    address: SocketAddr,
    _kubectl: Child,
}

impl Tunnel {
    async fn open(kubectl: &Kubectl, pod: &str) -> Result<Self, String> {
        let program = kubectl.program.to_string_lossy();
        let spawned = Command::new(&kubectl.program)
            .args(&kubectl.arguments)
            .args([format!("pod/{pod}"), format!(":{PORT}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = spawned.map_err(|error| format!("{program}: {error}; name it by --kubectl"))?;
        let opened = tokio::time::timeout(TIMEOUT, opened(&mut child)).await;
        let port = opened.unwrap_or_else(|_| Err(format!("no connection within {} s", TIMEOUT.as_secs())));
        let port = port.map_err(|reason| format!("{program} port-forward: {reason}"))?;
        Ok(Self { address: (Ipv4Addr::LOCALHOST, port).into(), _kubectl: child })
    }
}

/// Waits until kubectl says at which port of this machine it listens.
async fn opened(child: &mut Child) -> Result<u16, String> {
    let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("its output cannot be read".to_owned());
    };
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(port) = local_port(&line) {
            // kubectl writes a line for each connection, and must not block on it.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(port);
        }
    }
    let mut reason = String::new();
    let _partial = stderr.read_to_string(&mut reason).await;
    Err(reason.trim().to_owned())
}

/// Reads `Forwarding from 127.0.0.1:41234 -> 9946`.
fn local_port(line: &str) -> Option<u16> {
    line.strip_prefix("Forwarding from 127.0.0.1:")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_kubectls_line() {
        for (line, port) in [
            ("Forwarding from 127.0.0.1:41234 -> 9946", Some(41234)),
            ("Forwarding from [::1]:41234 -> 9946", None),
            ("Handling connection for 41234", None),
        ] {
            assert_eq!(local_port(line), port, "{line}");
        }
    }
}
