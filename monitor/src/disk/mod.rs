//! Measures what each workload keeps on the node's disks: writable layers, logs and volumes, in bytes and in inodes.
//!
//! The kernel does not count disk usage per workload unless project quotas are on. A separate thread finds the places of each
//! workload, reads their quotas or walks their directories slowly, and publishes the results with their age. The loop only reads
//! the last result.

mod container_mounts;
mod cpu_throttle;
mod deleted_files;
mod directory_walk;
mod disk_walker;
mod host_files;
mod last_complete;
mod measured_usage;
mod measurement;
mod measuring_orders;
mod measuring_thread;
mod place_finder;
mod process_mounts;
mod project_quota;
mod quota_recount;
mod schedule;
mod usage_summary;
mod watchdog;
mod workload_places;
mod writable_layers;

use std::os::fd::AsFd as _;
use std::path::Path;

pub use disk_walker::Walker;
pub use host_files::Roots;
pub use measured_usage::{Effort, Held, Part, PartUsage, Source, Usage, Usages};
pub use workload_places::{Layer, WorkloadPlaces};

/// Returns whether the filesystem of a path counts project quotas; `None` if that is unknown. The path is resolved in the mounts
/// of the machine's init.
pub fn project_quotas(proc: &Path, path: &Path) -> Option<bool> {
    let directory = host_files::Host::of_init(proc).open(path).ok()?;
    project_quota::is_counting(directory.as_fd())
}
