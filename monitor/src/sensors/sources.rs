//! The source of each signal: eBPF, else PSI, else the kernel log, else polling, else none. The next source replaces a lost one.

use std::path::{Path, PathBuf};

use crate::node::psi_trigger::PsiTrigger;

/// The programs miss events if `/proc/vmstat` counts this many direct reclaims and the programs have seen none. A single event
/// may be delayed.
const UNSEEN: u64 = 16;

/// The signals, by their names in metrics and logs.
const SIGNALS: [&str; 5] = ["memory.available", "reclaim_stalls", "oom_kills", "inodes", "oom_score_adj"];

/// The facts that the choice of sources depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Facts {
    /// The programs wake the loop when memory is short: direct reclaim begins, or kswapd wakes.
    pub(super) wakes: bool,
    /// The programs count reclaim stalls.
    pub(super) stalls: bool,
    /// The programs are attached, but do not see what the kernel counts.
    pub(super) misses_events: bool,
    /// The programs send OOM kills.
    pub(super) oom_kills: bool,
    /// The programs count inodes on at least one type of filesystem.
    pub(super) inodes: bool,
    /// The programs send writes to `oom_score_adj`.
    pub(super) oom_score_adj: bool,
    pub(super) psi_trigger: bool,
    /// PSI of the whole system can be read.
    pub(super) psi_figures: bool,
    /// OOM kills are read from the kernel's log.
    pub(super) kmsg: bool,
    /// `/proc/vmstat` can be read.
    pub(super) vmstat: bool,
    /// A filesystem counts its inodes.
    pub(super) filesystems: bool,
}

impl Facts {
    /// Returns the source of each signal, in the order of [`SIGNALS`].
    fn sources(self) -> [&'static str; 5] {
        let first = |sources: &[(bool, &'static str)]| {
            sources.iter().find(|(holds, _)| *holds).map_or("none", |(_, source)| source)
        };
        [
            first(&[(self.wakes && !self.misses_events, "ebpf"), (self.psi_trigger, "psi"), (true, "polling")]),
            first(&[(self.stalls && !self.misses_events, "ebpf"), (self.psi_figures, "psi"), (self.vmstat, "polling")]),
            first(&[(self.oom_kills, "ebpf"), (self.kmsg, "kmsg"), (self.vmstat, "polling")]),
            first(&[(self.inodes, "ebpf"), (self.filesystems, "polling")]),
            // Without events of writes, the agent audits all processes periodically.
            first(&[(self.oom_score_adj, "ebpf"), (true, "polling")]),
        ]
    }

    /// Returns whether the programs wake the loop.
    fn are_programs_enough(self) -> bool {
        self.wakes && !self.misses_events
    }
}

/// The comparison that shows whether the programs see what the kernel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Comparison {
    /// The counts of the kernel and of the programs at the last comparison.
    mark: Option<(u64, u64)>,
    misses_events: bool,
}

impl Comparison {
    /// Compares the kernel's count of direct reclaims with that of the programs. The latter is read only when the kernel's count
    /// has risen enough.
    fn compare(&mut self, by_kernel: u64, by_programs: impl FnOnce() -> u64) {
        match self.mark {
            Some((kernel_before, _)) if by_kernel.saturating_sub(kernel_before) < UNSEEN => {}
            Some((_, programs_before)) => {
                let seen = by_programs();
                self.misses_events = seen == programs_before;
                self.mark = Some((by_kernel, seen));
            }
            None => self.mark = Some((by_kernel, by_programs())),
        }
    }
}

/// A signal that has another source now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceChange {
    pub signal: &'static str,
    pub from: &'static str,
    pub to: &'static str,
    pub reason: String,
}

/// The sources in use, and the PSI trigger, which is registered while the programs alone are not enough.
#[derive(Debug)]
pub struct Sources {
    proc_root: PathBuf,
    psi: Option<PsiTrigger>,
    /// The reason why the PSI trigger was lost, or cannot be registered again.
    psi_lost: Option<String>,
    comparison: Comparison,
    current: Option<[&'static str; 5]>,
    changes: Vec<SourceChange>,
}

impl Sources {
    pub fn new(psi: Option<PsiTrigger>, proc_root: &Path) -> Self {
        let (comparison, proc_root) = (Comparison::default(), proc_root.to_owned());
        Self { proc_root, psi, psi_lost: None, comparison, current: None, changes: Vec::new() }
    }

