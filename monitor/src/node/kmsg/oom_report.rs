//! Parses what the OOM killer writes to the kernel's log. Pure: takes lines, returns kills.
//!
//! One invocation writes, in this order and under one lock: the task that invoked it; a stack with the task's pid; since Linux 5.0 a line
//! `oom-kill:constraint=…`, before that `Task in … killed as a result of limit of …`; and `Killed process …`. The kernel rate-limits all
//! lines but the last, so during a storm of kills the last line may stand alone.

use std::collections::VecDeque;

use crate::kernel::OomConstraint;
use crate::units::{Bytes, Pid};

/// An OOM kill; fields that the log lacks are absent. Cgroups are paths in the memory hierarchy, without the leading slash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OomReport {
    /// The victim, or the thread of the victim that the OOM killer chose.
    pub victim_pid: Pid,
    pub victim_comm: String,
    pub victim_cgroup: Option<String>,
    pub uid: Option<u32>,
    pub total_vm: Option<Bytes>,
    pub anon_rss: Option<Bytes>,
    pub file_rss: Option<Bytes>,
    pub shmem_rss: Option<Bytes>,
    pub pgtables: Option<Bytes>,
    pub oom_score_adj: Option<i32>,
    /// The thread whose allocation invoked the OOM killer.
    pub trigger_tid: Option<Pid>,
    pub trigger_comm: Option<String>,
    /// The size of the allocation: two to this power pages.
    pub order: Option<i32>,
    pub constraint: Option<OomConstraint>,
    /// The cgroup whose limit was reached.
    pub limit_cgroup: Option<String>,
    /// Whether the process was killed along with the victim because of `memory.oom.group`.
    pub of_group: bool,
}

/// The lines of one invocation so far.
#[derive(Debug, Clone, Default)]
struct Invocation {
    trigger_tid: Option<Pid>,
    trigger_comm: Option<String>,
    order: Option<i32>,
    constraint: Option<OomConstraint>,
    limit_cgroup: Option<String>,
    victim: Option<Pid>,
    victim_cgroup: Option<String>,
    /// The part read so far. The kernel prints the summary piece by piece, and a line of another CPU may interrupt it.
    summary: Option<String>,
}

/// The kernel's rate limit on reports (`oom_rs` in `mm/oom_kill.c`), from which the last line is exempt.
const REPORTS: usize = 10;
const REPORTS_WITHIN_US: u64 = 5_000_000;

/// A summary has at most three paths.
const LONGEST_SUMMARY: usize = 4 * 4096;

#[derive(Debug, Default)]
pub struct OomLog {
    /// The invocation that has not killed yet.
    open: Option<Invocation>,
    /// The invocation of the last kill, which the kills because of `memory.oom.group` follow.
    last: Invocation,
    in_group: bool,
    /// The times of the last reports, in the log's microseconds.
    reported: VecDeque<u64>,
}

impl OomLog {
    /// Parses one line, logged at `at_us`. Returns the kill that the line completes.
    pub fn line(&mut self, at_us: u64, line: &str) -> Option<OomReport> {
        if let Some((comm, rest)) = line.rsplit_once(" invoked oom-killer:") {
            self.begin(at_us);
            let open = self.opened();
            open.trigger_comm = Some(comm.to_owned());
            open.order = field(rest, "order=").and_then(|number| number.parse().ok());
        } else if let Some(summary) = line.strip_prefix("oom-kill:constraint=") {
            let open = self.opened();
            open.summary(summary);
            open.summary = Some(summary.to_owned());
        } else if let Some(rest) = line.strip_prefix("Task in ") {
            self.opened().limit(rest);
        } else if line.starts_with("Tasks in ") && line.contains(" memory.oom.group set") {
            self.in_group = true;
        } else if line.starts_with("CPU: ") {
            self.trigger(line);
        } else if let Some((message, chosen)) = after(line, "Kill process ") {
            // Before Linux 5.0.
            let open = self.opened();
            open.victim = leading_number(chosen).map(Pid);
            open.constraint = open.constraint.or_else(|| by_limit(message));
        } else if let Some((message, killed)) = after(line, "Killed process ") {
            return self.kill(at_us, message, killed);
        }
        None
    }

    /// Parses the continuation of an interrupted line (`pr_cont`).
    pub fn continued(&mut self, text: &str) {
        let Some(open) = &mut self.open else { return };
        // No other continuation begins like the summary's parts. One that begins with a slash is the path after a key.
        let heads = [",cpuset=", ",mems_allowed=", ",oom_memcg=", ",global_oom", ",task_memcg=", ",task="];
        if let Some(mut summary) = open.summary.take()
            && summary.len() < LONGEST_SUMMARY
            && (heads.iter().any(|head| text.starts_with(head))
                || summary.ends_with("_memcg=") && text.starts_with('/'))
        {
            summary.push_str(text);
            open.summary(&summary);
            open.summary = Some(summary);
        }
    }

    /// Discards the open invocation after lines were lost: later lines do not belong to it.
    pub fn forget(&mut self) {
        let reported = std::mem::take(&mut self.reported);
        *self = Self { reported, ..Self::default() };
    }

    fn begin(&mut self, at_us: u64) {
        self.open = None;
        if self.reported.len() == REPORTS {
            self.reported.pop_front();
        }
        self.reported.push_back(at_us);
    }

    fn opened(&mut self) -> &mut Invocation {
        self.in_group = false;
        self.open.get_or_insert_default()
    }

    /// Parses the head of the stack: `CPU: 1 UID: 0 PID: 77 Comm: x …`.
    fn trigger(&mut self, line: &str) {
        if let Some(open) = self.open.as_mut().filter(|open| open.trigger_tid.is_none()) {
            open.trigger_tid = field(line, "PID: ").and_then(|number| number.parse().ok()).map(Pid);
        }
    }

