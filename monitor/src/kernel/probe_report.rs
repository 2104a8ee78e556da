//! Which probes and capabilities are available, and why others are not.

use std::fmt;

use crate::units::named_enum;

/// The beginning of the reason for a program that the verifier rejected.
pub(super) const VERIFIER_REJECTS: &str = "the verifier rejects the program";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeState {
    Attached,
    /// Why, and what to do about it.
    Missing(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeStatus {
    /// `category:event` as in tracefs, or `kprobe:function`.
    pub name: String,
    pub purpose: &'static str,
    pub state: ProbeState,
}

impl ProbeStatus {
    pub fn is_attached(&self) -> bool {
        self.state == ProbeState::Attached
    }
}

named_enum! {
    /// The source of cgroup ids in counters and events.
    #[derive(Default)]
    pub enum CgroupSource {
        /// No program runs.
        #[default]
        None = "none",
        /// The task's cgroup in the hierarchy of the memory controller, v1 or v2.
        MemoryController = "memory controller's hierarchy (BTF)",
        /// The task's cgroup in the v2 hierarchy: correct if memory is on v2, the root for every task if memory is on v1.
        UnifiedHierarchy = "v2 hierarchy",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degradation {
    pub capability: &'static str,
    /// Why, and what to do about it.
    pub reason: String,
}

impl fmt::Display for Degradation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.capability, self.reason)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProbeReport {
    pub probes: Vec<ProbeStatus>,
    pub degradations: Vec<Degradation>,
    pub cgroup_source: CgroupSource,
}

impl ProbeReport {
    pub fn attached(&self) -> usize {
        self.probes.iter().filter(|probe| probe.is_attached()).count()
    }

    pub fn missing(&self) -> usize {
        self.probes.len() - self.attached()
    }

    /// Whether the probe `category:event` is attached.
    pub fn has(&self, name: &str) -> bool {
        self.probes.iter().any(|probe| probe.name == name && probe.is_attached())
    }

    pub(super) fn rejected_by_verifier(&self) -> bool {
        let is_rejected = |probe: &ProbeStatus| matches!(&probe.state, ProbeState::Missing(reason) if reason.starts_with(VERIFIER_REJECTS));
        self.probes.iter().any(is_rejected)
    }

    pub(super) fn degrade(&mut self, capability: &'static str, reason: impl Into<String>) {
        self.degradations.push(Degradation { capability, reason: reason.into() });
    }

    pub(super) fn probe(&mut self, name: String, purpose: &'static str, state: ProbeState) {
        self.probes.push(ProbeStatus { name, purpose, state });
    }
}
