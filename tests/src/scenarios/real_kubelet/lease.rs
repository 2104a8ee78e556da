//! The annotations of the node's Lease, which a view of the fleet reads.

use anyhow::{Context, Result};
use node_pressure_apiserver::stage::lease_path;
use serde_json::Value;

use super::scene::{BETWEEN_LOOKS, TIME_LIMIT, text};
use crate::cluster::Cluster;
use crate::control_plane::NODE;
use crate::stage::Stage;

/// The evictions of the day, and those of the namespace `default`. Other scenarios have evicted pods before.
type Evictions = (u64, u64);

/// Waits for the counts, and returns them. The agent creates the Lease before it has counted, and renews it within a minute.
pub fn first_evictions(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<Evictions> {
    stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        evictions(cluster).is_ok()
    });
    evictions(cluster)
}

/// Asserts that the node's Lease, which is renewed once a minute, counts one more eviction.
pub fn counts_one_more(stage: &mut Stage<'_>, cluster: &Cluster, before: Evictions) -> Result<()> {
    stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        evictions(cluster).is_ok_and(|counts| counts.0 > before.0)
    });
    let counts = evictions(cluster)?;
    stage.check_equal("evictions by the annotations of the Lease", &counts, &(before.0 + 1, before.1 + 1));
    Ok(())
}

fn evictions(cluster: &Cluster) -> Result<Evictions> {
    let lease = read(cluster)?;
    let all = annotation(&lease, "evictions");
    let all = all.parse().with_context(|| format!("the Lease counts {all:?} evictions"))?;
    let in_default = object(&lease, "namespaces")["default"]["evictions"].as_u64();
    Ok((all, in_default.unwrap_or(0)))
}

/// Asserts the annotations of the Lease after the eviction of the pod with this name.
pub fn check_annotations(stage: &mut Stage<'_>, cluster: &Cluster, pod: &str) -> Result<()> {
    let lease = read(cluster)?;
    stage.note(format!("the Lease: {}", lease["metadata"]["annotations"]));
    let nearest = text(&object(&lease, "nearest-threshold")["threshold"]);
    for (what, holds) in [
        ("mode", annotation(&lease, "mode") == "enforce"),
        ("version", !annotation(&lease, "version").is_empty()),
        ("hash of the configuration", annotation(&lease, "config-hash").len() == 16),
        ("age of the configuration", annotation(&lease, "config-since").parse::<jiff::Timestamp>().is_ok()),
        ("nearest threshold", nearest.contains('<')),
        ("day", annotation(&lease, "day").parse::<jiff::civil::Date>().is_ok()),
        ("OOM kills", annotation(&lease, "oom-kills").parse::<u64>().is_ok()),
        ("last incident", annotation(&lease, "last-incident").contains(pod)),
    ] {
        stage.check(holds, || format!("the Lease has no valid {what}: {lease}"));
    }
    Ok(())
}

fn read(cluster: &Cluster) -> Result<Value> {
    cluster.admin.get(&lease_path(NODE))
}

/// Returns an annotation that is JSON.
fn object(lease: &Value, name: &str) -> Value {
    serde_json::from_str(&annotation(lease, name)).unwrap_or(Value::Null)
}

fn annotation(lease: &Value, name: &str) -> String {
    text(&lease["metadata"]["annotations"][format!("node-pressure-monitor/{name}")])
}
