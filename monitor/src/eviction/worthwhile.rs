//! Whether it helps that a workload goes: one that has taken next to nothing of what is short gives back next to nothing.

use crate::config::{Amount, Resource};

/// Of disks, who has less than this part of what the largest has is passed over, unless that alone is enough.
const OF_LARGEST_ON_DISK: i128 = 10;
/// And less than this part of what is missing is next to nothing even of the largest.
const OF_MISSING_ON_DISK: i128 = 100;
/// Of process ids: a fork bomb grows while others are ended, so only those that are as large count beside it.
const OF_LARGEST_IN_PIDS: i128 = 4;

/// Tells whether a workload that uses `used` of `resource` is worth ending, when the largest candidate uses `largest` and so much is
/// `missing`. Of memory everybody is: the ranking has looked at that. What is not known is not acted on.
#[must_use]
pub fn is_worthwhile(resource: Resource, used: Option<Amount>, largest: Amount, missing: Amount) -> bool {
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
            let found = is_worthwhile(resource, used.map(units), units(largest), units(missing));
            assert_eq!(found, expected, "{name}");
        }
    }
}
