//! OOM kills as decoded from the ring.

use std::fmt;

use bytes::Buf;
use monitor_ebpf::{OomKill as Raw, PATH_LEVELS, PATH_TEXT};

use super::record_fields::{Comm, SHORT, cgroup, comm, int, long, pid, skip, word};
use crate::units::{Bytes, CgroupId, Pid};

/// An OOM kill with its victim and its trigger. What this kernel does not report is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomKill {
    pub at_ns: u64,
    pub marked_at_ns: u64,
    /// When the OOM killer was invoked, equal for all victims of one invocation.
    pub invoked_at_ns: Option<u64>,
    /// When the victim's process started, by the clock of `at_ns`.
    pub started_at_ns: Option<u64>,
    /// Why the allocation failed.
    pub constraint: Option<OomConstraint>,
    /// The cgroup whose limit was hit; `None` when the node ran out of memory.
    pub limit_cgroup: Option<CgroupId>,
    /// The size of the allocation as a power of two of pages.
    pub order: Option<i32>,
    pub victim_pid: Pid,
    pub victim_comm: Option<Comm>,
    pub victim_cgroup: Option<CgroupId>,
    /// The victim's cgroup path as the kernel recorded it, valid even when the cgroup has been removed.
    pub victim_path: Option<CgroupPath>,
    pub uid: Option<u32>,
    pub total_vm: Option<Bytes>,
    pub anon_rss: Option<Bytes>,
    pub file_rss: Option<Bytes>,
    pub shmem_rss: Option<Bytes>,
    pub pgtables: Option<Bytes>,
    pub oom_score_adj: Option<i32>,
    pub trigger_pid: Pid,
    pub trigger_tid: Pid,
    pub trigger_comm: Comm,
    pub trigger_cgroup: CgroupId,
}

/// The kernel's `enum oom_constraint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OomConstraint {
    /// The node ran out of memory.
    None,
    Cpuset,
    MemoryPolicy,
    Memcg,
}

impl OomConstraint {
    pub const ALL: [Self; 4] = [Self::None, Self::Cpuset, Self::MemoryPolicy, Self::Memcg];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cpuset => "cpuset",
            Self::MemoryPolicy => "memory_policy",
            Self::Memcg => "memcg",
        }
    }

    /// The order of the enumerators is that of Linux 2.6.24 to 6.18.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        Self::ALL.get(raw as usize).copied()
    }
}

/// A cgroup's names and ids from the root down, without the root itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CgroupPath {
    levels: usize,
    /// Levels at the root's end are missing.
    truncated: bool,
    ids: [CgroupId; PATH_LEVELS],
    /// The range of each name in `text`.
    names: [(u16, u16); PATH_LEVELS],
    text: [u8; PATH_TEXT],
}

impl CgroupPath {
    /// Builds a path from levels given root first. Levels at the root's end that do not fit are omitted.
    #[must_use]
    pub fn new(levels: &[(CgroupId, &str)], truncated: bool) -> Self {
        let mut path = Self { truncated, ..Self::EMPTY };
        let leaf_up = levels.iter().rev().map(|(id, name)| (*id, name.as_bytes()));
        let mut at = 0;
        for (id, name) in leaf_up {
            if !path.push(id, &mut at, name) {
                path.truncated = true;
                break;
            }
        }
        path.reverse()
    }

    /// Yields the levels from the root down.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = (CgroupId, &str)> {
        let name = |&(begin, end): &(u16, u16)| {
            let bytes = self.text.get(usize::from(begin)..usize::from(end)).unwrap_or_default();
            // Runtimes create these directories; names that are not UTF-8 are not seen in practice.
            std::str::from_utf8(bytes).unwrap_or("?")
        };
        self.ids.iter().copied().zip(self.names.iter().map(name)).take(self.levels)
    }

    /// Whether the path was too long and begins below the root.
    pub const fn is_truncated(&self) -> bool {
        self.truncated
    }

    const EMPTY: Self = Self {
        levels: 0,
        truncated: false,
        ids: [CgroupId(0); PATH_LEVELS],
        names: [(0, 0); PATH_LEVELS],
        text: [0; PATH_TEXT],
    };

    /// Adds the next level up; false when there is no room.
    fn push(&mut self, id: CgroupId, at: &mut usize, name: &[u8]) -> bool {
        let end = *at + name.len();
        let (Some(text), Some(id_slot), Some(name_slot)) =
            (self.text.get_mut(*at..end), self.ids.get_mut(self.levels), self.names.get_mut(self.levels))
        else {
            return false;
        };
        text.copy_from_slice(name);
        *id_slot = id;
        *name_slot = (u16::try_from(*at).unwrap_or(u16::MAX), u16::try_from(end).unwrap_or(u16::MAX));
        *at = end;
        self.levels += 1;
        true
    }

    /// Turns leaf-first order into root-first order.
    fn reverse(mut self) -> Self {
        if let Some(ids) = self.ids.get_mut(..self.levels) {
            ids.reverse();
        }
        if let Some(names) = self.names.get_mut(..self.levels) {
            names.reverse();
        }
        self
    }
}

