//! A capability that the agent may lack and still run.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// The unique name in logs, `/readyz` and metrics.
    pub name: &'static str,
    /// What the agent does without the capability.
    pub effect: &'static str,
}

impl Capability {
    pub const fn new(name: &'static str, effect: &'static str) -> Self {
        Self { name, effect }
    }
}
