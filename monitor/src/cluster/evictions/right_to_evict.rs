//! Reports once that the agent's role lacks the right to end pods, and once that the role has it again.

use std::sync::{Arc, Mutex};

use crate::cluster::api_state::Reporter;
use crate::units::{Degradations, lock};

use super::exchange::Answer;

/// Name among the missing capabilities.
const CAPABILITY: &str = "evictions at the API server";
/// Refusals in a row, by all evictions together, that are reported: an API server that has just started refuses every client for a moment.
const REFUSALS: u32 = 5;

#[derive(Clone, Default)]
pub(super) struct RightToEvict(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    refusals: u32,
    degradations: Degradations,
}

impl RightToEvict {
    /// Takes in the answer to a removal.
    pub(super) fn note(&self, answer: &Answer, reporter: &Reporter) {
        let mut state = lock(&self.0);
        let reason = match answer {
            // The API server has not looked at the role.
            Answer::Busy { .. } | Answer::Unknown(_) => return,
            Answer::NotPermitted(reason) => {
                state.refusals = state.refusals.saturating_add(1);
                if state.refusals < REFUSALS {
                    return;
                }
                Some(format!(
                    "{reason}; a soft eviction leaves its pod alone, and the kubelet may restart a pod that a hard one has killed; apply \
                     config/kubernetes/first or instead, or the component config/kubernetes/enforce"
                ))
            }
            _ => {
                state.refusals = 0;
                None
            }
        };
        reporter.set_capability(&mut state.degradations, CAPABILITY, reason);
    }
}
