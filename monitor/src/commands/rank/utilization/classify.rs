//! The verdicts of `LowNodeUtilization`, as kubernetes-sigs/descheduler 0.36 computes them, by what the scheduler counts as requested. The
//! descheduler itself counts what pods ask for, even where a node has said no ([`as_specified`]).

use std::collections::BTreeMap;

use super::super::nodes::{Node, RESOURCES};
use crate::units::{Amount, Quantity, signed, signed_float};
use crate::workloads::Pod;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No share is above its threshold, and the node is schedulable.
    Underutilized,
    /// A share is above its target threshold.
    Overutilized,
    AppropriatelyUtilized,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Underutilized => "underutilized",
            Self::Overutilized => "overutilized",
            Self::AppropriatelyUtilized => "appropriately utilized",
        }
    }
}

/// Percentages by resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds(pub Vec<(String, f64)>);

/// The amount of one resource that the pods of a node request.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    pub resource: &'static str,
    pub requested: Quantity,
    pub allocatable: Quantity,
    pub percent: f64,
}

#[derive(Debug)]
pub struct Row<'a> {
    pub node: &'a Node,
    pub shares: Vec<Share>,
    /// `None` of a node that is not ready, which the descheduler leaves out.
    pub verdict: Option<Verdict>,
}

impl Row<'_> {
    fn highest(&self) -> f64 {
        self.shares.iter().map(|share| share.percent).fold(0.0, f64::max)
    }
}

/// Returns a row for each node, that with the highest share first.
pub fn rows<'a>(nodes: &'a [Node], pods: &[Pod], thresholds: &Thresholds, targets: &Thresholds) -> Vec<Row<'a>> {
    let by_node = by_node(pods);
    let row = |node: &'a Node| {
        let pods = by_node.get(node.name()).map_or(&[][..], Vec::as_slice);
        row(node, pods, Pod::scheduled_request, (thresholds, targets))
    };
    let mut rows: Vec<Row<'_>> = nodes.iter().map(row).collect();
    rows.sort_by(|a, b| b.highest().total_cmp(&a.highest()).then_with(|| a.node.name().cmp(b.node.name())));
    rows
}

fn by_node(pods: &[Pod]) -> BTreeMap<&str, Vec<&Pod>> {
    let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_active()) {
        by_node.entry(&pod.spec.node_name).or_default().push(pod);
    }
    by_node
}

/// Returns the rows whose requested memory or CPU is another by what the pods' specifications ask for.
pub fn as_specified<'a>(rows: &[Row<'a>], pods: &[Pod], thresholds: &Thresholds, targets: &Thresholds) -> Vec<Row<'a>> {
    let by_node = by_node(pods);
    let other = |seen: &Row<'a>| {
        let here = by_node.get(seen.node.name()).map_or(&[][..], Vec::as_slice);
        let specified = row(seen.node, here, Pod::specified_request, (thresholds, targets));
        (specified.shares != seen.shares).then_some(specified)
    };
    rows.iter().filter_map(other).collect()
}

fn row<'a>(
    node: &'a Node,
    pods: &[&Pod],
    request: fn(&Pod, &str) -> Quantity,
    (thresholds, targets): (&Thresholds, &Thresholds),
) -> Row<'a> {
    let shares: Vec<Share> = RESOURCES.into_iter().map(|resource| share(node, pods, request, resource)).collect();
    let verdict = node.is_ready().then(|| classify(&shares, node.is_unschedulable(), thresholds, targets));
    Row { node, shares, verdict }
}

/// Returns the share of the allocatable amount, in milli-CPUs or whole units as the descheduler computes it.
fn share(node: &Node, pods: &[&Pod], request: fn(&Pod, &str) -> Quantity, resource: &'static str) -> Share {
    let requested = match resource {
        "pods" => Quantity::from_units(signed(pods.len()), false),
        _ => pods.iter().fold(Quantity::default(), |sum, pod| sum.sum(&request(pod, resource))),
    };
    let allocatable = node.allocatable(resource);
    let units = |amount: &Quantity| match resource {
        "cpu" => signed_float(Amount::from_billionths(amount.amount().billionths().saturating_mul(1000)).units()),
        _ => signed_float(amount.value_bytes()),
    };
    let whole = units(&allocatable);
    let percent = if whole > 0.0 { units(&requested) / whole * 100.0 } else { 0.0 };
    Share { resource, requested, allocatable, percent }
}

