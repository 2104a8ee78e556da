//! On which rung each signal stands: eBPF, PSI, the kernel's log, polling, nothing. Losing one moves to the next, and is said.

use crate::kernel::EventKind;
use crate::node::psi_trigger::PsiTrigger;
use crate::report::SourceReport;
use crate::report::record::Record;
use crate::units::Monotonic;

use super::Agent;

/// How often tasks must have entered direct reclaim, by `/proc/vmstat`, without one that the programs heard, to call them deaf. One
/// that entered may not have been heard yet.
const UNHEARD: u64 = 16;

/// The signals, by the names of metrics and logs.
const SIGNALS: [&str; 5] = ["memory.available", "reclaim_stalls", "oom_kills", "inodes", "oom_score_adj"];

/// What the rungs rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Facts {
    /// The programs ring when memory is short: direct reclaim begins, or kswapd wakes.
    rings: bool,
    /// They count reclaim stalls.
    stalls: bool,
    /// They are attached and hear nothing of what the kernel counts.
    deaf: bool,
    /// They tell of OOM kills.
    oom_kills: bool,
    /// They count inodes, of one kind of filesystem at least.
    inodes: bool,
    /// They tell of writes to `oom_score_adj`.
    oom_score_adj: bool,
    /// The PSI trigger is registered.
    psi_trigger: bool,
    /// PSI of the whole system can be read.
    psi_figures: bool,
    /// OOM kills are read from the kernel's log.
    kmsg: bool,
    /// `/proc/vmstat` can be read.
    vmstat: bool,
    /// Some filesystem counts its inodes.
    filesystems: bool,
}

impl Facts {
    /// The source of each signal, in the order of [`SIGNALS`]: the first rung that holds.
    fn sources(self) -> [&'static str; 5] {
        let first = |rungs: &[(bool, &'static str)]| {
            rungs.iter().find(|(holds, _)| *holds).map_or("none", |(_, source)| source)
        };
        [
            first(&[(self.rings && !self.deaf, "ebpf"), (self.psi_trigger, "psi"), (true, "polling")]),
            first(&[(self.stalls && !self.deaf, "ebpf"), (self.psi_figures, "psi"), (self.vmstat, "polling")]),
            first(&[(self.oom_kills, "ebpf"), (self.kmsg, "kmsg"), (self.vmstat, "polling")]),
            first(&[(self.inodes, "ebpf"), (self.filesystems, "polling")]),
            // Without word of a write every process is looked at now and then.
            first(&[(self.oom_score_adj, "ebpf"), (true, "polling")]),
        ]
    }
}

/// Whether the programs hear what the kernel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Hearing {
    /// The kernel's count and the programs' at the last comparison.
    mark: Option<(u64, u64)>,
    deaf: bool,
}

impl Hearing {
    /// Compares the kernel's count of direct reclaims with the programs', which is read only when there is something to compare.
    fn compare(&mut self, by_kernel: u64, by_programs: impl FnOnce() -> u64) {
        match self.mark {
            Some((kernel_before, _)) if by_kernel.saturating_sub(kernel_before) < UNHEARD => {}
            Some((_, programs_before)) => {
                let heard = by_programs();
                self.deaf = heard == programs_before;
                self.mark = Some((by_kernel, heard));
            }
            None => self.mark = Some((by_kernel, by_programs())),
        }
    }
}

/// Where the signals stand.
#[derive(Debug, Default)]
pub(super) struct Ladder {
    hearing: Hearing,
    sources: Option<[&'static str; 5]>,
    /// Why the PSI trigger is gone, or could not be had again.
    psi_lost: Option<String>,
}

impl Agent {
    /// Compares the kernel's own count of direct reclaims with what the programs heard.
    pub(super) fn check_hearing(&mut self, allocstall: Option<u64>) {
        let Some(allocstall) = allocstall.filter(|_| self.sensors.kernel.report().has(DIRECT_BEGIN)) else { return };
        let was_deaf = self.sensors.ladder.hearing.deaf;
        let kernel = &mut self.sensors.kernel;
        self.sensors.ladder.hearing.compare(allocstall, || {
            // Those that rang, and those that were held back because another had just rung.
            let accounts = kernel.accounts();
            accounts.of(EventKind::DirectReclaim).map_or(0, |account| account.generated + account.suppressed)
        });
        if self.sensors.ladder.hearing.deaf != was_deaf {
            self.climb();
        }
    }

    /// The PSI trigger's descriptor is of no more use.
    pub(super) fn lose_psi(&mut self, reason: String) {
        self.sensors.psi = None;
        self.sensors.ladder.psi_lost = Some(reason);
        self.tell_sources();
    }

    /// Registers the PSI trigger if it is needed and was lost or could not be had, and says where the signals stand now.
    pub(super) fn climb(&mut self) {
        if self.sensors.psi.is_none() && !self.facts().is_heard() {
            match PsiTrigger::register(&self.config.proc_root) {
                Ok(trigger) => {
                    self.sensors.psi = Some(trigger);
                    self.sensors.ladder.psi_lost = None;
                }
                Err(reason) => self.sensors.ladder.psi_lost = Some(reason),
            }
        }
        self.tell_sources();
    }

    /// Where each signal stands.
    pub(super) fn source_reports(&self) -> Vec<SourceReport> {
        let sources = self.facts().sources();
        SIGNALS.iter().zip(sources).map(|(signal, source)| SourceReport { signal, source }).collect()
    }

