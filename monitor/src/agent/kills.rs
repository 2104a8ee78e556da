//! One stream of OOM kills, from whoever tells of them on this machine: the kernel's programs; where they do not tell whose limit
//! was hit, completed from the kernel's log; where they do not tell at all, the log; and at the very least the counters in files.

mod by_counters;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::{CgroupPath, Comm, EventKind, OomKill, ProbeReport};
use crate::node::kmsg::{self, Kmsg, OomReport, Pairing};
use crate::report::record::Record;
use crate::units::{CgroupId, Monotonic, Pid};
use crate::workloads::membership;

use self::by_counters::ByCounters;
use super::Agent;

/// Who tells of OOM kills.
#[derive(Debug)]
enum Witness {
    /// The kernel's programs tell everything.
    Programs,
    /// The programs; the log adds whose limit it was.
    ProgramsAndLog(Kmsg),
    /// The log alone.
    Log(Kmsg),
    /// Nobody: files tell how many there were.
    Nobody,
}

/// A log that is written to all the time must not keep the loop turning: it is read this often at most.
const READ_PAUSE: Duration = Duration::from_millis(10);

/// OOM kills on their way to being told.
#[derive(Debug)]
pub struct Kills {
    witness: Witness,
    pairing: Pairing<OomKill, OomReport>,
    reports: Vec<OomReport>,
    read: Option<Monotonic>,
    log_has_more: bool,
    /// Of the last kill that the log told of: those of its group share it.
    invoked_at_ns: u64,
    /// The counters in files were read once: what they say from then on is new.
    files_read: bool,
    /// What `/proc/vmstat` had counted before.
    counted_before: Option<u64>,
    attributed: u64,
    unattributed: Unattributed,
    by_counters: ByCounters<OomKill>,
}

impl Kills {
    /// Opens the log where the programs do not tell everything; it needs the runtime.
    #[must_use]
    pub fn open(probes: &ProbeReport, degradations: &mut Vec<String>) -> Self {
        let (tells, tells_all) = (probes.has("oom:mark_victim"), probes.has("kprobe:oom_kill_process"));
        let witness = match (tells, tells_all) {
            (true, true) => Witness::Programs,
            (true, false) => open_log(degradations, "whose limit was hit is not told")
                .map_or(Witness::Programs, Witness::ProgramsAndLog),
            (false, _) => open_log(degradations, "OOM kills are counted from files, and not told one by one")
                .map_or(Witness::Nobody, Witness::Log),
        };
        Self {
            witness,
            pairing: Pairing::default(),
            reports: Vec::new(),
            read: None,
            log_has_more: false,
            invoked_at_ns: 0,
            files_read: false,
            counted_before: None,
            attributed: 0,
            unattributed: Unattributed::default(),
            by_counters: ByCounters::default(),
        }
    }

    /// Who tells of OOM kills: `ebpf`, `kmsg` or `polling`.
    #[must_use]
    pub fn source(&self) -> &'static str {
        match self.witness {
            Witness::Programs | Witness::ProgramsAndLog(_) => "ebpf",
            Witness::Log(_) => "kmsg",
            Witness::Nobody => "polling",
        }
    }

    /// Returns when the log has something to read; never, where it is not needed. Cancel-safe.
    pub(super) async fn readable(&self) {
        let Some(log) = self.log() else { return std::future::pending().await };
        let since = self.read.map(|read| Monotonic::now().since(read));
        if let Some(pause) = since.and_then(|since| READ_PAUSE.checked_sub(since)) {
            tokio::time::sleep(pause).await;
        }
        if !self.log_has_more {
            log.readable().await;
        }
    }

    /// How long until a kill is told that waits for the log, or for the counters.
    pub(super) fn due(&self, now: Monotonic) -> Option<Duration> {
        self.pairing.due(now).into_iter().chain(self.by_counters.due(now)).min()
    }

    fn log(&self) -> Option<&Kmsg> {
        match &self.witness {
            Witness::ProgramsAndLog(log) | Witness::Log(log) => Some(log),
            Witness::Programs | Witness::Nobody => None,
        }
    }

    fn read_log(&mut self) {
        if let Witness::ProgramsAndLog(log) | Witness::Log(log) = &mut self.witness {
            self.log_has_more = log.read(&mut self.reports);
            self.read = Some(Monotonic::now());
        }
    }
}

fn open_log(degradations: &mut Vec<String>, consequence: &str) -> Option<Kmsg> {
    let opened = Kmsg::open(Path::new(kmsg::PATH));
    opened.map_err(|reason| degradations.push(format!("OOM kills in the kernel's log: {reason}; {consequence}"))).ok()
}

