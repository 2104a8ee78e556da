//! Decides which thresholds are watched on which pass: those of the policy, and the copies for containerfs that the layout of the
//! filesystems requires.

use crate::config::{Policy, Quirk, Threshold};
use crate::units::{Signal, named_enum};
use serde::{Deserialize, Serialize};

named_enum! {
    /// The layout of the node's filesystems.
    #[derive(Default, Serialize, Deserialize)]
    pub enum Layout {
        /// Images, writable layers, logs and volumes share one filesystem.
        #[default]
        Single = "single",
        /// Images and writable layers share a filesystem of their own.
        DedicatedImageFs = "dedicated_imagefs",
        /// Images have a filesystem of their own. Writable layers share the node's.
        SplitImageFs = "split_imagefs",
    }
}

impl Layout {
    /// Returns the layout for these devices of the node's filesystem, the images and the writable layers. Like the kubelet, calls the
    /// layout split whenever writable layers and images lie on different devices (`eviction-semantics.md` §1.3).
    pub fn of<D: PartialEq>(node: &D, image: &D, container: &D) -> Self {
        if image != container {
            Self::SplitImageFs
        } else if image == node {
            Self::Single
        } else {
            Self::DedicatedImageFs
        }
    }

    /// Returns the layout for the devices that are known. An unknown device of images counts as the node's, because a node without an
    /// image store has no images elsewhere. An unknown device of writable layers counts as that of the images, because runtimes keep
    /// both together.
    pub fn of_known<D: PartialEq + ?Sized>(node: Option<&D>, image: Option<&D>, container: Option<&D>) -> Self {
        let image = image.or(node);
        Self::of(&node, &image, &container.or(image))
    }
}

/// The passes on which a threshold counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// The threshold counts on every pass.
    All,
    /// The threshold counts on the first pass only: the kubelet uses a threshold configured for containerfs once, and then replaces it.
    First,
    /// The threshold counts on all passes but the first.
    Later,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Armed {
    pub threshold: Threshold,
    /// The passes on which the threshold counts.
    pub passes: Passes,
}

impl Armed {
    /// Returns whether the threshold counts on the first pass, or on a later one if `first` is false.
    pub fn counts(&self, first: bool) -> bool {
        match self.passes {
            Passes::All => true,
            Passes::First => first,
            Passes::Later => !first,
        }
    }
}

/// Returns the thresholds to watch on a node of this layout.
///
/// Thresholds configured for containerfs are dropped: containerfs follows the thresholds of the filesystem that it shares
/// (`eviction-semantics.md` §2.3). A copy of such a threshold takes the place of the configured one, or is added at the end.
pub fn arm(policy: &Policy, layout: Layout) -> Vec<Armed> {
    let [bytes, inodes] = match layout {
        Layout::Single | Layout::SplitImageFs => [Signal::NodeFsAvailable, Signal::NodeFsInodesFree],
        Layout::DedicatedImageFs => [Signal::ImageFsAvailable, Signal::ImageFsInodesFree],
    };
    let quirk = policy.quirks.has(Quirk::ContainerFsFirstPass);
    let mut places = places(policy, quirk);
    let (mut added, mut configured) = (Vec::new(), Vec::new());
    let mut list = FirstPassList::of(policy);
    for (source, signal) in [(bytes, Signal::ContainerFsAvailable), (inodes, Signal::ContainerFsInodesFree)] {
        for hard in [true, false] {
            // Of several thresholds of one kind the last counts.
            let last = |signal| policy.thresholds.iter().rposition(|it| it.signal == signal && it.is_hard() == hard);
            let copy = last(source).map(|source| Threshold { signal, ..policy.thresholds[source].clone() });
            match last(signal).and_then(|place| places.get_mut(place)) {
                Some(place) if quirk && !list.is_shared => {
                    configured.extend(place.take().map(|it| armed(it.threshold, Passes::First)));
                    *place = copy.map(|it| armed(it, Passes::Later));
                }
                Some(place) => *place = copy.map(|it| armed(it, Passes::All)),
                None => {
                    list.push();
                    added.extend(copy.map(|it| armed(it, if quirk { Passes::Later } else { Passes::All })));
                }
            }
        }
    }
    places.into_iter().flatten().chain(added).chain(configured).collect()
}

