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

/// On which passes a threshold counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// On all.
    All,
    /// On the first only: a configured containerfs threshold, under [`Quirk::ContainerFsFirstPass`].
    First,
    /// On all but the first: a containerfs copy, under the same quirk.
    Later,
}

/// A threshold that is watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Armed {
    /// The threshold.
    pub threshold: Threshold,
    /// When.
    pub passes: Passes,
}

impl Armed {
    /// Tells whether it counts on the first pass, or on a later one.
    #[must_use]
    pub fn counts(&self, first: bool) -> bool {
        match self.passes {
            Passes::All => true,
            Passes::First => first,
            Passes::Later => !first,
        }
    }
}

/// The thresholds to watch on a node of this layout.
///
/// Configured containerfs thresholds do not survive: containerfs is what its filesystem's own thresholds say (`eviction-semantics.md` §2.3).
#[must_use]
pub fn arm(policy: &Policy, layout: Layout) -> Vec<Armed> {
    let quirk = policy.quirks.has(Quirk::ContainerFsFirstPass);
    let mut armed = Vec::with_capacity(policy.thresholds.len());
    for threshold in &policy.thresholds {
        let passes = match threshold.signal {
            Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree if quirk => Passes::First,
            Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => continue,
            _ => Passes::All,
        };
        armed.push(Armed { threshold: threshold.clone(), passes });
    }
    let [bytes, inodes] = match layout {
        Layout::Single | Layout::SplitImageFs => [Signal::NodeFsAvailable, Signal::NodeFsInodesFree],
        Layout::DedicatedImageFs => [Signal::ImageFsAvailable, Signal::ImageFsInodesFree],
    };
    let passes = if quirk { Passes::Later } else { Passes::All };
    for (source, copy) in [(bytes, Signal::ContainerFsAvailable), (inodes, Signal::ContainerFsInodesFree)] {
        for hard in [true, false] {
            let copied = policy.thresholds.iter().filter(|it| it.signal == source && it.is_hard() == hard);
            let copied = copied.map(|it| Armed { threshold: Threshold { signal: copy, ..it.clone() }, passes });
            armed.extend(copied);
        }
    }
    armed
}
