//! One stream of OOM kills from the best source on this machine: the eBPF programs; the programs with the kernel's log, which has
//! the cgroup whose limit was hit; the log alone; or the counters in files, which have only the number of kills.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::{OomConstraint, OomKill, ProbeReport};
use crate::node::Hierarchy;
use crate::node::kmsg::{self, Kmsg, OomReport, Pairing};
use crate::node::pods_memory::cgroup_of_all_pods;
use crate::units::Monotonic;
use crate::workloads::WorkloadTree;

use super::oom_counters::ByCounters;
use super::oom_log_lookup::Lookup;

#[derive(Debug)]
enum Origin {
    /// The eBPF programs send all fields.
    Programs,
    /// The eBPF programs send kills. The log has the cgroup whose limit was hit.
    ProgramsAndLog(Kmsg),
    Log(Kmsg),
    /// Files have only the number of kills.
    Counters,
}

/// The shortest time between two reads of the log. A process that writes to the log all the time cannot keep the loop busy.
const LOG_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub struct OomKills {
    proc_root: PathBuf,
    origin: Origin,
    pairing: Pairing<OomKill, OomReport>,
    log: LogReading,
    by_counters: ByCounters<OomKill>,
    balance: Balance,
    /// When a kill was last reported that no limit of a cgroup caused.
    of_node: Option<Monotonic>,
    /// When a kill was last reported that the limit of all pods together caused.
    of_pods: Option<Monotonic>,
}

#[derive(Debug, Default)]
struct LogReading {
    reports: Vec<OomReport>,
    at: Option<Monotonic>,
    has_more: bool,
    /// The time of the last kill in the log, shared by the kills of its group.
    invoked_at_ns: u64,
}

/// Kills after the comparison with the counters, and their common workload if it is certain.
pub type Attributed = (Vec<OomKill>, Option<Arc<str>>);

/// The comparison of reported kills with the kernel's own count.
#[derive(Debug, PartialEq, Eq)]
pub struct OomBalance {
    /// Kills that the kernel counted and no source reported.
    pub unattributed: u64,
    /// Log messages that were overwritten before they were read.
    pub log_lost: u64,
}

impl OomKills {
    /// Opens the log if the programs do not send all fields. Must run inside the async runtime. A failure is added to
    /// `degradations`.
    pub fn open(probes: &ProbeReport, proc_root: &Path, degradations: &mut Vec<String>) -> Self {
        let (sends, sends_all) = (probes.has("oom:mark_victim"), probes.has("kprobe:oom_kill_process"));
        let origin = match (sends, sends_all) {
            (true, true) => Origin::Programs,
            (true, false) => open_log(degradations, "the cgroup whose limit was hit is not known")
                .map_or(Origin::Programs, Origin::ProgramsAndLog),
            (false, _) => open_log(degradations, "OOM kills are counted from files, and not reported one by one")
                .map_or(Origin::Counters, Origin::Log),
        };
        Self {
            proc_root: proc_root.to_owned(),
            origin,
            pairing: Pairing::default(),
            log: LogReading::default(),
            by_counters: ByCounters::default(),
            balance: Balance::default(),
            of_node: None,
            of_pods: None,
        }
    }

