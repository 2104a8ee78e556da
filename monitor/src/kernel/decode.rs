//! Records of the ring, decoded in place: nothing is copied but the plain values themselves.

use std::fmt;

use bytes::{Buf, TryGetError};
use monitor_ebpf::{COMM_LEN, EventKind, OomKill as RawOomKill, OomMark as RawOomMark, ReclaimKind};
use thiserror::Error;

use crate::config::{Bytes, CgroupId, Pid};

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
                let shown = if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
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

/// What the kernel side streams. `at_ns` is `CLOCK_MONOTONIC`; a cgroup id of 0 is one that could not be read.
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
    /// The OOM killer chose a victim; what is known of it follows as `OomKill`.
    OomMark {
        at_ns: u64,
        victim_pid: Pid,
        trigger_pid: Pid,
        trigger_comm: Comm,
        trigger_cgroup: CgroupId,
        /// Nothing was killed: the victim was on its way out and only got access to reserves. No `OomKill` follows.
        already_dying: bool,
    },
    OomKill(OomKill),
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

/// An OOM kill with both sides of it; what this kernel's tracepoint does not tell is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomKill {
    /// When the victim exited.
    pub at_ns: u64,
    /// When the OOM killer marked it.
    pub marked_at_ns: u64,
    pub victim_pid: Pid,
    pub victim_comm: Option<Comm>,
    pub victim_cgroup: Option<CgroupId>,
    pub uid: Option<u32>,
    pub total_vm: Option<Bytes>,
    pub anon_rss: Option<Bytes>,
    pub file_rss: Option<Bytes>,
    pub shmem_rss: Option<Bytes>,
    pub pgtables: Option<Bytes>,
    pub oom_score_adj: Option<i32>,
    pub trigger_pid: Pid,
    pub trigger_comm: Comm,
    pub trigger_cgroup: CgroupId,
}

impl Event {
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::KswapdWake { .. } => EventKind::KswapdWake,
            Self::DirectReclaim { .. } => EventKind::DirectReclaim,
            Self::Stall(_) => EventKind::Stall,
            Self::OomMark { .. } => EventKind::OomMark,
            Self::OomKill(_) => EventKind::OomKill,
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
            Self::OomKill(kill) => kill.at_ns,
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

/// Decodes one record; the order of reads is the order of fields in `monitor_ebpf`.
pub fn decode(mut record: &[u8]) -> Result<Event, DecodeError> {
    let header =
        (|| Ok::<_, TryGetError>((record.try_get_u64_ne()?, record.try_get_u32_ne()?, record.try_get_u32_ne()?)))();
    let (at_ns, raw_kind, flags) = header.map_err(|_| DecodeError { kind: None, reason: "shorter than its header" })?;
    let kind = EventKind::from_raw(raw_kind).ok_or(DecodeError { kind: None, reason: "unknown kind" })?;
    let malformed = |reason| DecodeError { kind: Some(kind), reason };
    let event = body(kind, at_ns, flags, &mut record).map_err(malformed)?;
    if record.has_remaining() { Err(malformed("longer than its kind")) } else { Ok(event) }
}

fn body(kind: EventKind, at_ns: u64, flags: u32, from: &mut impl Buf) -> Result<Event, &'static str> {
    Ok(match kind {
        EventKind::KswapdWake => Event::KswapdWake { at_ns, node: int(from)?, order: int(from)? },
        EventKind::DirectReclaim => {
            Event::DirectReclaim { at_ns, cgroup: cgroup(from)?, pid: pid(from)?, order: int(from)? }
        }
        EventKind::Stall => stall(at_ns, from)?,
        EventKind::OomMark => {
            let trigger_cgroup = cgroup(from)?;
            Event::OomMark {
                at_ns,
                victim_pid: pid(from)?,
                trigger_pid: pid(from)?,
                trigger_comm: comm(from)?,
                trigger_cgroup,
                already_dying: flags & RawOomMark::ALREADY_DYING != 0,
            }
        }
        EventKind::OomKill => oom_kill(at_ns, flags, from)?,
        EventKind::OomScoreAdj => {
            let (pid, adj, writer_pid) = (pid(from)?, int(from)?, self::pid(from)?);
            skip(from, 4)?;
            Event::OomScoreAdj { at_ns, pid, comm: comm(from)?, adj, writer_pid }
        }
    })
}

