//! When the node is looked at again because another writer has changed it: that writer may have removed conditions or taints of ours.

use std::time::Duration;

use tokio::time::Instant;

use super::super::backoff::jittered;
use super::super::resource_version;

/// The longest time until then. The kubelet writes the node every five minutes, or when it changes.
const LOOK_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The node is read.
    Read,
    /// The node is known as it is. Differences from the wanted status are written.
    Compare,
}

#[derive(Debug, Default)]
pub(super) struct NextLook(Option<(Instant, Look)>);

impl NextLook {
    pub(super) fn at(&self) -> Option<Instant> {
        self.0.map(|(at, _)| at)
    }

    /// Returns the look that is due. Without one everything is looked at, which begins with a read.
    pub(super) fn take(&mut self) -> Look {
        self.0.take().map_or(Look::Read, |(_, look)| look)
    }

    /// Notes that the wanted status is compared with the known node now.
    pub(super) fn note_write(&mut self) {
        self.0 = self.0.filter(|(_, look)| *look == Look::Read);
    }

    /// Notes that the reflector has delivered the node with the version `now`, while the one with `known` is known. Returns whether the
    /// delivered one is newer and takes its place.
    pub(super) fn note(&mut self, now: &str, known: &str, time: Instant) -> bool {
        if now == known {
            // An event about what is known already: the last ones were older.
            self.0 = self.0.filter(|(_, look)| *look == Look::Compare);
            return false;
        }
        let is_newer = resource_version::is_older(known, now);
        let at = self.at().unwrap_or_else(|| time + jittered(LOOK_AFTER));
        if is_newer {
            self.0 = Some((at, Look::Compare));
        } else {
            // An event from before a write of this agent, or a store that was restored from a backup.
            self.0.get_or_insert((at, Look::Read));
        }
        is_newer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_that_may_be_another_is_read() {
        for (name, known, versions, look) in [
            ("what this agent has written", "5", &["5"][..], None),
            ("what was before it", "5", &["3", "4", "5"], None),
            ("what was before it, and no more", "5", &["3", "4"], Some(Look::Read)),
            ("another writer's change", "5", &["6"], Some(Look::Compare)),
            ("both", "5", &["4", "6"], Some(Look::Compare)),
            ("listed again", "5", &["6", "6"], Some(Look::Compare)),
            ("a version that is no number", "5", &["x"], Some(Look::Read)),
        ] {
            let (mut next, start) = (NextLook::default(), Instant::now());
            let mut known = known;
            for version in versions {
                if next.note(version, known, start) {
                    known = version;
                }
            }
            let at = next.at().map(|at| at - start);
            assert!(at.is_none_or(|at| at >= LOOK_AFTER / 2 && at <= LOOK_AFTER), "{name}: {at:?}");
            assert_eq!(next.at().map(|_| next.take()), look, "{name}");
        }
    }

    #[test]
    fn a_write_includes_the_comparison_but_not_the_read() {
        let start = Instant::now();
        for (version, left) in [("6", false), ("4", true)] {
            let mut next = NextLook::default();
            next.note(version, "5", start);
            next.note_write();
            assert_eq!(next.at().is_some(), left, "{version}");
        }
        assert_eq!(NextLook::default().take(), Look::Read, "after the idle time everything is looked at");
    }
}
