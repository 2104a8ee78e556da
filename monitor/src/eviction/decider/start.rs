//! The rules of the start: until the API server has listed the pods of this node, a pod that is not known may be critical; and until the
//! agent has sampled for a moment, it does not know how fast memory falls, and what leaks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Quirks;
use crate::eviction::MetThreshold;
use crate::eviction::memory_benefit::{MemoryBenefit, Need, Row, Worth};
use crate::units::{Amount, Monotonic};

use super::pending::{Level, reaches_half};

/// A hard threshold waits at most this long for the list.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How long the agent samples before its first eviction for memory. At 20 MiB a second memory falls by 6 MiB meanwhile.
const SAMPLED_FOR: Duration = Duration::from_millis(300);
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

/// Returns whether the agent has not sampled for long enough to know what leaks, and can wait for it: half of the threshold is far.
pub(super) fn knows_no_fall(first_sample: Option<Monotonic>, level: Level, now: Monotonic) -> bool {
    let is_new = first_sample.is_some_and(|first| now.since(first) < SAMPLED_FOR);
    is_new && !reaches_half(level.available, level.threshold, level.fall)
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
