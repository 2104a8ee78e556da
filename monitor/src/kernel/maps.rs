//! Reads the programs' counters.

use std::{
    borrow::Borrow,
    collections::{HashMap as Table, HashSet},
    fmt,
};

use aya::{
    Ebpf,
    maps::{Array, HashMap, MapData, MapError, PerCpuArray},
};
use indexmap::IndexMap;
use monitor_ebpf::{
    EventCounts, EventKind, InodeCounters, InodeKey, KswapdCounters, OomKill, ReclaimCounters, ReclaimKey, ReclaimKind,
    Slot, Untracked,
};

use super::{
    counter_slots::Counters,
    map_batch::Reader,
    shared_map::{Shared, take},
};
use crate::units::CgroupId;

/// As long as the programs wait for an exit.
const NEVER_EXITED_NS: u64 = 3600 * 1_000_000_000;

/// A filesystem's device in the kernel's internal numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

impl DeviceId {
    pub const fn major(self) -> u32 {
        self.0 >> 20
    }

    pub const fn minor(self) -> u32 {
        self.0 & 0xf_ffff
    }
}

/// `major:minor`, as in mountinfo.
impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major(), self.minor())
    }
}

/// Cumulative since the agent started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupCounters {
    pub direct: ReclaimCounters,
    pub memcg: ReclaimCounters,
    pub oom_kills: u64,
}

impl CgroupCounters {
    const ZERO: Self = Self { direct: ReclaimCounters::ZERO, memcg: ReclaimCounters::ZERO, oom_kills: 0 };
}

/// The programs' maps. A failed read is logged once per run; its figures are then missing, not wrong.
pub(super) struct Maps {
    reclaim: Counters<ReclaimKey, ReclaimCounters>,
    oom_kills: HashMap<MapData, u64, u64>,
    victims: HashMap<MapData, u32, Shared<OomKill>>,
    inodes: Counters<InodeKey, InodeCounters>,
    kswapd: HashMap<MapData, i32, Shared<KswapdCounters>>,
    counts: PerCpuArray<MapData, Shared<EventCounts>>,
    untracked: PerCpuArray<MapData, u64>,
    sigkills_seen: Array<MapData, u32>,
    /// The index of each cgroup in the list under construction; kept for its allocation.
    places: Table<CgroupId, usize>,
    /// The counters under construction; empty between two reads, kept for its allocation.
    by_device: IndexMap<(CgroupId, DeviceId), InodeCounters>,
    oom_reader: Reader<u64, u64>,
    victim_reader: Reader<u32, Shared<OomKill>>,
    failure_logged: bool,
}

impl Maps {
    pub fn take(ebpf: &mut Ebpf) -> Result<Self, String> {
        Ok(Self {
            reclaim: Counters::take(ebpf, "RECLAIM_SLOTS", "RECLAIM_OWNERS", "RECLAIM_OTHERS")?,
            oom_kills: take(ebpf, "OOM_KILLS")?,
            victims: take(ebpf, "VICTIMS")?,
            inodes: Counters::take(ebpf, "INODE_SLOTS", "INODE_OWNERS", "INODE_OTHERS")?,
            kswapd: take(ebpf, "KSWAPD")?,
            counts: take(ebpf, "COUNTS")?,
            untracked: take(ebpf, "UNTRACKED")?,
            sigkills_seen: take(ebpf, "SIGKILLS_SEEN")?,
            places: Table::new(),
            by_device: IndexMap::new(),
            oom_reader: Reader::new(),
            victim_reader: Reader::new(),
            failure_logged: false,
        })
    }

    /// Notes for the program `mark_victim` that every SIGKILL is now seen before its mark.
    pub fn sigkills_are_seen(&mut self) -> Result<(), MapError> {
        self.sigkills_seen.set(0, 1, 0)
    }

    pub fn cgroups(&mut self, out: &mut Vec<(CgroupId, CgroupCounters)>) {
        let Self { reclaim, oom_kills, places, oom_reader, failure_logged, .. } = self;
        places.clear();
        let mut entry = |out: &mut Vec<(CgroupId, CgroupCounters)>, cgroup: u64| {
            let id = CgroupId(cgroup);
            *places.entry(id).or_insert_with(|| {
                out.push((id, CgroupCounters::ZERO));
                out.len() - 1
            })
        };
        let read = reclaim.read(|key, mut counters| {
            counters.stalls = counters.histogram.iter().sum();
            let place = entry(out, key.cgroup);
            if let (Some((_, into)), Some(kind)) = (out.get_mut(place), ReclaimKind::from_raw(key.kind)) {
                match kind {
                    ReclaimKind::Direct => into.direct.add(&counters),
                    ReclaimKind::Memcg => into.memcg.add(&counters),
                }
            }
        });
        let _logged = readable(read, "RECLAIM", failure_logged);
        let read = oom_reader.read(oom_kills, |cgroup, kills| {
            let place = entry(out, cgroup);
            if let Some((_, into)) = out.get_mut(place) {
                into.oom_kills = kills;
            }
        });
        let _logged = readable(read, "OOM_KILLS", failure_logged);
    }

