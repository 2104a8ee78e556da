//! Incidents: each OOM kill and each eviction as one record with its evidence, kept in a journal that survives a crash.
//!
//! Data flows from top to bottom: the last minute ([`history`]), the kernel's marks and kills put together ([`oom`]), the record
//! ([`model`]), the thread that writes ([`writer`]) to disk ([`journal`]), and who reads it ([`reader`], [`shelf`]) or has it told
//! as a post-mortem ([`text`]).

pub mod evidence;
mod frame;
pub mod history;
pub mod journal;
pub mod model;
pub mod oom;
pub mod reader;
pub mod segments;
pub mod shelf;
pub mod text;
pub mod writer;

pub use model::{Head, Incident, Kind};
pub use shelf::Shelf;
pub use writer::{Draft, Writer};
