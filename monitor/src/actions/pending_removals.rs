//! Disk usage of pods that have ended or were evicted and are not removed yet. This usage is about to be freed, so that no further pod is
//! evicted for it.

use std::time::Duration;

use super::ended_pods::{EndedPods, uid_of, volumes_of};
use crate::eviction::decider::DISK_COOL_DOWN;
use crate::eviction::footprint::Taken;
use crate::eviction::{DiskUsage, Layout};
use crate::runtime::{Snapshot, TearDown};
use crate::sensors::Sensors;
use crate::units::{Amount, Monotonic, Signal};
use crate::workloads::PodUid;

/// By then the disk's own figures show the removal: its cool-down, and as long again for filesystems that free late.
const SHOWN_WITHIN: Duration = DISK_COOL_DOWN.saturating_mul(2);
/// A runtime that is up removes a pod within this time, or not at all, once the kubelet's time is over.
const LONGEST: Duration = Duration::from_secs(60);

/// Pods that the agent has evicted for a disk and that are not known to be removed, and those that have ended otherwise.
#[derive(Debug, Default)]
pub(super) struct PendingRemovals {
    left: Vec<Left>,
    ended: EndedPods,
    /// The number of pods that were expected to free space at the last look.
    pods: usize,
}

#[derive(Debug)]
struct Left {
    pod: PodUid,
    workload: String,
    has: DiskUsage,
    by: TearDown,
    since: Monotonic,
    /// End of the wait for the removal; `None` while the runtime is down.
    until: Option<Monotonic>,
}

impl PendingRemovals {
    /// Adds a pod whose removal is expected. Only the kubelet removes its volumes too.
    fn add(&mut self, (pod, by): (PodUid, TearDown), workload: &str, has: DiskUsage, now: Monotonic) {
        self.left.retain(|left| left.pod != pod);
        let volumes = if by == TearDown::Kubelet { has.volumes } else { Taken::default() };
        let (workload, has) = (workload.to_owned(), DiskUsage { volumes, ..has });
        self.left.push(Left { pod, workload, has, by, since: now, until: None });
    }

    /// Drops a pod whose eviction failed: it keeps its disk usage.
    pub(super) fn forget(&mut self, workload: &str) {
        self.left.retain(|left| left.workload != workload);
    }

    /// Compares the pods with the runtime's snapshot and the cgroups; does nothing while the runtime is down.
    fn update(&mut self, snapshot: Option<&Snapshot>, has_cgroup: impl Fn(&str) -> bool, now: Monotonic) {
        let Some(snapshot) = snapshot else {
            self.left.iter_mut().for_each(|left| left.until = None);
            return;
        };
        for left in &mut self.left {
            // The kubelet keeps the empty sandbox for some time.
            let mut pods = snapshot.containers.iter().filter_map(|container| container.pod.as_ref());
            let has_containers = snapshot.at <= left.since || pods.any(|pod| pod.uid == left.pod);
            // A kubelet that has missed the eviction makes containers anew. It removes the volumes, and then the pod's cgroup.
            let keeps_volumes = left.by == TearDown::Kubelet && has_cgroup(&left.workload);
            let is_removed = !has_containers && !keeps_volumes;
            let until = now.after(if is_removed { SHOWN_WITHIN } else { LONGEST.saturating_add(left.by.patience()) });
            left.until = Some(left.until.map_or(until, |known| known.min(until)));
        }
        self.left.retain(|left| left.until.is_none_or(|until| now < until));
    }

    /// Notes the disk usage of a pod that is being evicted. Without a runtime the pod is not removed.
    pub(super) fn expect(&mut self, (pod, by): (&PodUid, TearDown), workload: &str, sensors: &Sensors, now: Monotonic) {
        if sensors.platform.runtime.view().state.is_there()
            && let Some(usage) = sensors.disk.usage(workload)
        {
            self.add((pod.clone(), by), workload, usage, now);
        }
    }

    /// Returns the usage of evicted pods that is about to be freed, by signal; with `counts_ended` also that of pods that have ended otherwise,
    /// which costs a look at the cgroup of each.
    pub(super) fn expected(&mut self, sensors: &Sensors, counts_ended: bool, now: Monotonic) -> Vec<(Signal, Amount)> {
        if !self.left.is_empty() {
            let memory = &sensors.workloads.tree().hierarchy().memory;
            let has_cgroup = |workload: &str| memory.join(workload).exists();
            self.update(sensors.platform.runtime.view().snapshot.as_deref(), has_cgroup, now);
        }
        let mut usages = Vec::new();
        if counts_ended {
            usages = self.ended_otherwise(sensors, now);
        } else {
            self.ended = EndedPods::default();
        }
        usages.extend(self.left.iter().map(|left| left.has));
        self.pods = usages.len();
        if usages.is_empty() {
            return Vec::new();
        }
        let layout = sensors.signals.filesystems.layout();
        let on_disk = Signal::ALL.into_iter().filter(|signal| signal.resource().is_on_disk());
        let amounts = on_disk.map(|signal| (signal, sum(&usages, signal, layout)));
        amounts.filter(|(_, amount)| *amount > Amount::ZERO).collect()
    }

