//! Reads the growth of workloads, by which culprits are found, and the other facts about candidates that the rule of benefit uses. What is
//! read when is a rule of [`crate::eviction::growth`].

use crate::eviction::growth::{Growth, Reading};
use crate::units::Monotonic;
use crate::workloads::{Outlook, Protection, WorkloadTree, WorkloadUsage};

/// In one slice at least so many workloads are read, which takes some tenths of a millisecond.
const LEAST_IN_SLICE: usize = 8;

/// Reads until the next sample is due, but some workloads in any case. Returns whether the round is complete.
pub(super) fn read(
    growth: &mut Growth,
    tree: &mut WorkloadTree,
    appeared: u64,
    now: Monotonic,
    due: Monotonic,
) -> bool {
    if growth.begin(appeared, now) {
        growth.choose(tree.listed().into_iter(), now);
    }
    let mut read = 0;
    growth.read(|id| {
        if read >= LEAST_IN_SLICE && Monotonic::now() >= due {
            return Reading::NoTime;
        }
        read += 1;
        let gain = tree.measure(id).and_then(|usage| usage.outlook.gain);
        gain.map_or(Reading::Gone, |gain| Reading::Of(gain, Monotonic::now()))
    })
}

/// Adds to `usage` what is known about its memory. A growth that was not measured is unknown.
pub(super) fn complete(growth: &Growth, usage: &mut WorkloadUsage) {
    let workload = &usage.workload;
    let is_daemon = workload.protection == Some(Protection::DaemonSet);
    let measured = growth.of(workload.id);
    usage.outlook = Outlook {
        growth: measured.unwrap_or(0),
        growth_lately: growth.going_on(workload.id).filter(|lately| Some(*lately) != measured),
        is_growth_measured: measured.is_some(),
        only_as_leaker: is_daemon || workload.only_as_leaker,
        is_daemon,
        among_own: workload.among_own,
        // A pod that has failed and still runs is inside its grace period too.
        is_terminating: workload.pod.as_ref().is_some_and(|pod| pod.metadata.deletion.is_some() || !pod.is_active()),
        ..usage.outlook
    };
}
