//! The pods that run on this node.

use crate::config::MonitorConfig;
use crate::workloads::Pod;

use super::super::super::input::CommandError;
use super::{look_at_runtime, pods, require_root, scan, specs};

/// Returns the pods that have a cgroup on this node. A pod that the known specs lack has neither a priority nor a start time.
pub fn pods_here(config: &MonitorConfig) -> Result<Vec<Pod>, CommandError> {
    require_root()?;
    let mut tree = scan(config)?;
    let view = look_at_runtime(config, false);
    let specs = specs(config);
    let of_pods = tree.usages().into_iter().filter(|usage| usage.workload.kind.pod_uid().is_some());
    Ok(of_pods.map(|usage| pods::pod(&usage.workload, &specs, view.snapshot.as_deref(), Vec::new())).collect())
}
