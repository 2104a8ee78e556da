//! The agent: hears memory pressure from the kernel, decides as the kubelet would, and evicts the right workload.

pub mod clock;
pub mod config;
pub mod report;
