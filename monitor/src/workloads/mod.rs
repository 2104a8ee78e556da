//! Workloads in the cgroup tree. A workload is evicted as a whole.

mod among_own;
pub mod candidacy;
pub mod cgroup_path;
pub mod cgroup_processes;
mod cgroup_walk;
pub mod container_memory;
mod container_monitors;
mod daemon_names;
pub mod enclosing_workload;
pub mod essential;
#[cfg(test)]
pub mod fixtures;
mod gain;
mod held_files;
#[cfg(test)]
mod identity_tests;
pub mod json_defaults;
pub mod killed_processes;
pub mod kubelet_summary;
mod managers;
pub mod membership;
mod memory_limits;
mod oom_kill_counter;
mod oomd_marks;
mod outliving_memory;
mod outlook;
mod own_limit;
mod pattern_reach;
pub mod pod;
mod pod_specs;
mod protection;
mod reach;
mod signs;
pub mod task_count;
mod tracked_workload;
mod workload;
pub mod workload_tree;

pub use among_own::{AmongOwn, OwnPlace};
pub use candidacy::Candidacy;
pub use cgroup_path::{PodUid, QosClass};
pub use essential::{Essential, Essentials};
pub use gain::GainFiles;
pub use kubelet_summary::Summary;
pub use oomd_marks::Preference;
pub use outlook::Outlook;
pub use own_limit::AtLimit;
pub use pattern_reach::PatternReach;
pub use pod::{EVICTION_IN_PROGRESS, Pod};
pub use pod_specs::{PodSpecs, PodsFile};
pub use protection::Protection;
pub use reach::Reach;
pub use signs::Signs;
pub use tracked_workload::{Listed, Mark, Tracked};
pub use workload::{Kind, OtherUsage, Workload, WorkloadUsage, qos_class};
pub use workload_tree::WorkloadTree;