/// Prints as in `/proc/PID/cgroup`; a truncated path begins with `…`.
impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.truncated {
            write!(f, "…")?;
        }
        self.levels().try_for_each(|(_, name)| write!(f, "/{name}"))
    }
}

impl fmt::Debug for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.levels().map(|(id, name)| (id.0, name))).finish()
    }
}

/// Decodes what follows the header, in the order of the struct in `monitor_ebpf`.
pub(super) fn decode(at_ns: u64, flags: u32, from: &mut impl Buf) -> Result<OomKill, &'static str> {
    let has = |flag: u32| flags & flag != 0;
    let (marked_at_ns, invoked_at_ns, started_at_ns) = (long(from)?, long(from)?, long(from)?);
    let (victim_cgroup, trigger_cgroup, limit_cgroup) = (cgroup(from)?, cgroup(from)?, cgroup(from)?);
    let mut size = |flag| Ok::<_, &'static str>(Some(Bytes::from_kib(long(from)?)).filter(|_| has(flag)));
    let (total_vm, anon_rss) = (size(Raw::HAS_TOTAL_VM)?, size(Raw::HAS_ANON_RSS)?);
    let (file_rss, shmem_rss) = (size(Raw::HAS_FILE_RSS)?, size(Raw::HAS_SHMEM_RSS)?);
    let pgtables = size(Raw::HAS_PGTABLES)?;
    skip(from, 4)?; // victim_tid
    let (victim_pid, trigger_pid, trigger_tid) = (pid(from)?, pid(from)?, pid(from)?);
    let (uid, oom_score_adj) = (word(from)?, int(from)?);
    let (constraint, order) = (word(from)?, int(from)?);
    let (victim_comm, trigger_comm) = (comm(from)?, comm(from)?);
    Ok(OomKill {
        at_ns,
        marked_at_ns,
        invoked_at_ns: has(Raw::HAS_INVOCATION).then_some(invoked_at_ns),
        started_at_ns: has(Raw::HAS_START).then_some(started_at_ns),
        constraint: OomConstraint::from_raw(constraint).filter(|_| has(Raw::HAS_CONSTRAINT)),
        limit_cgroup: has(Raw::HAS_LIMIT_CGROUP).then_some(limit_cgroup),
        order: has(Raw::HAS_ORDER).then_some(order),
        victim_pid,
        victim_comm: has(Raw::HAS_COMM).then_some(victim_comm),
        victim_cgroup: has(Raw::HAS_VICTIM_CGROUP).then_some(victim_cgroup),
        victim_path: path(from)?,
        uid: has(Raw::HAS_UID).then_some(uid),
        total_vm,
        anon_rss,
        file_rss,
        shmem_rss,
        pgtables,
        oom_score_adj: has(Raw::HAS_OOM_SCORE_ADJ).then_some(oom_score_adj),
        trigger_pid,
        trigger_tid,
        trigger_comm,
        trigger_cgroup,
    })
}

/// `None` when the kernel could not read a single level; a victim in the root cgroup has no path either.
fn path(from: &mut impl Buf) -> Result<Option<CgroupPath>, &'static str> {
    let mut ids = [CgroupId(0); PATH_LEVELS];
    for id in &mut ids {
        *id = cgroup(from)?;
    }
    let (levels, truncated, used) = (word(from)?, word(from)?, word(from)?);
    skip(from, 4)?;
    let mut text = [0; PATH_TEXT];
    from.try_copy_to_slice(&mut text).map_err(|_| SHORT)?;
    let text = text.get(..used as usize).ok_or("a path longer than its text")?;
    let ids = ids.get(..levels as usize).ok_or("a path of too many levels")?;
    if ids.is_empty() {
        return Ok(None);
    }
    let mut path = CgroupPath { truncated: truncated != 0, ..CgroupPath::EMPTY };
    let (mut names, mut at) = (text.split(|&byte| byte == 0), 0);
    for &id in ids {
        let name = names.next().filter(|name| !name.is_empty()).ok_or("a path with fewer names than levels")?;
        path.push(id, &mut at, name);
    }
    Ok(Some(path.reverse()))
}

#[cfg(test)]
#[path = "decoded_oom_kill_tests.rs"]
mod tests;