/// Compares as the descheduler does: a share that equals its threshold is not above it.
fn classify(shares: &[Share], is_unschedulable: bool, thresholds: &Thresholds, targets: &Thresholds) -> Verdict {
    let is_within = |Thresholds(limits): &Thresholds| {
        let percent = |resource: &str| shares.iter().find(|share| share.resource == resource).map(|it| it.percent);
        limits.iter().all(|(resource, limit)| percent(resource).is_none_or(|percent| percent <= *limit))
    };
    if !is_unschedulable && is_within(thresholds) {
        Verdict::Underutilized
    } else if is_within(targets) {
        Verdict::AppropriatelyUtilized
    } else {
        Verdict::Overutilized
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(percent: f64) -> Thresholds {
        Thresholds(RESOURCES.map(|resource| (resource.to_owned(), percent)).to_vec())
    }

    /// Returns the verdict of a node with 10 cpus, 10Gi and 10 places, whose pods request this together, under 20/20/20 and 50/50/50.
    fn verdict(cpu: &str, memory: &str, pods: usize, spec: &str, condition: &str) -> Option<Verdict> {
        let node = format!(
            r#"{{"metadata": {{"name": "n"}}, "spec": {spec}, "status": {{"conditions": [{condition}],
                "allocatable": {{"cpu": "10", "memory": "10Gi", "pods": "10"}}}}}}"#
        );
        let pod = |requests: String| {
            serde_json::from_str::<Pod>(&format!(
                r#"{{"spec": {{"nodeName": "n", "containers": [{{"resources": {{"requests": {requests}}}}}]}}}}"#
            ))
        };
        let mut all_pods: Vec<Pod> = (1..pods).map(|_| pod("{}".to_owned()).unwrap()).collect();
        all_pods.push(pod(format!(r#"{{"cpu": "{cpu}", "memory": "{memory}"}}"#)).unwrap());
        // Pods that have ended, or are on no node, do not count.
        for (phase, node) in [("Succeeded", "n"), ("Failed", "n"), ("Running", "")] {
            let mut pod = pod(r#"{"cpu": "9", "memory": "9Gi"}"#.to_owned()).unwrap();
            (pod.status.phase, pod.spec.node_name) = (phase.to_owned(), node.to_owned());
            all_pods.push(pod);
        }
        let nodes = [serde_json::from_str(&node).unwrap()];
        rows(&nodes, &all_pods, &all(20.0), &all(50.0)).first().and_then(|row| row.verdict)
    }

    #[test]
    fn openshifts_example_divides_nodes_into_three() {
        use Verdict::{AppropriatelyUtilized, Overutilized, Underutilized};
        for (cpu, memory, pods, expected) in [
            ("1", "1Gi", 1, Underutilized),
            ("2", "2Gi", 2, Underutilized),
            ("2001m", "1Gi", 1, AppropriatelyUtilized),
            ("1", "2049Mi", 1, AppropriatelyUtilized),
            ("1", "1Gi", 3, AppropriatelyUtilized),
            ("5", "5Gi", 5, AppropriatelyUtilized),
            ("5001m", "1Gi", 1, Overutilized),
            ("1", "5121Mi", 1, Overutilized),
            ("0", "0", 6, Overutilized),
        ] {
            let ready = r#"{"type": "Ready", "status": "True"}"#;
            assert_eq!(verdict(cpu, memory, pods, "{}", ready), Some(expected), "{cpu} {memory} {pods}");
        }
    }

    #[test]
    fn a_node_that_takes_no_pods_is_not_underutilized() {
        let cordoned = r#"{"unschedulable": true}"#;
        assert_eq!(verdict("1", "1Gi", 1, cordoned, ""), Some(Verdict::AppropriatelyUtilized));
        assert_eq!(verdict("6", "1Gi", 1, cordoned, ""), Some(Verdict::Overutilized));
        assert_eq!(verdict("1", "1Gi", 1, "{}", r#"{"type": "Ready", "status": "Unknown"}"#), None);
    }

    #[test]
    fn a_resource_without_thresholds_is_not_judged() {
        let share = |resource, percent| {
            let (requested, allocatable) = (Quantity::default(), Quantity::default());
            Share { resource, requested, allocatable, percent }
        };
        let shares = [share("cpu", 10.0), share("memory", 90.0)];
        let of_cpu = |percent| Thresholds(vec![("cpu".to_owned(), percent)]);
        assert_eq!(classify(&shares, false, &of_cpu(20.0), &of_cpu(50.0)), Verdict::Underutilized);
        assert_eq!(classify(&shares, false, &all(20.0), &all(50.0)), Verdict::Overutilized);
    }
}
