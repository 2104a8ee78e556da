//! The rule of the kubelet's turn: on a disk that is below the kubelet's own hard threshold, the kubelet evicts within ten seconds. An eviction by
//! the agent would be a second one for the same shortage, because the space of a victim is free only seconds later.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Mode;
use crate::eviction::MetThreshold;
use crate::eviction::rank::Candidate;
use crate::units::{Amount, Monotonic};

use super::memory::DISK_COOL_DOWN;
use super::{AgentRules, Decider, Note};

/// A kubelet that has not ended the shortage after this time is late. It looks every ten seconds, and waits up to half a minute for the removal
/// of its victim.
const LATE: Duration = Duration::from_secs(60);
/// The same once less than half of the agent's threshold is left.
const LATE_WHEN_URGENT: Duration = Duration::from_secs(30);
/// A disk that falls below the kubelet's threshold again within this time is in the same shortage.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// The time in which a disk is below the kubelet's threshold: when it was first and last seen there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct KubeletTurn(Option<(Monotonic, Monotonic)>);

impl KubeletTurn {
    /// Takes in whether a disk is below the kubelet's threshold.
    pub(super) fn observe(&mut self, is_below: bool, now: Monotonic) {
        let first = self.0.filter(|(_, last)| now.since(*last) < FORGOTTEN).map(|(first, _)| first);
        match (first, is_below) {
            (_, true) => self.0 = Some((first.unwrap_or(now), now)),
            (None, false) => self.0 = None,
            (Some(_), false) => {}
        }
    }

    /// Returns when the agent looks again, if it leaves the eviction to the kubelet.
    fn ends(self, is_urgent: bool, now: Monotonic) -> Option<Monotonic> {
        let (first, last) = self.0?;
        let late = if is_urgent { LATE_WHEN_URGENT } else { LATE };
        // Within the cool-down a part of the victim's space may not be free yet.
        let ends = first.after(late).min(last.after(DISK_COOL_DOWN));
        (now < ends).then_some(ends)
    }
}

impl<C: Candidate> Decider<C> {
    /// Returns whether the eviction for a threshold on a disk is left to the kubelet. In observe mode the agent evicts nothing in any case, and
    /// tells which pod it would evict.
    pub(super) fn leaves_to_kubelet(&mut self, agent: AgentRules, met: &MetThreshold, now: Monotonic) -> bool {
        if agent.mode == Mode::Observe {
            return false;
        }
        let available = Amount::from_units(met.value.available);
        let is_urgent = available + available < met.quantity;
        let Some(ends) = self.memory.kubelet_turn.ends(is_urgent, now) else { return false };
        self.retry_at(ends);
        self.turn.notes.push(Note::LeftToKubelet { threshold: met.place });
        true
    }
}