    /// Returns the name of the source: `ebpf`, `kmsg` or `polling`.
    pub fn source(&self) -> &'static str {
        match self.origin {
            Origin::Programs | Origin::ProgramsAndLog(_) => "ebpf",
            Origin::Log(_) => "kmsg",
            Origin::Counters => "polling",
        }
    }

    /// Returns whether the log is the only source of kills. It may omit the victim's cgroup.
    pub fn is_by_log(&self) -> bool {
        matches!(self.origin, Origin::Log(_))
    }

    /// Returns when the log has something to read. Never returns where the log is not needed. Cancel-safe.
    pub async fn readable(&self) {
        let Some(log) = self.kmsg() else { return std::future::pending().await };
        let since = self.log.at.map(|read| Monotonic::now().since(read));
        if let Some(pause) = since.and_then(|since| LOG_EVERY.checked_sub(since)) {
            tokio::time::sleep(pause).await;
        }
        if !self.log.has_more {
            log.readable().await;
        }
    }

    /// Returns how long until a held kill is to be reported.
    pub fn until_due(&self, now: Monotonic) -> Option<Duration> {
        self.pairing.due(now).into_iter().chain(self.by_counters.due(now)).min()
    }

    fn kmsg(&self) -> Option<&Kmsg> {
        match &self.origin {
            Origin::ProgramsAndLog(log) | Origin::Log(log) => Some(log),
            Origin::Programs | Origin::Counters => None,
        }
    }

    /// Reads the log. Replaces `kills`, which the programs sent, by the kills that are complete.
    pub(super) fn settle(&mut self, kills: &mut Vec<OomKill>, hierarchy: &Hierarchy, now: Monotonic) {
        if let Origin::ProgramsAndLog(log) | Origin::Log(log) = &mut self.origin {
            self.log.has_more = log.read(&mut self.log.reports);
            self.log.at = Some(now);
        }
        let lookup = Lookup { proc_root: &self.proc_root, hierarchy };
        match self.origin {
            Origin::Programs | Origin::Counters => {}
            Origin::Log(_) => {
                for report in self.log.reports.drain(..) {
                    if !report.of_group {
                        self.log.invoked_at_ns = now.0.max(self.log.invoked_at_ns + 1);
                    }
                    kills.push(lookup.kill(&report, self.log.invoked_at_ns, now));
                }
            }
            Origin::ProgramsAndLog(_) => {
                for report in self.log.reports.drain(..) {
                    self.pairing.report(report.victim_pid, report, now);
                }
                for kill in kills.drain(..) {
                    self.pairing.kill(kill.victim_pid, kill, now);
                }
                while let Some((mut kill, report)) = self.pairing.next(now) {
                    if let Some(report) = report {
                        lookup.complete(&mut kill, &report);
                    }
                    kills.push(kill);
                }
            }
        }
        // Without a constraint the kill may be for a cgroup's limit.
        if kills.iter().any(|kill| kill.constraint == Some(OomConstraint::None)) {
            self.of_node = Some(now);
        }
        let mut limits = kills.iter().filter_map(|kill| kill.limit_cgroup).peekable();
        if limits.peek().is_some() {
            let pods = cgroup_of_all_pods(hierarchy);
            self.of_pods = limits.any(|limit| Some(limit) == pods).then_some(now).or(self.of_pods);
        }
    }

    /// Returns when the OOM killer last acted because the node had no memory left, if the agent saw it.
    pub fn last_of_node(&self) -> Option<Monotonic> {
        self.of_node
    }

    /// Returns when the OOM killer last acted because all pods together had reached their limit, if the agent saw it.
    pub fn last_of_pods(&self) -> Option<Monotonic> {
        self.of_pods
    }

    /// Returns the kill if it is to be reported now. Holds a kill of the log without a `workload` until the workloads' counters
    /// are compared.
    pub fn report_or_hold(&mut self, kill: OomKill, workload: Option<&str>, now: Monotonic) -> Option<OomKill> {
        if !self.is_by_log() {
            return Some(kill);
        }
        self.by_counters.logged(workload);
        if workload.is_none() {
            self.by_counters.hold(kill, now);
            return None;
        }
        Some(kill)
    }

    pub fn count(&mut self, is_attributed: bool) {
        self.balance.attributed += u64::from(is_attributed);
    }

    /// Returns whether held kills are to be compared with the counters now.
    pub(super) fn is_comparison_due(&self, now: Monotonic) -> bool {
        self.by_counters.due(now).is_some_and(|left| left.is_zero())
    }

    /// Compares a reading of the counters that began at `started`: the rise of each workload's counter, then the kernel's count
    /// of all kills. Returns the held kills that are to be reported now. The end of the reading gets its time here.
    pub(super) fn compare(&mut self, risen: Vec<(String, u64)>, total: Option<u64>, started: Monotonic) -> Attributed {
        let (held, workload) = self.by_counters.compare(risen, total, started, Monotonic::now());
        (held, workload.map(Into::into))
    }

    /// Returns whether the counters in files are the only source of kills.
    pub(super) fn is_by_counters(&self) -> bool {
        matches!(self.origin, Origin::Counters)
    }

    /// Returns the rise of each workload's counter in files since the last call; nothing at the first call.
    pub(super) fn count_in_files(&mut self, tree: &mut WorkloadTree) -> Vec<(String, u64)> {
        let is_first = !std::mem::replace(&mut self.balance.files_read, true);
        let risen = tree.new_oom_kills(is_first);
        self.balance.attributed += risen.iter().map(|(_, kills)| kills).sum::<u64>();
        risen
    }

    /// Compares the reported kills with the kernel's count. `ring_lost` kills were counted by workload, although the ring buffer
    /// had no room for them.
    pub(super) fn balance(&mut self, counted: u64, ring_lost: u64, now: Monotonic) -> OomBalance {
        let unattributed = self.balance.update(counted, ring_lost, now);
        OomBalance { unattributed, log_lost: self.kmsg().map_or(0, Kmsg::lost) }
    }
}

