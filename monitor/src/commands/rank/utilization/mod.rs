//! `rank --utilization`: the nodes as the descheduler's strategy `LowNodeUtilization` sees them.

mod classify;
mod show;

use std::collections::BTreeSet;

use super::super::input::{self, CommandError};
use super::super::output::{self, TableOrJson};
use super::inputs::Inputs;
use super::nodes::{Node, RESOURCES};
use super::read;
use crate::workloads::Pod;
use classify::{Thresholds, as_specified, rows};
use show::Answer;

/// Options of the view.
#[derive(Debug, clap::Args)]
pub struct UtilizationOptions {
    /// Show how much of each node its pods request, as the descheduler's strategy LowNodeUtilization judges it
    #[arg(
        long,
        group = "of_nodes",
        requires_all = ["pods", "nodes"],
        conflicts_with_all = ["config", "summary", "signal", "node", "layout", "preemption_for", "requests"]
    )]
    pub utilization: bool,
    /// Percentages up to which a node is underutilized, if all hold
    #[arg(long, value_name = "RESOURCE=PERCENT,...", value_parser = parse_thresholds, requires = "utilization", default_value = "cpu=20,memory=20,pods=20")]
    thresholds: Thresholds,
    /// Percentages above which a node is overutilized, if one is exceeded
    #[arg(long, value_name = "RESOURCE=PERCENT,...", value_parser = parse_thresholds, requires = "utilization", default_value = "cpu=50,memory=50,pods=50")]
    target_thresholds: Thresholds,
    /// The descheduler's numberOfNodes: pods are evicted only if more nodes than this are underutilized
    #[arg(long, value_name = "NUMBER", requires = "utilization", default_value_t = 0)]
    number_of_nodes: usize,
}

fn parse_thresholds(text: &str) -> Result<Thresholds, String> {
    input::by_resource(text, parse_threshold).map(Thresholds)
}

fn parse_threshold(text: &str) -> Result<(String, f64), String> {
    let known = text.split_once('=').filter(|(resource, _)| RESOURCES.contains(resource));
    let percent = known.and_then(|(resource, percent)| Some((resource.to_owned(), percent.parse().ok()?)));
    let in_range = percent.filter(|(_, percent)| (0.0..=100.0).contains(percent));
    in_range.ok_or_else(|| format!("{text:?}: write cpu, memory or pods with a percentage from 0 to 100, e.g. cpu=20"))
}

pub fn run(inputs: &Inputs<'_>, options: &UtilizationOptions) -> Result<(), CommandError> {
    let UtilizationOptions { utilization: _, thresholds, target_thresholds: targets, number_of_nodes } = options;
    check(thresholds, targets).map_err(CommandError::Usage)?;
    let (Some(pods), Some(nodes)) = (inputs.pods, inputs.nodes) else {
        return Err(CommandError::Usage("--utilization needs --pods and --nodes".to_owned()));
    };
    let (pods, nodes) = (read::pods(pods)?, read::nodes(nodes)?);
    note_elsewhere(&pods, &nodes);
    let rows = rows(&nodes, &pods, thresholds, targets);
    as_specified(&rows, &pods, thresholds, targets).iter().map(show::specified_note).for_each(output::note);
    let answer = Answer { rows: &rows, thresholds, targets, number_of_nodes: *number_of_nodes };
    let write = |out: &mut _| match inputs.output {
        TableOrJson::Table => show::table(out, &answer),
        TableOrJson::Json => show::json(out, &answer),
    };
    output::answer(write).map_err(CommandError::Output)
}

/// Refuses what the descheduler refuses.
fn check(Thresholds(thresholds): &Thresholds, Thresholds(targets): &Thresholds) -> Result<(), String> {
    let of = |list: &[(String, f64)], resource: &str| list.iter().find(|(name, _)| name == resource).map(|(_, it)| *it);
    for resource in RESOURCES {
        match (of(thresholds, resource), of(targets, resource)) {
            (Some(threshold), Some(target)) if threshold > target => {
                let fix = format!("above its target threshold {target}; lower the one or raise the other");
                return Err(format!("--thresholds: {resource}={threshold}: {fix}"));
            }
            (Some(_), None) => {
                return Err(format!("--target-thresholds: {resource} is missing; --thresholds names it"));
            }
            (None, Some(_)) => {
                return Err(format!("--thresholds: {resource} is missing; --target-thresholds names it"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Notes the pods that are on no node of the file.
fn note_elsewhere(pods: &[Pod], nodes: &[Node]) {
    let known: BTreeSet<&str> = nodes.iter().map(Node::name).collect();
    let elsewhere = || pods.iter().filter(|pod| pod.is_active() && !known.contains(pod.spec.node_name.as_str()));
    let count = elsewhere().count();
    if count > 0 {
        let place =
            |pod: &Pod| if pod.spec.node_name.is_empty() { "(no node)" } else { &pod.spec.node_name }.to_owned();
        let places: Vec<String> = elsewhere().map(place).collect::<BTreeSet<String>>().into_iter().collect();
        let places = output::few(&places, output::NAMES);
        let all = pods.len();
        output::note(format_args!("{count} of {all} pods are on no node of --nodes and left out: on {places}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_percentages_of_the_same_resources() {
        let checked = |thresholds, targets| {
            parse_thresholds(thresholds).and_then(|thresholds| check(&thresholds, &parse_thresholds(targets)?))
        };
        for (thresholds, targets, expected) in [
            ("cpu=20,memory=20,pods=20", "cpu=50,memory=50,pods=50", ""),
            ("cpu=20.5", "cpu=20.5", ""),
            ("cpu=0", "cpu=100", ""),
            ("cpu=60", "cpu=50", "--thresholds: cpu=60: above its target threshold 50"),
            ("cpu=20", "cpu=50,pods=50", "--thresholds: pods is missing"),
            ("cpu=20,pods=20", "cpu=50", "--target-thresholds: pods is missing"),
            ("cpu=101", "cpu=50", "\"cpu=101\": write cpu, memory or pods"),
            ("gpu=20", "cpu=50", "\"gpu=20\": write cpu, memory or pods"),
            ("cpu=NaN", "cpu=50", "\"cpu=NaN\": write"),
            ("cpu=20,cpu=20", "cpu=50", "cpu is given twice"),
        ] {
            let error = checked(thresholds, targets).err().unwrap_or_default();
            assert!(error.starts_with(expected) && error.is_empty() == expected.is_empty(), "{thresholds}: {error}");
        }
    }
}