impl Agent {
    /// Puts the kills that are ready to be told into `kills`, which are those that the programs streamed.
    pub(super) fn settle_kills(&mut self, kills: &mut Vec<OomKill>) {
        if matches!(self.sensors.kills.witness, Witness::Programs) {
            return;
        }
        self.sensors.kills.read_log();
        let now = Monotonic::now();
        let mut reports = std::mem::take(&mut self.sensors.kills.reports);
        if matches!(self.sensors.kills.witness, Witness::Log(_)) {
            for report in reports.drain(..) {
                kills.push(self.kill_of_report(&report, now));
            }
        }
        for report in reports.drain(..) {
            self.sensors.kills.pairing.report(report.victim_pid, report, now);
        }
        self.sensors.kills.reports = reports;
        if matches!(self.sensors.kills.witness, Witness::ProgramsAndLog(_)) {
            for kill in kills.drain(..) {
                self.sensors.kills.pairing.kill(kill.victim_pid, kill, now);
            }
            while let Some((mut kill, report)) = self.sensors.kills.pairing.next(now) {
                if let Some(report) = report {
                    self.complete(&mut kill, &report);
                }
                kills.push(kill);
            }
        }
    }

    /// The log adds what the programs could not tell.
    fn complete(&self, kill: &mut OomKill, report: &OomReport) {
        kill.constraint = kill.constraint.or(report.constraint);
        kill.order = kill.order.or(report.order);
        let limit = || report.limit_cgroup.as_deref().and_then(|path| self.cgroup_id(path));
        kill.limit_cgroup = kill.limit_cgroup.or_else(limit);
    }

    /// A kill that only the log tells of.
    fn kill_of_report(&mut self, report: &OomReport, now: Monotonic) -> OomKill {
        if !report.of_group {
            self.sensors.kills.invoked_at_ns = now.0.max(self.sensors.kills.invoked_at_ns + 1);
        }
        // Where the report was held back, the victim may still be there to be asked.
        let victim = report.victim_cgroup.clone().or_else(|| self.cgroup_of(report.victim_pid));
        let trigger_tid = report.trigger_tid.unwrap_or_default();
        let is_own = trigger_tid == report.victim_pid;
        let trigger = if is_own { victim.clone() } else { self.cgroup_of(trigger_tid) };
        let id = |path: &Option<String>| path.as_deref().and_then(|path| self.cgroup_id(path));
        OomKill {
            at_ns: now.0,
            marked_at_ns: now.0,
            invoked_at_ns: Some(self.sensors.kills.invoked_at_ns),
            started_at_ns: None,
            constraint: report.constraint,
            limit_cgroup: id(&report.limit_cgroup),
            order: report.order,
            victim_pid: report.victim_pid,
            victim_comm: Some(comm(&report.victim_comm)),
            victim_cgroup: id(&victim),
            victim_path: victim.as_deref().map(|path| self.cgroup_path(path)),
            uid: report.uid,
            total_vm: report.total_vm,
            anon_rss: report.anon_rss,
            file_rss: report.file_rss,
            shmem_rss: report.shmem_rss,
            pgtables: report.pgtables,
            oom_score_adj: report.oom_score_adj,
            trigger_pid: self.process_of(trigger_tid).unwrap_or(trigger_tid),
            trigger_tid,
            trigger_comm: report.trigger_comm.as_deref().map(comm).unwrap_or_default(),
            trigger_cgroup: id(&trigger).unwrap_or_default(),
        }
    }

    /// Where a task lives that may be exiting; nothing where that is not known for sure.
    fn cgroup_of(&self, pid: Pid) -> Option<String> {
        let version = self.sensors.tree.hierarchy().version;
        (pid.0 > 0).then(|| membership::of_exiting(&self.config.proc_root, pid, version)).flatten()
    }