fn open_log(degradations: &mut Vec<String>, consequence: &str) -> Option<Kmsg> {
    let opened = Kmsg::open(Path::new(kmsg::PATH));
    opened.map_err(|reason| degradations.push(format!("OOM kills in the kernel's log: {reason}; {consequence}"))).ok()
}

/// The reported kills, compared with the kernel's count since the first comparison.
#[derive(Debug, Default)]
struct Balance {
    /// The kernel's count at the first comparison.
    before: Option<u64>,
    attributed: u64,
    /// The counters in files have been read at least once.
    files_read: bool,
    unattributed: Unattributed,
}

impl Balance {
    fn update(&mut self, counted: u64, ring_lost: u64, now: Monotonic) -> u64 {
        let before = *self.before.get_or_insert(counted);
        self.unattributed.update(counted.saturating_sub(before), self.attributed + ring_lost, now)
    }
}

/// Kills that the kernel counted and no source reported. The kernel counts a kill before a source reports it, so a kill counts as
/// unattributed only after some time.
#[derive(Debug, Default)]
struct Unattributed {
    settled: u64,
    /// Since when more kills than that are missing, and the smallest number that was missing since.
    growing: Option<(Monotonic, u64)>,
}

/// The time within which every victim exits and is reported.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

impl Unattributed {
    fn update(&mut self, counted: u64, known: u64, now: Monotonic) -> u64 {
        let missing = counted.saturating_sub(known);
        if missing <= self.settled {
            self.growing = None;
            return self.settled;
        }
        let (since, least) = *self.growing.get_or_insert((now, missing));
        let least = least.min(missing);
        self.growing = Some((since, least));
        if now.since(since) >= SETTLED_AFTER {
            self.settled = least;
            self.growing = None;
        }
        self.settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kills_that_stay_unreported_are_unattributed() {
        let mut unattributed = Unattributed::default();
        let mut at =
            |seconds: u64, counted, known| unattributed.update(counted, known, Monotonic(seconds * 1_000_000_000));
        assert_eq!(at(0, 0, 0), 0);
        assert_eq!(at(1, 5, 3), 0, "two are not reported yet");
        assert_eq!(at(5, 6, 5), 0, "one of them is reported");
        assert_eq!(at(11, 9, 5), 1, "one is not reported");
        assert_eq!(at(12, 9, 5), 1);
        assert_eq!(at(30, 9, 8), 1, "the others are reported late");
        assert_eq!(at(60, 9, 9), 1, "never backwards");
        assert_eq!(at(90, 9, 20), 1);
    }

    #[test]
    fn kills_before_the_first_comparison_and_lost_ones_are_not_unattributed() {
        let mut balance = Balance::default();
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        assert_eq!(balance.update(100, 0, at(0)), 0);
        balance.attributed = 2;
        for seconds in [1, 20] {
            assert_eq!(balance.update(103, 1, at(seconds)), 0, "two reported, one lost by the ring");
        }
    }
}