    /// Returns when the PSI trigger fires, or the reason why it is lost. Never returns without a trigger. Cancel-safe.
    ///
    /// # Errors
    /// When the trigger has become useless.
    pub async fn psi_fired(&self) -> Result<(), String> {
        match &self.psi {
            Some(psi) => psi.fired().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn lose_psi(&mut self, reason: String) {
        (self.psi, self.psi_lost) = (None, Some(reason));
    }

    /// Registers the PSI trigger if it is needed and missing.
    pub(super) fn restore_psi(&mut self, facts: Facts) {
        if self.psi.is_none() && !facts.are_programs_enough() {
            match PsiTrigger::register(&self.proc_root) {
                Ok(trigger) => (self.psi, self.psi_lost) = (Some(trigger), None),
                Err(reason) => self.psi_lost = Some(reason),
            }
        }
    }

    pub(super) fn has_psi(&self) -> bool {
        self.psi.is_some()
    }

    pub(super) fn misses_events(&self) -> bool {
        self.comparison.misses_events
    }

    /// Compares the kernel's count of direct reclaims with that of the programs. Returns whether the programs have begun
    /// or ceased to miss events.
    pub(super) fn compare(&mut self, by_kernel: u64, by_programs: impl FnOnce() -> u64) -> bool {
        let did_miss = self.comparison.misses_events;
        self.comparison.compare(by_kernel, by_programs);
        self.comparison.misses_events != did_miss
    }

    pub(super) fn update(&mut self, facts: Facts) {
        let sources = facts.sources();
        let before = self.current.replace(sources).unwrap_or(sources);
        for ((signal, from), to) in SIGNALS.into_iter().zip(before).zip(sources).filter(|((_, from), to)| from != to) {
            self.changes.push(SourceChange { signal, from, to, reason: self.reason(from, to) });
        }
    }

    /// Returns the changes since the last call.
    pub fn take_changes(&mut self) -> Vec<SourceChange> {
        std::mem::take(&mut self.changes)
    }

    fn reason(&self, from: &str, to: &str) -> String {
        match (from, to) {
            ("ebpf", _) if self.comparison.misses_events => {
                format!("tasks entered direct reclaim {UNSEEN} times (/proc/vmstat), and the programs saw none")
            }
            (_, "ebpf") => "the programs see again what the kernel counts".to_owned(),
            ("psi", _) => self.psi_lost.clone().unwrap_or_else(|| "PSI cannot be read any more".to_owned()),
            (_, "psi") => "PSI is available".to_owned(),
            (_, "none") => "no source is left".to_owned(),
            _ => "the sources that are available have changed".to_owned(),
        }
    }
}

/// Returns each signal, by its name in metrics, with its source.
pub(super) fn reports(facts: Facts) -> Vec<(&'static str, &'static str)> {
    SIGNALS.into_iter().zip(facts.sources()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Facts = Facts {
        wakes: true,
        stalls: true,
        misses_events: false,
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
        Facts { wakes: false, stalls: false, oom_kills: false, inodes: false, oom_score_adj: false, ..ALL };

    #[test]
    fn each_signal_uses_the_best_available_source() {
        for (name, facts, expected) in [
            ("everything", ALL, ["ebpf"; 5]),
            ("no eBPF", NO_EBPF, ["psi", "psi", "kmsg", "polling", "polling"]),
            (
                "no eBPF, no PSI, no log",
                Facts { psi_trigger: false, psi_figures: false, kmsg: false, ..NO_EBPF },
                ["polling", "polling", "polling", "polling", "polling"],
            ),
            ("nothing", Facts::default(), ["polling", "none", "none", "none", "polling"]),
            ("missed events", Facts { misses_events: true, ..ALL }, ["psi", "psi", "ebpf", "ebpf", "ebpf"]),
            (
                "no trigger, but figures",
                Facts { psi_trigger: false, misses_events: true, ..ALL },
                ["polling", "psi", "ebpf", "ebpf", "ebpf"],
            ),
        ] {
            assert_eq!(facts.sources(), expected, "{name}");
        }
    }

    #[test]
    fn programs_that_see_none_of_many_reclaims_miss_events() {
        // The kernel's count, the programs' count, and whether the programs then miss events.
        for (name, steps) in [
            ("sees all", &[(100, 0, false), (150, 50, false), (1000, 900, false)][..]),
            ("sees some: retries are counted by the kernel alone", &[(0, 0, false), (40, 20, false)]),
            ("little is no proof", &[(0, 0, false), (15, 0, false), (15, 0, false)]),
            ("little by little is", &[(0, 0, false), (10, 0, false), (16, 0, true)]),
            (
                "recovers, and not before there is an event to see",
                &[(0, 5, false), (20, 5, true), (25, 9, true), (40, 20, false)],
            ),
            ("misses events for good", &[(0, 5, false), (20, 5, true), (40, 5, true)]),
            ("the past counts for nothing", &[(1_000_000, 0, false), (1_000_003, 0, false)]),
        ] {
            let mut comparison = Comparison::default();
            for (by_kernel, by_programs, misses_events) in steps {
                comparison.compare(*by_kernel, || *by_programs);
                assert_eq!(comparison.misses_events, *misses_events, "{name}: {by_kernel} {by_programs}");
            }
        }
    }

    fn sources() -> Sources {
        Sources::new(None, Path::new("/nonexistent"))
    }

    #[test]
    fn a_change_of_source_has_a_reason() {
        let mut sources = sources();
        assert!(sources.reason("polling", "psi").contains("PSI is available"));
        sources.psi_lost = Some("the kernel has given up the PSI trigger".to_owned());
        assert!(sources.reason("psi", "polling").contains("given up"));
        sources.comparison.misses_events = true;
        assert!(sources.reason("ebpf", "psi").contains("saw none"));
    }

    #[test]
    fn a_change_of_source_is_reported_once() {
        let mut sources = sources();
        sources.update(ALL);
        assert_eq!(sources.take_changes(), [], "the first sources are not a change");
        let no_kmsg = Facts { oom_kills: false, kmsg: false, ..ALL };
        sources.update(no_kmsg);
        sources.update(no_kmsg);
        let [change] = sources.take_changes().try_into().unwrap();
        assert_eq!((change.signal, change.from, change.to), ("oom_kills", "ebpf", "polling"));
        sources.restore_psi(NO_EBPF);
        assert!(!sources.has_psi() && sources.psi_lost.is_some(), "there is no such file");
    }
}
