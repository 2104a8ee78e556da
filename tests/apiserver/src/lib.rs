//! A test API server that behaves as the real one for a node agent, and a listener in front of it, or of a real server, with faults.
//!
//! A connection ([`front`]) receives a request; a fault may affect it; the backend answers: a real server or [`api`], which checks the
//! user and its permissions ([`access`]), reads the path ([`route`]) and calls the verb's handler, one for all kinds.

pub mod access;
mod admission;
pub mod answer;
pub mod api;
pub mod bench;
mod delete;
mod discovery;
mod eviction;
pub mod front;
pub mod kubelet;
mod lists;
mod managed;
pub mod object;
pub mod patch;
pub mod resource;
mod reviews;
pub mod route;
pub mod selector;
pub mod server;
pub mod stage;
pub mod store;
mod watching;
mod writes;

pub use front::{Fault, FaultId, Faults, Log, Record, Traffic, What};
pub use kubelet::Kubelet;
pub use server::{Settings, TestServer};
pub use stage::Stage;
