//! Where the journal of incidents is, and how large it may grow: `incidents` of a `MonitorConfiguration`.

use std::path::PathBuf;

use super::document_walk::{Fields, Walk};
use crate::units::Bytes;

/// In a smaller journal a few large records would displace each other.
const SMALLEST: Bytes = Bytes(4 * Bytes::MIB);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentOptions {
    pub directory: PathBuf,
    /// Beyond this size the oldest incidents are deleted.
    pub max_size: Bytes,
}

impl Default for IncidentOptions {
    fn default() -> Self {
        Self { directory: PathBuf::from("/var/lib/node-pressure-monitor/incidents"), max_size: Bytes::from_mib(32) }
    }
}

impl IncidentOptions {
    /// Reads `incidents`.
    pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Self {
        let mut options = Self::default();
        let inner = walk.section(fields, "incidents", "directory maxSize");
        walk.set(&mut options.directory, inner.get("directory"), |walk, field| {
            walk.path(field, "/var/lib/node-pressure-monitor/incidents")
        });
        walk.set(&mut options.max_size, inner.get("maxSize"), |walk, field| {
            let size = walk.bytes(field, "32Mi")?;
            if size < SMALLEST {
                walk.error(field, "too small: a single incident may take half a MiB", "write at least 4Mi");
            }
            Some(size)
        });
        options
    }
}
