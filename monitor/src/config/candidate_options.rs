//! The choice of the workloads that may be evicted: `evictions.candidates` and `evictions.services`.

use super::document_walk::{Fields, Walk};
use super::patterns::{NamePattern, read_patterns};
use crate::units::named_enum;

named_enum! {
    pub enum Candidates {
        /// Only pods.
        Pods = "pods",
        /// Pods, and the services, scopes and containers outside pods on which the node does not depend.
        Everything = "everything",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CandidateOptions {
    /// Without a value: pods where the node has a kubepods tree or the agent has an API server, else everything.
    pub candidates: Option<Candidates>,
    /// Services of `system.slice` that are ordinary candidates. The others are candidates only while they leak.
    pub services: Vec<NamePattern>,
}

/// The fields of the section `evictions` that this file reads.
pub const FIELDS: &str = "candidates services";

impl CandidateOptions {
    pub fn read(walk: &mut Walk<'_>, evictions: &Fields<'_>) -> Self {
        let mut options = Self::default();
        walk.set(&mut options.candidates, evictions.get("candidates"), |walk, field| {
            walk.choice(field, &Candidates::CHOICES).map(Some)
        });
        walk.set(&mut options.services, evictions.get("services"), |walk, field| Some(read_patterns(walk, field)));
        options
    }
}
