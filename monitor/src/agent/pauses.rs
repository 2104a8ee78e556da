//! What was answered not long ago, and is not asked again yet.

use std::time::Duration;

use crate::units::{Monotonic, Signal};

/// What runs out, and whether it is for a hard threshold. Another filesystem is another matter.
type About = (Signal, bool);

/// For a kind of threshold: nobody could be evicted, it was said who would be, or what was done has not had its effect yet.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    until: Vec<(About, Monotonic)>,
}

impl Pauses {
    /// Nothing is tried about `about` for so long.
    pub(super) fn set(&mut self, about: About, now: Monotonic, pause: Duration) {
        self.until.retain(|(known, until)| *known != about && now < *until);
        self.until.push((about, now.after(pause)));
    }

    /// It may be tried again at once.
    pub(super) fn forget(&mut self, about: About) {
        self.until.retain(|(known, _)| *known != about);
    }

    /// Until when nothing is to be tried.
    pub(super) fn until(&self, about: About, now: Monotonic) -> Option<Monotonic> {
        self.until.iter().find(|(known, until)| *known == about && now < *until).map(|(_, until)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_threshold_pauses_by_itself() {
        let mut pauses = Pauses::default();
        let (hard, soft) = ((Signal::NodeFsInodesFree, true), (Signal::NodeFsInodesFree, false));
        pauses.set(hard, Monotonic(0), Duration::from_nanos(10));
        pauses.set(soft, Monotonic(5), Duration::from_nanos(10));
        pauses.set((Signal::MemoryAvailable, true), Monotonic(5), Duration::from_nanos(1));
        assert_eq!(pauses.until(hard, Monotonic(9)), Some(Monotonic(10)));
        assert_eq!(pauses.until(hard, Monotonic(10)), None);
        assert_eq!(pauses.until(soft, Monotonic(10)), Some(Monotonic(15)));
        assert_eq!(pauses.until((Signal::ImageFsInodesFree, true), Monotonic(0)), None);
    }
}
