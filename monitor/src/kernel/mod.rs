//! eBPF: loads and attaches the programs that this kernel supports, decodes their events, reads their maps, and reports what is missing and
//! why.

pub mod btf;
mod counter_slots;
mod decode;
mod decoded_oom_kill;
mod event_ring;
mod host_support;
mod loader;
mod map_batch;
mod maps;
mod probe_report;
mod probe_table;
mod program_statistics;
mod shared_map;
pub mod tracepoint_format;

use std::collections::HashSet;
use std::fmt;

pub use decode::{DecodeError, Event, Record, Stall, decode};
pub use decoded_oom_kill::{CgroupPath, Comm, OomConstraint, OomKill};
pub use event_ring::{Accounts, Drained, EventAccount};
pub(crate) use host_support::Capabilities;
pub use maps::{CgroupCounters, DeviceId};
pub use monitor_ebpf::{
    EventKind, HISTOGRAM_BUCKETS, InodeCounters, KswapdCounters, ReclaimCounters, ReclaimKind, Untracked,
};
pub use probe_report::{CgroupSource, Degradation, ProbeReport, ProbeState, ProbeStatus};
pub use program_statistics::ProbeStatistics;

use self::loader::{Depth, Loaded};
use crate::config::KernelOptions;
use crate::units::{CgroupId, Monotonic};

/// The loaded eBPF programs. Dropping this detaches all of them.
pub struct Kernel {
    report: ProbeReport,
    loaded: Option<Loaded>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Kernel {
    /// Loads and attaches what this kernel supports. Never fails: [`Self::report`] says what is missing.
    ///
    /// `own_tgid` is the agent's process id in the initial pid namespace; the programs ignore what that process writes.
    pub fn load(options: &KernelOptions, own_tgid: u32) -> Self {
        let mut report = ProbeReport::default();
        let loaded = loader::load(options, own_tgid, Depth::Attach, &mut report);
        trim_heap();
        Self { report, loaded }
    }

    /// Reports which probes could be attached. The kernel's verifier checks each program, and none is attached.
    pub fn check_probes(options: &KernelOptions) -> ProbeReport {
        let mut report = ProbeReport::default();
        drop(loader::load(options, std::process::id(), Depth::Verify, &mut report));
        report
    }

    pub const fn report(&self) -> &ProbeReport {
        &self.report
    }

    /// Waits until the ring has records for [`Self::drain`]; for ever when there is no ring. Cancel-safe.
    pub async fn readable(&mut self) {
        match &mut self.loaded {
            Some(loaded) => loaded.stream.readable().await,
            None => std::future::pending().await,
        }
    }

    /// Appends at most `budget` records to `events` and `kills`. A record that cannot be decoded counts too.
    pub fn drain(&mut self, budget: usize, events: &mut Vec<Event>, kills: &mut Vec<OomKill>) -> Drained {
        self.loaded.as_mut().map_or_else(Drained::default, |loaded| loaded.stream.drain(budget, events, kills))
    }

    /// Replaces `out` by the reclaim and OOM counters of every cgroup that has some.
    pub fn cgroups(&mut self, out: &mut Vec<(CgroupId, CgroupCounters)>) {
        out.clear();
        if let Some(loaded) = &mut self.loaded {
            loaded.maps.cgroups(out);
        }
    }

    /// Replaces `out` by the inode counters of every cgroup and device that has some.
    pub fn inodes(&mut self, out: &mut Vec<(CgroupId, DeviceId, InodeCounters)>) {
        out.clear();
        if let Some(loaded) = &mut self.loaded {
            loaded.maps.inodes(out);
        }
    }

    /// Sums kswapd's activity over all nodes.
    pub fn kswapd(&mut self) -> KswapdCounters {
        self.loaded.as_mut().map_or_else(KswapdCounters::default, |loaded| loaded.maps.kswapd())
    }

    /// Returns the counts of the programs and of the agent. With the ring drained and no event on its way, generated = delivered + lost +
    /// malformed.
    pub fn accounts(&mut self) -> Accounts {
        self.loaded.as_mut().map_or_else(Accounts::default, |loaded| loaded.stream.accounts(&mut loaded.maps))
    }

    /// Replaces `out` by the cost of each attached program so far.
    pub fn statistics(&self, out: &mut Vec<ProbeStatistics>) {
        out.clear();
        if let Some(loaded) = &self.loaded {
            loaded.programs.read(out);
        }
    }

    /// Removes the counters of removed cgroups, and victims whose exit was missed.
    pub fn forget_cgroups(&mut self, cgroups: &HashSet<CgroupId>) {
        if let Some(loaded) = &mut self.loaded {
            loaded.maps.forget(cgroups);
            loaded.maps.forget_victims(Monotonic::now().0);
        }
    }

    /// Forwards the programs' log to the `log` facade. The programs log only in rare paths, so one call per turn is enough.
    pub fn flush_logs(&mut self) {
        if let Some(flush) = self.loaded.as_mut().and_then(|loaded| loaded.flush_logs.as_mut()) {
            flush();
        }
    }
}

/// aya parses the whole BTF of vmlinux, needed or not: tens of MiB that malloc would keep.
fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