    /// The process of a thread.
    fn process_of(&self, tid: Pid) -> Option<Pid> {
        let status = std::fs::read_to_string(self.config.proc_root.join(tid.0.to_string()).join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
        line.trim().parse().ok().map(Pid)
    }

    /// The id of the cgroup at `path`, while it is there.
    fn cgroup_id(&self, path: &str) -> Option<CgroupId> {
        let directory = self.sensors.tree.hierarchy().memory.join(path.trim_start_matches('/'));
        std::fs::metadata(directory).ok().map(|metadata| CgroupId(metadata.ino()))
    }

    fn cgroup_path(&self, path: &str) -> CgroupPath {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let level = |end| {
            let above: &str = path.get(..end)?;
            let id = self.cgroup_id(above).unwrap_or_default();
            Some((id, above.rsplit('/').next().unwrap_or(above)))
        };
        let levels: Vec<_> = ends.filter_map(level).filter(|(_, name)| !name.is_empty()).collect();
        CgroupPath::new(&levels, false)
    }

    /// Counts a kill that is told, and whether its workload is known; where no program counts, the workload's counter too.
    pub(super) fn count_kill(&mut self, workload: Option<&str>) {
        self.sensors.kills.attributed += u64::from(workload.is_some());
        if matches!(self.sensors.kills.witness, Witness::Log(_)) {
            let workload = workload.unwrap_or(crate::report::record::NO_WORKLOAD).to_owned();
            self.with_metrics(|metrics| metrics.oom_kills_of(&workload, 1));
        }
    }

    /// Tells of a kill, unless the log left out whose it was: that is looked for in the workloads' counters first.
    pub(super) fn tell_or_hold(&mut self, kill: OomKill, now: Monotonic) {
        if matches!(self.sensors.kills.witness, Witness::Log(_)) {
            let workload = self.victim_place(&kill).workload;
            self.sensors.kills.by_counters.logged(workload.as_deref());
            if workload.is_none() {
                self.sensors.kills.by_counters.hold(kill, Monotonic::now());
                return;
            }
        }
        self.report_oom_kill(&kill, None, now);
    }

    /// Tells of the kills that were held, and whose they were if the counters can tell.
    pub(super) fn tell_held(&mut self, now: Monotonic) {
        if self.sensors.kills.by_counters.due(Monotonic::now()).is_some_and(|left| left.is_zero()) {
            self.read_oom_counters(now);
        }
    }

    /// Reads the workloads' counters, which the next kill without a cgroup is to be compared with.
    pub(super) fn note_oom_counters(&mut self) {
        if matches!(self.sensors.kills.witness, Witness::Log(_)) {
            self.read_oom_counters(Monotonic::now());
        }
    }

    fn read_oom_counters(&mut self, now: Monotonic) {
        let started = Monotonic::now();
        // What was not there before has counted nobody knows what: its kills are not new.
        let risen = self.sensors.tree.new_oom_kills(true);
        let total = self.counted_oom_kills();
        let (held, workload) = self.sensors.kills.by_counters.compare(risen, total, started, Monotonic::now());
        let workload: Option<Arc<str>> = workload.map(Into::into);
        for kill in held {
            self.report_oom_kill(&kill, workload.clone(), now);
        }
    }

    /// Compares what was told with what the kernel counted; reads files: for the report only.
    pub(super) fn balance_kills(&mut self) {
        if matches!(self.sensors.kills.witness, Witness::Nobody) {
            self.count_kills_in_files();
        }
        // Linux 4.13.
        let Some(counted) = self.counted_oom_kills() else { return };
        let before = *self.sensors.kills.counted_before.get_or_insert(counted);
        // What the ring had no room for is in the counters by workload all the same.
        let accounts = self.sensors.kernel.accounts();
        let lost = accounts.events.iter().find(|account| account.kind == EventKind::OomKill);
        let known = self.sensors.kills.attributed + lost.map_or(0, |account| account.lost);
        let unattributed =
            self.sensors.kills.unattributed.update(counted.saturating_sub(before), known, Monotonic::now());
        let log_lost = self.sensors.kills.log().map_or(0, Kmsg::lost);
        self.with_metrics(|metrics| metrics.unaccounted(unattributed, log_lost));
    }

    fn count_kills_in_files(&mut self) {
        // What nobody has seen has no counter to be compared.
        self.scan_if_old();
        let first = !std::mem::replace(&mut self.sensors.kills.files_read, true);
        for (workload, kills) in self.sensors.tree.new_oom_kills(first) {
            self.sensors.kills.attributed += kills;
            let record = Record::OomKillsCounted { workload: &workload, kills };
            self.reporter.report(&record, Monotonic::now());
        }
    }
}

fn comm(name: &str) -> Comm {
    let mut comm = Comm::default();
    // The last byte stays zero, as the kernel has it.
    let room = comm.0.len() - 1;
    comm.0.iter_mut().take(room).zip(name.bytes()).for_each(|(byte, of_name)| *byte = of_name);
    comm
}

/// Kills that the kernel counted and nobody told of. Counting comes before telling, so only what stays counts.
#[derive(Debug, Default)]
struct Unattributed {
    settled: u64,
    /// More than that since then, and by how much at least.
    growing: Option<(Monotonic, u64)>,
}

/// Longer than any victim takes to exit and be told of.
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
    fn only_what_stays_untold_is_unattributed() {
        let mut unattributed = Unattributed::default();
        let mut at =
            |seconds: u64, counted, known| unattributed.update(counted, known, Monotonic(seconds * 1_000_000_000));
        assert_eq!(at(0, 0, 0), 0);
        assert_eq!(at(1, 5, 3), 0, "two are on their way");
        assert_eq!(at(5, 6, 5), 0, "one of them came");
        assert_eq!(at(11, 9, 5), 1, "one did not");
        assert_eq!(at(12, 9, 5), 1);
        assert_eq!(at(30, 9, 8), 1, "the others came late");
        assert_eq!(at(60, 9, 9), 1, "never backwards");
        assert_eq!(at(90, 9, 20), 1);
    }

    #[test]
    fn names_are_cut_as_the_kernel_cuts_them() {
        assert_eq!(comm("a-name-that-is-too-long").to_string(), "a-name-that-is-");
        assert_eq!(comm("sh").to_string(), "sh");
    }
}
