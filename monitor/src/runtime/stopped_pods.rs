//! Pods that were told to go: which sandboxes they had then, and what is still to be removed of them.
//!
//! The kubelet may start a pod again as soon as its sandbox is dead, under the same UID: what it makes is not to be removed with the rest.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::pod_stop::StopOrder;
use super::runtime_snapshot::Snapshot;
use crate::workloads::cgroup_path::PodUid;

/// Pods that are remembered, the latest.
const MOST: usize = 256;
/// How often a runtime that answers may fail to remove one.
const TRIES: u32 = 5;
/// Between two of them.
const BETWEEN: Duration = Duration::from_secs(10);

/// A removal that could not be carried out.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) order: StopOrder,
    /// How often that was tried.
    pub(super) tries: u32,
    /// Not again before.
    pub(super) due: Option<Instant>,
}

/// What the thread remembers of them.
#[derive(Debug, Default)]
pub(super) struct StoppedPods {
    /// All sandboxes at the last look that told of them.
    seen: Vec<(PodUid, String)>,
    told: VecDeque<(PodUid, Vec<String>)>,
    owed: VecDeque<Owed>,
}

impl StoppedPods {
    pub(super) fn see(&mut self, snapshot: &Snapshot) {
        self.seen = snapshot.sandboxes.iter().map(|sandbox| (sandbox.pod.uid.clone(), sandbox.id.clone())).collect();
    }

    /// The pod is told to stop.
    pub(super) fn tell(&mut self, uid: &PodUid) {
        let seen = self.seen.iter().filter(|(pod, _)| pod == uid).map(|(_, id)| id.clone()).collect();
        self.told.retain(|(pod, _)| pod != uid);
        self.told.push_back((uid.clone(), seen));
        if self.told.len() > MOST {
            self.told.pop_front();
        }
    }

    /// It had these, too.
    pub(super) fn had(&mut self, uid: &PodUid, ids: Vec<String>) {
        if let Some((_, known)) = self.told.iter_mut().find(|(pod, _)| pod == uid) {
            known.extend(ids);
        }
    }

    /// The sandboxes that it had when it was told to stop; nothing of a pod that was not told.
    pub(super) fn of(&self, uid: &PodUid) -> Vec<String> {
        self.told.iter().find(|(pod, _)| pod == uid).map(|(_, ids)| ids.clone()).unwrap_or_default()
    }

    /// It is removed, or never will be.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.told.retain(|(pod, _)| pod != uid);
    }

    /// To be removed once the runtime answers again; false when it was tried often enough.
    pub(super) fn owe(&mut self, owed: Owed) -> bool {
        if owed.tries >= TRIES {
            return false;
        }
        self.owed.retain(|other| other.order.uid != owed.order.uid);
        self.owed.push_back(owed);
        if self.owed.len() > MOST {
            self.owed.pop_front();
        }
        true
    }

    /// It failed now, and is owed.
    pub(super) fn owe_again(&mut self, order: StopOrder, tries: u32) -> bool {
        self.owe(Owed { order, tries: tries + 1, due: Some(Instant::now() + BETWEEN) })
    }

    /// The runtime is away: what failed failed by that, and is due as soon as it is back.
    pub(super) fn away(&mut self) {
        self.owed.iter_mut().for_each(|owed| owed.due = None);
    }

    /// All that is owed and due.
    pub(super) fn take_due(&mut self) -> Vec<Owed> {
        let now = Instant::now();
        let is_due = |owed: &Owed| owed.due.is_none_or(|due| due <= now);
        let (due, later): (Vec<Owed>, Vec<Owed>) = self.owed.drain(..).partition(is_due);
        self.owed = later.into();
        due
    }

    /// When the next of what is owed is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.owed.iter().filter_map(|owed| owed.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_so_is_patience() {
        let mut departed = StoppedPods::default();
        let uid = |number: usize| PodUid(number.to_string());
        for number in 0..MOST + 10 {
            departed.tell(&uid(number));
            departed.had(&uid(number), vec!["s".to_owned()]);
            let order = StopOrder { uid: uid(number), grace: Duration::ZERO, remove: true };
            assert!(departed.owe(Owed { order: order.clone(), tries: 0, due: None }));
            assert!(departed.owe_again(order.clone(), 0));
            assert!(!departed.owe_again(order, TRIES));
        }
        assert_eq!((departed.of(&uid(0)), departed.of(&uid(10))), (Vec::new(), vec!["s".to_owned()]));
        assert!(departed.take_due().is_empty() && departed.next_due().is_some(), "each has failed just now");
        departed.away();
        assert_eq!(departed.take_due().len(), MOST);
        assert!(departed.take_due().is_empty() && departed.next_due().is_none());
    }
}
