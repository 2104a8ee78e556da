//! The eBPF programs as the loop sees them: the events of the ring buffer, and the aggregate maps.

use std::collections::HashSet;

use crate::kernel::{
    Accounts, CgroupCounters, DeviceId, Event, EventKind, InodeCounters, Kernel, KswapdCounters, OomKill, ProbeReport,
    ProbeStatistics,
};
use crate::units::CgroupId;

/// The most events decoded per turn.
const EVENTS_PER_TURN: usize = 4096;
/// The initial capacity for the OOM kills of one turn. A ring buffer of the usual size holds few more.
const OOM_KILLS_EXPECTED: usize = 256;

/// The tracepoint at the begin of direct reclaim. Its program wakes the loop and counts reclaim stalls.
pub(super) const DIRECT_BEGIN: &str = "vmscan:mm_vmscan_direct_reclaim_begin";

#[derive(Debug)]
pub struct KernelEvents {
    kernel: Kernel,
    events: Vec<Event>,
    oom_kills: Vec<OomKill>,
    /// The ring buffer has more events than one turn decodes.
    has_more: bool,
}

/// The counters of the aggregate maps, read together.
#[derive(Debug, Default)]
pub struct Counters {
    pub cgroups: Vec<(CgroupId, CgroupCounters)>,
    pub inodes: Vec<(CgroupId, DeviceId, InodeCounters)>,
}

impl KernelEvents {
    pub fn new(kernel: Kernel) -> Self {
        let events = Vec::with_capacity(EVENTS_PER_TURN);
        Self { kernel, events, oom_kills: Vec::with_capacity(OOM_KILLS_EXPECTED), has_more: false }
    }

    pub fn report(&self) -> &ProbeReport {
        self.kernel.report()
    }

    /// Returns when the ring buffer has events. Never returns without programs. Cancel-safe.
    pub async fn readable(&mut self) {
        self.kernel.readable().await;
    }

    /// Decodes a bounded number of events.
    pub fn drain(&mut self) {
        self.has_more = self.kernel.drain(EVENTS_PER_TURN, &mut self.events, &mut self.oom_kills).exhausted;
    }

    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Gives the decoded events to the caller, with their buffers.
    pub fn take(&mut self) -> (Vec<Event>, Vec<OomKill>) {
        (std::mem::take(&mut self.events), std::mem::take(&mut self.oom_kills))
    }

    /// Returns the decoded OOM kills that were not taken yet.
    pub(super) fn oom_kills(&self) -> &[OomKill] {
        &self.oom_kills
    }

    /// Takes the buffers back, so that no turn allocates new ones.
    pub fn give_back(&mut self, mut events: Vec<Event>, mut oom_kills: Vec<OomKill>) {
        events.clear();
        oom_kills.clear();
        (self.events, self.oom_kills) = (events, oom_kills);
    }

    pub fn counters(&mut self) -> Counters {
        let mut counters = Counters::default();
        self.kernel.cgroups(&mut counters.cgroups);
        self.kernel.inodes(&mut counters.inodes);
        counters
    }

    pub(super) fn inodes(&mut self) -> Vec<(CgroupId, DeviceId, InodeCounters)> {
        let mut inodes = Vec::new();
        self.kernel.inodes(&mut inodes);
        inodes
    }

    pub fn accounts(&mut self) -> Accounts {
        self.kernel.accounts()
    }

    pub fn kswapd(&mut self) -> KswapdCounters {
        self.kernel.kswapd()
    }

    /// Returns the run time of each attached program.
    pub fn statistics(&self) -> Vec<ProbeStatistics> {
        let mut statistics = Vec::new();
        self.kernel.statistics(&mut statistics);
        statistics
    }

    /// Returns the direct reclaims that the programs saw, including those whose event was suppressed.
    pub(super) fn direct_reclaims(&mut self) -> u64 {
        let accounts = self.kernel.accounts();
        accounts.of(EventKind::DirectReclaim).map_or(0, |account| account.generated + account.suppressed)
    }

    /// Returns the number of OOM kills that were lost to a full ring buffer.
    pub(super) fn lost_oom_kills(&mut self) -> u64 {
        let accounts = self.kernel.accounts();
        accounts.of(EventKind::OomKill).map_or(0, |account| account.lost)
    }

    /// Drops the counters of removed cgroups.
    pub fn forget(&mut self, cgroups: &HashSet<CgroupId>) {
        self.kernel.forget_cgroups(cgroups);
    }

    /// Writes the log messages of the programs to the log. The programs seldom log, and fetching the messages is slow.
    pub fn flush_logs(&mut self) {
        self.kernel.flush_logs();
    }

    /// Returns whether the programs count inodes on filesystems of a type.
    pub(super) fn counts_inodes_of(&self, kind: &str) -> bool {
        match kind {
            "ext4" => self.report().has("ext4:ext4_allocate_inode"),
            "xfs" => self.report().has("xfs:xfs_create"),
            _ => false,
        }
    }
}
