//! What the OOM killer writes to the kernel's log, pure: lines in, kills out.
//!
//! One invocation says, in this order and under one lock: who invoked it; a stack with the task's pid; (Linux 5.0) a line
//! `oom-kill:constraint=…`, before that `Task in … killed as a result of limit of …`; then `Killed process …`. All but the last are
//! rate-limited, so a kill in a storm has that line alone.

use std::collections::VecDeque;

use crate::kernel::OomConstraint;
use crate::units::{Bytes, Pid};

/// An OOM kill, as far as the log tells. Cgroups are paths in the memory hierarchy, without the slash at their head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OomReport {
    /// The victim, or the thread of it that the OOM killer looked at.
    pub victim_pid: Pid,
    /// Its name.
    pub victim_comm: String,
    /// Where it lived.
    pub victim_cgroup: Option<String>,
    /// Its user.
    pub uid: Option<u32>,
    /// Its address space.
    pub total_vm: Option<Bytes>,
    /// Its anonymous memory.
    pub anon_rss: Option<Bytes>,
    /// Its file memory.
    pub file_rss: Option<Bytes>,
    /// Its shared memory.
    pub shmem_rss: Option<Bytes>,
    /// Its page tables.
    pub pgtables: Option<Bytes>,
    /// Its `oom_score_adj`.
    pub oom_score_adj: Option<i32>,
    /// Who allocated; the log gives the thread's id.
    pub trigger_tid: Option<Pid>,
    /// Its name.
    pub trigger_comm: Option<String>,
    /// How much it wanted: two to this power pages.
    pub order: Option<i32>,
    /// Whose limit.
    pub constraint: Option<OomConstraint>,
    /// The cgroup whose limit it was.
    pub limit_cgroup: Option<String>,
    /// Killed along with the victim proper, for `memory.oom.group`.
    pub of_group: bool,
}

/// What one invocation has said so far.
#[derive(Debug, Clone, Default)]
struct Invocation {
    trigger_tid: Option<Pid>,
    trigger_comm: Option<String>,
    order: Option<i32>,
    constraint: Option<OomConstraint>,
    limit_cgroup: Option<String>,
    victim: Option<Pid>,
    victim_cgroup: Option<String>,
    /// As far as it has been read: it is printed piece by piece, and another CPU's line may come between.
    summary: Option<String>,
}

/// The kernel prints the report of an invocation at most so often in so long (`oom_rs` in `mm/oom_kill.c`); the last line always.
const REPORTS: usize = 10;
const REPORTS_WITHIN_US: u64 = 5_000_000;

/// Three paths at the most.
const LONGEST_SUMMARY: usize = 4 * 4096;

/// Reads the log line by line.
#[derive(Debug, Default)]
pub struct OomLog {
    /// Begun, and nobody killed yet.
    open: Option<Invocation>,
    /// That of the last kill: those killed for `memory.oom.group` follow it.
    last: Invocation,
    in_group: bool,
    /// When the last reports began, in the log's microseconds.
    reported: VecDeque<u64>,
}

impl OomLog {
    /// Takes in one line, logged at `at_us`; a kill, when this line completes one.
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

    /// Takes in the rest of a line that another had cut off (`pr_cont`).
    pub fn continued(&mut self, text: &str) {
        let Some(open) = &mut self.open else { return };
        // Whatever else goes on at the same time, this begins like no other line, or is the path that was still to come.
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

    /// Lines are missing: nothing that follows belongs to what was said.
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

    /// The head of the stack: `CPU: 1 UID: 0 PID: 77 Comm: x …`.
    fn trigger(&mut self, line: &str) {
        if let Some(open) = self.open.as_mut().filter(|open| open.trigger_tid.is_none()) {
            open.trigger_tid = field(line, "PID: ").and_then(|number| number.parse().ok()).map(Pid);
        }
    }

    /// Whether an invocation may go unreported at this time.
    fn may_be_silent(&self, at_us: u64) -> bool {
        let oldest = self.reported.front().filter(|_| self.reported.len() == REPORTS);
        oldest.is_some_and(|oldest| at_us.saturating_sub(*oldest) <= REPORTS_WITHIN_US)
    }

    fn kill(&mut self, at_us: u64, message: &str, killed: &str) -> Option<OomReport> {
        let victim = victim(killed)?;
        // The next kill without a report is of the same group, unless it could be of another invocation, which is silent.
        let of_group = self.open.is_none() && self.in_group && !self.may_be_silent(at_us);
        let said = match self.open.take() {
            // Before Linux 5.1 a child may have been taken in its place, from wherever it lives.
            Some(open) if open.victim.is_some_and(|chosen| chosen != victim.victim_pid) => {
                Invocation { victim_cgroup: None, ..open }
            }
            Some(open) => open,
            None if of_group => Invocation { victim_cgroup: None, ..self.last.clone() },
            None => Invocation::default(),
        };
        self.in_group &= of_group;
        self.last.clone_from(&said);
        Some(OomReport {
            trigger_tid: said.trigger_tid,
            trigger_comm: said.trigger_comm,
            order: said.order,
            constraint: said.constraint.or_else(|| by_limit(message)),
            limit_cgroup: said.limit_cgroup,
            victim_cgroup: said.victim_cgroup,
            of_group,
            ..victim
        })
    }
}

impl Invocation {
    /// Linux 5.0: `CONSTRAINT_MEMCG,nodemask=…,cpuset=…,mems_allowed=…,oom_memcg=/a,task_memcg=/a/b,task=x,pid=7,uid=0`, or
    /// `global_oom` in the place of `oom_memcg`. Paths and names may hold commas: what is between the keys counts.
    fn summary(&mut self, summary: &str) {
        self.constraint = constraint(summary.split(',').next().unwrap_or_default());
        let Some((rest, victim)) = summary.rsplit_once(",pid=") else { return };
        self.victim = leading_number(victim).map(Pid);
        let Some((before, task)) = rest.split_once(",task_memcg=") else { return };
        self.limit_cgroup = before.split_once(",oom_memcg=").map(|(_, path)| relative(path));
        self.victim_cgroup = task.rsplit_once(",task=").map(|(path, _)| relative(path));
    }

    /// Before Linux 5.0: `/a/b killed as a result of limit of /a`.
    fn limit(&mut self, rest: &str) {
        let Some((task, limit)) = rest.split_once(" killed as a result of limit of ") else { return };
        self.constraint = Some(OomConstraint::Memcg);
        self.victim_cgroup = Some(relative(task));
        self.limit_cgroup = Some(relative(limit));
    }
}

/// What the kernel calls it says whether it was for a limit, though not, of the node's memory, which part of it was short.
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

/// The OOM killer's message before `verb`, and what stands after it.
fn after<'l>(line: &'l str, verb: &str) -> Option<(&'l str, &'l str)> {
    let (before, rest) = line.split_once(verb)?;
    // Before Linux 5.1 the last line had no message.
    let is_ours = before.is_empty() || before.starts_with("Out of memory") || before.starts_with("Memory cgroup ");
    is_ours.then_some((before, rest))
}

/// `77 (name) total-vm:1kB, anon-rss:1kB, …, UID:0 pgtables:1kB oom_score_adj:0`; fields came one after the other, and once
/// the user stood before them: `77 (name), UID 0, total-vm:…`. A name may hold anything.
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

/// What follows `key`, up to the next comma or space.
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
