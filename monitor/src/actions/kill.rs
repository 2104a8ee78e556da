//! Ends every process of one workload, and no other process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal};

use crate::node::pinned_file::{Buffer, PinnedFile, is_gone, keyed_value};
use crate::node::{CgroupVersion, Hierarchy};
use crate::units::{CgroupId, Pid, kernel_text};
use crate::workloads::Tracked;
use crate::workloads::cgroup_processes::{self, Listing, Monitors};
use crate::workloads::membership;

use super::action_error::ActionError;
use super::frozen::FreezeRecord;
use super::kill_writer::KillWriter;

/// The workload to act on, identified by its cgroup: an open directory stays the same cgroup if another cgroup takes
/// its path.
#[derive(Debug)]
pub struct Target {
    /// The workload's name: its path in the hierarchy.
    pub name: String,
    pub id: CgroupId,
    directory: Arc<OwnedFd>,
    kill_file: Option<Arc<OwnedFd>>,
    events: Option<Arc<PinnedFile>>,
    monitors: Monitors,
    /// Whether CRI-O's monitors, which have to live, are in the pod's cgroup.
    has_monitors: bool,
    version: CgroupVersion,
    cgroup: PathBuf,
    freezer: Option<PathBuf>,
    proc_root: PathBuf,
    record: Option<FreezeRecord>,
}

/// The outcome of a kill.
#[derive(Debug, PartialEq, Eq)]
pub struct Killed {
    /// The processes that are exiting.
    pub pids: Vec<Pid>,
    /// Whether the kill has to be repeated: processes may have been forked meanwhile.
    pub is_repeated: bool,
}

/// How often the processes of a cgroup without `cgroup.kill` are listed and killed. The cgroup is frozen from the
/// second round on, so that its processes cannot fork.
const ROUNDS: u32 = 8;
/// Time limit for a v1 freezer: a task in uninterruptible sleep must not delay the kill of the others.
const FREEZE_LIMIT: Duration = Duration::from_millis(50);

/// `cgroup.events` is smaller.
const EVENTS_SIZE: usize = 256;

impl Target {
    /// Takes the open cgroup of `tracked`. `has_monitors` tells whether it holds CRI-O's monitors, if that was found out lately.
    pub fn new(tracked: &Tracked, hierarchy: &Hierarchy, proc_root: &Path, has_monitors: Option<bool>) -> Self {
        let workload = tracked.workload();
        let directory = tracked.shared_directory();
        let monitors = Monitors::of(&workload.kind);
        let looked = || !cgroup_processes::monitors(&directory).is_empty();
        Self {
            name: workload.name.clone(),
            id: workload.id,
            monitors,
            has_monitors: monitors == Monitors::LeftOut && has_monitors.unwrap_or_else(looked),
            directory,
            kill_file: tracked.kill_file(),
            events: tracked.events_file(),
            version: hierarchy.version,
            cgroup: hierarchy.memory.join(kernel_text::path(&workload.name)),
            freezer: hierarchy.freezer.as_ref().map(|freezer| freezer.join(kernel_text::path(&workload.name))),
            proc_root: proc_root.to_owned(),
            record: None,
        }
    }

    /// Sets the file that records a frozen workload.
    #[must_use]
    pub fn recorded_in(self, record: FreezeRecord) -> Self {
        Self { record: Some(record), ..self }
    }

    /// Whether no process is left, except CRI-O's monitors. An unreadable cgroup does not count as empty.
    pub fn is_gone(&self) -> bool {
        match self.version {
            CgroupVersion::V1 => self.lists_none(),
            CgroupVersion::V2 if self.has_monitors => self.containers_are_gone(),
            CgroupVersion::V2 => match &self.events {
                Some(events) => match events.read(&mut Buffer::of(EVENTS_SIZE)) {
                    Ok(events) => keyed_value(events, "populated") == Some(0),
                    Err(error) => error.is_gone(),
                },
                // It could not be opened.
                None => self.lists_none(),
            },
        }
    }

    /// Whether neither a container nor the pod's own cgroup has a process.
    fn containers_are_gone(&self) -> bool {
        let is_populated = |container: OwnedFd| match read_at(&container, "cgroup.events") {
            Ok(events) => keyed_value(&events, "populated") != Some(0),
            Err(error) => !is_gone(&error),
        };
        match cgroup_processes::any_container(&self.directory, is_populated) {
            Ok(is_any) => !is_any && cgroup_processes::own(&self.directory).is_ok_and(|pids| pids.is_empty()),
            Err(errno) => is_gone(&errno.into()),
        }
    }