    /// Returns what the pods have in their volumes that have ended, and not by an eviction of the agent's for a disk. The kubelet may have
    /// evicted them.
    fn ended_otherwise(&mut self, sensors: &Sensors, now: Monotonic) -> Vec<DiskUsage> {
        let Self { left, ended, .. } = self;
        let pods = ended.observe(sensors.workloads.tree(), sensors.pods.specs(), now).into_iter();
        let others = pods.filter(|pod| left.iter().all(|left| Some(&left.pod) != uid_of(pod)));
        others.filter_map(|pod| sensors.disk.usage(&pod.workload().name)).map(volumes_of).collect()
    }

    pub(super) const fn len(&self) -> usize {
        self.pods
    }
}

fn sum(usages: &[DiskUsage], signal: Signal, layout: Layout) -> Amount {
    usages.iter().fold(Amount::ZERO, |sum, usage| sum + usage.on(signal, layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Container, ContainerState, PodRef, Stores};
    use crate::units::Bytes;

    const SECOND: u64 = 1_000_000_000;

    fn usage() -> DiskUsage {
        let taken = |bytes| Taken { bytes: Bytes(bytes), inodes: 1 };
        DiskUsage { layers: taken(100), logs: taken(10), volumes: taken(1), at: Monotonic(0) }
    }

    fn pending(by: TearDown) -> PendingRemovals {
        let mut pending = PendingRemovals::default();
        pending.add((PodUid("a".to_owned()), by), "pods/a", usage(), Monotonic(SECOND));
        pending
    }

    fn snapshot(at: u64, pods: &[&str]) -> Snapshot {
        let container = |uid: &&str| Container {
            id: format!("container-{uid}"),
            sandbox: format!("sandbox-{uid}"),
            pod: Some(PodRef { uid: PodUid((*uid).to_owned()), name: "n".to_owned(), namespace: "ns".to_owned() }),
            name: "main".to_owned(),
            attempt: 0,
            state: ContainerState::Exited,
            created: None,
            grace: None,
            images: Vec::new(),
            dead_since: None,
            details: None,
        };
        Snapshot {
            at: Monotonic(at * SECOND),
            runtime: "fake 1".to_owned(),
            sandboxes: Vec::new(),
            containers: pods.iter().map(container).collect(),
            images: Vec::new(),
            stores: Stores::default(),
        }
    }

    fn bytes(pending: &PendingRemovals) -> i64 {
        let usages: Vec<DiskUsage> = pending.left.iter().map(|left| left.has).collect();
        sum(&usages, Signal::NodeFsAvailable, Layout::Single).units()
    }

    #[test]
    fn while_the_runtime_is_down_it_stays_expected() {
        let mut pending = pending(TearDown::Runtime);
        pending.update(None, |_| true, Monotonic(3600 * SECOND));
        assert_eq!(bytes(&pending), 110, "volumes are the kubelet's to remove");
        pending.forget("pods/b");
        assert_eq!(bytes(&pending), 110);
        pending.forget("pods/a");
        assert_eq!(bytes(&pending), 0);
    }

    #[test]
    fn removal_ends_the_pending_usage() {
        let mut pending = pending(TearDown::Runtime);
        // A snapshot from before the eviction.
        pending.update(Some(&snapshot(1, &[])), |_| true, Monotonic(2 * SECOND));
        pending.update(Some(&snapshot(5, &[])), |_| true, Monotonic(5 * SECOND));
        pending.update(Some(&snapshot(5, &[])), |_| true, Monotonic(24 * SECOND));
        assert_eq!(bytes(&pending), 110);
        pending.update(Some(&snapshot(5, &[])), |_| true, Monotonic(25 * SECOND));
        assert_eq!(bytes(&pending), 0);
    }

    #[test]
    fn volumes_are_expected_until_the_kubelet_has_removed_the_cgroup() {
        let mut pending = pending(TearDown::Kubelet);
        pending.update(Some(&snapshot(5, &[])), |_| true, Monotonic(5 * SECOND));
        pending.update(Some(&snapshot(40, &[])), |_| true, Monotonic(40 * SECOND));
        assert_eq!(bytes(&pending), 111);
        pending.update(Some(&snapshot(41, &[])), |_| false, Monotonic(41 * SECOND));
        pending.update(Some(&snapshot(60, &[])), |_| false, Monotonic(60 * SECOND));
        assert_eq!(bytes(&pending), 111);
        pending.update(Some(&snapshot(61, &[])), |_| false, Monotonic(61 * SECOND));
        assert_eq!(bytes(&pending), 0);
    }

    #[test]
    fn unremoved_usage_expires() {
        let mut pending = pending(TearDown::Runtime);
        pending.update(Some(&snapshot(5, &["a"])), |_| true, Monotonic(5 * SECOND));
        pending.update(Some(&snapshot(64, &["a"])), |_| true, Monotonic(64 * SECOND));
        assert_eq!(bytes(&pending), 110);
        // Once the runtime is up again the wait starts anew.
        pending.update(None, |_| true, Monotonic(64 * SECOND));
        pending.update(Some(&snapshot(70, &["a"])), |_| true, Monotonic(70 * SECOND));
        assert_eq!(bytes(&pending), 110);
        pending.update(Some(&snapshot(130, &["a"])), |_| true, Monotonic(130 * SECOND));
        assert_eq!(bytes(&pending), 0);
    }
}