fn stall(at_ns: u64, from: &mut impl Buf) -> Result<Event, &'static str> {
    let (cgroup, duration_ns, reclaimed_pages) = (cgroup(from)?, long(from)?, long(from)?);
    let (pid, tid) = (pid(from)?, self::pid(from)?);
    let kind = ReclaimKind::from_raw(word(from)?).ok_or("unknown kind of reclaim")?;
    skip(from, 4)?;
    Ok(Event::Stall(Stall { at_ns, kind, cgroup, pid, tid, comm: comm(from)?, duration_ns, reclaimed_pages }))
}

fn oom_kill(at_ns: u64, flags: u32, from: &mut impl Buf) -> Result<Event, &'static str> {
    let has = |flag: u32| flags & flag != 0;
    let (marked_at_ns, victim_cgroup, trigger_cgroup) = (long(from)?, cgroup(from)?, cgroup(from)?);
    let mut size = |flag| Ok::<_, &'static str>(Some(Bytes::from_kib(long(from)?)).filter(|_| has(flag)));
    let (total_vm, anon_rss) = (size(RawOomKill::HAS_TOTAL_VM)?, size(RawOomKill::HAS_ANON_RSS)?);
    let (file_rss, shmem_rss) = (size(RawOomKill::HAS_FILE_RSS)?, size(RawOomKill::HAS_SHMEM_RSS)?);
    let pgtables = size(RawOomKill::HAS_PGTABLES)?;
    skip(from, 4)?; // victim_tid
    let (victim_pid, trigger_pid) = (pid(from)?, pid(from)?);
    let (uid, oom_score_adj) = (word(from)?, int(from)?);
    skip(from, 4)?;
    let (victim_comm, trigger_comm) = (comm(from)?, comm(from)?);
    Ok(Event::OomKill(OomKill {
        at_ns,
        marked_at_ns,
        victim_pid,
        victim_comm: has(RawOomKill::HAS_COMM).then_some(victim_comm),
        victim_cgroup: has(RawOomKill::HAS_VICTIM_CGROUP).then_some(victim_cgroup),
        uid: has(RawOomKill::HAS_UID).then_some(uid),
        total_vm,
        anon_rss,
        file_rss,
        shmem_rss,
        pgtables,
        oom_score_adj: has(RawOomKill::HAS_OOM_SCORE_ADJ).then_some(oom_score_adj),
        trigger_pid,
        trigger_comm,
        trigger_cgroup,
    }))
}

const SHORT: &str = "shorter than its kind";

fn long(from: &mut impl Buf) -> Result<u64, &'static str> {
    from.try_get_u64_ne().map_err(|_| SHORT)
}

fn word(from: &mut impl Buf) -> Result<u32, &'static str> {
    from.try_get_u32_ne().map_err(|_| SHORT)
}

fn int(from: &mut impl Buf) -> Result<i32, &'static str> {
    from.try_get_i32_ne().map_err(|_| SHORT)
}

fn pid(from: &mut impl Buf) -> Result<Pid, &'static str> {
    int(from).map(Pid)
}

fn cgroup(from: &mut impl Buf) -> Result<CgroupId, &'static str> {
    long(from).map(CgroupId)
}

fn comm(from: &mut impl Buf) -> Result<Comm, &'static str> {
    let mut comm = Comm::default();
    from.try_copy_to_slice(&mut comm.0).map_err(|_| SHORT)?;
    Ok(comm)
}

fn skip(from: &mut impl Buf, bytes: usize) -> Result<(), &'static str> {
    if from.remaining() < bytes {
        return Err(SHORT);
    }
    from.advance(bytes);
    Ok(())
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