    /// One record for each signal whose source is not what it was.
    fn tell_sources(&mut self) {
        let sources = self.facts().sources();
        let before = self.sensors.ladder.sources.replace(sources);
        for ((signal, from), to) in SIGNALS.iter().zip(before.unwrap_or(sources)).zip(sources) {
            if from != to {
                let reason = self.sensors.ladder.reason(from, to);
                let record = Record::SourceChanged { signal, from, to, reason: &reason };
                self.reporter.report(&record, Monotonic::now());
            }
        }
    }

    /// The programs count reclaim stalls, and hear what there is to count.
    pub(super) fn counts_stalls(&self) -> bool {
        let facts = self.facts();
        facts.stalls && !facts.deaf
    }

    /// The programs count inodes, of one kind of filesystem at least.
    pub(super) fn counts_inodes(&self) -> bool {
        self.facts().inodes
    }

    fn facts(&self) -> Facts {
        let has = |name| self.sensors.kernel.report().has(name);
        Facts {
            rings: has(DIRECT_BEGIN) || has("vmscan:mm_vmscan_kswapd_wake"),
            stalls: has(DIRECT_BEGIN) && has("vmscan:mm_vmscan_direct_reclaim_end"),
            deaf: self.sensors.ladder.hearing.deaf,
            oom_kills: has("oom:mark_victim"),
            inodes: has("ext4:ext4_allocate_inode") || has("xfs:xfs_create"),
            oom_score_adj: has("oom:oom_score_adj_update"),
            psi_trigger: self.sensors.psi.is_some(),
            psi_figures: self.sensors.figures.knows_pressure(),
            kmsg: self.sensors.kills.source() == "kmsg",
            vmstat: self.sensors.figures.knows_vmstat(),
            filesystems: self.sensors.disks.knows_any(),
        }
    }
}

const DIRECT_BEGIN: &str = "vmscan:mm_vmscan_direct_reclaim_begin";

impl Facts {
    /// The programs are there and hear.
    fn is_heard(self) -> bool {
        self.rings && !self.deaf
    }
}

impl Ladder {
    fn reason(&self, from: &str, to: &str) -> String {
        match (from, to) {
            ("ebpf", _) if self.hearing.deaf => {
                format!("tasks entered direct reclaim {UNHEARD} times (/proc/vmstat), and the programs heard of none")
            }
            (_, "ebpf") => "the programs hear again what the kernel counts".to_owned(),
            ("psi", _) => self.psi_lost.clone().unwrap_or_else(|| "PSI cannot be read any more".to_owned()),
            (_, "psi") => "PSI can be had".to_owned(),
            (_, "none") => "nothing that counts it is left".to_owned(),
            _ => "what it rests on has changed".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Facts = Facts {
        rings: true,
        stalls: true,
        deaf: false,
        oom_kills: true,
        inodes: true,
        oom_score_adj: true,
        psi_trigger: true,
        psi_figures: true,
        kmsg: true,
        vmstat: true,
        filesystems: true,
    };
    const NO_EBPF: Facts =
        Facts { rings: false, stalls: false, oom_kills: false, inodes: false, oom_score_adj: false, ..ALL };

    #[test]
    fn the_first_rung_that_holds() {
        for (name, facts, expected) in [
            ("everything", ALL, ["ebpf"; 5]),
            ("no eBPF", NO_EBPF, ["psi", "psi", "kmsg", "polling", "polling"]),
            (
                "no eBPF, no PSI, no log",
                Facts { psi_trigger: false, psi_figures: false, kmsg: false, ..NO_EBPF },
                ["polling", "polling", "polling", "polling", "polling"],
            ),
            ("nothing", Facts::default(), ["polling", "none", "none", "none", "polling"]),
            ("deaf", Facts { deaf: true, ..ALL }, ["psi", "psi", "ebpf", "ebpf", "ebpf"]),
            (
                "no trigger, but figures",
                Facts { psi_trigger: false, deaf: true, ..ALL },
                ["polling", "psi", "ebpf", "ebpf", "ebpf"],
            ),
        ] {
            assert_eq!(facts.sources(), expected, "{name}");
        }
    }

    #[test]
    fn deaf_is_who_hears_nothing_of_much() {
        // The kernel's count, the programs', and whether they are deaf then.
        for (name, steps) in [
            ("hears all", &[(100, 0, false), (150, 50, false), (1000, 900, false)][..]),
            ("hears some: retries are counted by the kernel alone", &[(0, 0, false), (40, 20, false)]),
            ("little is no proof", &[(0, 0, false), (15, 0, false), (15, 0, false)]),
            ("little by little is", &[(0, 0, false), (10, 0, false), (16, 0, true)]),
            (
                "recovers, and not before there is something to hear",
                &[(0, 5, false), (20, 5, true), (25, 9, true), (40, 20, false)],
            ),
            ("stays deaf", &[(0, 5, false), (20, 5, true), (40, 5, true)]),
            ("the past counts for nothing", &[(1_000_000, 0, false), (1_000_003, 0, false)]),
        ] {
            let mut hearing = Hearing::default();
            for (by_kernel, by_programs, deaf) in steps {
                hearing.compare(*by_kernel, || *by_programs);
                assert_eq!(hearing.deaf, *deaf, "{name}: {by_kernel} {by_programs}");
            }
        }
    }

    #[test]
    fn a_change_has_its_reason() {
        let mut ladder = Ladder::default();
        assert!(ladder.reason("polling", "psi").contains("PSI can be had"));
        ladder.psi_lost = Some("the kernel has given up the PSI trigger".to_owned());
        assert!(ladder.reason("psi", "polling").contains("given up"));
        ladder.hearing.deaf = true;
        assert!(ladder.reason("ebpf", "psi").contains("heard of none"));
    }
}
