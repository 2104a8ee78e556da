//! Ending every process of a workload, and no other.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{PidfdFlags, Signal};

use crate::config::{CgroupId, Pid};
use crate::node::{CgroupVersion, Hierarchy};
use crate::workloads::tree::Tracked;
use crate::workloads::{membership, processes};

use super::ActionError;

/// The workload to act on, by the identity of its cgroup: an open directory stays the same cgroup whatever takes its path.
#[derive(Debug)]
pub struct Target {
    /// The workload's name: its path in the hierarchy.
    pub name: String,
    /// Its cgroup.
    pub id: CgroupId,
    directory: OwnedFd,
    kill_file: Option<OwnedFd>,
    version: CgroupVersion,
    cgroup: PathBuf,
    freezer: Option<PathBuf>,
    proc_root: PathBuf,
}

/// How often the processes of a v1 cgroup are listed and killed; frozen ones cannot fork, so one round is the rule.
const ROUNDS: u32 = 8;
/// How long a v1 freezer may take: a task in uninterruptible sleep must not keep the others alive.
const FREEZE_LIMIT: Duration = Duration::from_millis(50);

impl Target {
    /// Takes hold of `tracked`'s cgroup.
    ///
    /// # Errors
    /// When no further file can be opened.
    pub fn new(tracked: &Tracked, hierarchy: &Hierarchy, proc_root: &Path) -> Result<Self, ActionError> {
        let workload = tracked.workload();
        let directory = tracked
            .directory()
            .try_clone_to_owned()
            .map_err(|source| ActionError::refused(format!("cannot hold {}", workload.name), source))?;
        let kill_file = tracked.kill_file().and_then(|file| file.try_clone_to_owned().ok());
        Ok(Self {
            name: workload.name.clone(),
            id: workload.id,
            directory,
            kill_file,
            version: hierarchy.version,
            cgroup: hierarchy.memory.join(&workload.name),
            freezer: hierarchy.freezer.as_ref().map(|freezer| freezer.join(&workload.name)),
            proc_root: proc_root.to_owned(),
        })
    }

    /// Whether no process is left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self.version {
            CgroupVersion::V1 => !processes::any(&self.directory),
            CgroupVersion::V2 => self.read("cgroup.events").map_or(true, |events| {
                crate::node::file::keyed_value(&events, "populated").is_none_or(|populated| populated == 0)
            }),
        }
    }

    /// Sends SIGKILL to every process, at once where the kernel can (`cgroup.kill`, Linux 5.14); returns those that are on
    /// their way out then.
    ///
    /// # Errors
    /// When the kernel refuses, or processes are left.
    pub fn kill(&self) -> Result<Vec<Pid>, ActionError> {
        let Some(kill_file) = &self.kill_file else {
            let pids = self.processes()?;
            let freezer = match self.version {
                CgroupVersion::V1 => Freezer::v1(self),
                CgroupVersion::V2 => Freezer::v2(self),
            };
            return self.kill_frozen(&pids, freezer).map(|()| pids);
        };
        rustix::io::write(kill_file, b"1").map_err(|errno| {
            ActionError::refused(format!("cannot write {}/cgroup.kill", self.cgroup.display()), errno)
        })?;
        // Listing them takes longer than killing them. One that is gone already has given back its memory.
        Ok(self.processes().unwrap_or_default())
    }

    /// Sends SIGTERM to every process; returns those that got it.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn terminate(&self) -> Result<Vec<Pid>, ActionError> {
        let mut pids = self.processes()?;
        pids.retain(|pid| self.signal(*pid, Signal::TERM));
        Ok(pids)
    }

    fn processes(&self) -> Result<Vec<Pid>, ActionError> {
        let mut pids = Vec::new();
        processes::collect(&self.directory, &mut pids).map_err(|error| {
            ActionError::refused(format!("cannot list {}/cgroup.procs", self.cgroup.display()), error)
        })?;
        Ok(pids)
    }

    /// Kills one by one while nothing can fork. What is frozen dies when it thaws.
    fn kill_frozen(&self, pids: &[Pid], freezer: Option<Freezer<'_>>) -> Result<(), ActionError> {
        let frozen = freezer.map(Freezer::freeze);
        let mut pids = pids.to_vec();
        for _ in 0..ROUNDS {
            // Those that have been signalled are listed until they are gone: only what is new counts as left.
            let signalled = pids.clone();
            for pid in &pids {
                self.signal(*pid, Signal::KILL);
            }
            pids = self.processes().or_else(|error| match error {
                ActionError::Gone => Ok(Vec::new()),
                error => Err(error),
            })?;
            pids.retain(|pid| !signalled.contains(pid));
            if pids.is_empty() {
                drop(frozen);
                return Ok(());
            }
        }
        drop(frozen);
        Err(ActionError::StillAlive { rounds: ROUNDS, cgroup: self.cgroup.clone() })
    }

    /// Signals `pid` if it is still a process of this workload: the pidfd holds the process, then its cgroup is checked.
    fn signal(&self, pid: Pid, signal: Signal) -> bool {
        let Some(raw) = rustix::process::Pid::from_raw(pid.0) else { return false };
        let Ok(pidfd) = rustix::process::pidfd_open(raw, PidfdFlags::empty()) else { return false };
        membership::is_in(&self.proc_root, pid, self.version, &self.name)
            && rustix::process::pidfd_send_signal(&pidfd, signal).is_ok()
    }

    fn read(&self, name: &str) -> std::io::Result<String> {
        let file = rustix::fs::openat(&self.directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        std::io::read_to_string(std::fs::File::from(file))
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        write_at(&self.directory, name, text)
    }
}

