//! Starts child processes inside their cgroups, and collects their exit statuses.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::cgroups::Cgroup;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The process exited with this code.
    Exited(i32),
    /// This signal ended the process.
    Signaled(i32),
}

/// The exit statuses of all children and adopted orphans.
#[derive(Debug, Default)]
pub struct Reaper {
    ended: HashMap<i32, Ended>,
}

impl Reaper {
    /// Collects the statuses of all exited children, including the orphans that process 1 adopts.
    pub fn reap(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: waitpid writes one int, which lives across the call.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid <= 0 {
                return;
            }
            let ended = if libc::WIFSIGNALED(status) {
                Ended::Signaled(libc::WTERMSIG(status))
            } else {
                Ended::Exited(libc::WEXITSTATUS(status))
            };
            self.ended.insert(pid, ended);
        }
    }

    /// Returns how the process ended, or `None` while it runs.
    pub fn ended(&mut self, pid: i32) -> Option<Ended> {
        self.reap();
        self.ended.get(&pid).copied()
    }

    /// Forgets all statuses, because the kernel reuses process ids.
    pub fn forget(&mut self) {
        self.reap();
        self.ended.clear();
    }
}

/// The start conditions of a child, besides its arguments.
#[derive(Debug)]
pub struct Start<'a> {
    /// The cgroup that the child enters between fork and exec, so that no page is charged to another cgroup.
    pub cgroup: Option<&'a Cgroup>,
    /// The same for a cgroup on v2 by its directory, whose name may be any bytes.
    pub directory: Option<&'a Path>,
    pub oom_score_adj: i32,
    pub stdout: Stdio,
    pub stderr: Stdio,
    /// The capabilities that the new program cannot obtain.
    pub without_capabilities: Vec<i32>,
}

impl<'a> Start<'a> {
    /// Returns a start in a cgroup, with standard streams on /dev/null and the default `oom_score_adj`.
    pub fn quiet(cgroup: &'a Cgroup) -> Self {
        Self {
            cgroup: Some(cgroup),
            directory: None,
            oom_score_adj: 0,
            stdout: Stdio::null(),
            stderr: Stdio::null(),
            without_capabilities: Vec::new(),
        }
    }
}

/// Describes each thread of a process: its name, its state, and where it is in the kernel.
pub fn threads(pid: i32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let describe = |task: fs::DirEntry| {
        let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (stat, stack) = (read("stat"), read("stack"));
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?');
        let stack: Vec<&str> = stack.lines().take(5).map(|line| line.trim_start_matches("[<0>] ")).collect();
        format!("{} {state} {}", read("comm").trim(), stack.join(" < "))
    };
    tasks.map(describe).collect()
}

