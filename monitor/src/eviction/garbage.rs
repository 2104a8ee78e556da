//! Node-level garbage collection: what can be removed before a pod has to go.

use crate::config::{Policy, Quirk};
use crate::units::Signal;
use serde::{Deserialize, Serialize};

use super::{Armed, Layout, NodeCondition, Observation, is_below};

/// Something that removes what nobody needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collector {
    /// Removes dead containers.
    Containers,
    /// Removes images that no container uses.
    Images,
}

impl Collector {
    /// Returns the name used in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Images => "images",
        }
    }
}

/// What to run for a signal, in this order (`eviction-semantics.md` §4). Nothing can be removed to get memory or process ids.
pub const fn collectors(signal: Signal, layout: Layout) -> &'static [Collector] {
    use Collector::{Containers, Images};
    use Signal::{
        AllocatableMemoryAvailable, ImageFsAvailable, ImageFsInodesFree, MemoryAvailable, NodeFsAvailable,
        NodeFsInodesFree, PidAvailable,
    };
    match (layout, signal) {
        (_, MemoryAvailable | AllocatableMemoryAvailable | PidAvailable)
        | (Layout::DedicatedImageFs, NodeFsAvailable | NodeFsInodesFree) => &[],
        (Layout::Single | Layout::DedicatedImageFs, _) => &[Containers, Images],
        (Layout::SplitImageFs, ImageFsAvailable | ImageFsInodesFree) => &[Images],
        (Layout::SplitImageFs, _) => &[Containers],
    }
}

/// Tells whether no pod has to go after garbage collection: every threshold is unmet by its minimum reclaim too, grace periods
/// ignored. On the first pass the containerfs copies count here, whatever they count for elsewhere.
pub fn is_enough(policy: &Policy, armed: &[Armed], after: &Observation) -> bool {
    let all = policy.quirks.has(Quirk::EveryThresholdAfterGarbageCollection);
    let counts = |signal| all || NodeCondition::of(signal) == NodeCondition::DiskPressure;
    let mut counted = armed.iter().filter(|armed| armed.counts(false) && counts(armed.threshold.signal));
    !counted.any(|armed| is_below(policy, &armed.threshold, after, true))
}

#[cfg(test)]
#[path = "garbage_tests.rs"]
mod tests;
