//! The workloads with what they use.

use std::collections::HashMap;
use std::time::Instant;

use node_pressure_state::WorkloadState;

use crate::report::live::Live;
use crate::units::{Bytes, float};

/// Workloads in the document; a node runs at most a few hundred pods.
const MOST: usize = 500;
/// A shorter time says nothing about a rate.
const SHORTEST: f64 = 0.5;

/// Returns the largest workloads, and how many are left out. `before`: the working sets of the document before.
pub(super) fn workloads(
    live: &Live,
    before: Option<&(Instant, HashMap<String, Bytes>)>,
    at: Instant,
) -> (Vec<WorkloadState>, usize) {
    let rate = |path: &str, now: Bytes| {
        let (then, sets) = before?;
        let seconds = at.saturating_duration_since(*then).as_secs_f64();
        let change = float(now.0) - float(sets.get(path)?.0);
        (seconds >= SHORTEST).then(|| (change / seconds).round())
    };
    let mut rows: Vec<WorkloadState> = (live.usages.iter())
        .map(|(usage, name)| {
            let workload = &usage.workload;
            let stalls = live.stalls.get(&workload.name);
            let disk = live.disk.get(&workload.name, workload.id);
            WorkloadState {
                name: name.clone(),
                qos_class: workload.qos.as_str().to_owned(),
                priority: workload.pod.as_ref().map(|pod| pod.priority()),
                memory_bytes: Some(usage.working_set.0),
                memory_bytes_per_second: rate(&workload.name, usage.working_set),
                memory_request_bytes: (!workload.request.is_zero()).then_some(workload.request.0),
                stalls: stalls.map(|stalls| stalls.count),
                stall_seconds: stalls.map(|stalls| stalls.time.as_secs_f64()),
                oom_kills: stalls.map(|stalls| stalls.oom_kills),
                disk_bytes: disk.map(|disk| disk.bytes.0),
                disk_inodes: disk.map(|disk| disk.inodes),
                pids: None,
                exempt: workload.protection.map(|protection| protection.to_string()),
            }
        })
        .collect();
    rows.sort_by(|a, b| b.memory_bytes.cmp(&a.memory_bytes).then_with(|| a.name.workload.cmp(&b.name.workload)));
    let omitted = rows.len().saturating_sub(MOST);
    rows.truncate(MOST);
    (rows, omitted)
}
