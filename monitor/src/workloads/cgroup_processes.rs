//! The processes of a cgroup and of all cgroups below it.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, RawDir};

use super::workload::Kind;
use crate::units::{Pid, kernel_text};

/// Cgroups nested deeper than this are skipped. No runtime nests so deep, but an attacker could, to exhaust the agent's stack.
pub(super) const DEPTH_LIMIT: usize = 64;

/// The most cgroups that are listed below one workload. A user to whom a cgroup is delegated can make 300,000, and the loop must not wait
/// for all of them.
pub(super) const MOST_IN_WORKLOAD: usize = 2000;
/// The most cgroups that are listed in all, and the most names that are read from one directory.
pub(super) const MOST_IN_ALL: usize = 20_000;
/// The most cgroups that are held open at once.
const MOST_OPEN: usize = 256;

/// The start of the name of the cgroup in which CRI-O's monitor of one container runs. On OpenShift it is in the pod's cgroup
/// (`monitor_cgroup = "pod"`). CRI-O learns only from this process (conmon) that the container has ended.
const MONITOR: &[u8] = b"crio-conmon-";

/// Whether CRI-O's monitors are among a workload's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Monitors {
    /// Such a name means nothing: the owner of the cgroup may choose the names in it.
    Included,
    /// A monitor in a pod's cgroup is a part of the runtime: it is neither killed nor given another `oom_score_adj`. Only root makes cgroups
    /// directly in that of a pod; a container may choose names below its own.
    LeftOut,
}

impl Monitors {
    #[must_use]
    pub const fn of(kind: &Kind) -> Self {
        if kind.pod_uid().is_some() { Self::LeftOut } else { Self::Included }
    }

    /// Lists the cgroups in that of a workload.
    fn names(self, directory: impl AsFd) -> rustix::io::Result<Vec<CString>> {
        let mut names = names(directory)?;
        names.retain(|name| self == Self::Included || !is_monitor(name));
        Ok(names)
    }
}

/// Whether a list has every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    Whole,
    /// There are more cgroups than [`MOST_IN_WORKLOAD`], or deeper ones than [`DEPTH_LIMIT`].
    Cut,
}

/// The size of the buffer for a file. Most files of a cgroup are shorter.
const FILE_BYTES: usize = 1024;
/// The size of the buffer for a directory. Most directories of a cgroup are shorter.
const LISTING_BYTES: usize = 8192;

/// Appends the processes of the open cgroup `directory` and of the cgroups below it to `pids`. Fails when `directory` itself cannot be
/// read; a cgroup below that is removed meanwhile is skipped.
pub fn collect(directory: impl AsFd, monitors: Monitors, pids: &mut Vec<Pid>) -> std::io::Result<Listing> {
    append(directory.as_fd(), pids)?;
    // The error of a cgroup below is ignored, because a cgroup is removed only after its processes have exited.
    Ok(for_each_below(directory.as_fd(), monitors, |child| drop(append(child, pids)))?)
}

/// Returns the processes of the open cgroup alone.
pub fn own(directory: impl AsFd) -> std::io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    append(directory.as_fd(), &mut pids)?;
    Ok(pids)
}

/// Returns CRI-O's monitors in this pod's cgroup.
pub fn monitors(pod: impl AsFd) -> Vec<Pid> {
    let names = names(&pod).unwrap_or_default();
    let monitors = names.iter().filter(|name| is_monitor(name)).filter_map(|name| open(&pod, name).ok());
    monitors.filter_map(|directory| own(directory).ok()).flatten().collect()
}

/// Calls `visit` for each of the containers in this pod's cgroup, until it returns true. Skips a cgroup that is removed meanwhile.
pub fn any_container(pod: impl AsFd, visit: impl FnMut(OwnedFd) -> bool) -> rustix::io::Result<bool> {
    let names = Monitors::LeftOut.names(&pod)?;
    Ok(names.iter().filter_map(|name| open(&pod, name).ok()).any(visit))
}

fn is_monitor(name: &CStr) -> bool {
    name.to_bytes().starts_with(MONITOR)
}

/// Returns at most `at_most` processes of the open cgroup `directory` and of the cgroups below it. Lists no more than that takes.
pub(super) fn first_processes(directory: impl AsFd, monitors: Monitors, at_most: usize) -> Vec<Pid> {
    let mut pids = Vec::new();
    for_each_process_until(directory, monitors, |pid| {
        pids.push(pid);
        pids.len() >= at_most
    });
    pids
}

/// As [`first_processes`]. Lists at most `cgroups` cgroups, so that the work is the same for a workload of thousands.
pub(super) fn first_processes_within(
    directory: impl AsFd,
    monitors: Monitors,
    at_most: usize,
    cgroups: usize,
) -> Vec<Pid> {
    let (mut pids, mut listed) = (Vec::new(), 0);
    for_each_cgroup_until(directory, monitors, |own| {
        pids.extend(own);
        listed += 1;
        pids.len() >= at_most || listed >= cgroups
    });
    pids.truncate(at_most);
    pids
}

