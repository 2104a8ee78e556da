//! What each workload keeps on the node's disks: writable layers, logs and volumes, in bytes and in inodes.
//!
//! The kernel counts this for nobody, unless project quotas are on. So a thread of its own finds out where a workload's files lie, asks
//! the quota or walks the directories, slowly, and publishes what it found with its age. The loop only ever reads the last result.

mod claims;
mod clock;
mod deleted;
mod heart;
mod host;
mod layers;
mod measurement;
mod mounts;
mod pace;
mod places;
mod processes;
mod quota;
mod recount;
mod schedule;
mod statistics;
mod thread;
mod tree;
mod usage;
mod walker;

use std::os::fd::AsFd as _;
use std::path::Path;

pub use host::Roots;
pub use places::{Layer, WorkloadPlaces};
pub use usage::{Effort, Held, Part, PartUsage, Source, Usage, Usages};
pub use walker::Walker;

/// Whether the filesystem that holds a path, in the eyes of the machine's init, counts what belongs to projects; nothing where that cannot
/// be told.
#[must_use]
pub fn project_quotas(proc: &Path, path: &Path) -> Option<bool> {
    let directory = host::Host::of_init(proc).open(path).ok()?;
    quota::is_counting(directory.as_fd())
}
