//! Which thresholds are watched on which pass: the policy's, and the containerfs copies that the layout of the filesystems asks for.

use crate::config::{Policy, Quirk, Signal, Threshold};

/// Which filesystems the node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// Images, writable layers, logs and volumes share one.
    #[default]
    Single,
    /// Images and writable layers have their own.
    DedicatedImageFs,
    /// Images have their own, writable layers share the node's.
    SplitImageFs,
}

/// A threshold that is watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Armed {
    /// The threshold.
    pub threshold: Threshold,
    /// It does not count on the first pass.
    pub from_second_pass: bool,
}

impl Armed {
    /// Tells whether it counts on the first pass, or on a later one.
    #[must_use]
    pub fn counts(&self, first: bool) -> bool {
        !(first && self.from_second_pass)
    }
}

/// The thresholds to watch on a node of this layout.
///
/// Configured containerfs thresholds do not survive: containerfs is what its filesystem's own thresholds say
/// (`eviction-semantics.md` §2.3). A copy takes the place of the one that was configured; one that was not is added at the end, and
/// under [`Quirk::ContainerFsFirstPass`] does not count on the first pass.
#[must_use]
pub fn arm(policy: &Policy, layout: Layout) -> Vec<Armed> {
    let mut thresholds: Vec<Option<Threshold>> = policy.thresholds.iter().cloned().map(Some).collect();
    let [bytes, inodes] = match layout {
        Layout::Single | Layout::SplitImageFs => [Signal::NodeFsAvailable, Signal::NodeFsInodesFree],
        Layout::DedicatedImageFs => [Signal::ImageFsAvailable, Signal::ImageFsInodesFree],
    };
    let mut added = Vec::new();
    for (source, signal) in [(bytes, Signal::ContainerFsAvailable), (inodes, Signal::ContainerFsInodesFree)] {
        for hard in [true, false] {
            let last = |signal| policy.thresholds.iter().rposition(|it| it.signal == signal && it.is_hard() == hard);
            let copy = last(source).map(|source| Threshold { signal, ..policy.thresholds[source].clone() });
            match last(signal).and_then(|place| thresholds.get_mut(place)) {
                Some(configured) => *configured = copy,
                None => added.extend(copy),
            }
        }
    }
    let from_second_pass = policy.quirks.has(Quirk::ContainerFsFirstPass);
    let configured = thresholds.into_iter().flatten().map(|threshold| Armed { threshold, from_second_pass: false });
    configured.chain(added.into_iter().map(|threshold| Armed { threshold, from_second_pass })).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Bytes, Quirks, Semantics, ThresholdValue};

    fn threshold(signal: Signal, bytes: u64, grace_seconds: u64) -> Threshold {
        Threshold {
            signal,
            value: ThresholdValue::bytes(Bytes(bytes)),
            grace_period: Duration::from_secs(grace_seconds),
            min_reclaim: None,
        }
    }

    fn armed(thresholds: &[Threshold], layout: Layout, semantics: Semantics) -> Vec<String> {
        let policy = Policy { thresholds: thresholds.to_vec(), quirks: Quirks::of(semantics), ..Policy::default() };
        let text = |armed: Armed| {
            let late = if armed.from_second_pass { ", later" } else { "" };
            format!("{} {}{late}", armed.threshold.kind(), armed.threshold)
        };
        arm(&policy, layout).into_iter().map(text).collect()
    }

    #[test]
    fn containerfs_follows_the_filesystem_that_it_shares() {
        let thresholds = [
            threshold(Signal::NodeFsAvailable, 1, 0),
            threshold(Signal::ImageFsAvailable, 2, 0),
            threshold(Signal::NodeFsInodesFree, 3, 30),
        ];
        let node = ["hard containerfs.available<1, later", "soft containerfs.inodesFree<3, later"];
        for (layout, expected) in [
            (Layout::Single, &node[..]),
            (Layout::SplitImageFs, &node[..]),
            (Layout::DedicatedImageFs, &["hard containerfs.available<2, later"][..]),
        ] {
            assert_eq!(armed(&thresholds, layout, Semantics::Kubelet)[3..], *expected, "{layout:?}");
        }
        assert_eq!(armed(&thresholds, Layout::Single, Semantics::Corrected)[3], "hard containerfs.available<1");
    }

    #[test]
    fn a_configured_containerfs_threshold_is_replaced_in_its_place() {
        let thresholds = [
            threshold(Signal::ContainerFsAvailable, 9, 0),
            threshold(Signal::ContainerFsInodesFree, 8, 0),
            threshold(Signal::NodeFsAvailable, 1, 0),
        ];
        // Nothing says what containerfs.inodesFree should follow: it is gone.
        let expected = ["hard containerfs.available<1", "hard nodefs.available<1"];
        assert_eq!(armed(&thresholds, Layout::Single, Semantics::Kubelet), expected);
    }
}
