//! Finds the workloads outside pods on which the node depends: the container runtime and the kubelet. A process is identified by what it
//! holds, because its cgroup may have any name: the socket on which the runtime listens, the kubelet's sockets, ports and lock file. The
//! process's name counts only for processes of root outside containers, for a daemon that does not listen yet.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::node::file_locks;
use crate::node::other_killers::KUBELET_NAMES;
use crate::node::process_facts::{is_of_root, started, ticks_since_boot};
use crate::units::{Pid, kernel_text};

use super::cgroup_processes::{self, Monitors};
use super::protection::Protection;
use super::tracked_workload::Tracked;
use super::workload::Kind;

/// A process of such a workload, and how it was identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Essential {
    pub protection: Protection,
    pub pid: Pid,
    /// `listens on /run/containerd/containerd.sock`.
    pub by: String,
}

/// The result of the examination of a workload, and what it rests on.
#[derive(Debug)]
pub struct Examined {
    pub(super) essential: Option<Essential>,
    /// The processes that have been examined, in order. One that was young then is missing: it may have run another program since.
    seen: Vec<Pid>,
    /// The signs at that time.
    signs: Arc<Signs>,
    /// Whether every process and file was examined, within the limits of an examination.
    pub(super) is_whole: bool,
}

/// File names of the sockets of container runtimes. Distributions put them into various directories.
const RUNTIME_SOCKETS: [&str; 5] =
    ["containerd.sock", "crio.sock", "docker.sock", "cri-dockerd.sock", "dockershim.sock"];
/// The directory in which containerd's shims listen.
const SHIM_SOCKETS: &str = "/run/containerd/s/";
/// The kubelet's sockets below its directory, which may be any.
const KUBELET_SOCKETS: [&str; 2] = ["/pod-resources/kubelet.sock", "/device-plugins/kubelet.sock"];
/// The kubelet's ports: its API and its health.
const KUBELET_PORTS: [u16; 2] = [10250, 10248];
/// The kubelet's lock file, where `--lock-file` is given.
const KUBELET_LOCKS: [&str; 2] = ["run/lock/kubelet.lock", "var/lock/kubelet.lock"];
/// Names of processes (`comm` has at most 15 characters).
const RUNTIME_NAMES: [&str; 5] = ["containerd", "crio", "dockerd", "cri-dockerd", "conmon"];
const SHIM_NAME: &str = "containerd-shim";
/// As low as the container runtime's own processes. The agent gives no workload outside pods such a value.
const EXEMPT_SCORE: i16 = -998;
/// More processes of one workload are not examined. Daemons are its first processes.
const MOST_PROCESSES: usize = 512;
/// More open files of one process are not examined.
const MOST_FILES: usize = 4096;
/// The limits of a look shortly before a kill: the first cgroups of the workload, the processes that the examination has not seen, the
/// processes that it has seen (only if a new socket or lock marks a daemon), and the open files of one process and of all.
const LOOK_CGROUPS: usize = 16;
const LOOK_NEW: usize = 32;
const LOOK_SEEN: usize = 16;
const LOOK_FILES: usize = 256;
const LOOK_FILES_IN_ALL: usize = 1024;
/// A daemon has lowered its score in one of the first processes of its workload.
const LOOK_SCORES: usize = 4;
/// A process of fewer ticks may run another program, under another name, in a moment.
const YOUNG_TICKS: u64 = 100;

/// Where this machine's processes and files are.
#[derive(Debug, Clone)]
pub struct Essentials {
    proc_root: PathBuf,
    /// The root directory of the machine's init.
    root: PathBuf,
    /// The configured socket of the runtime.
    socket: Option<PathBuf>,
}

/// The marks of a process: the sockets by inode, and the holders of locks.
#[derive(Debug, Default)]
pub struct Signs {
    sockets: HashMap<u64, Sign>,
    holders: Vec<Pid>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Sign {
    protection: Protection,
    /// The path of a socket in the filesystem. It must be the same file for the process and for the machine's init.
    path: Option<PathBuf>,
    by: String,
}

impl Examined {
    pub(super) fn protection(&self) -> Option<Protection> {
        self.essential.as_ref().map(|essential| essential.protection)
    }
}

impl Signs {
    /// Returns whether these have a socket or a holder that `before` lacks.
    fn has_other_than(&self, before: &Self) -> bool {
        self.sockets.keys().any(|inode| !before.sockets.contains_key(inode))
            || self.holders.iter().any(|holder| !before.holders.contains(holder))
    }
}

impl Essentials {
    pub fn new(proc_root: &Path, socket: Option<PathBuf>) -> Self {
        let init = proc_root.join("1/root");
        // A container has another root than the machine's init.
        let root = if init.join(".").exists() { init } else { PathBuf::from("/") };
        Self { proc_root: proc_root.to_owned(), root, socket }
    }