    /// Returns whether the rate limit may suppress the report of an invocation at this time.
    fn may_be_silent(&self, at_us: u64) -> bool {
        let oldest = self.reported.front().filter(|_| self.reported.len() == REPORTS);
        oldest.is_some_and(|oldest| at_us.saturating_sub(*oldest) <= REPORTS_WITHIN_US)
    }

    fn kill(&mut self, at_us: u64, message: &str, killed: &str) -> Option<OomReport> {
        let victim = victim(killed)?;
        // A kill without a report is of the same group, unless it may be that of an invocation whose report is suppressed.
        let of_group = self.open.is_none() && self.in_group && !self.may_be_silent(at_us);
        let of = match self.open.take() {
            // Before Linux 5.1 the kernel may kill a child of the chosen process instead, from any cgroup.
            Some(open) if open.victim.is_some_and(|chosen| chosen != victim.victim_pid) => {
                Invocation { victim_cgroup: None, ..open }
            }
            Some(open) => open,
            None if of_group => Invocation { victim_cgroup: None, ..self.last.clone() },
            None => Invocation::default(),
        };
        self.in_group &= of_group;
        self.last.clone_from(&of);
        Some(OomReport {
            trigger_tid: of.trigger_tid,
            trigger_comm: of.trigger_comm,
            order: of.order,
            constraint: of.constraint.or_else(|| by_limit(message)),
            limit_cgroup: of.limit_cgroup,
            victim_cgroup: of.victim_cgroup,
            of_group,
            ..victim
        })
    }
}

impl Invocation {
    /// Parses Linux 5.0's `CONSTRAINT_MEMCG,nodemask=…,cpuset=…,mems_allowed=…,oom_memcg=/a,task_memcg=/a/b,task=x,pid=7,uid=0`, or
    /// `global_oom` in the place of `oom_memcg`. Paths and names may contain commas, so values end at the next key.
    fn summary(&mut self, summary: &str) {
        self.constraint = constraint(summary.split(',').next().unwrap_or_default());
        let Some((rest, victim)) = summary.rsplit_once(",pid=") else { return };
        self.victim = leading_number(victim).map(Pid);
        let Some((before, task)) = rest.split_once(",task_memcg=") else { return };
        self.limit_cgroup = before.split_once(",oom_memcg=").map(|(_, path)| relative(path));
        self.victim_cgroup = task.rsplit_once(",task=").map(|(path, _)| relative(path));
    }

    /// Parses the line of kernels before Linux 5.0: `/a/b killed as a result of limit of /a`.
    fn limit(&mut self, rest: &str) {
        let Some((task, limit)) = rest.split_once(" killed as a result of limit of ") else { return };
        self.constraint = Some(OomConstraint::Memcg);
        self.victim_cgroup = Some(relative(task));
        self.limit_cgroup = Some(relative(limit));
    }
}

/// Returns the constraint of a kill whose message names a cgroup. The message for the node's memory does not tell which constraint.
fn by_limit(message: &str) -> Option<OomConstraint> {
    message.starts_with("Memory cgroup ").then_some(OomConstraint::Memcg)
}

fn constraint(name: &str) -> Option<OomConstraint> {
    Some(match name {
        "CONSTRAINT_NONE" => OomConstraint::None,
        "CONSTRAINT_CPUSET" => OomConstraint::Cpuset,
        "CONSTRAINT_MEMORY_POLICY" => OomConstraint::MemoryPolicy,
        "CONSTRAINT_MEMCG" => OomConstraint::Memcg,
        _ => return None,
    })
}

/// Splits a line of the OOM killer at `verb`.
fn after<'l>(line: &'l str, verb: &str) -> Option<(&'l str, &'l str)> {
    let (before, rest) = line.split_once(verb)?;
    // Before Linux 5.1 the last line had no message.
    let is_ours = before.is_empty() || before.starts_with("Out of memory") || before.starts_with("Memory cgroup ");
    is_ours.then_some((before, rest))
}

/// Parses `77 (name) total-vm:1kB, anon-rss:1kB, …, UID:0 pgtables:1kB oom_score_adj:0`. Older kernels have fewer fields, and some the
/// user before them: `77 (name), UID 0, total-vm:…`. The name may contain any character.
fn victim(killed: &str) -> Option<OomReport> {
    let (pid, rest) = killed.split_once(" (")?;
    let (name, fields) = rest.rsplit_once(" total-vm:")?;
    let (name, early_uid) = match name.rsplit_once("), UID ") {
        Some((name, uid)) => (name, leading_number(uid)),
        None => (name.strip_suffix(')')?, None),
    };
    let bytes = |key| Some(Bytes::from_kib(leading_number(field(fields, key)?)?));
    Some(OomReport {
        victim_pid: Pid(pid.parse().ok()?),
        victim_comm: name.to_owned(),
        uid: early_uid.or_else(|| leading_number(field(fields, "UID:")?)),
        total_vm: leading_number(fields).map(Bytes::from_kib),
        anon_rss: bytes("anon-rss:"),
        file_rss: bytes("file-rss:"),
        shmem_rss: bytes("shmem-rss:"),
        pgtables: bytes("pgtables:"),
        oom_score_adj: field(fields, "oom_score_adj:").and_then(|number| number.trim().parse().ok()),
        ..OomReport::default()
    })
}

/// Returns the text after `key` up to the next comma or space.
fn field<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    line.split_once(key)?.1.split([',', ' ']).next()
}

fn leading_number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

fn relative(path: &str) -> String {
    path.trim_start_matches('/').to_owned()
}

#[cfg(test)]
#[path = "oom_report_tests.rs"]
mod tests;
