//! Finds the workloads outside pods on which the node depends: the container runtime and the kubelet, the system bus, the device manager, the
//! login manager, the SSH daemon, the network, and what holds a seat. A process is identified by what it holds, because its cgroup may have any
//! name: sockets, locks, devices. Its name counts only for processes of root outside containers.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::node::process_facts::{self, ProcessIdentity, started, ticks_since_boot};
use crate::units::{Pid, kernel_text};

use super::cgroup_processes::{self, Monitors};
use super::container_monitors;
use super::daemon_names;
use super::held_files::{self, Held};
use super::protection::Protection;
use super::signs::{Configured, Sign, Signs, Trust};
use super::tracked_workload::Tracked;
use super::workload::Kind;

/// A process of such a workload, and how it was identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Essential {
    pub protection: Protection,
    pub pid: Pid,
    /// `listens on /run/containerd/containerd.sock`.
    pub by: String,
    /// It monitors one container.
    is_monitor: bool,
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

/// As low as the container runtime's own processes. The agent gives no workload outside pods such a value.
const EXEMPT_SCORE: i16 = -998;
/// Where logind and elogind keep a record of each session.
const SESSIONS: &str = "run/systemd/sessions";
/// More processes of one workload are not examined. Daemons are its first processes.
const MOST_PROCESSES: usize = 512;
/// More open files of one process are not examined.
const MOST_FILES: usize = 4096;
/// The same for a process of a user, and for all of those in one workload. What controls a seat opens its devices when it starts.
const MOST_FILES_OF_USER: usize = 256;
const MOST_FILES_OF_USERS: usize = 2048;
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
    configured: Configured,
}

/// How many open files may still be read: of the next process, and of all processes of users.
#[derive(Debug, PartialEq, Eq)]
struct Budget {
    files: usize,
    of_users: usize,
}

/// What was found among processes: the first on which the node depends, and the first that only goes later than others.
#[derive(Default)]
struct Found {
    strong: Option<Essential>,
    weak: Option<Essential>,
}

impl Found {
    /// Takes in what one process is. Returns whether the search is over.
    fn is_done(&mut self, essential: Option<Essential>) -> bool {
        let is_weak = essential.as_ref().is_some_and(|it| it.protection.is_weak());
        let place = if is_weak { &mut self.weak } else { &mut self.strong };
        *place = place.take().or(essential);
        self.strong.is_some()
    }
}

impl Examined {
    pub(super) fn protection(&self) -> Option<Protection> {
        self.essential.as_ref().map(|essential| essential.protection)
    }
}

impl Essentials {
    pub fn new(proc_root: &Path, socket: Option<PathBuf>) -> Self {
        let init = proc_root.join("1/root");
        // A container has another root than the machine's init.
        let root = if init.join(".").exists() { init } else { PathBuf::from("/") };
        let configured = Configured::read(&root, socket);
        Self { proc_root: proc_root.to_owned(), root, configured }
    }

    /// Reads which sockets and locks mark a process now.
    pub fn signs(&self) -> Signs {
        Signs::read(&self.proc_root, &self.root, &self.configured)
    }

    /// Returns what the node needs these processes for, if it does. They are the processes of one workload of this kind.
    pub fn find(&self, pids: &[Pid], kind: &Kind, signs: &Signs) -> Option<Essential> {
        let first = pids.iter().take(MOST_PROCESSES);
        let mut found = Found::default();
        let mut of_users = MOST_FILES_OF_USERS;
        let mut identify = |pid: &Pid| {
            let mut budget = Budget { files: MOST_FILES, of_users };
            let essential = self.identify(*pid, kind, signs, &mut budget);
            of_users = budget.of_users;
            essential.filter(|it| self.is_needed(it, pids))
        };
        let _done = first.clone().any(|pid| found.is_done(identify(pid)));
        found.strong.or_else(|| first.clone().find_map(|pid| self.exempt(*pid, pids))).or(found.weak)
    }

    /// Returns the process that began the session, by the login manager's record of it.
    pub(super) fn session_leader(&self, id: &str) -> Option<Pid> {
        let record = std::fs::read_to_string(self.root.join(SESSIONS).join(id)).ok()?;
        record.lines().find_map(|line| line.strip_prefix("LEADER=")?.parse().ok()).map(Pid)
    }

    /// Returns whether there may be a session without a scope of systemd's: the login manager has a record of it, or its records are not
    /// visible and systemd is not the init.
    pub(super) fn may_have_session(&self, id: &str) -> bool {
        let sessions = self.root.join(SESSIONS);
        if sessions.is_dir() { sessions.join(id).exists() } else { !self.root.join("run/systemd/system").exists() }
    }

    /// Returns the sockets of daemons that no process holds, as far as this program sees; `None` if the sockets are not known. Reads the
    /// open files of every process.
    pub fn unheld(&self) -> Option<Vec<String>> {
        let mut signs = Some(self.signs()).filter(|signs| signs.is_known)?;
        let entries = std::fs::read_dir(&self.proc_root).into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid) {
            for inode in held_files::sockets(&self.proc_root, pid, MOST_FILES) {
                signs.sockets.remove(&inode);
            }
        }
        let of_system = signs.sockets.into_values().filter(|sign| !sign.protection.is_weak());
        let mut unheld: Vec<String> = of_system.map(|sign| sign.by).collect();
        unheld.sort_unstable();
        Some(unheld)
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
        let mut found = Found::default();
        let mut identify = |pid: &Pid| {
            let given = left.min(LOOK_FILES);
            let mut budget = Budget { files: given, of_users: given };
            let found = self.identify(*pid, kind, signs, &mut budget);
            left -= given - budget.files;
            found.filter(|it| self.is_needed(it, pids))
        };
        let _done = looked_at.iter().any(|pid| found.is_done(identify(pid)));
        let mut first = pids.iter().take(LOOK_SCORES).chain(&looked_at);
        found.strong.or_else(|| first.find_map(|pid| self.exempt(*pid, pids))).or(found.weak)
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