    /// Reads which sockets and locks mark a process now. Listening sockets stand first in the kernel's list of TCP sockets, so the list of
    /// connections is not read.
    pub fn signs(&self) -> Signs {
        let mut signs = Signs::default();
        // The namespace of the machine's init; the agent's own may be another.
        let net = ["1/net", "net"].map(|net| self.proc_root.join(net)).into_iter().find(|net| net.is_dir());
        let lines = |name: &str| {
            let file = net.as_ref().and_then(|net| std::fs::File::open(net.join(name)).ok());
            // A user may bind a socket whose name is not UTF-8; the lines after it count all the same.
            let lines =
                file.into_iter().flat_map(|file| BufReader::new(file).split(b'\n').map_while(Result::ok).skip(1));
            lines.map(kernel_text::text)
        };
        signs.sockets.extend(lines("unix").filter_map(|line| unix_sign(&line, self.socket.as_deref())));
        for name in ["tcp", "tcp6"] {
            signs.sockets.extend(lines(name).map_while(|line| tcp_listener(&line)).filter_map(tcp_sign));
        }
        let holder = |path: &str| file_locks::holder(&self.proc_root, &self.root.join(path));
        signs.holders = KUBELET_LOCKS.iter().filter_map(|path| holder(path)).map(Pid).collect();
        signs
    }

    /// Returns what the node needs these processes for, if it does. They are the processes of one workload of this kind.
    pub fn find(&self, pids: &[Pid], kind: &Kind, signs: &Signs) -> Option<Essential> {
        let pids = pids.iter().take(MOST_PROCESSES);
        let identified = || pids.clone().find_map(|pid| self.identify(*pid, kind, signs, &mut { MOST_FILES }));
        identified().or_else(|| pids.clone().find_map(|pid| self.exempt(*pid)))
    }

    /// Examines every process of a workload. Remembers what the result rests on, for [`Self::look`].
    pub(super) fn examine(&self, tracked: &Tracked, signs: &Arc<Signs>) -> Examined {
        let kind = &tracked.workload().kind;
        let mut pids = Vec::new();
        // A workload that was removed has no processes.
        drop(cgroup_processes::collect(tracked.directory(), Monitors::of(kind), &mut pids));
        self.examine_processes(&pids, kind, signs)
    }

    fn examine_processes(&self, pids: &[Pid], kind: &Kind, signs: &Arc<Signs>) -> Examined {
        // Read before the files: a process that starts meanwhile is young.
        let now = ticks_since_boot();
        let pids = pids.get(..MOST_PROCESSES).unwrap_or(pids);
        let is_old = |pid: &&Pid| started(&self.proc_root, **pid).is_some_and(|start| start + YOUNG_TICKS <= now);
        let mut seen: Vec<Pid> = pids.iter().filter(is_old).copied().collect();
        seen.sort_unstable();
        Examined { essential: self.find(pids, kind, signs), seen, signs: Arc::clone(signs), is_whole: true }
    }

    /// As [`Self::find`], by what has changed since the examination: processes, sockets and locks. The work does not grow with the workload.
    /// Without an examination every process counts as new.
    fn find_changed(&self, pids: &[Pid], kind: &Kind, signs: &Signs, before: Option<&Examined>) -> Option<Essential> {
        let is_seen = |pid: &Pid| before.is_some_and(|before| before.seen.binary_search(pid).is_ok());
        let known = before.and_then(|before| before.essential.as_ref()).map(|found| found.pid);
        let known = known.filter(|pid| pids.contains(pid));
        let new = pids.iter().copied().filter(|pid| !is_seen(pid)).take(LOOK_NEW);
        let has_new_sign = before.is_some_and(|before| signs.has_other_than(&before.signs));
        let seen = pids.iter().copied().filter(is_seen).take(if has_new_sign { LOOK_SEEN } else { 0 });
        let looked_at: Vec<Pid> = known.into_iter().chain(new).chain(seen).collect();
        let mut left = LOOK_FILES_IN_ALL;
        let mut identify = |pid: &Pid| {
            let mut files = left.min(LOOK_FILES);
            let given = files;
            let found = self.identify(*pid, kind, signs, &mut files);
            left -= given - files;
            found
        };
        let identified = looked_at.iter().find_map(&mut identify);
        identified.or_else(|| pids.iter().take(LOOK_SCORES).chain(&looked_at).find_map(|pid| self.exempt(*pid)))
    }

    /// As [`Self::find_changed`], for the processes of this workload as they are now.
    pub(super) fn look(&self, tracked: &Tracked, signs: &Signs) -> Option<Essential> {
        let workload = tracked.workload();
        self.find_changed(&processes_to_look_at(tracked), &workload.kind, signs, tracked.examined.as_ref())
    }

    /// As [`Self::look`], for a workload that has just appeared. The next scan examines it.
    pub(super) fn look_at_new(&self, tracked: &Tracked, signs: &Arc<Signs>) -> Examined {
        let essential = self.look(tracked, signs);
        Examined { essential, seen: Vec::new(), signs: Arc::clone(signs), is_whole: false }
    }

