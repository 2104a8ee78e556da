//! Incidents: one record for each OOM kill and each eviction, with its evidence, in a journal that survives a crash.
//!
//! Data flows in this order: the last minute's samples ([`sample_ring`]), OOM kills assembled from the kernel's events
//! ([`oom_assembly`]), the node's figures ([`record_evidence`]), the record ([`model`]), the thread that writes ([`writer`]) to disk
//! ([`journal`]) what each workload's share admits ([`journal_share`]), then its readers ([`reader`], [`incident_index`]) and the post-mortem ([`text`]).

mod draft;
mod frame;
pub mod incident_filter;
pub mod incident_index;
pub mod journal;
mod journal_share;
pub mod oom_assembly;
pub mod reader;
pub mod record_evidence;
pub mod sample_ring;
pub mod text;
pub mod writer;
mod writer_thread;

pub use draft::Draft;
pub use incident_index::IncidentIndex;
pub use journal_share::Account;
pub use model::{Head, Incident, Kind};
/// The record is shared with the programs that show incidents.
pub use node_pressure_state::record as model;
pub use writer::Writer;