    /// Returns whether what an examination has found may still hold: the process is there, and its container has not started in its workload.
    /// A process that has begun to serve is found by the next examination.
    pub(super) fn stands(&self, tracked: &Tracked, examined: &Examined) -> bool {
        let Some(found) = &examined.essential else { return true };
        let is_there = self.proc_root.join(found.pid.0.to_string()).exists();
        is_there && (!found.is_monitor || self.is_needed(found, &processes_to_look_at(tracked)))
    }

    /// `pids` are the processes of the workload. A monitor whose container is among them does not protect it.
    fn exempt(&self, pid: Pid, pids: &[Pid]) -> Option<Essential> {
        cgroup_processes::oom_score(&self.proc_root, pid).filter(|score| *score <= EXEMPT_SCORE)?;
        let is_monitor = self.name(pid).is_some_and(|name| daemon_names::is_monitor(&name));
        let by = format!("has oom_score_adj {EXEMPT_SCORE} or below");
        let found = Essential { protection: Protection::KillExempt, pid, by, is_monitor };
        self.is_needed(&found, pids).then_some(found)
    }

    fn is_needed(&self, found: &Essential, pids: &[Pid]) -> bool {
        !found.is_monitor || !container_monitors::has_ward(&self.proc_root, found.pid, pids)
    }

    /// Reads at most the open files that `budget` allows, and counts them off.
    fn identify(&self, pid: Pid, kind: &Kind, signs: &Signs, budget: &mut Budget) -> Option<Essential> {
        let directory = self.proc_root.join(pid.0.to_string());
        let ProcessIdentity { uid, is_in_namespace, name } = process_facts::identity(&directory)?;
        let trust = Trust::of(uid);
        let essential = |protection, by: &str| Essential { protection, pid, by: by.to_owned(), is_monitor: false };
        if trust == Trust::Root && signs.holders.contains(&pid) {
            return Some(essential(Protection::Kubelet, "holds the kubelet's lock file"));
        }
        // A process in a container may bind any name and port, and take any name, so only a file that it shares with the machine counts.
        let is_in_container = matches!(kind, Kind::Container(_)) || is_in_namespace;
        let is_genuine = |sign: &&Sign| match &sign.path {
            _ if trust < sign.least => false,
            // Root of a user namespace of one's own mounts over any path, and binds there.
            Some(_) if trust < Trust::Root && !self.shares_users(&directory) => false,
            Some(path) => is_same_file(&below(&self.root, path), &below(&directory.join("root"), path)),
            None => !is_in_container,
        };
        let of_user = budget.files.min(budget.of_users).min(MOST_FILES_OF_USER);
        let given = if trust == Trust::User { of_user } else { budget.files };
        let mut left = given;
        let mut found = Found::default();
        let recognize = |held| match held {
            Held::Socket(inode) => {
                let Sign { protection, by, is_monitor, .. } = signs.sockets.get(&inode).filter(is_genuine)?;
                // A monitor keeps the ports of its container open.
                let is_monitor = *is_monitor || daemon_names::is_monitor(&name);
                Some(Essential { is_monitor, ..essential(*protection, by) })
            }
            Held::Input if !is_in_container => Some(essential(Protection::Seat, "holds an input device")),
            Held::LoginRecord if trust == Trust::Root && !is_in_container => {
                Some(essential(Protection::System, "holds the record of a login session"))
            }
            // Any user may open the device, so that of a user's process protects it among his own only.
            Held::Fuse if !is_in_container && held_files::shares_fuse_mount(&self.proc_root, pid) => {
                let protection = if trust == Trust::Root { Protection::Mount } else { Protection::ServesUser };
                Some(essential(protection, "serves a FUSE mount"))
            }
            Held::Input | Held::LoginRecord | Held::Fuse => None,
        };
        let _done = held_files::of(&directory, &mut left).any(|held| found.is_done(recognize(held)));
        budget.files -= given - left;
        budget.of_users -= if trust == Trust::User { given - left } else { 0 };
        let by_name = || self.by_name(pid, &name).filter(|_| trust == Trust::Root && !is_in_container);
        found.strong.or_else(by_name).or(found.weak)
    }

    /// Returns whether the process is in the user namespace of the machine's init.
    fn shares_users(&self, directory: &Path) -> bool {
        let namespace = |process: &Path| std::fs::read_link(process.join("ns/user")).ok();
        namespace(directory) == namespace(&self.proc_root.join("1"))
    }

    fn by_name(&self, pid: Pid, name: &str) -> Option<Essential> {
        let protection = daemon_names::protection(name)?;
        let is_monitor = daemon_names::is_monitor(name);
        // The payload of a service that Podman has split is in no cgroup that looks like a container's to the list of workloads.
        (!container_monitors::is_contained(&self.proc_root, pid)).then(|| Essential {
            protection,
            pid,
            by: format!("is called {name}"),
            is_monitor,
        })
    }

    fn name(&self, pid: Pid) -> Option<String> {
        let text = kernel_text::read(self.proc_root.join(pid.0.to_string()).join("comm")).ok()?;
        Some(text.trim_end().to_owned())
    }
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
