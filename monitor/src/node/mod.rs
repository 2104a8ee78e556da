//! Samples of the node, as plain numbers with the time at which they were true.

pub mod fault_rate;
pub mod file;
pub mod filesystems;
pub mod hierarchy;
pub mod kmsg;
pub mod layout;
pub mod meminfo;
pub mod memory;
pub mod namespaces;
pub mod pids;
pub mod pressure;
pub mod psi;
pub mod statfs;
pub mod timer;
pub mod vmstat;
pub mod zoneinfo;

pub use hierarchy::{CgroupVersion, Hierarchy};
pub use layout::{FilesystemHints, Role};
pub use memory::{MemoryReader, MemorySample, RootUsage};
pub use pids::{PidReader, PidSample};
