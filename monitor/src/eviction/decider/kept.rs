//! The memory of the decider that outlasts a restart of the agent in the same boot.

use serde::{Deserialize, Serialize};

use super::Memory;
use super::arming::Arming;
use super::memory::Exclusions;
use super::shortage::Shortages;
use crate::config::{EvictionLimits, Quirks, Threshold};
use crate::eviction::budget::{Budget, Class};
use crate::units::Monotonic;

/// Defines [`Kept`] from fields of [`Memory`]. A field that is to be kept needs only its row.
macro_rules! kept {
    ($($field:ident: $type:ty,)+) => {
        /// The part of [`Memory`] that is kept over a restart. Its times are on the monotonic clock of one boot.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct Kept {
            $($field: $type,)+
        }

        impl Kept {
            pub fn of(memory: &Memory) -> Self {
                Self { $($field: memory.$field.clone(),)+ }
            }

            /// Returns whether this is what `memory` would give now.
            pub fn is_of(&self, memory: &Memory) -> bool {
                $(self.$field == memory.$field)&&+
            }

            /// Returns the memory of a decider that goes on from here.
            pub fn into_memory(self) -> Memory {
                Memory { $($field: self.$field,)+ ..Memory::default() }
            }
        }
    };
}

kept! {
    arming: Arming,
    budget: Budget,
    exclusions: Exclusions,
    shortages: Shortages,
}

impl Kept {
    /// Returns whether an agent that goes on from here acts on the threshold when it arrives.
    pub fn is_armed(&self, threshold: &Threshold, capacity: i64, quirks: Quirks) -> bool {
        self.arming.covers(threshold, capacity, quirks)
    }

    pub fn armed(&self) -> impl Iterator<Item = &Threshold> {
        self.arming.armed()
    }

    /// Returns the thresholds that are not armed because they were met when they arrived, and when that was.
    pub fn waiting(&self) -> impl Iterator<Item = (&Threshold, Monotonic)> {
        self.arming.waiting()
    }

    /// Returns the evictions of the class in the last minute, and how many are allowed on a node with this number of workloads.
    pub fn budget(&self, limits: &EvictionLimits, of: (Class, usize), now: Monotonic) -> (usize, usize) {
        self.budget.figures(limits, of, now)
    }
}

#[cfg(test)]
mod tests {
    use crate::eviction::decider::{EndedEviction, EvictionEnd, Snapshot};
    use crate::eviction::evicted::Cause;
    use crate::units::{CgroupId, Moment, Signal};

    use super::*;

    #[test]
    fn budget_and_exclusions_survive_a_restart() {
        let mut memory = Memory::default();
        let empty = Kept::of(&memory);
        let cause = Cause::Signal(Signal::MemoryAvailable);
        let ended = [(1, EvictionEnd::Gone), (2, EvictionEnd::Failed), (3, EvictionEnd::Refused)]
            .map(|(id, end)| EndedEviction { id: CgroupId(id), cause, end });
        let snapshot = Snapshot { now: Moment(5_000_000_000), ended: ended.to_vec(), ..Snapshot::default() };
        memory.take_in(&snapshot);
        let kept = Kept::of(&memory);
        assert!(kept.is_of(&memory) && !empty.is_of(&memory));
        let text = serde_json::to_string(&kept).unwrap();
        let next = serde_json::from_str::<Kept>(&text).unwrap().into_memory();
        let now = snapshot.clock();
        assert_eq!(next.budget, memory.budget);
        let holds = |id, hard| next.exclusions.holds(CgroupId(id), hard, now);
        assert_eq!([holds(1, true), holds(2, true), holds(3, true), holds(3, false)], [false, true, false, true]);
    }

    #[test]
    fn fields_of_another_version_are_no_error() {
        let kept: Kept = serde_json::from_str(r#"{"budget": {"effects": [["HardMemory", 5]]}, "later": 1}"#).unwrap();
        assert_ne!(kept, Kept::default());
    }
}
