//! What the last complete look at each part of a workload found. An owner who keeps renaming files makes every look incomplete, and
//! gains nothing by it in a ranking.

use std::collections::HashMap;

use super::measured_usage::{Held, Part};
use crate::units::CgroupId;

/// Limit of remembered parts of one workload, which gets a new part with each container that is restarted.
const MAX_PARTS: usize = 1024;

/// What was found in a part, and whether that is all.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub found: Held,
    pub is_complete: bool,
}

/// A kind of look at a part. Each has its own predecessor: busy servers often hide open files from a scan, and seldom have deleted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Walk,
    DeletedFiles,
}

/// A part of a usage. A usage has several parts of one name if a place has several directories; the number tells them apart.
pub type NumberedPart = (Part, usize);

#[derive(Debug, Default)]
pub struct LastComplete {
    by_workload: HashMap<String, (CgroupId, Parts)>,
}

type Parts = HashMap<(NumberedPart, Kind), Held>;

impl LastComplete {
    /// Drops the workloads for which `is_wanted` is false.
    pub fn keep(&mut self, is_wanted: impl Fn(&str, CgroupId) -> bool) {
        self.by_workload.retain(|workload, (id, _)| is_wanted(workload, *id));
    }

    /// Returns what counts in a ranking: what was found, and after an incomplete look at least what the last complete one found.
    pub fn at_least(&mut self, workload: &str, id: CgroupId, part: NumberedPart, kind: Kind, look: Look) -> Held {
        let (known, parts) = self.by_workload.entry(workload.to_owned()).or_insert_with(|| (id, Parts::new()));
        if *known != id {
            (*known, *parts) = (id, Parts::new());
        }
        if !look.is_complete {
            return look.found.max(parts.get(&(part, kind)).copied().unwrap_or_default());
        }
        if parts.len() >= MAX_PARTS {
            parts.clear();
        }
        parts.insert((part, kind), look.found);
        look.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    const POD: CgroupId = CgroupId(1);

    const fn held(bytes: u64, inodes: u64) -> Held {
        Held { bytes: Bytes(bytes), inodes }
    }

    fn logs(number: usize) -> NumberedPart {
        (Part::Logs { container: "app".to_owned() }, number)
    }

    fn look(last: &mut LastComplete, part: NumberedPart, found: Held, is_complete: bool) -> Held {
        last.at_least("pod", POD, part, Kind::Walk, Look { found, is_complete })
    }

    #[test]
    fn an_incomplete_look_counts_at_least_as_much_as_the_last_complete_one() {
        let mut last = LastComplete::default();
        assert_eq!(look(&mut last, logs(0), held(5, 1), false), held(5, 1), "nothing is known before");
        assert_eq!(look(&mut last, logs(0), held(100, 10), true), held(100, 10));
        for _ in 0..3 {
            assert_eq!(look(&mut last, logs(0), held(20, 30), false), held(100, 30));
        }
        assert_eq!(look(&mut last, logs(0), held(20, 3), true), held(20, 3), "files were removed");
        assert_eq!(look(&mut last, logs(0), held(1, 1), false), held(20, 3));
    }

    #[test]
    fn parts_kinds_and_workloads_are_told_apart() {
        let mut last = LastComplete::default();
        look(&mut last, logs(0), held(100, 10), true);
        let nothing = Look { found: Held::default(), is_complete: false };
        assert_eq!(last.at_least("pod", POD, logs(1), Kind::Walk, nothing), Held::default());
        assert_eq!(last.at_least("pod", POD, logs(0), Kind::DeletedFiles, nothing), Held::default());
        assert_eq!(last.at_least("other", POD, logs(0), Kind::Walk, nothing), Held::default());
        assert_eq!(last.at_least("pod", POD, logs(0), Kind::Walk, nothing), held(100, 10));
        assert_eq!(last.at_least("pod", CgroupId(2), logs(0), Kind::Walk, nothing), Held::default(), "a new pod");
        last.keep(|_, _| false);
        assert!(last.by_workload.is_empty());
    }

    #[test]
    fn the_number_of_remembered_parts_is_bounded() {
        let mut last = LastComplete::default();
        for number in 0..3 * MAX_PARTS {
            look(&mut last, logs(number), held(1, 1), true);
            assert!(last.by_workload["pod"].1.len() <= MAX_PARTS);
        }
    }
}
