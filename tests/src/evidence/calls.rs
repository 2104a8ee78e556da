//! The system calls of the agent's loop and of the thread that kills for it, as the kernel records them (`raw_syscalls:sys_enter`).

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};

use super::trace::{parse_seconds, parse_thread};
use super::tracefs::Instance;
use crate::processes;

/// A system call that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub at_ns: u64,
    number: i64,
    /// The first argument, often a file descriptor.
    first: u64,
}

/// A running record, which ends with the scenario. It holds the last few thousand calls.
#[derive(Debug)]
pub struct Calls {
    instance: Instance,
    agent: i32,
}

impl Calls {
    /// Begins to record the calls of an agent.
    pub fn of(agent: i32) -> Result<Self> {
        let threads = processes::thread_times(agent);
        let kill = threads.iter().find(|(_, (name, _))| name == "kill").map(|(thread, _)| thread.to_string_lossy());
        let kill = kill.context("the agent has no thread `kill`")?;
        let instance = Instance::open("npm-calls", 512)?;
        instance.write("trace", "")?;
        instance
            .write("events/raw_syscalls/sys_enter/filter", &format!("common_pid == {agent} || common_pid == {kill}"))?;
        instance.write("events/raw_syscalls/sys_enter/enable", "1")?;
        instance.write("tracing_on", "1")?;
        Ok(Self { instance, agent })
    }

    /// Keeps what is recorded, and records no more.
    pub fn stop(&self) -> Result<()> {
        self.instance.write("tracing_on", "0")
    }

    /// Returns which files the calls have read at a position, with how often: "meminfo 2, memory.stat 2". The agent must live.
    pub fn files_read(&self, calls: &[Call]) -> String {
        let read = calls.iter().filter(|call| call.number == libc::SYS_pread64);
        counted(read.map(|call| {
            let target = fs::read_link(format!("/proc/{}/fd/{}", self.agent, call.first)).unwrap_or_default();
            let of_cgroup = target.strip_prefix("/sys/fs/cgroup").unwrap_or(&target);
            of_cgroup.to_string_lossy().into_owned()
        }))
    }

    /// Returns the recorded calls, in order of time.
    pub fn recorded(&self) -> Result<Vec<Call>> {
        let text = self.instance.read("trace")?;
        let mut calls: Vec<Call> = text.lines().filter_map(parse).collect();
        calls.sort_by_key(|call| call.at_ns);
        Ok(calls)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // An event that stays enabled would slow the next scenario down.
        let _ = self.instance.write("events/raw_syscalls/sys_enter/enable", "0");
    }
}

/// Parses a line such as "  comm-12 [001] ..... 12.345678: sys_enter: NR 17 (3, 7f, 1000, 0, 0, 0)".
fn parse(line: &str) -> Option<Call> {
    let (head, tail) = line.split_once(": sys_enter: NR ")?;
    let (_, at) = parse_thread(head)?;
    let (number, arguments) = tail.split_once(" (")?;
    let first = u64::from_str_radix(arguments.split([',', ')']).next()?, 16).ok()?;
    Some(Call { at_ns: parse_seconds(at)?, number: number.parse().ok()?, first })
}

/// Returns how often each call was made, with its name: "openat 2, pread64 5".
pub fn names(calls: &[Call]) -> String {
    counted(calls.iter().map(|call| name(call.number)))
}

fn counted(all: impl Iterator<Item = String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

fn name(number: i64) -> String {
    let known = [
        (libc::SYS_read, "read"),
        (libc::SYS_write, "write"),
        (libc::SYS_pread64, "pread64"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_close, "close"),
        (libc::SYS_lseek, "lseek"),
        (libc::SYS_statx, "statx"),
        (libc::SYS_fstat, "fstat"),
        (libc::SYS_newfstatat, "newfstatat"),
        (libc::SYS_readlinkat, "readlinkat"),
        (libc::SYS_getdents64, "getdents64"),
        (libc::SYS_getxattr, "getxattr"),
        (libc::SYS_fgetxattr, "fgetxattr"),
        (libc::SYS_kill, "kill"),
        (libc::SYS_pidfd_open, "pidfd_open"),
        (libc::SYS_pidfd_send_signal, "pidfd_send_signal"),
        (libc::SYS_futex, "futex"),
        (libc::SYS_madvise, "madvise"),
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_munmap, "munmap"),
        (libc::SYS_bpf, "bpf"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_timerfd_settime, "timerfd_settime"),
    ];
    let found = known.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned());
    found.unwrap_or_else(|| format!("call {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_and_its_name() {
        let line = format!("  node-pressure-m-40 [001] ..... 12.345678: sys_enter: NR {} (3, 7f)", libc::SYS_pread64);
        let call = parse(&line).unwrap();
        assert_eq!(call, Call { at_ns: 12_345_678_000, number: libc::SYS_pread64, first: 3 });
        let other = Call { number: 9_999, ..call };
        assert_eq!(names(&[call, other, call]), "call 9999 1, pread64 2");
        assert_eq!(parse("# tracer: nop"), None);
    }
}
