//! Judges whether evicting a workload helps. A workload that uses hardly any of the resource that runs out frees hardly any of it.

use crate::config::{Policy, Semantics};
use crate::units::{Amount, Resource, Signal};

use super::{MetThreshold, SignalValue};

/// For disks, a candidate that uses less than this fraction of what the largest candidate uses is passed over, unless its usage alone
/// covers what is missing.
const OF_LARGEST_ON_DISK: i128 = 10;
/// For disks, a candidate that uses less than this fraction of what is missing is passed over, even if it is the largest.
const OF_MISSING_ON_DISK: i128 = 100;
/// For process ids, a candidate that uses less than this fraction of what the largest candidate uses is passed over: a fork bomb
/// would grow while smaller candidates are evicted.
const OF_LARGEST_IN_PIDS: i128 = 4;

/// At least this fraction of the capacity counts as missing. Little is missing when a threshold has just been crossed, and a victim
/// that frees only so little would soon be followed by another.
const LITTLE: i64 = 100;

/// Judges which candidates free enough of a signal's resource to be evicted.
#[derive(Debug, Clone, Copy)]
pub struct Benefit {
    resource: Resource,
    largest: Amount,
    missing: Amount,
}

impl Benefit {
    /// Returns the judge for `signal`, given its observed value, the threshold on it that is met, if any, and the usage of the largest
    /// candidate that can be evicted.
    pub fn of(
        policy: &Policy,
        signal: Signal,
        value: Option<SignalValue>,
        met: Option<&MetThreshold>,
        largest: Option<Amount>,
    ) -> Self {
        let little = value.map(|value| Amount::from_units(value.capacity / LITTLE));
        let missing = met.map(|met| met.wanted(policy.quirks) - Amount::from_units(met.value.available));
        // The kubelet evicts the first candidate even if another candidate uses much more.
        let largest = largest.filter(|_| policy.semantics != Semantics::Kubelet);
        Self {
            resource: signal.resource(),
            largest: largest.unwrap_or(Amount::ZERO),
            // If the signal is not observed, no candidate is known to free enough.
            missing: missing.max(little).unwrap_or(Amount::from_units(i64::MAX)),
        }
    }

    /// Returns whether evicting a workload with this usage helps.
    pub fn admits(&self, used: Option<Amount>) -> bool {
        is_beneficial(self.resource, used, self.largest, self.missing)
    }
}

/// Returns whether evicting a workload that uses `used` of `resource` helps, if the largest candidate uses `largest` and the amount
/// `missing` has to be freed. For memory every eviction counts as helpful, because the ranking already takes usage into account. For
/// other resources the eviction of a workload with no usage, or with unknown usage, never helps.
fn is_beneficial(resource: Resource, used: Option<Amount>, largest: Amount, missing: Amount) -> bool {
    let Some(used) = used.filter(|used| *used > Amount::ZERO) else { return resource == Resource::Memory };
    let is_large = |part: i128| used.billionths() >= largest.billionths() / part;
    match resource {
        Resource::Memory => true,
        Resource::EphemeralStorage | Resource::Inodes => {
            let counts = used.billionths() >= missing.billionths() / OF_MISSING_ON_DISK;
            used >= missing || (counts && is_large(OF_LARGEST_ON_DISK))
        }
        Resource::Pids => is_large(OF_LARGEST_IN_PIDS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[test]
    fn a_workload_that_frees_too_little_is_not_beneficial() {
        use Resource::{EphemeralStorage, Inodes, Memory, Pids};
        let units = Amount::from_units;
        for (name, resource, used, largest, missing, expected) in [
            ("the largest", Inodes, Some(100_000), 100_000, 5000, true),
            ("a tenth of the largest", Inodes, Some(10_000), 100_000, 50_000, true),
            ("less than a tenth, and not enough", Inodes, Some(9_999), 100_000, 50_000, false),
            ("less than a tenth of the largest, but enough", EphemeralStorage, Some(5_000), 100_000, 1_000, true),
            ("the largest, but far too small", Inodes, Some(14), 14, 7_000, false),
            ("the largest, a hundredth of what is missing", Inodes, Some(70), 70, 7_000, true),
            ("nothing on this disk", EphemeralStorage, Some(0), 0, 1_000, false),
            ("unused while nothing is missing", EphemeralStorage, Some(0), 100, -5, false),
            ("not measured", EphemeralStorage, None, 100, 1, false),
            ("small beside a fork bomb", Pids, Some(300), 3500, 10, false),
            ("a third of the largest", Pids, Some(300), 900, 10, true),
            ("memory is ranked, not filtered", Memory, Some(0), 100, 1, true),
            ("memory without a measurement", Memory, None, 100, 1, true),
        ] {
            let found = is_beneficial(resource, used.map(units), units(largest), units(missing));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn only_kubelet_semantics_admit_a_small_usage() {
        let units = Amount::from_units;
        let value = SignalValue {
            available: 0,
            capacity: 2_000_000,
            ..SignalValue::now(Signal::NodeFsInodesFree, Bytes(0), Bytes(0))
        };
        let worth = |semantics| {
            let policy = Policy { semantics, ..Policy::default() };
            Benefit::of(&policy, Signal::NodeFsInodesFree, Some(value), None, Some(units(100_000)))
        };
        for (used, corrected, kubelet) in
            [(Some(100_000), true, true), (Some(500), false, true), (Some(0), false, false), (None, false, false)]
        {
            let used = used.map(units);
            assert_eq!(worth(Semantics::Corrected).admits(used), corrected, "{used:?}");
            assert_eq!(worth(Semantics::Kubelet).admits(used), kubelet, "{used:?}");
        }
    }
}