fn armed(threshold: Threshold, passes: Passes) -> Armed {
    Armed { threshold, passes }
}

/// Returns, for each threshold of the policy, the armed threshold in its place. Without the quirk, the place of a threshold configured
/// for containerfs is empty.
fn places(policy: &Policy, quirk: bool) -> Vec<Option<Armed>> {
    let is_containerfs =
        |signal: Signal| matches!(signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree);
    let stands = |it: &&Threshold| quirk || !is_containerfs(it.signal);
    let place = |it: &Threshold| Some(it).filter(stands).map(|it| armed(it.clone(), Passes::All));
    policy.thresholds.iter().map(place).collect()
}

/// Models the Go slice of thresholds that the kubelet's first pass iterates over while the kubelet adds the copies to it. The pass sees
/// a copy that replaces a configured threshold while both use the same array. Appending a copy without room moves the thresholds to
/// a longer array, and the first pass sees no copy made after that.
struct FirstPassList {
    is_shared: bool,
    room: usize,
}

impl FirstPassList {
    fn of(policy: &Policy) -> Self {
        let is_copied = |it: &&Threshold| it.signal == Signal::MemoryAvailable && it.is_hard();
        let copies = policy.thresholds.iter().filter(is_copied).count();
        let length = policy.thresholds.len();
        let capacity = if policy.pods_enforced {
            grown(rounded(length - copies), length)
        } else {
            grown(rounded(policy.hard_count), length)
        };
        Self { is_shared: true, room: capacity - length }
    }

    fn push(&mut self) {
        self.is_shared &= self.room > 0;
        self.room = self.room.saturating_sub(1);
    }
}

/// Returns the capacity of a Go slice that had the capacity `capacity` and was extended to `length` elements.
fn grown(capacity: usize, length: usize) -> usize {
    if length <= capacity { capacity } else { rounded(length.max(2 * capacity)) }
}

/// Returns the capacity that Go 1.22 and later allocates for `length` elements of 64 bytes. Its size classes match every length up to
/// 11 exactly, and above that only odd lengths.
fn rounded(length: usize) -> usize {
    if length <= 11 { length } else { length | 1 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Quirks, Semantics, ThresholdValue};
    use crate::units::Bytes;

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
            let passes = match armed.passes {
                Passes::All => "",
                Passes::First => ", first",
                Passes::Later => ", later",
            };
            format!("{} {}{passes}", armed.threshold.kind(), armed.threshold)
        };
        arm(&policy, layout).into_iter().map(text).collect()
    }

    #[test]
    fn the_layout_follows_from_the_devices() {
        for (node, image, container, layout) in [
            (1, 1, 1, Layout::Single),
            (1, 2, 2, Layout::DedicatedImageFs),
            (1, 2, 1, Layout::SplitImageFs),
            (1, 2, 3, Layout::SplitImageFs),
            (1, 1, 2, Layout::SplitImageFs),
        ] {
            assert_eq!(Layout::of(&node, &image, &container), layout, "{node} {image} {container}");
        }
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
        // No threshold on nodefs.inodesFree exists that containerfs.inodesFree could follow. Its threshold counts on the kubelet's first
        // pass only.
        let expected =
            ["hard containerfs.available<1", "hard nodefs.available<1", "hard containerfs.inodesFree<8, first"];
        assert_eq!(armed(&thresholds, Layout::Single, Semantics::Kubelet), expected);
        let expected = ["hard containerfs.available<1", "hard nodefs.available<1"];
        assert_eq!(armed(&thresholds, Layout::Single, Semantics::Corrected), expected);
    }

    #[test]
    fn the_copy_replaces_the_last_of_two_hard_thresholds() {
        let of = |bytes| threshold(Signal::ContainerFsAvailable, bytes, 0);
        let thresholds = [of(9), of(8), threshold(Signal::NodeFsAvailable, 1, 0)];
        let expected = ["hard containerfs.available<9", "hard containerfs.available<1", "hard nodefs.available<1"];
        assert_eq!(armed(&thresholds, Layout::Single, Semantics::Kubelet), expected);
        assert_eq!(armed(&thresholds, Layout::Single, Semantics::Corrected), expected[1..]);
    }
}
