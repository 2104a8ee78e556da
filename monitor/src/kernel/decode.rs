//! Decodes the records of the ring in place.

use bytes::{Buf, TryGetError};
use monitor_ebpf::{EventKind, OomMark as RawOomMark, ReclaimKind};
use thiserror::Error;

use super::decoded_oom_kill::{self, OomKill};
use super::record_fields::{Comm, cgroup, comm, int, long, pid, skip, word};
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

/// Decodes one record. The fields are read in the order of the struct in `monitor_ebpf`.
pub fn decode(mut record: &[u8]) -> Result<Record, DecodeError> {
    let header =
        (|| Ok::<_, TryGetError>((record.try_get_u64_ne()?, record.try_get_u32_ne()?, record.try_get_u32_ne()?)))();
    let (at_ns, raw_kind, flags) = header.map_err(|_| DecodeError { kind: None, reason: "shorter than its header" })?;
    let kind = EventKind::from_raw(raw_kind).ok_or(DecodeError { kind: None, reason: "unknown kind" })?;
    let malformed = |reason| DecodeError { kind: Some(kind), reason };
    let decoded = body(kind, at_ns, flags, &mut record).map_err(malformed)?;
    if record.has_remaining() { Err(malformed("longer than its kind")) } else { Ok(decoded) }
}

fn body(kind: EventKind, at_ns: u64, flags: u32, from: &mut impl Buf) -> Result<Record, &'static str> {
    let event = match kind {
        EventKind::KswapdWake => Event::KswapdWake { at_ns, node: int(from)?, order: int(from)? },
        EventKind::DirectReclaim => {
            Event::DirectReclaim { at_ns, cgroup: cgroup(from)?, pid: pid(from)?, order: int(from)? }
        }
        EventKind::Stall => stall(at_ns, from)?,
        EventKind::OomMark => {
            let invoked_at_ns = Some(long(from)?).filter(|&at_ns| at_ns != 0);
            let trigger_cgroup = cgroup(from)?;
            let (victim_pid, trigger_pid, trigger_tid) = (pid(from)?, pid(from)?, pid(from)?);
            skip(from, 4)?;
            Event::OomMark {
                at_ns,
                invoked_at_ns,
                victim_pid,
                trigger_pid,
                trigger_tid,
                trigger_comm: comm(from)?,
                trigger_cgroup,
                already_dying: flags & RawOomMark::ALREADY_DYING != 0,
            }
        }
        EventKind::OomKill => return decoded_oom_kill::decode(at_ns, flags, from).map(Record::OomKill),
        EventKind::OomScoreAdj => {
            let (pid, adj, writer_pid) = (pid(from)?, int(from)?, self::pid(from)?);
            skip(from, 4)?;
            Event::OomScoreAdj { at_ns, pid, comm: comm(from)?, adj, writer_pid }
        }
    };
    Ok(Record::Event(event))
}

fn stall(at_ns: u64, from: &mut impl Buf) -> Result<Event, &'static str> {
    let (cgroup, duration_ns, reclaimed_pages) = (cgroup(from)?, long(from)?, long(from)?);
    let (pid, tid) = (pid(from)?, self::pid(from)?);
    let kind = ReclaimKind::from_raw(word(from)?).ok_or("unknown kind of reclaim")?;
    skip(from, 4)?;
    Ok(Event::Stall(Stall { at_ns, kind, cgroup, pid, tid, comm: comm(from)?, duration_ns, reclaimed_pages }))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
pub(super) mod tests;
