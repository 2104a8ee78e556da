//! Whether it helps that a workload goes: one that has taken next to nothing of what is short gives back next to nothing.

use crate::config::{Policy, Semantics};
use crate::units::{Amount, Resource, Signal};

use super::{MetThreshold, SignalValue};

/// Of disks, who has less than this part of what the largest has is passed over, unless that alone is enough.
const OF_LARGEST_ON_DISK: i128 = 10;
/// And less than this part of what is missing is next to nothing even of the largest.
const OF_MISSING_ON_DISK: i128 = 100;
/// Of process ids: a fork bomb grows while others are ended, so only those that are as large count beside it.
const OF_LARGEST_IN_PIDS: i128 = 4;

/// Of a capacity: a threshold is met by a little only, when it has just been crossed, and who gives back no more than that would not be the
/// last to go.
const LITTLE: i64 = 100;

/// Who may be evicted for a signal: not who would give back next to nothing.
#[derive(Debug, Clone, Copy)]
pub struct Benefit {
    resource: Resource,
    largest: Amount,
    missing: Amount,
}

impl Benefit {
    /// By what was observed, the threshold on it that is met if one is, and what the largest uses of those who can go.
    pub fn of(
        policy: &Policy,
        signal: Signal,
        value: Option<SignalValue>,
        met: Option<&MetThreshold>,
        largest: Option<Amount>,
    ) -> Self {
        let little = value.map(|value| Amount::from_units(value.capacity / LITTLE));
        let missing = met.map(|met| met.wanted(policy.quirks) - Amount::from_units(met.value.available));
        // The kubelet ends also who is in front by its class alone.
        let largest = largest.filter(|_| policy.semantics != Semantics::Kubelet);
        Self {
            resource: signal.resource(),
            largest: largest.unwrap_or(Amount::ZERO),
            // Where the signal is not observed nobody can be said to give back enough.
            missing: missing.max(little).unwrap_or(Amount::from_units(i64::MAX)),
        }
    }

    /// Whether it helps that who uses so much goes.
    pub fn admits(&self, used: Option<Amount>) -> bool {
        is_beneficial(self.resource, used, self.largest, self.missing)
    }
}

/// Tells whether a workload that uses `used` of `resource` is worth ending, when the largest candidate uses `largest` and so much is
/// `missing`. Of memory everybody is: the ranking has looked at that. What is not known is not acted on.
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
    fn who_gives_back_next_to_nothing_stays() {
        use Resource::{EphemeralStorage, Inodes, Memory, Pids};
        let units = Amount::from_units;
        for (name, resource, used, largest, missing, expected) in [
            ("the largest", Inodes, Some(100_000), 100_000, 5000, true),
            ("a tenth", Inodes, Some(10_000), 100_000, 50_000, true),
            ("less, and not enough", Inodes, Some(9_999), 100_000, 50_000, false),
            ("less, but enough", EphemeralStorage, Some(5_000), 100_000, 1_000, true),
            ("the largest of small ones", Inodes, Some(14), 14, 7_000, false),
            ("the largest of small ones, which add up", Inodes, Some(70), 70, 7_000, true),
            ("nothing on this disk", EphemeralStorage, Some(0), 0, 1_000, false),
            ("nothing missing any more", EphemeralStorage, Some(0), 100, -5, false),
            ("not measured", EphemeralStorage, None, 100, 1, false),
            ("beside a fork bomb", Pids, Some(300), 3500, 10, false),
            ("among equals", Pids, Some(300), 900, 10, true),
            ("memory is ranked, not filtered", Memory, Some(0), 100, 1, true),
            ("nor is it here where it is not known", Memory, None, 100, 1, true),
        ] {
            let found = is_beneficial(resource, used.map(units), units(largest), units(missing));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn who_has_next_to_nothing_is_passed_over_but_by_the_kubelets_rules() {
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
