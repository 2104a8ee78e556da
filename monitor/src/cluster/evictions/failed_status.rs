//! Watches a status Failed that the agent has written. Pure.
//!
//! The kubelet ends the pod because of it, and writes the status a few times meanwhile: once with an empty reason, and with the phase
//! Running if it was about to restart a container (seen with kubelet 1.36). Therefore the status is read until it lasts, and written
//! again while it is not the agent's. A status lasts only once the kubelet itself has written that the pod has failed: a kubelet that was
//! about to restart a container has not seen it, and may write over it many seconds later. A kubelet that was through with the pod before it
//! saw the reason restores its own status every ten seconds, for ever.

use std::time::Duration;

use super::exchange::Life;

/// Time between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same from [`LATER_AFTER`] on: the kubelet is slow, or away.
const LATER_LOOK_EVERY: Duration = Duration::from_secs(5);
/// After the pod's grace period. A kubelet took 10 s for a new sandbox (1.36, emulated), wrote the phase Running when it was made, and looks
/// at the phase once more when the container starts.
const LATER_AFTER: Duration = Duration::from_secs(30);
/// How long the status is looked at, after the pod's grace period: the kubelet looks at each pod every 60 to 90 s.
const LOOKED_AT_FOR: Duration = Duration::from_secs(100);
/// Looks in a row that must find the pod ended with the agent's reason.
const CALM_LOOKS: u32 = 3;
/// The time to one more look where the kubelet may have been through before: it compares the status with its own every ten seconds.
pub(super) const UNTIL_LAST_LOOK: Duration = Duration::from_secs(12);
/// Age of a decision at which the kubelet may be through with the pod before the status is written: it looks for ended containers every second.
const MAYBE_THROUGH_AFTER: Duration = Duration::from_secs(1);
/// Looks in a row without the agent's reason before the status is written again: the kubelet restores the reason itself in a second.
const PATIENT_LOOKS: u32 = 2;
/// Times that the status is written again after timed looks: more often than a kubelet writes over it until the container starts.
const REPEATS: u32 = 8;
/// Looks before their time: more than a kubelet that restores its status every ten seconds causes, and few enough for a client that insists
/// on its own status.
const EARLY_LOOKS: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FailedStatus {
    calm: u32,
    lost: u32,
    repeats: u32,
    /// The status may have been written after the kubelet was through with the pod.
    is_late: bool,
    /// The next look comes before its time, because the status was written over.
    is_early: bool,
    early: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Look,
    /// Look after [`UNTIL_LAST_LOOK`].
    LookLater,
    WriteAgain,
    /// The status lasts.
    Over,
    /// The kubelet does not say that it knows of the eviction: it is away, or older than 1.25.
    Unknown,
    /// The status is not the agent's in the end.
    Lost,
    /// The kubelet has restarted a container, and has written over the status. It does not learn of the eviction any more.
    Restarted,
}

impl FailedStatus {
    /// `is_resumed`: an earlier agent began the eviction, and may have written the status.
    pub(super) fn new(is_resumed: bool) -> Self {
        Self { is_late: is_resumed, ..Self::default() }
    }

    /// Notes that the status was written, `age` after the decision.
    pub(super) fn note_written(&mut self, age: Duration) {
        self.is_late |= age >= MAYBE_THROUGH_AFTER;
    }

    /// Notes that the next look comes before its time.
    pub(super) fn note_early(&mut self) {
        self.is_early = true;
        self.early += 1;
    }

    /// Returns whether a look may still come before its time.
    pub(super) const fn may_be_early(&self) -> bool {
        self.early < EARLY_LOOKS
    }

    /// Continues after a look, `age` after the decision to give the pod `grace`.
    pub(super) fn take(&mut self, life: Life, age: Duration, grace: Duration) -> Next {
        let is_last = age >= grace.saturating_add(LOOKED_AT_FOR);
        if std::mem::take(&mut self.is_early) {
            return self.take_early(life);
        }
        match life {
            Life::Evicted { is_over: true } => {
                (self.calm, self.lost) = (self.calm + 1, 0);
                match self.calm {
                    CALM_LOOKS if self.is_late || self.repeats > 0 => Next::LookLater,
                    ..CALM_LOOKS => Next::Look,
                    _ => Next::Over,
                }
            }
            Life::Evicted { is_over: false } => {
                (self.calm, self.lost) = (0, 0);
                if is_last { Next::Unknown } else { Next::Look }
            }
            Life::Succeeded => Next::Over,
            // The kubelet may end this container too: it looks at the phase when a container starts or ends, and every 60 to 90 s.
            Life::Restarted if !is_last => {
                (self.calm, self.lost) = (0, 0);
                Next::Look
            }
            Life::Restarted => Next::Restarted,
            Life::AsBefore | Life::Stopped | Life::Ended => {
                (self.calm, self.lost) = (0, self.lost + 1);
                if is_last || self.repeats >= REPEATS {
                    Next::Lost
                } else if self.lost >= PATIENT_LOOKS || life != Life::Ended {
                    (self.lost, self.repeats) = (0, self.repeats + 1);
                    Next::WriteAgain
                } else {
                    Next::Look
                }
            }
        }
    }

    /// Continues after a look that came before its time. It counts for nothing that is counted by the second.
    fn take_early(&mut self, life: Life) -> Next {
        self.calm = 0;
        if life != Life::Ended {
            self.lost = 0;
        }
        match life {
            Life::AsBefore | Life::Stopped => {
                self.is_late = true;
                Next::WriteAgain
            }
            Life::Succeeded => Next::Over,
            // Failed again: the kubelet restores the reason itself. Restarted: as after any look.
            Life::Evicted { .. } | Life::Ended | Life::Restarted => Next::Look,
        }
    }
}

