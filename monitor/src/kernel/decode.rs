//! Records of the ring, decoded in place: nothing is copied but the plain values themselves.

use std::fmt;

use bytes::{Buf, TryGetError};
use monitor_ebpf::{COMM_LEN, EventKind, OomMark as RawOomMark, ReclaimKind};
use thiserror::Error;

use super::oom::{self, OomKill};
use crate::config::config_error::is_unprintable;
use crate::units::{CgroupId, Pid};

/// A task's name as the kernel keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Comm(pub [u8; COMM_LEN]);

impl Comm {
    /// The bytes before the terminating zero.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A task chooses its own name: keep control characters out of terminals and logs.
        for chunk in self.as_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                let shown = if is_unprintable(character) { char::REPLACEMENT_CHARACTER } else { character };
                write!(f, "{shown}")?;
            }
            if !chunk.invalid().is_empty() {
                write!(f, "{}", char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// What the kernel side streams, OOM kills apart: those are large. `at_ns` is `CLOCK_MONOTONIC`; a cgroup id of 0 is one that could not be read.
/// No variant is boxed: events go into a vector made beforehand, and a box would allocate under pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// kswapd was woken.
    KswapdWake {
        at_ns: u64,
        node: i32,
        order: i32,
    },
    /// A task entered direct reclaim.
    DirectReclaim {
        at_ns: u64,
        cgroup: CgroupId,
        pid: Pid,
        order: i32,
    },
    Stall(Stall),
    /// The OOM killer chose a victim; what is known of it follows as [`OomKill`].
    OomMark {
        at_ns: u64,
        /// When the OOM killer was invoked: the same for all victims of one invocation.
        invoked_at_ns: Option<u64>,
        /// The thread that was marked: the process's own id in all but multi-threaded victims.
        victim_pid: Pid,
        trigger_pid: Pid,
        trigger_tid: Pid,
        trigger_comm: Comm,
        trigger_cgroup: CgroupId,
        /// Nothing was killed: the victim was on its way out and only got access to reserves. No `OomKill` follows.
        already_dying: bool,
    },
    /// Somebody other than the agent wrote an `oom_score_adj`.
    OomScoreAdj {
        at_ns: u64,
        pid: Pid,
        comm: Comm,
        adj: i32,
        writer_pid: Pid,
    },
}

/// A task was held up in reclaim for longer than the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// When it ended.
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
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::KswapdWake { .. } => EventKind::KswapdWake,
            Self::DirectReclaim { .. } => EventKind::DirectReclaim,
            Self::Stall(_) => EventKind::Stall,
            Self::OomMark { .. } => EventKind::OomMark,
            Self::OomScoreAdj { .. } => EventKind::OomScoreAdj,
        }
    }

    /// When it happened, `CLOCK_MONOTONIC` nanoseconds.
    #[must_use]
    pub const fn at_ns(&self) -> u64 {
        match self {
            Self::KswapdWake { at_ns, .. }
            | Self::DirectReclaim { at_ns, .. }
            | Self::OomMark { at_ns, .. }
            | Self::OomScoreAdj { at_ns, .. } => *at_ns,
            Self::Stall(stall) => stall.at_ns,
        }
    }
}

/// A record that is not what the shared types say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("malformed record of kind {kind:?}: {reason}")]
pub struct DecodeError {
    /// `None` when even the kind cannot be told.
    pub kind: Option<EventKind>,
    pub reason: &'static str,
}

/// One record of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "taken apart at once, never kept")]
pub enum Record {
    Event(Event),
    OomKill(OomKill),
}

impl Record {
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Event(event) => event.kind(),
            Self::OomKill(_) => EventKind::OomKill,
        }
    }
}

/// Decodes one record; the order of reads is the order of fields in `monitor_ebpf`.
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
        EventKind::OomKill => return oom::decode(at_ns, flags, from).map(Record::OomKill),
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

pub(super) const SHORT: &str = "shorter than its kind";

pub(super) fn long(from: &mut impl Buf) -> Result<u64, &'static str> {
    from.try_get_u64_ne().map_err(|_| SHORT)
}

pub(super) fn word(from: &mut impl Buf) -> Result<u32, &'static str> {
    from.try_get_u32_ne().map_err(|_| SHORT)
}

pub(super) fn int(from: &mut impl Buf) -> Result<i32, &'static str> {
    from.try_get_i32_ne().map_err(|_| SHORT)
}

pub(super) fn pid(from: &mut impl Buf) -> Result<Pid, &'static str> {
    int(from).map(Pid)
}

pub(super) fn cgroup(from: &mut impl Buf) -> Result<CgroupId, &'static str> {
    long(from).map(CgroupId)
}

pub(super) fn comm(from: &mut impl Buf) -> Result<Comm, &'static str> {
    let mut comm = Comm::default();
    from.try_copy_to_slice(&mut comm.0).map_err(|_| SHORT)?;
    Ok(comm)
}

pub(super) fn skip(from: &mut impl Buf, bytes: usize) -> Result<(), &'static str> {
    if from.remaining() < bytes {
        return Err(SHORT);
    }
    from.advance(bytes);
    Ok(())
}

#[cfg(test)]
#[path = "decode_tests.rs"]
pub(super) mod tests;
