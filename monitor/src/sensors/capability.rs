//! Something that the agent can miss and still run.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// As logs, `/readyz` and metrics call it; unique.
    pub name: &'static str,
    /// What the agent does without it.
    pub effect: &'static str,
}

impl Capability {
    pub const fn new(name: &'static str, effect: &'static str) -> Self {
        Self { name, effect }
    }
}