fn write_at(directory: impl AsFd, name: &str, text: &str) -> std::io::Result<()> {
    let file = rustix::fs::openat(directory, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}

/// A way to hold all tasks of a cgroup still.
struct Freezer<'t> {
    target: &'t Target,
    /// The directory of the freezer hierarchy; `None` is v2, which freezes by itself.
    directory: Option<OwnedFd>,
}

/// Thaws when dropped, whatever happened meanwhile.
struct Frozen<'t>(Freezer<'t>);

impl<'t> Freezer<'t> {
    /// The same path in the freezer hierarchy, when there is one.
    fn v1(target: &'t Target) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(target.freezer.as_ref()?, flags, Mode::empty()).ok()?;
        Some(Self { target, directory: Some(directory) })
    }

    fn v2(target: &'t Target) -> Option<Self> {
        Some(Self { target, directory: None })
    }

    /// Freezes, waiting a little. That it did not work is no reason not to kill.
    fn freeze(self) -> Frozen<'t> {
        let asked = match &self.directory {
            Some(directory) => write_at(directory, "freezer.state", "FROZEN").is_ok(),
            None => self.target.write("cgroup.freeze", "1").is_ok(),
        };
        let mut waited = Duration::ZERO;
        while asked && waited < FREEZE_LIMIT && !self.is_frozen() {
            std::thread::sleep(Duration::from_millis(1));
            waited += Duration::from_millis(1);
        }
        Frozen(self)
    }

    fn is_frozen(&self) -> bool {
        match &self.directory {
            Some(directory) => {
                let file =
                    rustix::fs::openat(directory, "freezer.state", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
                file.is_ok_and(|file| {
                    std::io::read_to_string(std::fs::File::from(file)).is_ok_and(|state| state.trim() == "FROZEN")
                })
            }
            None => self.target.read("cgroup.events").is_ok_and(|events| events.contains("frozen 1")),
        }
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // A cgroup that is gone needs no thawing.
        let _gone = match &self.0.directory {
            Some(directory) => write_at(directory, "freezer.state", "THAWED"),
            None => self.0.target.write("cgroup.freeze", "0"),
        };
    }
}
