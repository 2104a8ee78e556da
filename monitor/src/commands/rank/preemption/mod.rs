//! `rank --preemption-for`: the pods that the scheduler would preempt for a pending pod.

mod show;
mod victims;

use std::collections::BTreeSet;
use std::path::Path;

use super::super::input::{self, CommandError};
use super::super::output::{self, TableOrJson};
use super::inputs::{Inputs, of_node};
use super::nodes::Node;
use super::{live, read};
use crate::config::MonitorConfig;
use crate::node::name;
use crate::units::Quantity;
use crate::workloads::pod::system_priority;
use crate::workloads::{Pod, Summary};
use show::Answer;
use victims::{Pending, select};

/// Options of the view.
#[derive(Debug, clap::Args)]
pub struct PreemptionOptions {
    /// Show the pods that the scheduler would preempt for a pending pod of this priority: a number, system-cluster-critical or system-node-critical
    #[arg(long, value_name = "PRIORITY", value_parser = parse_priority, allow_negative_numbers = true, conflicts_with_all = ["signal", "layout"])]
    pub preemption_for: Option<i32>,
    /// Requests of the pending pod, to show which pods are preempted, e.g. cpu=500m,memory=1Gi
    #[arg(long, value_name = "RESOURCE=AMOUNT,...", value_parser = parse_requests, group = "of_nodes", requires_all = ["preemption_for", "nodes"])]
    requests: Option<Requests>,
}

#[derive(Debug, Clone)]
struct Requests(Vec<(String, Quantity)>);

fn parse_priority(text: &str) -> Result<i32, String> {
    let or = "write a number of 32 bits, system-cluster-critical or system-node-critical; kubectl get priorityclasses prints the numbers";
    system_priority(text).or_else(|| text.parse().ok()).ok_or_else(|| or.to_owned())
}

fn parse_requests(text: &str) -> Result<Requests, String> {
    let requests = input::by_resource(text, input::resource_amount)?;
    let is_of_pods = requests.iter().any(|(resource, _)| resource == "pods");
    if is_of_pods {
        Err("a pod requests no pods; name cpu, memory and the like".to_owned())
    } else {
        Ok(Requests(requests))
    }
}

const UNKNOWN: &str = "PodDisruptionBudgets, affinity, host ports and volumes are not known here; the scheduler preempts a pod against its \
                       PodDisruptionBudget only if no other pod will do";
const PODS_FIX: &str = "it counts as 0, and their requests are not known either; name a file in pods: of the configuration, written with: \
                        kubectl get pods -A -o json --field-selector spec.nodeName=NODE";

pub fn run(inputs: &Inputs<'_>, options: &PreemptionOptions, priority: i32) -> Result<(), CommandError> {
    let (pods, name) = match inputs.pods {
        Some(path) => of_file(inputs, path)?,
        None => of_this_node(inputs)?,
    };
    note_unknown_priorities(&pods, inputs.pods.is_some());
    let node = inputs.nodes.map(|path| find(path, &name)).transpose()?;
    node.iter().filter_map(show::cordon_note).for_each(output::note);
    output::note(UNKNOWN);
    let requests = options.requests.as_ref().map_or(&[][..], |Requests(requests)| requests);
    // The requests of a pod on this node that is not described are not known.
    let are_known = inputs.pods.is_some() || pods.iter().all(|pod| pod.spec.priority.is_some());
    let pending = node.as_ref().filter(|_| are_known).map(|node| Pending { requests, node });
    let answer = Answer { node: &name, priority, requests, victims: select(&pods, priority, pending) };
    let write = |out: &mut _| match inputs.output {
        TableOrJson::Table => show::table(out, &answer),
        TableOrJson::Json => show::json(out, &answer),
    };
    output::answer(write).map_err(CommandError::Output)
}