/// Visits the processes of the open cgroup `directory` and of the cgroups below it, until `is_enough` returns true.
pub(super) fn for_each_process_until(directory: impl AsFd, monitors: Monitors, mut is_enough: impl FnMut(Pid) -> bool) {
    for_each_cgroup_until(directory, monitors, |pids| pids.into_iter().any(&mut is_enough));
}

/// Visits the open cgroup `directory` and the cgroups below it, each with its own processes, until `is_enough` returns true.
fn for_each_cgroup_until(directory: impl AsFd, monitors: Monitors, mut is_enough: impl FnMut(Vec<Pid>) -> bool) {
    let mut visit = |cgroup: BorrowedFd<'_>| {
        let mut pids = Vec::new();
        // A cgroup that is removed meanwhile has no processes.
        drop(append(cgroup, &mut pids));
        is_enough(pids)
    };
    if !visit(directory.as_fd()) {
        let children = monitors.names(&directory).unwrap_or_default();
        Below::default().any_of(directory.as_fd(), &children, DEPTH_LIMIT, &mut visit);
    }
}

fn append(directory: BorrowedFd<'_>, pids: &mut Vec<Pid>) -> std::io::Result<()> {
    // The kernel prints 0 for a process of another pid namespace. The agent cannot address that process.
    let text = read(directory, "cgroup.procs")?;
    pids.extend(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).map(Pid));
    Ok(())
}

/// Returns at most `at_most` processes of a cgroup, each with its `oom_score_adj`.
pub fn oom_scores(directory: impl AsFd, monitors: Monitors, proc_root: &Path, at_most: usize) -> Vec<(Pid, i16)> {
    let pids = first_processes(directory, monitors, at_most).into_iter();
    pids.filter_map(|pid| Some((pid, oom_score(proc_root, pid)?))).collect()
}

/// Returns the `oom_score_adj` of a process; nothing if the process has exited.
#[must_use]
pub fn oom_score(proc_root: &Path, pid: Pid) -> Option<i16> {
    let text = read(rustix::fs::CWD, proc_root.join(format!("{}/oom_score_adj", pid.0))).ok()?;
    text.trim().parse().ok()
}

pub(super) fn has_processes(directory: BorrowedFd<'_>) -> bool {
    let file = rustix::fs::openat(directory, "cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    file.and_then(|file| rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut [0_u8; 1])))
        .is_ok_and(|read| read > 0)
}

/// Returns whether a process is in this cgroup or below it. `children` are the names of the cgroups in it. If a list is cut, a process is
/// taken to be there.
pub(super) fn is_inhabited(directory: BorrowedFd<'_>, children: &[CString]) -> bool {
    let mut below = Below::default();
    has_processes(directory)
        || below.any_of(directory, children, DEPTH_LIMIT, &mut has_processes)
        || below.listing == Listing::Cut
}

/// Calls `visit` for each cgroup below `directory`, a parent before its children, within the limits of a list. Fails if `directory`
/// cannot be listed. Skips a cgroup that is removed meanwhile.
pub fn for_each_below(
    directory: BorrowedFd<'_>,
    monitors: Monitors,
    mut visit: impl FnMut(BorrowedFd<'_>),
) -> rustix::io::Result<Listing> {
    let mut visit = |child: BorrowedFd<'_>| {
        visit(child);
        false
    };
    let mut below = Below::default();
    below.any_of(directory, &monitors.names(directory)?, DEPTH_LIMIT, &mut visit);
    Ok(below.listing)
}

/// A walk over the cgroups below one cgroup, with what is left of its limit.
struct Below {
    left: usize,
    listing: Listing,
}

impl Default for Below {
    fn default() -> Self {
        Self { left: MOST_IN_WORKLOAD, listing: Listing::Whole }
    }
}

impl Below {
    /// Returns whether `holds` is true for one of the cgroups `children` of `directory` or for a cgroup below them. Stops at the
    /// first, and at the limit.
    fn any_of(
        &mut self,
        directory: BorrowedFd<'_>,
        children: &[CString],
        depth: usize,
        holds: &mut impl FnMut(BorrowedFd<'_>) -> bool,
    ) -> bool {
        for name in children {
            let (Some(left), Some(depth)) = (self.left.checked_sub(1), depth.checked_sub(1)) else {
                self.listing = Listing::Cut;
                return false;
            };
            self.left = left;
            let Ok(child) = open(directory, name) else { continue };
            if holds(child.as_fd()) || self.any_of(child.as_fd(), &names(&child).unwrap_or_default(), depth, holds) {
                return true;
            }
        }
        false
    }
}

/// Reads a file that the kernel generates on read. Such a file has no size. A read that does not fill its buffer has reached the end, as
/// long as the buffer is smaller than a page (`seq_read_iter`).
pub(crate) fn read(directory: BorrowedFd<'_>, name: impl rustix::path::Arg) -> std::io::Result<String> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut text, mut piece) = (Vec::new(), [0; FILE_BYTES]);
    loop {
        let length = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut piece))?;
        text.extend_from_slice(piece.get(..length).unwrap_or_default());
        if length < FILE_BYTES {
            return Ok(kernel_text::text(text));
        }
    }
}

