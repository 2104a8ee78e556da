//! What the API prints: summaries and pods.

use node_pressure_monitor::workloads::{Pod, Summary};

/// A Summary.
pub fn summary(data: &[u8]) {
    let Ok(summary) = serde_json::from_slice::<Summary>(data) else { return };
    let _ = summary;
}

/// A pod.
pub fn pod(data: &[u8]) {
    let Ok(pod) = serde_json::from_slice::<Pod>(data) else { return };
    let _ = pod;
}
