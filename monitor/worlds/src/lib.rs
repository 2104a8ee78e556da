//! The simulated node.
//!
//! A world is a node with workloads that grow, die late, and are killed by others. It drives the decider that ships with a stepped clock, and
//! one checker per invariant judges what happened by the whole truth. The same seed gives the same world.

pub mod campaign;
mod candidate;
pub mod checkers;
pub mod episode;
pub mod generate;
pub mod history;
pub mod judge;
mod listing;
pub mod plan;
mod random;
pub mod run;
pub mod shrink;
pub mod story;
mod truth;
mod witness;

pub use truth::Truth;
