//! The node pressure monitor: observes the kernel, computes the resources that are left, decides which workload to evict, acts, and reports.
//!
//! One room per step, in the order in which data flows; a room depends only on those above it.

pub mod units;

pub mod config;
pub mod kernel;
pub mod node;
pub mod workloads;

pub mod cluster;
pub mod disk;
pub mod runtime;

pub mod eviction;

pub mod sensors;

pub mod actions;
pub mod incidents;
pub mod report;

pub mod agent;
pub mod commands;
