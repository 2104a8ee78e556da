//! The rule of the kubelet's turn: on a disk that is below the kubelet's own hard threshold, the kubelet evicts within ten seconds. An eviction by
//! the agent would be a second one for the same shortage, because the space of a victim is free only seconds later.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Mode;
use crate::eviction::MetThreshold;
use crate::units::{Monotonic, Signal};

use super::memory::DISK_COOL_DOWN;
use super::{AgentRules, Decider, Note};

/// A kubelet that has not ended the shortage after this time is late. It looks every ten seconds, and waits up to half a minute for the removal
/// of its victim.
const LATE: Duration = Duration::from_secs(60);

/// The time in which a disk is below the kubelet's threshold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct KubeletTurn {
    /// When a disk was first and last seen there.
    seen: Option<(Monotonic, Monotonic)>,
    /// The amount that was available of each signal when its eviction was first left to the kubelet.
    at_first: Vec<(Signal, i64)>,
}

impl KubeletTurn {
    /// Takes in whether a disk is below the kubelet's threshold.
    pub(super) fn observe(&mut self, is_below: bool, now: Monotonic) {
        match (&mut self.seen, is_below) {
            (Some((_, last)), true) => *last = now,
            (None, true) => self.seen = Some((now, now)),
            // A part of the victim's space may not be free yet.
            (Some((_, last)), false) if now.since(*last) >= DISK_COOL_DOWN => *self = Self::default(),
            (_, false) => {}
        }
    }

    /// Returns when the agent looks again, if it leaves the eviction to the kubelet. It does not once less than half of what was available
    /// at first is left.
    fn ends(&mut self, signal: Signal, available: i64, now: Monotonic) -> Option<Monotonic> {
        let (first, last) = self.seen?;
        let at_first = match self.at_first.iter().find(|(of, _)| *of == signal) {
            Some((_, at_first)) => *at_first,
            None => {
                self.at_first.push((signal, available));
                available
            }
        };
        let ends = first.after(LATE).min(last.after(DISK_COOL_DOWN));
        (now < ends && available >= at_first / 2).then_some(ends)
    }
}

impl<C> Decider<C> {
    /// Returns whether the eviction for a threshold on a disk is left to the kubelet. In observe mode the agent evicts nothing in any case, and
    /// tells whom it would evict.
    pub(super) fn leaves_to_kubelet(&mut self, agent: AgentRules, met: &MetThreshold, now: Monotonic) -> bool {
        if agent.mode == Mode::Observe {
            return false;
        }
        let (signal, available) = (met.threshold.signal, met.value.available);
        let Some(ends) = self.memory.kubelet_turn.ends(signal, available, now) else { return false };
        self.turn.retry = Some(self.turn.retry.map_or(ends, |retry| retry.min(ends)));
        self.turn.notes.push(Note::LeftToKubelet { threshold: met.place });
        true
    }
}
