//! A test API server that behaves as the real one does where it matters to a node agent, and a listener before it, or before a real
//! server, that breaks connections on purpose.
//!
//! One way through: a connection ([`front`]) brings a request; a fault may strike it; the backend answers, which is a real server or
//! [`api`]: who asks and may he ([`access`]), what does the path name ([`route`]), then one handler for each verb, whatever the kind.

pub mod access;
mod admission;
pub mod answer;
pub mod api;
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

pub use front::{Fault, FaultId, Faults, Log, Record, What};
pub use kubelet::Kubelet;
pub use server::{Settings, TestServer};
pub use stage::Stage;
