//! `fleet why`: what became of a pod, and how it stands in the order of eviction.

use std::fmt::Write as _;

use jiff::Timestamp;
use node_pressure_state::{Place, Ranking, State};

use super::ClusterOptions;
use super::agent_tunnel::Agents;
use super::fleet_incidents::{self, NodeIncident};
use super::pod_fate;
use crate::cluster::fleet;
use crate::commands::input::CommandError;
use crate::commands::output::printable;
use crate::incidents::incident_filter::IncidentFilter;

/// Incidents of one pod that each agent lists.
const MOST: usize = 100;

const HELP: &str = r#"fleet why asks the agent of the pod's node through `kubectl port-forward`, as `fleet --help` describes. Of a pod
that has ended it prints the phase, the reason, the message and the component that ended it. Where the API server has no such pod, it asks
all agents whose Leases count incidents.

Exit status: 0 answered; 1 the API server or an agent cannot be asked, or neither the API server nor an agent knows the pod; 2 wrong usage."#;

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct Options {
    /// The pod: namespace/name, or a name in the namespace of --namespace
    #[arg(value_name = "POD")]
    pod: String,
    /// Namespace of the pod
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,
}

pub(super) async fn answer(options: &Options, cluster: &ClusterOptions) -> Result<String, CommandError> {
    let (namespace, name) = options.pod.split_once('/').unwrap_or((&options.namespace, &options.pod));
    let full = format!("{namespace}/{name}");
    let at_server = fleet::pod(&cluster.access(), namespace, name).await.map_err(CommandError::Wrong)?;
    let node = at_server.as_ref().and_then(|pod| pod.node.as_deref());
    let Some(ended) = at_server.as_ref().map(|pod| &pod.status).filter(|status| status.has_ended()) else {
        return of_agents(cluster, &full, node).await;
    };
    let fate = pod_fate::of(ended, &full, node);
    let Some(node) = node else { return Ok(fate) };
    // The node may have no agent any more.
    let journal = async { journal(&Agents::find(cluster, Some(node)).await?, vec![node.to_owned()], &full).await };
    Ok(match journal.await {
        Ok(Some(story)) => fate + &story,
        Ok(None) => fate + &no_incident(&full),
        Err(error) => format!("{fate}\nThe agent's journal cannot be read: {error}\n"),
    })
}

/// Returns what the agents know of a pod that runs on a node, or that the API server does not have.
async fn of_agents(cluster: &ClusterOptions, pod: &str, node: Option<&str>) -> Result<String, CommandError> {
    if let Some(node) = node {
        let agents = Agents::find(cluster, Some(node)).await?;
        let standing = standing(&state_of(&agents, node).await?, pod, node);
        let story = journal(&agents, vec![node.to_owned()], pod).await?;
        return Ok(standing + &story.unwrap_or_else(|| no_incident(pod)));
    }
    let nodes = super::agents(cluster, Timestamp::now()).await?;
    let with_incidents = nodes.into_iter().filter(|node| fleet_incidents::may_have(node, &of_pod(pod)));
    let asked = with_incidents.map(|node| node.node).collect();
    let story = journal(&Agents::find(cluster, None).await?, asked, pod).await?;
    story.ok_or_else(|| {
        CommandError::Wrong(format!("there is no pod {pod}, and no agent has an incident of it; write namespace/name"))
    })
}

fn of_pod(pod: &str) -> IncidentFilter {
    IncidentFilter { pod: Some(pod.to_owned()), ..IncidentFilter::default() }
}

/// Returns the last incident of a pod in the journals of these nodes, if there is one.
async fn journal(agents: &Agents, nodes: Vec<String>, pod: &str) -> Result<Option<String>, CommandError> {
    let found = fleet_incidents::list(agents, nodes, &of_pod(pod), MOST).await?;
    let Some(last) = found.last() else { return Ok(None) };
    Ok(Some(story(agents, last, found.len(), pod).await?))
}

fn no_incident(pod: &str) -> String {
    format!("\nThe agent's journal has no incident of {}.\n", printable(pod))
}

async fn state_of(agents: &Agents, node: &str) -> Result<State, CommandError> {
    let json = agents.ask(node, "/api/v1/state").await.map_err(CommandError::Wrong)?;
    serde_json::from_slice(&json)
        .map_err(|error| CommandError::Wrong(format!("{node}: its state cannot be read: {error}")))
}

