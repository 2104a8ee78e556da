//! OOM kills as decoded from the ring.

use std::borrow::Cow;
use std::fmt;

use monitor_ebpf::{COMM_LEN, CgroupPath as RawPath, OomKill as Raw, OomKillRecord, PATH_LEVELS, PATH_TEXT};

use super::shared_map;
use crate::config::config_error::is_unprintable;
use crate::units::{Bytes, CgroupId, Pid, kernel_text, named_enum};

/// An OOM kill with its victim and its trigger. A fact that this kernel does not report is `None`.
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

/// A task's name in the kernel's form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Comm(pub [u8; COMM_LEN]);

impl Comm {
    /// Returns the bytes before the terminating zero.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A task chooses its own name: control characters must not reach terminals and logs.
        kernel_text::name(self.as_bytes()).chars().try_for_each(|character| {
            let shown = if is_unprintable(character) { char::REPLACEMENT_CHARACTER } else { character };
            write!(f, "{shown}")
        })
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

named_enum! {
    /// The kernel's `enum oom_constraint`.
    pub enum OomConstraint {
        /// The node ran out of memory.
        None = "none",
        Cpuset = "cpuset",
        MemoryPolicy = "memory_policy",
        Memcg = "memcg",
    }
}

impl OomConstraint {
    /// The order of the enumerators is that of Linux 2.6.24 to 6.18.
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
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = (CgroupId, Cow<'_, str>)> {
        let name = |&(begin, end): &(u16, u16)| {
            let bytes = self.text.get(usize::from(begin)..usize::from(end)).unwrap_or_default();
            kernel_text::name(bytes)
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

pub(super) fn decode(record: &[u8]) -> Result<OomKill, &'static str> {
    let OomKillRecord { kill: raw, path } = shared_map::record(record)?;
    let has = |flag: u32| raw.header.flags & flag != 0;
    let size = |flag, kib| has(flag).then_some(Bytes::from_kib(kib));
    Ok(OomKill {
        at_ns: raw.header.at_ns,
        marked_at_ns: raw.marked_at_ns,
        invoked_at_ns: has(Raw::HAS_INVOCATION).then_some(raw.invoked_at_ns),
        started_at_ns: has(Raw::HAS_START).then_some(raw.started_at_ns),
        constraint: OomConstraint::from_raw(raw.constraint).filter(|_| has(Raw::HAS_CONSTRAINT)),
        limit_cgroup: has(Raw::HAS_LIMIT_CGROUP).then_some(CgroupId(raw.limit_cgroup)),
        order: has(Raw::HAS_ORDER).then_some(raw.order),
        victim_pid: Pid(raw.victim_pid.cast_signed()),
        victim_comm: has(Raw::HAS_COMM).then_some(Comm(raw.victim_comm)),
        victim_cgroup: has(Raw::HAS_VICTIM_CGROUP).then_some(CgroupId(raw.victim_cgroup)),
        victim_path: decode_path(&path)?,
        uid: has(Raw::HAS_UID).then_some(raw.uid),
        total_vm: size(Raw::HAS_TOTAL_VM, raw.total_vm_kib),
        anon_rss: size(Raw::HAS_ANON_RSS, raw.anon_rss_kib),
        file_rss: size(Raw::HAS_FILE_RSS, raw.file_rss_kib),
        shmem_rss: size(Raw::HAS_SHMEM_RSS, raw.shmem_rss_kib),
        pgtables: size(Raw::HAS_PGTABLES, raw.pgtables_kib),
        oom_score_adj: has(Raw::HAS_OOM_SCORE_ADJ).then_some(raw.oom_score_adj),
        trigger_pid: Pid(raw.trigger_pid.cast_signed()),
        trigger_tid: Pid(raw.trigger_tid.cast_signed()),
        trigger_comm: Comm(raw.trigger_comm),
        trigger_cgroup: CgroupId(raw.trigger_cgroup),
    })
}

/// `None` when the kernel could not read a single level; a victim in the root cgroup has no path either.
fn decode_path(raw: &RawPath) -> Result<Option<CgroupPath>, &'static str> {
    let text = raw.text.get(..raw.text_bytes as usize).ok_or("a path longer than its text")?;
    let ids = raw.ids.get(..raw.levels as usize).ok_or("a path of too many levels")?;
    if ids.is_empty() {
        return Ok(None);
    }
    let mut path = CgroupPath { truncated: raw.truncated != 0, ..CgroupPath::EMPTY };
    let (mut names, mut at) = (text.split(|&byte| byte == 0), 0);
    for &id in ids {
        let name = names.next().filter(|name| !name.is_empty()).ok_or("a path with fewer names than levels")?;
        path.push(CgroupId(id), &mut at, name);
    }
    Ok(Some(path.reverse()))
}

#[cfg(test)]
#[path = "decoded_oom_kill_tests.rs"]
mod tests;