/// Opens the first cgroups in a cgroup. Omits a cgroup that is removed meanwhile.
pub(crate) fn children(directory: impl AsFd) -> rustix::io::Result<Vec<OwnedFd>> {
    Ok(names(&directory)?.iter().filter_map(|name| open(&directory, name).ok()).take(MOST_OPEN).collect())
}

/// Lists the cgroups in a cgroup, at most one more than [`MOST_IN_ALL`].
pub(super) fn names(directory: impl AsFd) -> rustix::io::Result<Vec<CString>> {
    // Listing is the most expensive call here, and most cgroups contain only files. The number of links is 2 plus the number of
    // directories; filesystems that do not count directories report 1.
    if rustix::fs::fstat(&directory)?.st_nlink == 2 {
        return Ok(Vec::new());
    }
    // The read position belongs to the open directory, so the directory is opened again.
    let listed = open(&directory, c".")?;
    let is_child = |name: &CStr| name != c"." && name != c"..";
    let (mut names, mut buffer) = (Vec::new(), [MaybeUninit::uninit(); LISTING_BYTES]);
    let mut entries = RawDir::new(&listed, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if entry.file_type() == FileType::Directory && is_child(entry.file_name()) {
            names.push(entry.file_name().to_owned());
            if names.len() > MOST_IN_ALL {
                break;
            }
        }
    }
    Ok(names)
}

pub(super) fn open(directory: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::PodUid;

    #[test]
    fn processes_below_are_collected() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("container")).unwrap();
        std::fs::write(root.path().join("cgroup.procs"), "0\n12\n").unwrap();
        std::fs::write(root.path().join("container/cgroup.procs"), "7\n").unwrap();
        let directory = std::fs::File::open(root.path()).unwrap();
        let mut pids = Vec::new();
        assert_eq!(collect(&directory, Monitors::Included, &mut pids).unwrap(), Listing::Whole);
        assert_eq!(pids, [Pid(12), Pid(7)]);
    }

    #[test]
    fn only_in_a_pod_the_monitors_of_crio_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        let cgroups =
            [("", ""), ("crio-1.scope", ""), ("crio-1.scope/container", "7\n"), ("crio-conmon-1.scope", "5\n")];
        // Below its own cgroup a container may choose any name.
        for (path, pids) in cgroups.into_iter().chain([("crio-1.scope/crio-conmon-2.scope", "9\n")]) {
            std::fs::create_dir_all(root.path().join(path)).unwrap();
            std::fs::write(root.path().join(path).join("cgroup.procs"), pids).unwrap();
        }
        let directory = std::fs::File::open(root.path()).unwrap();
        for (kind, expected) in [
            (Kind::Pod(PodUid("u".to_owned())), &[7, 9][..]),
            (Kind::Service, &[5, 7, 9]),
            (Kind::Scope, &[5, 7, 9]),
            (Kind::Container("c".to_owned()), &[5, 7, 9]),
            (Kind::Cgroup, &[5, 7, 9]),
        ] {
            let (mut pids, of) = (Vec::new(), Monitors::of(&kind));
            assert_eq!(collect(&directory, of, &mut pids).unwrap(), Listing::Whole);
            pids.sort_unstable();
            assert_eq!(pids, expected.iter().map(|pid| Pid(*pid)).collect::<Vec<_>>(), "{kind:?}");
            assert_eq!(first_processes(&directory, of, 9).len(), expected.len(), "{kind:?}");
        }
        assert_eq!(monitors(&directory), [Pid(5)]);
        let mut containers = 0;
        any_container(&directory, |_| {
            containers += 1;
            false
        })
        .unwrap();
        assert_eq!(containers, 1);
    }

    #[test]
    fn a_list_of_too_many_or_too_deep_cgroups_is_cut() {
        let listed = |cgroups: &dyn Fn(&Path)| {
            let root = crate::workloads::cgroup_walk::tests::directory();
            std::fs::write(root.path().join("cgroup.procs"), "").unwrap();
            cgroups(root.path());
            let directory = std::fs::File::open(root.path()).unwrap();
            let inhabited = is_inhabited(directory.as_fd(), &names(&directory).unwrap());
            (collect(&directory, Monitors::Included, &mut Vec::new()).unwrap(), inhabited)
        };
        let wide = |many: usize| {
            listed(&move |root: &Path| (0..many).for_each(|it| std::fs::create_dir(root.join(it.to_string())).unwrap()))
        };
        let deep =
            |many: usize| listed(&move |root: &Path| std::fs::create_dir_all(root.join("a/".repeat(many))).unwrap());
        assert_eq!((wide(MOST_IN_WORKLOAD), deep(DEPTH_LIMIT)), ((Listing::Whole, false), (Listing::Whole, false)));
        assert_eq!(wide(MOST_IN_WORKLOAD + 1), (Listing::Cut, true), "unseen processes are taken to be there");
        assert_eq!(deep(DEPTH_LIMIT + 1), (Listing::Cut, true));
    }

    #[test]
    fn a_cgroup_that_cannot_be_read_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(root.path()).unwrap();
        assert!(collect(&directory, Monitors::Included, &mut Vec::new()).is_err());
    }
}
