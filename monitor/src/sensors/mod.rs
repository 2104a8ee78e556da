//! Measures the signals, and reports which capabilities are missing. Sensors return values: they log nothing, and change neither
//! metrics nor objects of the API server. The loop passes the time of its turn; only a reading takes its own time.

pub mod allocatable_signal;
pub mod candidates;
pub mod capability;
pub mod control_plane;
pub mod counter_error;
mod daemons_memory;
pub mod decider_facts;
pub mod disk_measurement;
mod disk_steering;
pub mod disk_usage_by_role;
mod dying_workloads;
pub mod ebpf_events;
pub mod figure_report;
mod filesystem_asker;
pub mod filesystem_signals;
mod filesystem_thread;
mod growth;
pub mod inode_counts;
mod inode_thread;
mod joined_pods;
pub mod kernel_counts;
mod kubelet_disks;
pub mod live_ranking;
pub mod local_storage_limits;
pub mod memory_outlook;
pub mod memory_signal;
mod node_stalls;
mod oom_counters;
pub mod oom_kill_stream;
mod oom_log_lookup;
pub mod other_signals;
pub mod pid_signal;
mod pod_identity;
pub mod pod_source;
mod prepared_standing;
pub mod pressure_conditions;
mod reclaimable;
mod refaulters;
mod rehearsal;
mod sensor_reports;
mod signal_slopes;
pub mod sources;
pub mod standing;
mod static_manifests;
pub mod swap_out;
mod swap_readings;
pub mod workload_scan;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{MonitorConfig, Semantics};
use crate::disk::Walker;
use crate::eviction::deadline::{FallRate, until_next_sample};
use crate::eviction::growth::Growth;
use crate::eviction::{Armed, Layout, Observation, SignalValue};
use crate::kernel::{Kernel, OomKill};
use crate::node::MemoryReader;
use crate::node::cpu_free_lists::CpuFreeLists;
use crate::node::pinned_file::FileError;
use crate::node::psi_trigger::PsiTrigger;
use crate::node::vmstat::VmStat;
use crate::runtime;
use crate::units::{CgroupId, Monotonic};
use crate::workloads::{PodsFile, WorkloadTree};

use self::allocatable_signal::AllocatableSignal;
use self::control_plane::ControlPlane;
use self::disk_measurement::DiskMeasurement;
use self::dying_workloads::DyingWorkloads;
use self::ebpf_events::{Counters, DIRECT_BEGIN, KernelEvents};
use self::filesystem_signals::FilesystemSignals;
use self::inode_counts::InodeCounts;
use self::kernel_counts::KernelCounts;
use self::kubelet_disks::KubeletDisks;
use self::memory_signal::Memory;
use self::node_stalls::NodeStalls;
use self::oom_kill_stream::{Attributed, OomBalance, OomKills};
use self::other_signals::OtherSignals;
use self::pid_signal::PidSignal;
use self::pod_source::PodSource;
use self::prepared_standing::PreparedStanding;
use self::pressure_conditions::PressureConditions;
use self::refaulters::Refaulters;
use self::sources::{Facts, Sources};
use self::static_manifests::StaticManifests;
use self::swap_out::SwapWatch;
use self::workload_scan::{LIST_AGE, Workloads};

#[derive(Debug)]
pub struct Sensors {
    pub events: KernelEvents,
    pub memory: Memory,
    pub counts: KernelCounts,
    refaulters: Refaulters,
    swap: SwapWatch,
    pub pressure: PressureConditions,
    stalls: NodeStalls,
    pub signals: OtherSignals,
    pub inodes: InodeCounts,
    pub disk: DiskMeasurement,
    kubelet: KubeletDisks,
    pub oom_kills: OomKills,
    pub sources: Sources,
    pub workloads: Workloads,
    pub growth: Growth,
    prepared: PreparedStanding,
    pub dying: DyingWorkloads,
    /// `None` if `/proc/zoneinfo` cannot be read.
    cpu_lists: Option<CpuFreeLists>,
    /// `None` until they are read.
    manifests: Option<StaticManifests>,
    pub pods: PodSource,
    pub platform: Platform,
}

/// The container runtime and the control plane, which other threads observe.
#[derive(Debug)]
pub struct Platform {
    pub runtime: runtime::Viewer,
    pub cluster: ControlPlane,
}

#[derive(Debug)]
pub struct SensorParts {
    pub kernel: Kernel,
    pub psi: Option<PsiTrigger>,
    pub oom_kills: OomKills,
    pub memory: MemoryReader,
    /// The fastest fall of available memory that is possible on this machine.
    pub rate: FallRate,
    pub filesystems: FilesystemSignals,
    pub tree: WorkloadTree,
    pub pods: Option<PodsFile>,
    pub walker: Arc<Walker>,
    pub platform: Platform,
}

/// An observation of every signal, the time of the memory sample, and the layout of the filesystems if it has changed.
#[derive(Debug)]
pub struct Observed {
    pub sampled: Monotonic,
    pub observation: Observation,
    pub new_layout: Option<Layout>,
}

