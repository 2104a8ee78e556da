//! Sums over the agents of a cluster, and the order in which their nodes are shown.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::cluster::fleet::FleetNode;
use crate::cluster::node_digest::Counts;
use crate::units::signed_float;

/// Sums over the agents that are not silent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    pub(super) agents: usize,
    pub(super) silent: usize,
    pub(super) modes: BTreeMap<String, usize>,
    pub(super) versions: BTreeMap<String, usize>,
    /// By hash; `defaults` without a file.
    pub(super) configurations: BTreeMap<String, usize>,
    /// The nodes whose agents refused a newer configuration.
    pub(super) refused: Vec<String>,
    #[serde(flatten)]
    pub(super) counts: Counts,
    pub(super) namespaces: BTreeMap<String, Counts>,
}

impl Totals {
    pub(super) fn of(nodes: &[FleetNode]) -> Self {
        // Around midnight some agents still tell about yesterday.
        let day = nodes.iter().filter(|node| !node.is_silent).filter_map(|node| node.day).max();
        let mut totals = Self::default();
        for node in nodes {
            totals.agents += 1;
            if node.is_silent {
                totals.silent += 1;
                continue;
            }
            count(&mut totals.modes, node.mode.as_deref());
            count(&mut totals.versions, node.version.as_deref());
            count(&mut totals.configurations, Some(node.config_hash.as_deref().unwrap_or("defaults")));
            if node.config_refused {
                totals.refused.push(node.node.clone());
            }
            if node.day == day {
                add(&mut totals.counts, node.counts);
                for (namespace, counts) in &node.namespaces {
                    add(totals.namespaces.entry(namespace.clone()).or_default(), *counts);
                }
            }
        }
        totals
    }
}

fn count(counts: &mut BTreeMap<String, usize>, value: Option<&str>) {
    *counts.entry(value.unwrap_or("unknown").to_owned()).or_default() += 1;
}

fn add(sum: &mut Counts, counts: Counts) {
    sum.evictions = sum.evictions.saturating_add(counts.evictions);
    sum.oom_kills = sum.oom_kills.saturating_add(counts.oom_kills);
}

/// The node that crosses a threshold soonest comes first, then the one nearest to a threshold; silent agents come last.
pub(super) fn most_urgent_first(a: &FleetNode, b: &FleetNode) -> Ordering {
    let key = |node: &FleetNode| {
        let nearest = node.nearest.as_ref();
        let seconds = nearest.and_then(|nearest| nearest.seconds).unwrap_or(f64::INFINITY);
        let multiple =
            nearest.map_or(f64::INFINITY, |near| signed_float(near.available) / signed_float(near.value.max(1)));
        (seconds, multiple)
    };
    let ((a_seconds, a_multiple), (b_seconds, b_multiple)) = (key(a), key(b));
    (a.is_silent.cmp(&b.is_silent))
        .then_with(|| a_seconds.total_cmp(&b_seconds))
        .then_with(|| a_multiple.total_cmp(&b_multiple))
        .then_with(|| a.node.cmp(&b.node))
}