/// Returns the pods of one node that have not ended, and the node's name.
fn of_file(inputs: &Inputs<'_>, path: &Path) -> Result<(Vec<Pod>, String), CommandError> {
    if inputs.config.is_some() {
        let reason = "--config describes this node; with --pods it has no use: leave it out";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    let summary = inputs.summary.map_or_else(|| Ok(Summary::default()), read::summary)?;
    let mut pods = read::pods(path)?;
    let named = inputs.node.or(Some(&summary.node.node_name)).filter(|name| !name.is_empty());
    let node = named.map_or_else(|| only_node(&pods), |name| Ok(name.to_owned()))?;
    if !node.is_empty() {
        pods = of_node(pods, &node, &summary);
    }
    pods.retain(Pod::is_active);
    Ok((pods, node))
}

/// Returns the name of the node that all pods are on; an empty name if no pod is on a node.
fn only_node(pods: &[Pod]) -> Result<String, CommandError> {
    let names: BTreeSet<&str> =
        pods.iter().map(|pod| pod.spec.node_name.as_str()).filter(|it| !it.is_empty()).collect();
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    match names.as_slice() {
        [] => Ok(String::new()),
        [only] => Ok(only.clone()),
        several => {
            let several = output::few(several, output::NAMES);
            Err(CommandError::Usage(format!("the pods are on several nodes: {several}; choose one with --node NAME")))
        }
    }
}

fn of_this_node(inputs: &Inputs<'_>) -> Result<(Vec<Pod>, String), CommandError> {
    if inputs.summary.is_some() {
        let reason = "--pods is missing: --summary names the node of a file with pods";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    let config = inputs.config.map_or_else(|| Ok(MonitorConfig::default()), input::monitor)?;
    let node = inputs.node.map_or_else(|| name::of(config.kubernetes.node_name.as_deref()), str::to_owned);
    Ok((live::pods_here(&config)?, node))
}

fn note_unknown_priorities(pods: &[Pod], is_of_file: bool) {
    let unknown = pods.iter().filter(|pod| pod.spec.priority.is_none()).count();
    if unknown > 0 {
        let count = pods.len();
        let effect = if is_of_file { "spec.priority is missing, and counts as 0" } else { PODS_FIX };
        output::note(format_args!("the priority of {unknown} of {count} pods is not known: {effect}"));
    }
}

fn find(path: &Path, name: &str) -> Result<Node, CommandError> {
    let nodes = read::nodes(path)?;
    let names: Vec<String> = nodes.iter().map(|node| node.name().to_owned()).collect();
    nodes.into_iter().find(|node| node.name() == name).ok_or_else(|| {
        let (file, names) = (path.display(), output::few(&names, output::NAMES));
        CommandError::Wrong(format!("{file}: no node {name:?}, only: {names}; choose one with --node NAME"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_numbers_or_the_names_of_two_classes() {
        for (text, priority) in [
            ("1000", Some(1000)),
            ("-2147483648", Some(i32::MIN)),
            ("2147483648", None),
            ("system-cluster-critical", Some(2_000_000_000)),
            ("system-node-critical", Some(2_000_001_000)),
            ("high", None),
            ("", None),
        ] {
            assert_eq!(parse_priority(text).ok(), priority, "{text}");
        }
    }

    #[test]
    fn requests_are_amounts_of_resources_of_a_pod() {
        let parsed = |text| parse_requests(text).map(|Requests(requests)| requests.len());
        assert_eq!(parsed("cpu=500m, memory=1Gi,example.com/gpu=1"), Ok(3));
        for (text, reason) in [
            ("cpu", "write RESOURCE=AMOUNT"),
            ("memory=-1", "write RESOURCE=AMOUNT"),
            ("cpu=1,cpu=2", "cpu is given twice"),
            ("pods=3", "a pod requests no pods"),
            ("memory=1GB", "\"1GB\": "),
        ] {
            assert!(parsed(text).unwrap_err().starts_with(reason), "{text}: {:?}", parsed(text));
        }
    }
}