impl Sensors {
    pub fn new(config: &MonitorConfig, parts: SensorParts) -> Self {
        let SensorParts { kernel, psi, oom_kills, memory, rate, filesystems, mut tree, pods, walker, platform } = parts;
        tree.set_usage_quirks(config.policy.quirks);
        let proc_root = &config.proc_root;
        let mut memory = Memory::new(memory, rate, (proc_root, tree.hierarchy()), &config.policy);
        memory.follow(&config.policy);
        Self {
            events: KernelEvents::new(kernel),
            memory,
            counts: KernelCounts::open(proc_root),
            refaulters: Refaulters::default(),
            swap: SwapWatch::new(proc_root),
            pressure: PressureConditions::new(proc_root, tree.hierarchy(), &config.pressure_conditions),
            stalls: NodeStalls::default(),
            signals: OtherSignals::new(
                PidSignal::open(config),
                AllocatableSignal::new(tree.hierarchy().clone()),
                filesystems,
            ),
            inodes: InodeCounts::new(proc_root),
            disk: DiskMeasurement::new(walker),
            kubelet: KubeletDisks::default(),
            oom_kills,
            sources: Sources::new(psi, proc_root),
            workloads: Workloads::new(tree),
            growth: Growth::default(),
            prepared: PreparedStanding::default(),
            dying: DyingWorkloads::default(),
            cpu_lists: CpuFreeLists::open(proc_root).ok(),
            manifests: None,
            pods: PodSource::new(pods),
            platform,
        }
    }

    /// Samples memory, and takes the latest values of the other signals. `armed` are the thresholds in force.
    ///
    /// # Errors
    /// When memory cannot be read. Then no decision is possible.
    pub fn observe(&mut self, config: &MonitorConfig, armed: &[Armed]) -> Result<Observed, FileError> {
        let semantics = config.policy.semantics;
        if let Some(due) = self.sample_due(config) {
            self.memory.note_due(due, Monotonic::now());
        }
        let sample = self.memory.read(semantics)?;
        self.pass_on_withheld();
        self.growth.forget_stale(sample.at);
        let is_armed = |signal| armed.iter().any(|armed| armed.threshold.signal == signal);
        let new_layout = self.signals.observe(config, is_armed, sample.at);
        Ok(Observed {
            sampled: sample.at,
            observation: Observation { signals: self.values(semantics).collect() },
            new_layout,
        })
    }

    /// Returns the last observation; nothing without a sample of memory.
    pub fn observation(&self, semantics: Semantics) -> Option<Observation> {
        self.memory.sample()?;
        Some(Observation { signals: self.values(semantics).collect() })
    }

    fn values(&self, semantics: Semantics) -> impl Iterator<Item = SignalValue> {
        self.memory.value(semantics).into_iter().chain(self.signals.values().iter().copied())
    }

    /// Returns how long until the next sample of memory; nothing without a sample.
    pub fn until_sample(&self, config: &MonitorConfig, now: Monotonic) -> Option<Duration> {
        self.sample_due(config).map(|due| due.since(now))
    }

    fn sample_due(&self, config: &MonitorConfig) -> Option<Monotonic> {
        let sample = self.memory.sample()?;
        let observation = self.observation(config.policy.semantics)?;
        let (rate, no_later) = self.memory.fastest_fall(config.policy.semantics);
        let until = until_next_sample(&config.policy, &config.sampling, &observation, &rate);
        Some(sample.at.after(no_later.map_or(until, |no_later| until.min(no_later))))
    }

    /// Looks at the kubelet of this node, which evicts for disks, too. `may_search`: there is time to read the names of all processes.
    pub fn look_at_kubelet(&mut self, proc_root: &Path, may_search: bool, now: Monotonic) {
        self.kubelet.renew(proc_root, may_search, now);
    }

    /// Reads the kernel's own counts, and updates what depends on them: the correction of available memory, and the source of
    /// reclaim events.
    pub fn read_counts(&mut self) -> Option<VmStat> {
        let Some(stat) = self.counts.read() else {
            self.memory.clear_correction();
            return None;
        };
        self.memory.correct(self.counts.refaulted());
        self.refaulters.follow(self.memory.correction(), self.workloads.tree_mut());
        if let Some(allocstall) = stat.allocstall.filter(|_| self.events.report().has(DIRECT_BEGIN))
            && self.sources.compare(allocstall, || self.events.direct_reclaims())
        {
            self.update_sources();
        }
        Some(stat)
    }

    /// Reads the figures behind the corrections of available memory that take too long for a sample.
    pub fn renew_corrections(&mut self) {
        self.memory.renew_corrections();
        self.pass_on_withheld();
    }

    /// Lets the gain of a workload have the cache that is withheld while it is there.
    fn pass_on_withheld(&mut self) {
        if let Some(withheld) = self.memory.take_withheld() {
            self.workloads.tree_mut().set_withheld(withheld);
        }
    }

