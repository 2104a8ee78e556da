//! What the node's Lease tells a view of the fleet.

use anyhow::{Context, Result};
use node_pressure_apiserver::stage::lease_path;
use serde_json::Value;

use super::scene::{BETWEEN_LOOKS, PATIENCE, text};
use crate::cluster::Cluster;
use crate::control_plane::NODE;
use crate::stage::Stage;

/// Waits for the count. The Lease is created before the agent has counted, and renewed within a minute.
pub fn first_evictions(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<u64> {
    stage.until(PATIENCE, |stage| {
        stage.pause(BETWEEN_LOOKS);
        evictions(cluster).is_ok()
    });
    evictions(cluster)
}

/// Asserts that the node's Lease, which is renewed once a minute, counts one more eviction.
pub fn counts_one_more(stage: &mut Stage<'_>, cluster: &Cluster, before: u64) -> Result<()> {
    stage.until(PATIENCE, |stage| {
        stage.pause(BETWEEN_LOOKS);
        evictions(cluster).is_ok_and(|count| count > before)
    });
    let count = evictions(cluster)?;
    stage.check_equal("evictions by the annotation of the Lease", &count, &(before + 1));
    Ok(())
}

/// Returns the evictions of the day. Other scenarios have evicted pods before.
fn evictions(cluster: &Cluster) -> Result<u64> {
    let count = annotation(&read(cluster)?, "evictions");
    count.parse().with_context(|| format!("the Lease counts {count:?} evictions"))
}

/// Asserts what the Lease tells after the eviction of the pod with this name.
pub fn tells(stage: &mut Stage<'_>, cluster: &Cluster, pod: &str) -> Result<()> {
    let lease = read(cluster)?;
    stage.note(format!("the Lease: {}", lease["metadata"]["annotations"]));
    let object = |name: &str| serde_json::from_str(&annotation(&lease, name)).unwrap_or(Value::Null);
    let in_default = object("namespaces")["default"]["evictions"].as_u64().unwrap_or(0);
    let nearest = text(&object("nearest-threshold")["threshold"]);
    for (what, holds) in [
        ("mode", annotation(&lease, "mode") == "enforce"),
        ("version", !annotation(&lease, "version").is_empty()),
        ("hash of the configuration", annotation(&lease, "config-hash").len() == 16),
        ("age of the configuration", annotation(&lease, "config-since").parse::<jiff::Timestamp>().is_ok()),
        ("nearest threshold", nearest.contains('<')),
        ("day", annotation(&lease, "day").parse::<jiff::civil::Date>().is_ok()),
        ("OOM kills", annotation(&lease, "oom-kills").parse::<u64>().is_ok()),
        ("namespaces", in_default >= 1),
        ("last incident", annotation(&lease, "last-incident").contains(pod)),
    ] {
        stage.check(holds, || format!("the Lease does not tell its {what}: {lease}"));
    }
    Ok(())
}

fn read(cluster: &Cluster) -> Result<Value> {
    cluster.admin.get(&lease_path(NODE))
}

fn annotation(lease: &Value, name: &str) -> String {
    text(&lease["metadata"]["annotations"][format!("node-pressure-monitor/{name}")])
}