/// Returns the time until the next look, `age` after the decision to give the pod `grace`.
pub(super) fn until_next_look(age: Duration, grace: Duration) -> Duration {
    if age < grace.saturating_add(LATER_AFTER) { LOOK_EVERY } else { LATER_LOOK_EVERY }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: Life = Life::Evicted { is_over: true };
    const ENDING: Life = Life::Evicted { is_over: false };

    #[test]
    fn the_status_is_written_again_until_it_lasts() {
        use Next::{Look, LookLater, Lost, Over, WriteAgain};
        for (name, lives, expected) in [
            ("it lasts", vec![ENDING, OVER, OVER, OVER], vec![Look, Look, Look, Over]),
            ("the reason is lost for a moment", vec![Life::Ended, OVER, OVER, OVER], vec![Look, Look, Look, Over]),
            ("the reason is lost", vec![Life::Ended, Life::Ended, OVER], vec![Look, WriteAgain, Look]),
            ("an old status has overwritten it", vec![Life::AsBefore, OVER], vec![WriteAgain, Look]),
            ("the phase is reset", vec![Life::Stopped, Life::Ended, Life::Ended], vec![WriteAgain, Look, WriteAgain]),
            ("restarted, then ended", vec![Life::Restarted, Life::Ended, Life::Ended], vec![Look, Look, WriteAgain]),
            (
                "the kubelet is through",
                vec![Life::Stopped, OVER, OVER, OVER, Life::Ended, Life::Ended],
                vec![WriteAgain, Look, Look, LookLater, Look, WriteAgain],
            ),
            (
                "it lasts now",
                vec![Life::Stopped, OVER, OVER, OVER, OVER],
                vec![WriteAgain, Look, Look, LookLater, Over],
            ),
            ("another client insists", vec![Life::Stopped; 9], [vec![WriteAgain; 8], vec![Lost]].concat()),
        ] {
            let mut status = FailedStatus::default();
            let take = |life: &Life| status.take(*life, Duration::from_secs(5), Duration::from_secs(1));
            assert_eq!(lives.iter().map(take).collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn a_late_status_is_looked_at_once_more() {
        let later = |note: fn(&mut FailedStatus)| {
            let mut status = FailedStatus::default();
            note(&mut status);
            [(); 4].map(|()| status.take(OVER, Duration::from_secs(5), Duration::from_secs(1)))
        };
        let in_time = [Next::Look, Next::Look, Next::Over, Next::Over];
        let late = [Next::Look, Next::Look, Next::LookLater, Next::Over];
        assert_eq!(later(|status| status.note_written(Duration::from_millis(999))), in_time);
        assert_eq!(later(|status| status.note_written(MAYBE_THROUGH_AFTER)), late);
        assert_eq!(later(|status| *status = FailedStatus::new(true)), late);
    }

    #[test]
    fn an_early_look_counts_for_nothing() {
        let mut status = FailedStatus::default();
        for (life, is_early, expected) in [
            (OVER, false, Next::Look),
            (OVER, false, Next::Look),
            (OVER, true, Next::Look),
            (Life::Ended, false, Next::Look),
            (Life::Ended, true, Next::Look),
            (Life::Restarted, true, Next::Look),
            (Life::Ended, false, Next::Look),
            (Life::AsBefore, true, Next::WriteAgain),
            (Life::Ended, false, Next::Look),
            (OVER, false, Next::Look),
            (OVER, false, Next::Look),
            // Written again, so the kubelet may be through with the pod.
            (OVER, false, Next::LookLater),
            (OVER, false, Next::Over),
        ] {
            if is_early {
                status.note_early();
            }
            let next = status.take(life, Duration::from_secs(5), Duration::from_secs(1));
            assert_eq!(next, expected, "{life:?}, early: {is_early}");
        }
    }

    #[test]
    fn early_looks_end() {
        let (grace, soon) = (Duration::from_secs(1), Duration::from_secs(5));
        let mut status = FailedStatus::default();
        while status.may_be_early() {
            status.note_early();
            assert_eq!(status.take(Life::Stopped, soon, grace), Next::WriteAgain);
        }
        assert_eq!(status.early, EARLY_LOOKS);
        // The timed looks have their own number of repeats.
        assert_eq!(status.take(Life::Stopped, soon, grace), Next::WriteAgain);
        // The last look is a timed one.
        status.note_early();
        assert_eq!(status.take(Life::Stopped, grace + LOOKED_AT_FOR, grace), Next::WriteAgain);
        assert_eq!(status.take(Life::Stopped, grace + LOOKED_AT_FOR, grace), Next::Lost);
    }

    #[test]
    fn the_looks_become_rarer_and_end() {
        let grace = Duration::from_secs(30);
        for (age, expected) in [(5, 1), (59, 1), (60, 5)] {
            assert_eq!(until_next_look(Duration::from_secs(age), grace), Duration::from_secs(expected));
        }
        for (life, expected) in [(ENDING, Next::Unknown), (Life::Restarted, Next::Restarted), (Life::Ended, Next::Lost)]
        {
            let take = |age| FailedStatus::default().take(life, Duration::from_secs(age), grace);
            assert_eq!(take(129), Next::Look, "{life:?}");
            assert_eq!(take(130), expected, "{life:?}");
        }
    }
}