/// Starts a program and returns its pid.
pub fn spawn(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>, start: Start<'_>) -> Result<i32> {
    let directories = start.cgroup.into_iter().flat_map(Cgroup::directories).chain(start.directory.map(Path::to_owned));
    let doors: Vec<File> = directories
        .map(|directory| {
            let path = directory.join("cgroup.procs");
            OpenOptions::new().write(true).open(&path).with_context(|| format!("open {}", path.display()))
        })
        .collect::<Result<_>>()?;
    let score = start.oom_score_adj.to_string();
    let capabilities = start.without_capabilities;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(start.stdout).stderr(start.stderr);
    // SAFETY: between fork and exec the closure makes system calls only, on memory prepared before the fork.
    unsafe {
        command.pre_exec(move || {
            for door in &doors {
                write_all(door.as_raw_fd(), b"0")?;
            }
            let path = c"/proc/self/oom_score_adj";
            let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            write_all(fd, score.as_bytes())?;
            for capability in &capabilities {
                if libc::prctl(libc::PR_CAPBSET_DROP, *capability, 0, 0, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let child = command.spawn().with_context(|| format!("start {program}"))?;
    // Child is dropped without waiting, since the reaper collects the status.
    i32::try_from(child.id()).context("process id")
}

fn write_all(fd: i32, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length are of one live slice.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    if usize::try_from(written) == Ok(bytes.len()) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the other processes that run this program.
pub fn workloads() -> Result<Vec<i32>> {
    let program = fs::read_link("/proc/self/exe").context("read /proc/self/exe")?;
    let entries = fs::read_dir("/proc").context("read /proc")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let runs_it = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    let others = pids.filter(|pid| *pid != std::process::id()).filter(runs_it);
    Ok(others.filter_map(|pid| i32::try_from(pid).ok()).collect())
}

/// Sends a signal. A process that has exited is no error.
pub fn signal(pid: i32, number: i32) {
    // SAFETY: kill has no memory arguments.
    unsafe { libc::kill(pid, number) };
}

/// Returns the resident set of a process in bytes, from `/proc/PID/status`.
pub fn resident(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    parse_resident(&text).with_context(|| format!("{path}: no VmRSS"))
}

fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Returns the kernel memory of the BPF maps that a process has open, in bytes: `memlock` of their `fdinfo`. It is not in the resident set.
pub fn bpf_maps(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/fdinfo");
    let descriptors = std::fs::read_dir(&path).with_context(|| format!("read {path}"))?;
    let mut maps = BTreeMap::new();
    for descriptor in descriptors.flatten() {
        // A descriptor may be closed meanwhile.
        let text = std::fs::read_to_string(descriptor.path()).unwrap_or_default();
        maps.extend(parse_map(&text));
    }
    Ok(maps.values().sum())
}

/// Returns the id and the memory of a BPF map, if the descriptor is one.
fn parse_map(fdinfo: &str) -> Option<(u64, u64)> {
    let field = |name: &str| fdinfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field("map_type")?;
    Some((field("map_id")?.trim().parse().ok()?, field("memlock")?.trim().parse().ok()?))
}

/// Returns the living threads by id: their names, and their CPU time in nanoseconds.
pub fn thread_times(pid: i32) -> BTreeMap<OsString, (String, u64)> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeMap::new() };
    let time = |thread: std::fs::DirEntry| {
        let name = std::fs::read_to_string(thread.path().join("comm")).ok()?;
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let time = text.split_whitespace().next()?.parse().ok()?;
        Some((thread.file_name(), (name.trim().to_owned(), time)))
    };
    threads.flatten().filter_map(time).collect()
}

/// Returns the CPU time of all threads of a process, in nanoseconds.
pub fn cpu_time(pid: i32) -> Result<u64> {
    // utime + stime, in ticks of 10 ms, include ended threads.
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let ticks = parse_ticks(&text).with_context(|| format!("{path}: no utime and stime"))?;
    // The scheduler counts nanoseconds for living threads: finer, but without ended threads.
    let fine: u64 = thread_times(pid).values().map(|(_, time)| time).sum();
    Ok(fine.max(ticks * 10_000_000))
}

fn parse_ticks(stat: &str) -> Option<u64> {
    // The command name may contain spaces and parentheses, so fields are counted after the last ')'.
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_counted_behind_the_command_name() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 100 0 0 0 7 5 0 0 20 0 3 0 99 1 2";
        assert_eq!(parse_ticks(stat), Some(12));
        assert_eq!(parse_ticks("12 (a"), None);
    }

    #[test]
    fn resident_is_in_bytes() {
        assert_eq!(parse_resident("Name:\tx\nVmRSS:\t    1234 kB\n"), Some(1234 * 1024));
        assert_eq!(parse_resident("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn a_bpf_map_has_an_id_and_its_memory() {
        let map = "pos:\t0\nmap_type:\t27\nmax_entries:\t262144\nmemlock:\t270512\nmap_id:\t17\n";
        assert_eq!(parse_map(map), Some((17, 270_512)));
        assert_eq!(parse_map("pos:\t0\nprog_type:\t5\nmemlock:\t4096\nprog_id:\t3\n"), None);
    }
}