    /// Notes that a workload was evicted: its refaults are no reason to evict another one, its disk usage must be measured again,
    /// and the list of workloads is out of date.
    pub fn note_evicted(&mut self, id: CgroupId, name: &str, now: Monotonic) {
        self.disk.note_evicted(id, now);
        self.disk.hurry(name);
        self.workloads.expire();
        self.counts.forget_refaults();
        self.refaulters.clear();
        self.memory.clear_correction();
        self.memory.expire_corrections();
    }

    /// Completes the OOM kills from the programs with the kernel's log. The tree is scanned at most once for all kills.
    pub fn settle_oom_kills(&mut self, kills: &mut Vec<OomKill>, now: Monotonic) {
        self.oom_kills.settle(kills, self.workloads.tree().hierarchy(), now);
        self.workloads.scan_for(kills, now);
    }

    /// Returns the held OOM kills that are to be reported now. Compares them with the workloads' counters when that is due.
    pub fn take_held_oom_kills(&mut self, now: Monotonic) -> Option<Attributed> {
        self.oom_kills.is_comparison_due(now).then(|| self.compare_oom_counters())
    }

    /// Reads the workloads' counters if the kernel's log is the only source of kills. The next kill without a cgroup is compared
    /// with them.
    pub fn note_oom_counters(&mut self) -> Option<Attributed> {
        self.oom_kills.is_by_log().then(|| self.compare_oom_counters())
    }

    fn compare_oom_counters(&mut self) -> Attributed {
        let started = Monotonic::now();
        // The counter of a new workload includes kills from before its scan. Those kills are not new.
        let risen = self.workloads.tree_mut().new_oom_kills(true);
        let total = self.read_counts().and_then(|stat| stat.oom_kills);
        self.oom_kills.compare(risen, total, started)
    }

    /// Returns the OOM kills by workload that only the counters in files have. Reads many files, so it is only for reports.
    pub fn count_oom_kills_in_files(&mut self, now: Monotonic) -> Vec<(String, u64)> {
        if !self.oom_kills.is_by_counters() {
            return Vec::new();
        }
        // A workload that no scan has found has no known counter.
        self.workloads.scan_if_older(LIST_AGE, now);
        self.oom_kills.count_in_files(self.workloads.tree_mut())
    }

    /// Compares the reported OOM kills with the kernel's count (Linux 4.13).
    pub fn balance_oom_kills(&mut self, now: Monotonic) -> Option<OomBalance> {
        let counted = self.read_counts()?.oom_kills?;
        let lost = self.events.lost_oom_kills();
        Some(self.oom_kills.balance(counted, lost, now))
    }

    /// Reads the counters of all cgroups for a report. Omits cgroups that may get a name by the next scan.
    pub fn counters_for_report(&mut self, now: Monotonic) -> Counters {
        let mut counters = self.events.counters();
        self.inodes.observe_for_report(&counters.inodes, now);
        let cgroups = counters.cgroups.iter().map(|(id, _)| *id);
        let ids: Vec<CgroupId> = cgroups.chain(counters.inodes.iter().map(|(id, ..)| *id)).collect();
        self.workloads.note_counted(&ids, now);
        counters.cgroups.retain(|(id, _)| !self.workloads.is_too_young(*id));
        counters.inodes.retain(|(id, ..)| !self.workloads.is_too_young(*id));
        counters
    }

    /// Drops the kernel's counters of removed cgroups. Returns these cgroups.
    pub fn drop_removed(&mut self) -> std::collections::HashSet<CgroupId> {
        let removed = self.workloads.take_removed();
        self.events.forget(&removed);
        removed
    }

    /// Drops the descriptor of the PSI trigger, which has become useless.
    pub fn lose_psi(&mut self, reason: String) {
        self.sources.lose_psi(reason);
        self.sources.update(self.facts());
    }

    /// Registers the PSI trigger if it is needed and missing. Updates the sources in use.
    pub fn update_sources(&mut self) {
        self.sources.restore_psi(self.facts());
        self.sources.update(self.facts());
    }

    /// Returns whether the programs count reclaim stalls, and see the events.
    pub fn counts_stalls(&self) -> bool {
        let facts = self.facts();
        facts.stalls && !facts.misses_events
    }

    fn facts(&self) -> Facts {
        let has = |name| self.events.report().has(name);
        Facts {
            wakes: has(DIRECT_BEGIN) || has("vmscan:mm_vmscan_kswapd_wake"),
            stalls: has(DIRECT_BEGIN) && has("vmscan:mm_vmscan_direct_reclaim_end"),
            misses_events: self.sources.misses_events(),
            oom_kills: has("oom:mark_victim"),
            inodes: has("ext4:ext4_allocate_inode") || has("xfs:xfs_create"),
            oom_score_adj: has("oom:oom_score_adj_update"),
            psi_trigger: self.sources.has_psi(),
            psi_figures: self.pressure.is_known(),
            kmsg: self.oom_kills.is_by_log(),
            vmstat: self.counts.is_known(),
            filesystems: self.inodes.is_known(),
        }
    }
}
