//! `node-pressure-monitor fleet`, as a plugin `kubectl node-pressure`: the nodes of a cluster as their agents tell about them.

mod agent_tunnel;
mod fleet_incidents;
mod fleet_table;
mod fleet_totals;
mod pod_fate;
mod pod_story;

use std::path::PathBuf;

use jiff::Timestamp;

use crate::cluster::Access;
use crate::cluster::fleet;

use super::input::{self, CommandError};
use super::output::{self, TableOrJson};
use super::top::{self, ScreenOptions};
use agent_tunnel::Agents;
use fleet_totals::Totals;

/// Options of `fleet`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Nodes to list: those nearest to a threshold
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t = TableOrJson::Table)]
    output: TableOrJson,
}

/// Which cluster, and where its agents are.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ClusterOptions {
    /// Kubeconfig file; default: as kubectl chooses it
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: the current one
    #[arg(long, value_name = "NAME", global = true)]
    pub context: Option<String>,
    /// Namespace of the agents
    #[arg(long, value_name = "NAME", default_value = "node-pressure-monitor", global = true)]
    pub agent_namespace: String,
    /// File with the token that the agents' metrics.bearerToken asks for
    #[arg(long, value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// File with the certificate that the agents' metrics.tls has, in PEM: agents are asked by TLS
    #[arg(long, value_name = "FILE", global = true)]
    pub certificate: Option<PathBuf>,
    /// Program that is run as kubectl, to reach the agents
    #[arg(long, value_name = "PROGRAM", default_value = "kubectl", global = true)]
    pub kubectl: PathBuf,
}

impl ClusterOptions {
    fn access(&self) -> Access {
        Access::of_user(self.kubeconfig.clone(), self.context.clone()).in_namespace(Some(self.agent_namespace.clone()))
    }
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the incidents of all nodes, from the agents of the nodes that have some
    Incidents(fleet_incidents::Options),
    /// Show the state of a node live, as its agent's top does
    Top(NodeOptions),
    /// Explain why a pod was evicted or killed, and how it stands in the order of eviction
    Why(pod_story::Options),
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP_TOP)]
struct NodeOptions {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    screen: ScreenOptions,
}

const HELP: &str = r#"With a link to this binary named kubectl-node_pressure in the PATH, kubectl node-pressure is this command.

The command lists the Leases of the agents, one request however many nodes there are, and reads no node and no pod. An agent renews its Lease
once a minute (kubernetes.heartbeat); the table is that old. An agent that has missed three heartbeats is silent: what its Lease tells is left
out of the sums. It needs list on leases in the agents' namespace.

Nodes that cross a threshold soonest at their present rate come first, then those nearest to a threshold. Evictions and OOM kills are those of
this day (UTC); evictions are those of agents in mode enforce. A Lease names the eight namespaces with most of them.
Nodes in maintenance (cordoned, drained, being updated) are named with the reason; soft evictions wait there by default.

--output json prints one object:

  {"agents", "silent", "modes", "versions", "configurations": {HASH: agents}, "refused": [NODE], "evictions", "oomKills",
   "namespaces": {NAME: {"evictions", "oomKills"}},
   "nodes": [{"node", "version", "mode", "pool", "configHash", "configSince", "configRefused",
              "maintenance": why the node is in maintenance, "nearest": {"threshold", "available", "value", "seconds"}, "day", "evictions", "oomKills", "namespaces", "lastIncident",
              "renewed", "isSilent"}]}

incidents, top and why ask agents themselves, each through `kubectl port-forward`, eight at a time. That needs kubectl, list on
pods and create on pods/portforward in the agents' namespace. Agents with metrics.tls need --certificate; the variant config/kubernetes/tls
has it in a secret:

  kubectl get secret -n node-pressure-monitor node-pressure-monitor-tls -o 'jsonpath={.data.tls\.crt}' | base64 -d > agent.crt

Exit status: 0 answered; 1 the API server or an agent cannot be asked, or there is no Lease of an agent; 2 wrong usage."#;

const HELP_TOP: &str = r#"fleet top asks the agent through `kubectl port-forward`, as `fleet --help` describes.

Exit status: 0 the view was ended; 1 the API server or the agent cannot be asked, or the node has no agent; 2 wrong usage, or standard output is
no terminal and --once is not given."#;

pub fn run(options: &Options) -> Result<(), CommandError> {
    let runtime = input::event_loop()?;
    if let Some(Action::Top(of_node)) = &options.action {
        let connected = runtime.block_on(async {
            let agents = Agents::find(&options.cluster, Some(&of_node.node)).await?;
            agents.connect(&of_node.node).await.map_err(CommandError::Wrong)
        });
        let (agent, _tunnel) = connected?;
        return top::show(&of_node.screen, agent, runtime);
    }
    let text = runtime.block_on(answer(options))?;
    output::answer(|out| std::io::Write::write_all(out, text.as_bytes())).map_err(CommandError::Output)
}

/// Returns what the command prints.
pub async fn answer(options: &Options) -> Result<String, CommandError> {
    match &options.action {
        Some(Action::Incidents(of_incidents)) => fleet_incidents::answer(of_incidents, &options.cluster).await,
        Some(Action::Why(of_pod)) => pod_story::answer(of_pod, &options.cluster).await,
        Some(Action::Top(_)) => Err(CommandError::Usage("top needs a terminal".to_owned())),
        None => overview(options).await,
    }
}

/// Lists the agents by their Leases.
async fn agents(cluster: &ClusterOptions, now: Timestamp) -> Result<Vec<fleet::FleetNode>, CommandError> {
    let nodes = fleet::list(&cluster.access(), now).await.map_err(CommandError::Wrong)?;
    if nodes.is_empty() {
        return Err(CommandError::Wrong(format!(
            "no agent has a Lease in the namespace {}; name the agents' namespace by --agent-namespace",
            cluster.agent_namespace
        )));
    }
    Ok(nodes)
}

async fn overview(options: &Options) -> Result<String, CommandError> {
    let now = Timestamp::now();
    let mut nodes = agents(&options.cluster, now).await?;
    nodes.sort_by(fleet_totals::most_urgent_first);
    let totals = Totals::of(&nodes);
    match options.output {
        TableOrJson::Table => Ok(fleet_table::render(&nodes, &totals, options.limit, now)),
        TableOrJson::Json => json(&nodes, &totals),
    }
}

fn json(nodes: &[fleet::FleetNode], totals: &Totals) -> Result<String, CommandError> {
    #[derive(serde::Serialize)]
    struct Answer<'a> {
        #[serde(flatten)]
        totals: &'a Totals,
        nodes: &'a [fleet::FleetNode],
    }
    let text = serde_json::to_string_pretty(&Answer { totals, nodes });
    text.map(|text| text + "\n").map_err(|error| CommandError::Wrong(format!("the answer cannot be written: {error}")))
}
