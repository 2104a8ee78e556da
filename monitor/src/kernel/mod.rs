//! eBPF: load, attach what this kernel offers, decode events, read the aggregate maps; and say what is missing and why.

mod batch;
pub mod btf;
mod decode;
pub mod format;
mod host;
mod load;
mod maps;
mod oom;
mod probes;
mod report;
mod slots;
mod statistics;
mod stream;

use std::collections::HashSet;
use std::fmt;

use aya::Ebpf;
pub use decode::{Comm, DecodeError, Event, Record, Stall, decode};
pub(crate) use host::Capabilities;
pub use maps::{CgroupCounters, DeviceId};
pub use monitor_ebpf::{
    EventKind, HISTOGRAM_BUCKETS, InodeCounters, KswapdCounters, ReclaimCounters, ReclaimKind, Untracked,
};
pub use oom::{CgroupPath, OomConstraint, OomKill};
pub use report::{CgroupSource, Degradation, ProbeReport, ProbeState, ProbeStatus};
pub use statistics::ProbeStatistics;
pub use stream::{Accounts, Drained, EventAccount};

use self::{maps::Maps, statistics::Programs, stream::Stream};
use crate::config::KernelOptions;
use crate::units::CgroupId;
use crate::units::Monotonic;

/// The kernel side as the agent sees it. Dropping it detaches every program.
pub struct Kernel {
    report: ProbeReport,
    loaded: Option<Loaded>,
}

struct Loaded {
    /// Holds the programs and their attachments.
    _ebpf: Ebpf,
    programs: Programs,
    maps: Maps,
    stream: Stream,
    /// Empties aya-log's own ring into the `log` facade.
    flush_logs: Option<Box<dyn FnMut() + Send>>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Kernel {
    /// Loads and attaches what this kernel offers. Never fails: what cannot be had is in [`Self::report`].
    ///
    /// `own_tgid` is the agent's process id in the initial pid namespace: what it writes itself is no event.
    #[must_use]
    pub fn load(options: &KernelOptions, own_tgid: u32) -> Self {
        let mut report = ProbeReport::default();
        let loaded = load::load(options, own_tgid, load::Depth::Attach, &mut report);
        give_back_freed_memory();
        Self { report, loaded }
    }

    /// What would become of each probe. The programs are loaded, which the verifier has to agree to, and let go; none of them runs.
    #[must_use]
    pub fn rehearse(options: &KernelOptions) -> ProbeReport {
        let mut report = ProbeReport::default();
        drop(load::load(options, std::process::id(), load::Depth::Rehearse, &mut report));
        report
    }

    #[must_use]
    pub const fn report(&self) -> &ProbeReport {
        &self.report
    }

    /// Returns when the ring has something for [`Self::drain`]; never, when there is no ring. Cancel-safe.
    pub async fn readable(&mut self) {
        match &mut self.loaded {
            Some(loaded) => loaded.stream.readable().await,
            None => std::future::pending().await,
        }
    }

    /// Appends at most `budget` records to `events` and `kills`; those that cannot be decoded use up the budget as well.
    pub fn drain(&mut self, budget: usize, events: &mut Vec<Event>, kills: &mut Vec<OomKill>) -> Drained {
        self.loaded.as_mut().map_or_else(Drained::default, |loaded| loaded.stream.drain(budget, events, kills))
    }

    /// Replaces `out` by the reclaim and OOM counters of every cgroup that has any.
    pub fn cgroups(&mut self, out: &mut Vec<(CgroupId, CgroupCounters)>) {
        match &mut self.loaded {
            Some(loaded) => loaded.maps.cgroups(out),
            None => out.clear(),
        }
    }

    /// Replaces `out` by the inode counters of every cgroup and device that has any.
    pub fn inodes(&mut self, out: &mut Vec<(CgroupId, DeviceId, InodeCounters)>) {
        match &mut self.loaded {
            Some(loaded) => loaded.maps.inodes(out),
            None => out.clear(),
        }
    }

    /// kswapd's activity, all nodes together.
    pub fn kswapd(&mut self) -> KswapdCounters {
        self.loaded.as_mut().map_or_else(KswapdCounters::default, |loaded| loaded.maps.kswapd())
    }

    /// Both sides of the books: with the ring drained and no event on its way, generated = delivered + lost + malformed.
    pub fn accounts(&mut self) -> Accounts {
        self.loaded.as_mut().map_or_else(Accounts::default, |loaded| loaded.stream.accounts(&mut loaded.maps))
    }

    /// Replaces `out` by what each attached program has cost so far.
    pub fn statistics(&self, out: &mut Vec<ProbeStatistics>) {
        match &self.loaded {
            Some(loaded) => loaded.programs.read(out),
            None => out.clear(),
        }
    }

    /// Removes the counters of cgroups that are gone, and victims that never exited.
    pub fn forget_cgroups(&mut self, cgroups: &HashSet<CgroupId>) {
        if let Some(loaded) = &mut self.loaded {
            loaded.maps.forget(cgroups);
            loaded.maps.forget_victims(Monotonic::now().0);
        }
    }

    /// Passes what the programs logged to the `log` facade. They log in rare paths only: once per look is enough.
    pub fn flush_logs(&mut self) {
        if let Some(flush) = self.loaded.as_mut().and_then(|loaded| loaded.flush_logs.as_mut()) {
            flush();
        }
    }
}

/// aya parses the whole of vmlinux' BTF whether or not it is needed: tens of MiB that malloc would keep.
fn give_back_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
