//! The rule of the start: until the API server has listed the pods of this node, a pod that is not known may be critical.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Quirks;
use crate::eviction::MetThreshold;
use crate::eviction::memory_benefit::{MemoryBenefit, Need, Row, Worth};
use crate::units::{Amount, Monotonic};

/// A hard threshold waits at most this long for the list.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How soon a threshold that waits is looked at again.
const LOOKED_AT: Duration = Duration::from_millis(10);

/// Whether the API server has listed the pods of this node since the agent started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PodList {
    /// The agent runs without an API server.
    #[default]
    None,
    /// The agent has asked for the list since this time.
    Due {
        since: Monotonic,
    },
    Seen,
}

/// Returns when a threshold that waits for the list is looked at again; `None` if it does not wait. The wait ends early when half of the
/// threshold is left. Soft thresholds have rules of their own.
pub(super) fn looked_at_again(list: PodList, met: &MetThreshold, quirks: Quirks, now: Monotonic) -> Option<Monotonic> {
    let PodList::Due { since } = list else { return None };
    let end = since.after(LONGEST_WAIT);
    let available = Amount::from_units(met.value.available);
    let is_half_left = available + available > met.threshold.value.resolve(met.value.capacity, quirks);
    (met.is_hard() && is_half_left && now < end).then(|| end.min(now.after(LOOKED_AT)))
}

/// Judges the candidates for memory. Those that are not known count only where none of the others helps.
pub(super) fn listed_first(need: Need, rows: Vec<Row>, is_unlisted: impl Fn(usize) -> bool) -> MemoryBenefit {
    if rows.iter().any(|row| is_unlisted(row.place)) {
        let listed = MemoryBenefit::of(need, rows.iter().filter(|row| !is_unlisted(row.place)).copied().collect());
        let worth = listed.pick().and_then(|place| listed.worth_at(place));
        if matches!(worth, Some(Worth::Leaks | Worth::Helps(_))) {
            return listed;
        }
    }
    MemoryBenefit::of(need, rows)
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
