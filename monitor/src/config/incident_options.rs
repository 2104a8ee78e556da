//! Where incidents are kept, and how much of them.

use std::path::PathBuf;

use crate::units::Bytes;

/// The journal of incidents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentOptions {
    /// Its directory.
    pub directory: PathBuf,
    /// What it may take of the disk; the oldest incidents go first.
    pub max_size: Bytes,
}

impl Default for IncidentOptions {
    fn default() -> Self {
        Self { directory: PathBuf::from("/var/lib/node-pressure-monitor/incidents"), max_size: Bytes::from_mib(32) }
    }
}
