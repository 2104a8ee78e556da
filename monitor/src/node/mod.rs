//! Samples of the node: plain numbers with units, and the time of the measurement.

pub mod available_memory;
pub mod cpu_free_lists;
pub mod cpus;
pub mod fault_rate;
pub mod file_locks;
pub mod filesystem_roles;
pub mod hierarchy;
pub mod kmsg;
pub mod meminfo;
pub mod memory;
pub mod mountinfo;
pub mod name;
pub mod namespaces;
pub mod other_killers;
pub mod pinned_file;
pub mod pods_memory;
pub mod pool_choice;
pub mod process_facts;
pub mod process_ids;
pub mod protected_cache;
pub mod psi_figures;
pub mod psi_trigger;
pub mod replaced_file;
pub mod statfs;
pub mod swap_devices;
pub mod timer;
pub mod vmstat;
pub mod zfs_arc;
pub mod zoneinfo;
pub mod zram;

pub use filesystem_roles::{FilesystemHints, Role};
pub use hierarchy::{CgroupVersion, Hierarchy, NESTED_ACCOUNTING};
pub use memory::{MemoryReader, MemorySample, RootUsage};
pub use pool_choice::PoolChoice;
pub use process_ids::{PidReader, PidSample};
