//! What the kernel room has and has not, by name.

use std::fmt;

/// How the reason of a program that was refused begins.
pub(super) const VERIFIER_REFUSES: &str = "the verifier refuses the program";

/// What became of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeState {
    Attached,
    /// Why, and what to do about it.
    Missing(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeStatus {
    /// `category:event`, as in tracefs; `kprobe:function`.
    pub name: String,
    /// What it is for.
    pub purpose: &'static str,
    pub state: ProbeState,
}

impl ProbeStatus {
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.state == ProbeState::Attached
    }
}

/// Where cgroup ids in counters and events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CgroupSource {
    /// No program runs.
    #[default]
    None,
    /// The task's cgroup in the hierarchy of the memory controller, v1 or v2.
    MemoryController,
    /// The task's cgroup in the v2 hierarchy: right where memory is on v2, the root for everybody where it is on v1.
    UnifiedHierarchy,
}

impl CgroupSource {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::MemoryController => "memory controller's hierarchy (BTF)",
            Self::UnifiedHierarchy => "v2 hierarchy",
        }
    }
}

/// A capability that is off, and why.
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
    #[must_use]
    pub fn attached(&self) -> usize {
        self.probes.iter().filter(|probe| probe.is_attached()).count()
    }

    #[must_use]
    pub fn missing(&self) -> usize {
        self.probes.len() - self.attached()
    }

    /// True when the probe `category:event` is attached.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.probes.iter().any(|probe| probe.name == name && probe.is_attached())
    }

    pub(super) fn refused_by_verifier(&self) -> bool {
        let is_refused = |probe: &ProbeStatus| matches!(&probe.state, ProbeState::Missing(reason) if reason.starts_with(VERIFIER_REFUSES));
        self.probes.iter().any(is_refused)
    }

    pub(super) fn degrade(&mut self, capability: &'static str, reason: impl Into<String>) {
        self.degradations.push(Degradation { capability, reason: reason.into() });
    }

    pub(super) fn probe(&mut self, name: String, purpose: &'static str, state: ProbeState) {
        self.probes.push(ProbeStatus { name, purpose, state });
    }
}
