//! systemd-oomd's marks on cgroups: the extended attributes `user.oomd_omit` and `user.oomd_avoid`.

use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::among_own::OwnPlace;

/// The preference that the marks of a cgroup express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Preference {
    #[default]
    None,
    /// `user.oomd_avoid`: the workload is evicted only after all workloads without this mark.
    Avoid,
    /// `user.oomd_omit`: the workload is never evicted.
    Omit,
}

/// The marks of a cgroup, whoever has set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    omit: bool,
    avoid: bool,
}

impl Marks {
    /// Reads the marks of an open cgroup directory. cgroup v1 has no user attributes and therefore no marks (v2: Linux 5.7).
    pub fn read(directory: impl AsFd) -> Self {
        let set = |name| is_set(&directory, name);
        Self { omit: set("user.oomd_omit"), avoid: set("user.oomd_avoid") }
    }

    /// Combines the marks with the owner of the cgroup. systemd-oomd honours the marks of a cgroup that belongs to root, or to the
    /// owner of the monitored ancestor. This agent monitors the root cgroup, so both owners are root: a user cannot exempt their own
    /// processes.
    pub const fn preference(self, owner_uid: u32) -> Preference {
        match (owner_uid, self.omit, self.avoid) {
            (0, true, _) => Preference::Omit,
            (0, false, true) => Preference::Avoid,
            _ => Preference::None,
        }
    }

    /// Returns what the marks of a user say about the user's own workloads.
    pub const fn own_place(self, owner_uid: u32) -> OwnPlace {
        match (owner_uid, self.omit, self.avoid) {
            (0, ..) | (_, false, false) => OwnPlace::Ordinary,
            (_, true, _) => OwnPlace::Omit,
            (_, false, true) => OwnPlace::Avoid,
        }
    }
}

fn is_set(directory: impl AsFd, name: &str) -> bool {
    let mut value = [0; 8];
    let length = rustix::fs::fgetxattr(directory, name, &mut value).unwrap_or(0);
    value.get(..length).is_some_and(is_true)
}

/// Returns whether the value is true. systemd writes "1" and accepts all of its spellings of true.
fn is_true(value: &[u8]) -> bool {
    [&b"1"[..], b"yes", b"y", b"true", b"t", b"on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_booleans_of_systemd() {
        assert!(is_true(b"1") && is_true(b"True") && is_true(b"on"));
        assert!(!is_true(b"0") && !is_true(b"") && !is_true(b"no"));
    }

    #[test]
    fn a_users_mark_counts_only_among_the_users_own() {
        for (owner_uid, omit, avoid, expected) in [
            (0, true, true, (Preference::Omit, OwnPlace::Ordinary)),
            (0, false, true, (Preference::Avoid, OwnPlace::Ordinary)),
            (0, false, false, (Preference::None, OwnPlace::Ordinary)),
            (1000, true, true, (Preference::None, OwnPlace::Omit)),
            (1000, false, true, (Preference::None, OwnPlace::Avoid)),
        ] {
            let marks = Marks { omit, avoid };
            assert_eq!((marks.preference(owner_uid), marks.own_place(owner_uid)), expected, "{owner_uid} {marks:?}");
        }
    }
}
