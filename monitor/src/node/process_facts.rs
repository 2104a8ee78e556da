//! The owner and the start time of a process, from its directory in `/proc`.

use std::path::Path;

use crate::units::{Pid, kernel_text};

/// Returns whether the process is root's. The owner of its directory does not tell: a process that cannot be dumped shows root there.
pub fn is_of_root(directory: &Path) -> bool {
    identity(directory).is_some_and(|identity| identity.uid == 0)
}

/// The user, the namespace and the name of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The real user.
    pub uid: u32,
    /// Whether it is in a PID namespace below that of procfs, as the processes of containers are.
    pub is_in_namespace: bool,
    /// As in `comm`, apart from line feeds and backslashes, which `status` escapes.
    pub name: String,
}

/// Reads the identity of a process from its directory.
pub fn identity(directory: &Path) -> Option<ProcessIdentity> {
    let status = kernel_text::read(directory.join("status")).ok()?;
    let values = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::split_ascii_whitespace);
    let uid = values("Uid:")?.next()?.parse().ok()?;
    // Linux 4.1; one number for each namespace from that of procfs down.
    let is_in_namespace = values("NSpid:").is_some_and(|numbers| numbers.count() > 1);
    let name = status.lines().find_map(|line| line.strip_prefix("Name:\t")).unwrap_or_default().to_owned();
    Some(ProcessIdentity { uid, is_in_namespace, name })
}

/// Returns the time now, in the ticks of [`started`].
pub fn ticks_since_boot() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ticks = rustix::param::clock_ticks_per_second();
    u64::try_from(now.tv_sec).unwrap_or(0) * ticks + u64::try_from(now.tv_nsec).unwrap_or(0) * ticks / 1_000_000_000
}

/// Returns the start time of a process in ticks since boot.
pub fn started(proc_root: &Path, pid: Pid) -> Option<u64> {
    start_time(&kernel_text::read(proc_root.join(pid.0.to_string()).join("stat")).ok()?)
}

/// Returns the parent of a process: the fourth field of `stat`.
pub fn parent(proc_root: &Path, pid: Pid) -> Option<Pid> {
    let stat = kernel_text::read(proc_root.join(pid.0.to_string()).join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok().map(Pid)
}

/// Returns the 22nd field of `stat`. Fields are counted after the name, which may contain any character.
pub fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
