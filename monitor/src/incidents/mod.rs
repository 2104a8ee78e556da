//! Incidents: each OOM kill and each eviction as one record with its evidence, kept in a journal that survives a crash.
//!
//! Data flows from top to bottom: the last minute ([`history`]), the kernel's marks and kills put together ([`oom`]), the record
//! ([`model`]), the thread that writes ([`writer`]) to disk ([`journal`]), and who reads it ([`reader`], [`index`]) or has it told
//! as a post-mortem ([`text`]).

mod frame;
pub mod incident_index;
pub mod journal;
pub mod model;
pub mod oom_assembly;
pub mod reader;
pub mod record_evidence;
pub mod sample_ring;
pub mod segments;
pub mod text;
pub mod writer;

pub use incident_index::IncidentIndex;
pub use model::{Head, Incident, Kind};
pub use writer::{Draft, Writer};
