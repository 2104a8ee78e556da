//! The agent's rooms, in the order in which data flows: each depends only on those above it.

pub mod config;
pub mod kernel;