/// Returns the post-mortem of the pod's last incident.
async fn story(agents: &Agents, last: &NodeIncident, count: usize, pod: &str) -> Result<String, CommandError> {
    let path = format!("/incidents/{}?output=text", last.id);
    let record = agents.ask(&last.node, &path).await;
    let record = record.map_err(|reason| CommandError::Wrong(format!("{}: {reason}", last.node)))?;
    let (pod, node) = (printable(pod), printable(&last.node));
    let head = match count {
        1 => format!("\nThe incident of {pod}, on {node}:\n\n"),
        _ => format!("\nThe last of {count} incidents of {pod}, on {node}:\n\n"),
    };
    let record = String::from_utf8_lossy(&record);
    let lines: Vec<String> = record.lines().map(printable).collect();
    Ok(head + &lines.join("\n") + "\n")
}

/// Returns how a living pod stands in each ranking of its node.
fn standing(state: &State, pod: &str, node: &str) -> String {
    let mut text = format!("{} runs on {}: {}\n", printable(pod), printable(node), printable(&state.verdict.sentence));
    let workloads = state.workloads.iter().filter(|it| it.name.full_pod().as_deref() == Some(pod));
    let paths: Vec<&str> = workloads.map(|it| it.name.workload.as_str()).collect();
    let mut is_ranked = false;
    for ranking in &state.rankings {
        let Some(place) = ranking.places.iter().find(|place| paths.contains(&place.workload.as_str())) else {
            continue;
        };
        is_ranked = true;
        text += &of_ranking(ranking, place);
    }
    if !is_ranked {
        text += "The agent ranks it by no signal: it has not seen its cgroup yet, or no threshold is configured.\n";
    }
    text
}

fn of_ranking(ranking: &Ranking, place: &Place) -> String {
    let candidates = ranking.places.iter().filter(|place| place.place.is_some()).count();
    let mut text = format!("\nFor {}:\n", printable(&ranking.signal));
    // Writing to a String does not fail.
    let _ = match place.place {
        Some(number) => writeln!(text, "  place {number} of {candidates} candidates in the order of eviction"),
        None => writeln!(text, "  no candidate"),
    };
    if let Some(exempt) = &place.exempt {
        let _ = writeln!(text, "  would not be evicted: {}", printable(exempt));
    } else if ranking.next.as_deref() == Some(&place.workload) {
        text += "  would be evicted next\n";
    }
    for key in &place.keys {
        let _ = writeln!(text, "  {}: {}", printable(&key.name), printable(&key.value));
    }
    text
}

#[cfg(test)]
mod tests {
    use node_pressure_state::{Key, Name, Verdict, WorkloadState};

    use super::*;

    #[test]
    fn a_living_pod_is_explained_by_every_ranking() {
        let place = |place, workload: &str, exempt: Option<&str>| Place {
            place,
            workload: workload.to_owned(),
            exempt: exempt.map(str::to_owned),
            keys: vec![Key { name: "qosClass".to_owned(), value: "BestEffort".to_owned() }],
            ..Place::default()
        };
        let ranking = |signal: &str, places: Vec<Place>| Ranking {
            signal: signal.to_owned(),
            next: Some("/a".to_owned()),
            places,
            none_because: None,
        };
        let name = |path: &str, pod: &str| Name {
            workload: path.to_owned(),
            namespace: Some("batch".to_owned()),
            pod: Some(pod.to_owned()),
            ..Name::default()
        };
        let workload = |path, pod| WorkloadState { name: name(path, pod), ..WorkloadState::default() };
        let state = State {
            verdict: Verdict { sentence: "no threshold is near".to_owned(), ..Verdict::default() },
            rankings: vec![
                ranking("memory.available", vec![place(Some(1), "/a", None), place(Some(2), "/b", None)]),
                ranking("pid.available", vec![place(Some(1), "/b", None), place(None, "/a", Some("critical"))]),
            ],
            workloads: vec![workload("/a", "report"), workload("/b", "other")],
            ..State::default()
        };
        let expected = "batch/report runs on worker-1: no threshold is near

For memory.available:
  place 1 of 2 candidates in the order of eviction
  would be evicted next
  qosClass: BestEffort

For pid.available:
  no candidate
  would not be evicted: critical
  qosClass: BestEffort
";
        assert_eq!(standing(&state, "batch/report", "worker-1"), expected);
        assert!(standing(&state, "batch/none", "worker-1").contains("ranks it by no signal"));
    }
}
