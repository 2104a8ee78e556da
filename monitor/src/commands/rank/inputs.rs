//! The files that the views of `rank` read, and the choice of a node among their pods.

use std::collections::BTreeSet;
use std::path::Path;

use crate::workloads::{Pod, Summary};

use super::super::output::{self, TableOrJson};

/// The options that all views share.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'o> {
    pub config: Option<&'o Path>,
    pub pods: Option<&'o Path>,
    pub summary: Option<&'o Path>,
    pub node: Option<&'o str>,
    pub nodes: Option<&'o Path>,
    pub output: TableOrJson,
}

/// Keeps the pods of the node, and notes how many were left out.
pub fn of_node(mut pods: Vec<Pod>, node: &str, summary: &Summary) -> Vec<Pod> {
    if !summary.node.node_name.is_empty() && summary.node.node_name != node {
        output::note(format_args!("the summary is of node {}, not of {node}", summary.node.node_name));
    }
    if node.is_empty() {
        output::note("the summary names no node: all pods count; --node NAME chooses");
        return pods;
    }
    let measured: BTreeSet<&str> = summary.pods.iter().map(|pod| pod.pod_ref.uid.as_str()).collect();
    let names_no_node = pods.iter().all(|pod| pod.spec.node_name.is_empty());
    let before = pods.len();
    let mut elsewhere = BTreeSet::new();
    pods.retain(|pod| {
        let on = pod.spec.node_name.as_str();
        let is_measured =
            [Some(pod.metadata.uid.as_str()), pod.mirrored_uid()].iter().flatten().any(|uid| measured.contains(uid));
        let is_here = on == node || on.is_empty() && (names_no_node || is_measured);
        if !is_here {
            elsewhere.insert(if on.is_empty() { "(no node)".to_owned() } else { on.to_owned() });
        }
        is_here
    });
    let left_out = before - pods.len();
    if left_out > 0 {
        let elsewhere: Vec<String> = elsewhere.into_iter().collect();
        output::note(format_args!(
            "{left_out} of {before} pods are not on {node} and left out: on {}",
            output::few(&elsewhere, output::NAMES)
        ));
    }
    pods
}