    pub fn inodes(&mut self, out: &mut Vec<(CgroupId, DeviceId, InodeCounters)>) {
        let Self { inodes, by_device, failure_logged, .. } = self;
        let read = inodes.read(|key, counters| {
            let into = by_device.entry((CgroupId(key.cgroup), DeviceId(key.device))).or_default();
            into.created += counters.created;
            into.removed += counters.removed;
            into.evicted += counters.evicted;
        });
        let _logged = readable(read, "INODES", failure_logged);
        out.extend(by_device.drain(..).map(|((cgroup, device), counters)| (cgroup, device, counters)));
    }

    /// Sums all nodes. A current period of activity is not in `active_ns` yet.
    pub fn kswapd(&mut self) -> KswapdCounters {
        let mut sum = KswapdCounters::default();
        for item in self.kswapd.iter() {
            let Some((_, Shared(node))) = readable(item, "KSWAPD", &mut self.failure_logged) else {
                break;
            };
            sum.wakes += node.wakes;
            sum.active_ns += node.active_ns;
            sum.woke_at_ns = sum.woke_at_ns.max(node.woke_at_ns);
            sum.reclaimed_pages += node.reclaimed_pages;
            sum.scanned_pages += node.scanned_pages;
        }
        sum
    }

    pub fn counts(&mut self, kind: EventKind) -> EventCounts {
        let mut sum = EventCounts::default();
        if let Some(cpus) = readable(self.counts.get(&kind.index(), 0), "COUNTS", &mut self.failure_logged) {
            for Shared(cpu) in cpus.iter() {
                sum.generated += cpu.generated;
                sum.lost += cpu.lost;
                sum.suppressed += cpu.suppressed;
            }
        }
        sum
    }

    pub fn untracked(&mut self, what: Untracked) -> u64 {
        readable(self.untracked.get(&(what as u32), 0), "UNTRACKED", &mut self.failure_logged)
            .map_or(0, |cpus| cpus.iter().sum())
    }

    /// Removes victims whose exit was missed. They would fill the map, and later kills would have no cgroup.
    pub fn forget_victims(&mut self, now_ns: u64) {
        let mut waiting = Vec::new();
        let read = self.victim_reader.read(&self.victims, |tid, Shared(kill)| waiting.push((tid, kill.marked_at_ns)));
        let _logged = readable(read, "VICTIMS", &mut self.failure_logged);
        for tid in never_exited(&waiting, now_ns) {
            // The victim may have exited meanwhile and be removed already.
            let _absent = self.victims.remove(&tid);
        }
    }

    /// Removes the counters of removed cgroups, to make room for new ones.
    pub fn forget(&mut self, cgroups: &HashSet<CgroupId>) {
        if cgroups.is_empty() {
            return;
        }
        let is_gone = |cgroup| cgroups.contains(&CgroupId(cgroup));
        let nothing =
            Slot { key: ReclaimKey { cgroup: 0, kind: 0, reserved: 0 }, taken: 0, value: ReclaimCounters::ZERO };
        let forgotten = self.reclaim.forget(|key| is_gone(key.cgroup), nothing);
        let _logged = readable(forgotten, "RECLAIM", &mut self.failure_logged);
        let key = InodeKey { cgroup: 0, device: 0, reserved: 0 };
        let nothing = Slot { key, taken: 0, value: InodeCounters::default() };
        let forgotten = self.inodes.forget(|key| is_gone(key.cgroup), nothing);
        let _logged = readable(forgotten, "INODES", &mut self.failure_logged);
        for CgroupId(cgroup) in cgroups {
            // Most cgroups never had an element, so not found is the usual answer.
            let _absent = self.oom_kills.remove(cgroup);
        }
    }
}

/// Returns the victims that were marked so long ago that their exit was missed.
fn never_exited(victims: &[(u32, u64)], now_ns: u64) -> impl Iterator<Item = u32> {
    victims
        .iter()
        .filter(move |(_, marked_at_ns)| now_ns.saturating_sub(*marked_at_ns) > NEVER_EXITED_NS)
        .map(|(tid, _)| *tid)
}

fn readable<T>(item: Result<T, impl Borrow<MapError>>, map: &'static str, failure_logged: &mut bool) -> Option<T> {
    match item {
        Ok(value) => Some(value),
        Err(error) => {
            if !*failure_logged {
                *failure_logged = true;
                tracing::warn!(map, error = %error.borrow(), "cannot read an eBPF map; its figures are incomplete");
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceId, NEVER_EXITED_NS, never_exited};

    #[test]
    fn victims_are_forgotten_after_an_hour() {
        let now_ns = 2 * NEVER_EXITED_NS;
        let victims = [(1, NEVER_EXITED_NS - 1), (2, NEVER_EXITED_NS), (3, now_ns), (4, now_ns + 1)];
        assert_eq!(never_exited(&victims, now_ns).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn devices_read_as_in_mountinfo() {
        for (raw, text) in [(0x0fe0_0000, "254:0"), (0x0080_0001, "8:1"), (0x0000_0015, "0:21")] {
            assert_eq!(DeviceId(raw).to_string(), text);
        }
    }
}