    fn lists_none(&self) -> bool {
        match self.listed() {
            Ok(pids) => pids.is_empty(),
            Err(error) => is_gone(&error),
        }
    }

    /// Sends SIGKILL to every process, at once if the kernel supports it (`cgroup.kill`, Linux 5.14) and answers in time.
    ///
    /// # Errors
    /// [`ActionError::Gone`] when no process is left; another error when the kernel refuses, or processes remain.
    pub fn kill(&self, by: &KillWriter) -> Result<Killed, ActionError> {
        if self.is_gone() {
            return Err(ActionError::Gone);
        }
        let Some(kill_file) = &self.kill_file else {
            return Ok(Killed { pids: self.kill_one_by_one()?, is_repeated: true });
        };
        let files = if self.has_monitors { self.kill_files_of_containers()? } else { vec![Arc::clone(kill_file)] };
        let is_written = by.kill(files).map_err(|errno| {
            ActionError::refused(format!("cannot write cgroup.kill in {}", self.cgroup.display()), errno)
        })?;
        if !is_written {
            return Ok(Killed { pids: self.kill_listed()?, is_repeated: true });
        }
        if self.has_monitors {
            let own = cgroup_processes::own(&self.directory).unwrap_or_default();
            self.signal_all(&own, Signal::KILL)?;
        }
        // Listing the processes takes longer than killing them. A process missing from the list has already given back its memory. A
        // container that starts beside the monitors meanwhile is killed at the next attempt.
        Ok(Killed { pids: self.first_processes(), is_repeated: self.has_monitors })
    }

    /// Opens `cgroup.kill` of each container: CRI-O's monitors, which are in the pod's cgroup, have to live.
    fn kill_files_of_containers(&self) -> Result<Vec<Arc<OwnedFd>>, ActionError> {
        let (mut files, mut refusal) = (Vec::new(), None);
        let open = |container: OwnedFd| {
            match rustix::fs::openat(container, "cgroup.kill", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
                Ok(file) => files.push(Arc::new(file)),
                // The cgroup was removed meanwhile.
                Err(Errno::NOENT | Errno::NODEV) => {}
                Err(errno) => refusal = Some(errno),
            }
            false
        };
        let opened = cgroup_processes::any_container(&self.directory, open);
        match opened.err().or(refusal.filter(|_| files.is_empty())) {
            Some(errno) => {
                let what = format!("cannot kill the containers of {}", self.cgroup.display());
                Err(ActionError::refused(what, errno))
            }
            None => Ok(files),
        }
    }

    /// Signals the processes, and those that were forked meanwhile. Nothing is frozen: that takes the same mutex as `cgroup.kill`.
    fn kill_listed(&self) -> Result<Vec<Pid>, ActionError> {
        let mut signalled: Vec<Pid> = Vec::new();
        for _ in 0..ROUNDS {
            let left = self.not_among(&signalled)?;
            if left.is_empty() {
                break;
            }
            signalled.extend(self.signal_all(&left, Signal::KILL)?);
        }
        Ok(signalled)
    }

    /// Returns how many processes are left. Where the kernel kills all at once, those in cgroups beyond the limit of a list are not
    /// counted.
    pub(super) fn count_left(&self) -> usize {
        if self.is_killed_at_once() { self.first_processes().len() } else { self.listed().map_or(0, |pids| pids.len()) }
    }

    fn first_processes(&self) -> Vec<Pid> {
        let mut pids = Vec::new();
        let _cut = cgroup_processes::collect(&self.directory, self.monitors, &mut pids);
        pids
    }

    /// Lists every process. With more cgroups than a list may have, a walk would hold up the loop, and the processes of this machine are
    /// fewer.
    fn listed(&self) -> std::io::Result<Vec<Pid>> {
        let mut pids = Vec::new();
        match cgroup_processes::collect(&self.directory, self.monitors, &mut pids)? {
            Listing::Whole => Ok(pids),
            Listing::Cut => {
                let mut pids = membership::members(&self.proc_root, self.version, &self.name)?;
                if self.has_monitors {
                    let monitors = cgroup_processes::monitors(&self.directory);
                    pids.retain(|pid| !monitors.contains(pid));
                }
                Ok(pids)
            }
        }
    }

    /// Whether the kernel kills all processes at once, including those being forked.
    pub fn is_killed_at_once(&self) -> bool {
        self.kill_file.is_some() && !self.has_monitors
    }

    /// Sends SIGTERM to every process; returns the processes that were signalled.
    ///
    /// # Errors
    /// When the processes cannot be listed, or none could be signalled.
    pub fn terminate(&self) -> Result<Vec<Pid>, ActionError> {
        let pids = self.processes()?;
        if pids.is_empty() {
            return Err(ActionError::Gone);
        }
        self.signal_all(&pids, Signal::TERM)
    }

