//! The agent's list of workloads: it is made every twenty seconds, every second near a threshold, and shortly before a crossing. A pod that has
//! started since is not known.

use node_pressure_monitor::eviction::growth::LISTED_EVERY;
use node_pressure_monitor::sensors::candidates::LIST_AGE_AT_DECISION;
use node_pressure_monitor::sensors::workload_scan::{EVERY, LIST_AGE};

use crate::truth::Truth;

#[derive(Debug, Default)]
pub struct Listing {
    made: Option<f64>,
    /// The pods in it, each with the time of the last list without it.
    absent: Vec<Option<Option<f64>>>,
}

/// Why a list may be due.
#[derive(Debug, Clone, Copy)]
pub enum Due {
    Regularly,
    GrowthIsRead,
    DecisionIsNear,
    Decision,
}

impl Listing {
    pub fn make_if_due(&mut self, why: Due, truth: &Truth<'_>, now: f64) {
        let age = match why {
            Due::Regularly => EVERY,
            Due::GrowthIsRead => LISTED_EVERY,
            Due::DecisionIsNear => LIST_AGE,
            Due::Decision => LIST_AGE_AT_DECISION,
        };
        if self.made.is_some_and(|made| now - made <= age.as_secs_f64()) {
            return;
        }
        self.absent.resize(truth.plan.pods.len(), None);
        for (pod, absent) in self.absent.iter_mut().enumerate() {
            if absent.is_none() && truth.pod(pod).is_started(now) {
                *absent = Some(self.made);
            }
        }
        self.made = Some(now);
    }

    pub fn has(&self, pod: usize) -> bool {
        self.absent.get(pod).is_some_and(Option::is_some)
    }

    /// Returns when the pod was not there yet.
    pub fn absent(&self, pod: usize) -> Option<f64> {
        self.absent.get(pod).copied().flatten().flatten()
    }

    pub fn appeared(&self) -> u64 {
        self.absent.iter().flatten().count() as u64
    }
}
