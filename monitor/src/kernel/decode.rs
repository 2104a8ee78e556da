//! Decodes the records of the ring.

use monitor_ebpf::{
    DirectReclaim, EventKind, Header, KswapdWake, OomMark, OomScoreAdj, ReclaimKind, Stall as RawStall,
};
use thiserror::Error;

use super::decoded_oom_kill::{self, Comm, OomKill};
use super::shared_map;
use crate::units::{CgroupId, Pid};

/// An event of the ring other than an OOM kill. `at_ns` is `CLOCK_MONOTONIC`; cgroup id 0 is unknown. No variant is boxed: events go into a
/// preallocated vector, and a box would allocate under memory pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    KswapdWake {
        at_ns: u64,
        node: i32,
        order: i32,
    },
    DirectReclaim {
        at_ns: u64,
        cgroup: CgroupId,
        pid: Pid,
        order: i32,
    },
    Stall(Stall),
    /// The OOM killer chose a victim. The details follow as [`OomKill`].
    OomMark {
        at_ns: u64,
        /// When the OOM killer was invoked, equal for all victims of one invocation.
        invoked_at_ns: Option<u64>,
        /// The marked thread; equal to the process id except in multi-threaded victims.
        victim_pid: Pid,
        trigger_pid: Pid,
        trigger_tid: Pid,
        trigger_comm: Comm,
        trigger_cgroup: CgroupId,
        /// Nothing was killed: the victim was exiting already and only got access to the reserves. No `OomKill` follows.
        already_dying: bool,
    },
    /// Another process than the agent wrote an `oom_score_adj`.
    OomScoreAdj {
        at_ns: u64,
        pid: Pid,
        comm: Comm,
        adj: i32,
        writer_pid: Pid,
    },
}

/// A task stalled in reclaim for longer than the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// The end of the stall.
    pub at_ns: u64,
    pub kind: ReclaimKind,
    pub cgroup: CgroupId,
    pub pid: Pid,
    pub tid: Pid,
    pub comm: Comm,
    pub duration_ns: u64,
    pub reclaimed_pages: u64,
}

impl Event {
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::KswapdWake { .. } => EventKind::KswapdWake,
            Self::DirectReclaim { .. } => EventKind::DirectReclaim,
            Self::Stall(_) => EventKind::Stall,
            Self::OomMark { .. } => EventKind::OomMark,
            Self::OomScoreAdj { .. } => EventKind::OomScoreAdj,
        }
    }
}

/// A record that does not match the shared types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("malformed record of kind {kind:?}: {reason}")]
pub struct DecodeError {
    /// `None` when the kind is unknown.
    pub kind: Option<EventKind>,
    pub reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "short-lived: the caller takes it apart")]
pub enum Record {
    Event(Event),
    OomKill(OomKill),
}

impl Record {
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Event(event) => event.kind(),
            Self::OomKill(_) => EventKind::OomKill,
        }
    }
}

/// Decodes one record, whose kind its header says.
pub fn decode(record: &[u8]) -> Result<Record, DecodeError> {
    let header = record.get(..size_of::<Header>()).and_then(|bytes| shared_map::record::<Header>(bytes).ok());
    let header = header.ok_or(DecodeError { kind: None, reason: "shorter than its header" })?;
    let kind = EventKind::from_raw(header.kind).ok_or(DecodeError { kind: None, reason: "unknown kind" })?;
    decode_as(kind, header.at_ns, record).map_err(|reason| DecodeError { kind: Some(kind), reason })
}

fn decode_as(kind: EventKind, at_ns: u64, record: &[u8]) -> Result<Record, &'static str> {
    let event = match kind {
        EventKind::KswapdWake => {
            let KswapdWake { node, order, .. } = shared_map::record(record)?;
            Event::KswapdWake { at_ns, node, order }
        }
        EventKind::DirectReclaim => {
            let DirectReclaim { cgroup, pid, order, .. } = shared_map::record(record)?;
            Event::DirectReclaim { at_ns, cgroup: CgroupId(cgroup), pid: Pid(pid.cast_signed()), order }
        }
        EventKind::Stall => {
            let raw: RawStall = shared_map::record(record)?;
            Event::Stall(Stall {
                at_ns,
                kind: ReclaimKind::from_raw(raw.kind).ok_or("unknown kind of reclaim")?,
                cgroup: CgroupId(raw.cgroup),
                pid: Pid(raw.pid.cast_signed()),
                tid: Pid(raw.tid.cast_signed()),
                comm: Comm(raw.comm),
                duration_ns: raw.duration_ns,
                reclaimed_pages: raw.reclaimed_pages,
            })
        }
        EventKind::OomMark => {
            let raw: OomMark = shared_map::record(record)?;
            Event::OomMark {
                at_ns,
                invoked_at_ns: Some(raw.invoked_at_ns).filter(|&at_ns| at_ns != 0),
                victim_pid: Pid(raw.victim_tid.cast_signed()),
                trigger_pid: Pid(raw.trigger_pid.cast_signed()),
                trigger_tid: Pid(raw.trigger_tid.cast_signed()),
                trigger_comm: Comm(raw.trigger_comm),
                trigger_cgroup: CgroupId(raw.trigger_cgroup),
                already_dying: raw.header.flags & OomMark::ALREADY_DYING != 0,
            }
        }
        EventKind::OomKill => return decoded_oom_kill::decode(record).map(Record::OomKill),
        EventKind::OomScoreAdj => {
            let OomScoreAdj { pid, oom_score_adj: adj, writer_pid, comm, .. } = shared_map::record(record)?;
            let (pid, writer_pid) = (Pid(pid.cast_signed()), Pid(writer_pid.cast_signed()));
            Event::OomScoreAdj { at_ns, pid, comm: Comm(comm), adj, writer_pid }
        }
    };
    Ok(Record::Event(event))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
pub(super) mod tests;