    pub(super) fn processes(&self) -> Result<Vec<Pid>, ActionError> {
        self.listed()
            .map_err(|error| ActionError::refused(format!("cannot list {}/cgroup.procs", self.cgroup.display()), error))
    }

    /// Kills the processes one by one, then freezes the cgroup and kills those that were forked meanwhile. The first
    /// round runs unfrozen: a task that waits for memory or a disk does not freeze, and a frozen task does not die.
    fn kill_one_by_one(&self) -> Result<Vec<Pid>, ActionError> {
        // v1 shows an exiting task in the root, so that later the freezer might not be known for the workload's own.
        let was_frozen = if self.is_frozen() { self.own_freezer() } else { None };
        let mut frozen = None;
        let mut signalled: Vec<Pid> = Vec::new();
        for round in 0..ROUNDS {
            let mut left = self.not_among(&signalled)?;
            if left.is_empty() {
                self.thaw(was_frozen)?;
                return Ok(signalled);
            }
            if round > 0 && frozen.is_none() {
                frozen = Freezer::of(self).and_then(Freezer::freeze);
                left = self.not_among(&signalled)?;
            }
            signalled.extend(self.signal_all(&left, Signal::KILL)?);
        }
        self.thaw(was_frozen)?;
        Err(ActionError::StillAlive { rounds: ROUNDS, cgroup: self.cgroup.clone() })
    }

    /// Whether every process is frozen, as by `docker pause`, and answers no signal but SIGKILL.
    pub(super) fn is_frozen(&self) -> bool {
        match (self.version, &self.freezer) {
            (CgroupVersion::V1, Some(freezer)) => {
                kernel_text::read(freezer.join("freezer.state")).is_ok_and(|state| state.trim() != "THAWED")
            }
            (CgroupVersion::V1, None) => false,
            // Linux 5.2.
            (CgroupVersion::V2, _) => self.events.as_ref().is_some_and(|events| {
                events.read(&mut Buffer::of(EVENTS_SIZE)).is_ok_and(|events| keyed_value(events, "frozen") == Some(1))
            }),
        }
    }