    fn exempt(&self, pid: Pid) -> Option<Essential> {
        let score = cgroup_processes::oom_score(&self.proc_root, pid)?;
        let by = || format!("has oom_score_adj {EXEMPT_SCORE} or below");
        (score <= EXEMPT_SCORE).then(|| Essential { protection: Protection::KillExempt, pid, by: by() })
    }

    /// Reads at most `files` open files, and counts them off.
    fn identify(&self, pid: Pid, kind: &Kind, signs: &Signs, files: &mut usize) -> Option<Essential> {
        let directory = self.proc_root.join(pid.0.to_string());
        if !is_of_root(&directory) {
            return None;
        }
        let essential = |protection, by: String| Essential { protection, pid, by };
        if signs.holders.contains(&pid) {
            return Some(essential(Protection::Kubelet, "holds the kubelet's lock file".to_owned()));
        }
        // A process in a container may bind any name and port, and take any name, so only a file that it shares with the machine counts.
        let is_in_container = matches!(kind, Kind::Container(_));
        let is_genuine = |sign: &&Sign| match &sign.path {
            Some(path) => is_same_file(&below(&self.root, path), &below(&directory.join("root"), path)),
            None => !is_in_container,
        };
        let mut sockets = sockets_of(&directory, files).filter_map(|inode| signs.sockets.get(&inode));
        if let Some(Sign { protection, by, .. }) = sockets.find(is_genuine) {
            return Some(essential(*protection, by.clone()));
        }
        let name = kernel_text::read(directory.join("comm")).ok().filter(|_| !is_in_container)?;
        let name = name.trim_end();
        let protection = match name {
            _ if RUNTIME_NAMES.contains(&name) || name.starts_with(SHIM_NAME) => Protection::Runtime,
            _ if KUBELET_NAMES.contains(&name) => Protection::Kubelet,
            _ => return None,
        };
        Some(essential(protection, format!("is called {name}")))
    }
}

/// Interprets a line of `/proc/net/unix`: address, references, protocol, flags, type, state, inode, path.
fn unix_sign(line: &str, configured: Option<&Path>) -> Option<(u64, Sign)> {
    const ACCEPTS_CONNECTIONS: &str = "00010000";
    let mut fields = line.split_ascii_whitespace();
    let (flags, inode, path) = (fields.nth(3)?, fields.nth(2)?, fields.next()?);
    if flags != ACCEPTS_CONNECTIONS {
        return None;
    }
    let known = path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path);
    let name = known.rsplit('/').next()?;
    let is_runtime = RUNTIME_SOCKETS.contains(&name) || configured == Some(Path::new(path));
    let protection = match known {
        _ if KUBELET_SOCKETS.iter().any(|end| known.ends_with(end)) => Protection::Kubelet,
        _ if is_runtime || known.starts_with(SHIM_SOCKETS) => Protection::Runtime,
        _ => return None,
    };
    // An abstract socket has no file. A link such as /var/run would lead out of the root directory of the machine's init.
    let file = known.starts_with('/').then(|| PathBuf::from(known));
    Some((inode.parse().ok()?, Sign { protection, path: file, by: format!("listens on {path}") }))
}

/// Returns the port of a listening socket, whether it is root's, and its inode, in a line of `/proc/net/tcp`; `None` at the first other socket.
fn tcp_listener(line: &str) -> Option<(u16, bool, u64)> {
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state, owner, inode) = (fields.get(1)?, fields.get(3)?, fields.get(7)?, fields.get(9)?);
    let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    (*state == LISTENS).then_some((port, *owner == "0", inode.parse().ok()?))
}

fn tcp_sign((port, is_of_root, inode): (u16, bool, u64)) -> Option<(u64, Sign)> {
    // Any user may listen on these ports.
    let is_kubelet = is_of_root && KUBELET_PORTS.contains(&port);
    let by = format!("listens on port {port}");
    is_kubelet.then_some((inode, Sign { protection: Protection::Kubelet, path: None, by }))
}

/// Returns the inodes of the sockets among the first open files of the process, and counts the files off.
fn sockets_of<'f>(directory: &Path, files: &'f mut usize) -> impl Iterator<Item = u64> + use<'f> {
    let most = *files;
    let entries = std::fs::read_dir(directory.join("fd")).into_iter().flatten().flatten().take(most);
    entries.filter_map(|entry| {
        *files = files.saturating_sub(1);
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

/// Returns the processes in the first cgroups of a workload.
pub(super) fn processes_to_look_at(tracked: &Tracked) -> Vec<Pid> {
    let monitors = Monitors::of(&tracked.workload().kind);
    cgroup_processes::first_processes_within(tracked.directory(), monitors, MOST_PROCESSES, LOOK_CGROUPS)
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    identity(one).is_some_and(|identity_of_one| identity(other) == Some(identity_of_one))
}

#[cfg(test)]
#[path = "essential_tests.rs"]
mod tests;
