//! Pods that were ordered to stop: the sandboxes that they had at that time, and removals that are pending.
//!
//! The kubelet may restart a pod under the same UID as soon as its sandbox is dead. The new sandbox must not be removed with the
//! old ones.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::runtime_orders::StopOrder;
use super::runtime_snapshot::Snapshot;
use crate::workloads::cgroup_path::PodUid;

/// Limit of remembered pods. The latest ones are kept.
const MOST: usize = 256;
/// Limit of attempts at a removal while the runtime answers.
const ATTEMPTS: u32 = 5;
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct PendingRemoval {
    pub(super) order: StopOrder,
    pub(super) attempts: u32,
    /// When the removal is due; `None` means now.
    pub(super) due: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct StoppedPods {
    /// All sandboxes of the last snapshot.
    seen: Vec<(PodUid, String)>,
    stopped: VecDeque<(PodUid, Vec<String>)>,
    pending: VecDeque<PendingRemoval>,
}

impl StoppedPods {
    pub(super) fn see(&mut self, snapshot: &Snapshot) {
        self.seen = snapshot.sandboxes.iter().map(|sandbox| (sandbox.pod.uid.clone(), sandbox.id.clone())).collect();
    }

    /// Notes that a pod is ordered to stop.
    pub(super) fn stopping(&mut self, uid: &PodUid) {
        let seen = self.seen.iter().filter(|(pod, _)| pod == uid).map(|(_, id)| id.clone()).collect();
        self.stopped.retain(|(pod, _)| pod != uid);
        self.stopped.push_back((uid.clone(), seen));
        if self.stopped.len() > MOST {
            self.stopped.pop_front();
        }
    }

    /// Adds sandboxes that were found while stopping the pod.
    pub(super) fn had(&mut self, uid: &PodUid, ids: Vec<String>) {
        if let Some((_, known)) = self.stopped.iter_mut().find(|(pod, _)| pod == uid) {
            known.extend(ids);
        }
    }

    /// Returns the sandboxes that the pod had when it was ordered to stop.
    pub(super) fn sandboxes_of(&self, uid: &PodUid) -> Vec<String> {
        self.stopped.iter().find(|(pod, _)| pod == uid).map(|(_, ids)| ids.clone()).unwrap_or_default()
    }

    /// Forgets a removal that is finished or was refused.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.stopped.retain(|(pod, _)| pod != uid);
    }

    /// Postpones a removal until the runtime answers; returns false after too many attempts.
    pub(super) fn postpone(&mut self, pending: PendingRemoval) -> bool {
        if pending.attempts >= ATTEMPTS {
            return false;
        }
        self.pending.retain(|other| other.order.uid != pending.order.uid);
        self.pending.push_back(pending);
        if self.pending.len() > MOST {
            self.pending.pop_front();
        }
        true
    }

    /// Postpones a removal that has just failed. It has waited for the kubelet.
    pub(super) fn retry(&mut self, order: StopOrder, attempts: u32) -> bool {
        let order = StopOrder { wait: None, ..order };
        self.postpone(PendingRemoval { order, attempts: attempts + 1, due: Some(Instant::now() + RETRY) })
    }

    /// Makes all removals due as soon as the runtime answers. The failures are explained by the runtime being down.
    pub(super) fn runtime_down(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.due = None);
    }

    pub(super) fn take_due(&mut self) -> Vec<PendingRemoval> {
        let now = Instant::now();
        let is_due = |pending: &PendingRemoval| pending.due.is_none_or(|due| due <= now);
        let (due, later): (Vec<PendingRemoval>, Vec<PendingRemoval>) = self.pending.drain(..).partition(is_due);
        self.pending = later.into();
        due
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pending.iter().filter_map(|pending| pending.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_attempts_are_bounded() {
        let mut pods = StoppedPods::default();
        let uid = |number: usize| PodUid(number.to_string());
        for number in 0..MOST + 10 {
            pods.stopping(&uid(number));
            pods.had(&uid(number), vec!["s".to_owned()]);
            let order = StopOrder {
                uid: uid(number),
                grace: Duration::ZERO,
                by: crate::runtime::TearDown::Runtime,
                wait: None,
                remove: true,
            };
            assert!(pods.postpone(PendingRemoval { order: order.clone(), attempts: 0, due: None }));
            assert!(pods.retry(order.clone(), 0));
            assert!(!pods.retry(order, ATTEMPTS));
        }
        assert_eq!((pods.sandboxes_of(&uid(0)), pods.sandboxes_of(&uid(10))), (Vec::new(), vec!["s".to_owned()]));
        assert!(pods.take_due().is_empty() && pods.next_due().is_some(), "each removal has just failed");
        pods.runtime_down();
        assert_eq!(pods.take_due().len(), MOST);
        assert!(pods.take_due().is_empty() && pods.next_due().is_none());
    }
}