    /// Thaws a workload that was frozen before it was killed, and the cgroups in it: on v1 a frozen task dies only then. v2 kills frozen tasks.
    fn thaw(&self, known: Option<(PathBuf, OwnedFd)>) -> Result<(), ActionError> {
        let Some((cgroup, directory)) = known.or_else(|| self.own_freezer()) else { return Ok(()) };
        let thaw = |cgroup: BorrowedFd<'_>| {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let state = rustix::fs::openat(cgroup, "freezer.state", flags, Mode::empty());
            // A cgroup that is gone needs no thawing.
            let _gone = state.and_then(|state| rustix::io::write(state, b"THAWED"));
        };
        thaw(directory.as_fd());
        let _cut = cgroup_processes::for_each_below(directory.as_fd(), Monitors::Included, thaw);
        match read_at(&directory, "freezer.parent_freezing") {
            Ok(from_above) if from_above.trim() == "1" => Err(ActionError::FrozenFromAbove { cgroup }),
            _ => Ok(()),
        }
    }

    /// Returns the cgroup in the v1 freezer hierarchy with the same path, if it holds processes of this workload and no others.
    fn own_freezer(&self) -> Option<(PathBuf, OwnedFd)> {
        let cgroup = self.freezer.clone().filter(|_| self.version == CgroupVersion::V1)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&cgroup, flags, Mode::empty()).ok()?;
        let mut pids = Vec::new();
        if cgroup_processes::collect(&directory, Monitors::Included, &mut pids).ok()? == Listing::Cut {
            return None;
        }
        let is_ours = |pid: &Pid| membership::is_in(&self.proc_root, *pid, self.version, &self.name).unwrap_or(false);
        (!pids.is_empty() && pids.iter().all(is_ours)).then_some((cgroup, directory))
    }

    /// Returns the processes not in `signalled`: a signalled process is listed until it is gone.
    fn not_among(&self, signalled: &[Pid]) -> Result<Vec<Pid>, ActionError> {
        let mut left = match self.processes() {
            Err(ActionError::Gone) => Vec::new(),
            listed => listed?,
        };
        left.retain(|pid| !signalled.contains(pid));
        Ok(left)
    }

    /// Signals all of `pids`; returns the processes that were signalled.
    fn signal_all(&self, pids: &[Pid], signal: Signal) -> Result<Vec<Pid>, ActionError> {
        let mut refusal = None;
        let mut reached = pids.to_vec();
        reached.retain(|pid| match self.signal(*pid, signal) {
            Ok(reached) => reached,
            Err(error) => {
                refusal = Some((*pid, error));
                false
            }
        });
        match refusal {
            Some((pid, error)) if reached.is_empty() => {
                let what = format!("cannot signal process {} of {} (needs CAP_KILL)", pid.0, self.name);
                Err(ActionError::refused(what, error))
            }
            _ => Ok(reached),
        }
    }

    /// Signals `pid` if it is still a process of this workload. The pidfd pins the process before its cgroup is
    /// checked.
    fn signal(&self, pid: Pid, signal: Signal) -> std::io::Result<bool> {
        let Some(raw) = rustix::process::Pid::from_raw(pid.0) else { return Ok(false) };
        let sent = match rustix::process::pidfd_open(raw, PidfdFlags::empty()) {
            Ok(_) if !membership::is_in(&self.proc_root, pid, self.version, &self.name)? => return Ok(false),
            Ok(pidfd) => rustix::process::pidfd_send_signal(&pidfd, signal),
            Err(errno) => Err(errno),
        };
        match sent {
            Ok(()) => Ok(true),
            // The process has ended, or the pid is a thread whose process is listed too.
            Err(Errno::SRCH | Errno::INVAL) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn read_at(directory: impl AsFd, name: &str) -> std::io::Result<String> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    std::io::read_to_string(std::fs::File::from(file))
}

/// Freezes all tasks of a cgroup through one file, which stays open from before the freeze until after the thaw.
struct Freezer {
    record: Option<FreezeRecord>,
    cgroup: PathBuf,
    state: OwnedFd,
    words: FreezerWords,
    /// v2 reports the frozen state in another file.
    events: Option<OwnedFd>,
}

/// Values that are written to and read from the file.
struct FreezerWords {
    freeze: &'static str,
    thaw: &'static str,
}

/// A frozen cgroup; thaws when dropped, also after an error.
struct Frozen(Freezer);

impl Freezer {
    /// Returns the freezer of the target. v1: [`Target::own_freezer`]. v2 (Linux 5.2): the cgroup itself.
    fn of(target: &Target) -> Option<Self> {
        let record = target.record.clone();
        let state_flags = OFlags::RDWR | OFlags::CLOEXEC;
        match target.version {
            CgroupVersion::V1 => {
                let (cgroup, directory) = target.own_freezer()?;
                let state = rustix::fs::openat(&directory, "freezer.state", state_flags, Mode::empty()).ok()?;
                let words = FreezerWords { freeze: "FROZEN", thaw: "THAWED" };
                Some(Self { record, cgroup, state, words, events: None })
            }
            CgroupVersion::V2 => {
                let state = rustix::fs::openat(&target.directory, "cgroup.freeze", state_flags, Mode::empty()).ok()?;
                let events_flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let events =
                    rustix::fs::openat(&target.directory, "cgroup.events", events_flags, Mode::empty()).ok()?;
                let words = FreezerWords { freeze: "1", thaw: "0" };
                Some(Self { record, cgroup: target.cgroup.clone(), state, words, events: Some(events) })
            }
        }
    }

    /// Freezes within the time limit. A failed freeze does not prevent the kill; a cgroup whose record cannot be
    /// written is not frozen.
    fn freeze(self) -> Option<Frozen> {
        if let Some(record) = &self.record {
            record.write(&self.cgroup).ok()?;
        }
        let asked = rustix::io::write(&self.state, self.words.freeze.as_bytes()).is_ok();
        let mut waited = Duration::ZERO;
        while asked && waited < FREEZE_LIMIT && !self.is_frozen() {
            std::thread::sleep(Duration::from_millis(1));
            waited += Duration::from_millis(1);
        }
        Some(Frozen(self))
    }

    fn is_frozen(&self) -> bool {
        let mut buffer = [0; 64];
        let file = self.events.as_ref().unwrap_or(&self.state);
        let length = rustix::io::pread(file, &mut buffer, 0).unwrap_or(0);
        let text = buffer.get(..length).map(String::from_utf8_lossy).unwrap_or_default();
        match self.events {
            Some(_) => keyed_value(&text, "frozen") == Some(1),
            None => text.trim() == self.words.freeze,
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // A cgroup that is gone needs no thawing.
        let _gone = rustix::io::write(&self.0.state, self.0.words.thaw.as_bytes());
        if let Some(record) = &self.0.record {
            record.clear();
        }
    }
}

#[cfg(test)]
#[path = "kill_tests.rs"]
mod tests;
