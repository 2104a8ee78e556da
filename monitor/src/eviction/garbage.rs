//! Garbage collection of the node: which garbage is removed before a pod is evicted.

use crate::config::{Policy, Quirk, Quirks};
use crate::units::{Signal, named_enum};
use serde::{Deserialize, Serialize};

use super::{Armed, Layout, NodeCondition, Observation, is_below};

named_enum! {
    /// A kind of garbage, and what removes it.
    #[derive(Serialize, Deserialize)]
    pub enum Collector {
        /// Removes dead containers.
        Containers = "containers",
        /// Removes images that no container uses.
        Images = "images",
    }
}

/// Returns the collectors to run for a signal, in order (`eviction-semantics.md` §4). No garbage collection frees memory or process ids.
pub const fn collectors(signal: Signal, layout: Layout, quirks: Quirks) -> &'static [Collector] {
    use Collector::{Containers, Images};
    use Signal::{
        AllocatableMemoryAvailable, ImageFsAvailable, ImageFsInodesFree, MemoryAvailable, NodeFsAvailable,
        NodeFsInodesFree, PidAvailable,
    };
    match (layout, signal) {
        (_, MemoryAvailable | AllocatableMemoryAvailable | PidAvailable) => &[],
        (Layout::DedicatedImageFs, NodeFsAvailable | NodeFsInodesFree) => {
            // The logs of dead containers are there, their writable layers and the images are not.
            if quirks.has(Quirk::NoGarbageCollectionForNodeFs) { &[] } else { &[Containers] }
        }
        (Layout::Single | Layout::DedicatedImageFs, _) => &[Containers, Images],
        (Layout::SplitImageFs, ImageFsAvailable | ImageFsInodesFree) => &[Images],
        (Layout::SplitImageFs, _) => &[Containers],
    }
}

/// Returns whether garbage collection sufficed, so that no pod is evicted: every signal is above its threshold plus minimum reclaim.
/// Grace periods do not count. The copies for containerfs count here even on the first pass.
pub fn is_enough(policy: &Policy, armed: &[Armed], after: &Observation) -> bool {
    let all = policy.quirks.has(Quirk::EveryThresholdAfterGarbageCollection);
    let counts = |signal| all || NodeCondition::of(signal) == NodeCondition::DiskPressure;
    let mut counted = armed.iter().filter(|armed| armed.counts(false) && counts(armed.threshold.signal));
    !counted.any(|armed| is_below(policy, &armed.threshold, after, true))
}

#[cfg(test)]
#[path = "garbage_tests.rs"]
mod tests;
