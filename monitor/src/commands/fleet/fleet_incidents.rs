//! `fleet incidents`: the incidents of all nodes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ClusterOptions;
use super::agent_tunnel::Agents;
use crate::cluster::fleet::FleetNode;
use crate::commands::incidents::FilterOptions;
use crate::commands::input::CommandError;
use crate::commands::output::{self, TextOrJson, aligned, printable};
use crate::incidents::incident_filter::IncidentFilter;

const HELP: &str = r#"fleet incidents asks the agents whose Leases count incidents in that time, each through `kubectl port-forward`, as `fleet --help` describes.

--output json prints one object a line, oldest first:

  {"node", "id", "kind": "oom-kill"|"eviction", "time", "summary", "mode", "pod", "outcome", "repeated"}

Fields without a value are left out. `node-pressure-monitor incidents ID` on that node prints the whole incident.

Exit status: 0 answered, also without an incident; 1 the API server or an agent cannot be asked, or there is no Lease of an agent; 2 wrong usage."#;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Options {
    /// List incidents of all namespaces, and of victims that are no pods; this is the default
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    filter: FilterOptions,
    /// Most incidents to list; the newest are listed
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Output format; json: one object a line
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

/// An incident as `/incidents` lists it, with its node.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct NodeIncident {
    #[serde(default)]
    pub node: String,
    pub id: String,
    pub kind: String,
    pub time: Timestamp,
    pub summary: String,
    #[serde(default)]
    mode: String,
    pod: Option<String>,
    outcome: Option<String>,
    repeated: Option<u64>,
}

pub(super) async fn answer(options: &Options, cluster: &ClusterOptions) -> Result<String, CommandError> {
    let filter = options.filter.filter();
    let nodes = super::agents(cluster, Timestamp::now()).await?;
    let asked: Vec<String> = nodes.iter().filter(|node| may_have(node, &filter)).map(|it| it.node.clone()).collect();
    let agents = Agents::find(cluster, None).await?;
    let found = list(&agents, asked, &filter, options.limit).await?;
    let skipped = found.len().saturating_sub(options.limit);
    let shown = found.get(skipped..).unwrap_or_default();
    if skipped > 0 {
        output::note(format_args!("older incidents are not shown; --limit {} shows more", found.len()));
    }
    match options.output {
        TextOrJson::Json => lines(shown),
        TextOrJson::Text if shown.is_empty() => {
            output::note("no node has such an incident");
            Ok(String::new())
        }
        TextOrJson::Text => Ok(table(shown)),
    }
}

/// Whether the node may have incidents of the filter: its Lease tells about its last one.
pub(super) fn may_have(node: &FleetNode, filter: &IncidentFilter) -> bool {
    let is_recent = |at: Timestamp| filter.since.is_none_or(|since| at >= since);
    node.last_incident.is_some() && node.last_incident_at().is_none_or(is_recent)
}

/// Asks the agents of these nodes; oldest first. An agent that does not answer is noted; if none does, that is an error.
pub(super) async fn list(
    agents: &Agents,
    nodes: Vec<String>,
    filter: &IncidentFilter,
    limit: usize,
) -> Result<Vec<NodeIncident>, CommandError> {
    let asked = nodes.len();
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for (node, answer) in agents.ask_each(nodes, &format!("/incidents?{}", filter.query(limit))).await {
        let listed = answer
            .and_then(|body| serde_json::from_slice::<Vec<NodeIncident>>(&body).map_err(|error| error.to_string()));
        match listed {
            Ok(listed) => found.extend(listed.into_iter().map(|it| NodeIncident { node: node.clone(), ..it })),
            Err(reason) => silent.push(format!("{node}: {reason}")),
        }
    }
    silent.sort();
    if let Some(first) = silent.first().filter(|_| silent.len() == asked) {
        return Err(CommandError::Wrong(format!("none of {asked} agents could be asked: {first}")));
    }
    for reason in &silent {
        output::warn(format_args!("incidents are missing: {reason}"));
    }
    found.sort_by(|a, b| (a.time, &a.node, &a.id).cmp(&(b.time, &b.node, &b.id)));
    Ok(found)
}

fn lines(incidents: &[NodeIncident]) -> Result<String, CommandError> {
    let line = |incident| serde_json::to_string(incident).map(|line| line + "\n");
    let text: Result<String, _> = incidents.iter().map(line).collect();
    text.map_err(|error| CommandError::Wrong(format!("the answer cannot be written: {error}")))
}

fn table(incidents: &[NodeIncident]) -> String {
    let mut rows = vec![["TIME", "NODE", "KIND", "ID", "WHAT HAPPENED"].map(str::to_owned).to_vec()];
    rows.extend(incidents.iter().map(|it| {
        let time = it.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        vec![time, printable(&it.node), printable(&it.kind), printable(&it.id), printable(&it.summary)]
    }));
    aligned(&rows, 2, |_| false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_agents_of_nodes_with_incidents_are_asked() {
        let since = |text: &str| IncidentFilter { since: Some(text.parse().unwrap()), ..IncidentFilter::default() };
        let node = |last: Option<&str>| FleetNode { last_incident: last.map(str::to_owned), ..FleetNode::default() };
        let at_three = Some("2026-01-02T03:00:00Z an OOM kill");
        for (last, filter, expected) in [
            (None, IncidentFilter::default(), false),
            (at_three, IncidentFilter::default(), true),
            (at_three, since("2026-01-02T03:00:00Z"), true),
            (at_three, since("2026-01-02T03:00:01Z"), false),
            (Some("unreadable"), since("2026-01-02T03:00:01Z"), true),
        ] {
            assert_eq!(may_have(&node(last), &filter), expected, "{last:?} {filter:?}");
        }
    }

    #[test]
    fn an_agents_list_is_shown_with_its_node() {
        let json = r#"{"id": "20260102-030405-oom-7", "kind": "OomKill", "time": "2026-01-02T03:04:05Z", "summary": "a\u001b[2J", "new": 1}"#;
        let incident = NodeIncident { node: "worker-1".to_owned(), ..serde_json::from_str(json).unwrap() };
        let text = table(&[incident]);
        assert!(text.contains("2026-01-02T03:04:05Z  worker-1  OomKill  20260102-030405-oom-7  a"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
