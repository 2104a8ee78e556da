//! Tells whether a workload is dying: its processes have received SIGKILL, from whomever, or are exiting.

use std::os::fd::AsFd;
use std::path::Path;

use crate::units::Pid;

use super::cgroup_processes::{for_each_process_until, read};

/// So many processes are looked at: a workload that is killed is killed as a whole.
const LOOKED_AT: usize = 4;
/// `PF_EXITING` in the kernel's `sched.h`.
const EXITING: u64 = 0x4;
/// SIGKILL in a mask of signals.
const SIGKILL: u64 = 1 << 8;

/// Returns whether the workload with this open cgroup has processes, and all that are looked at are dying.
pub fn is_dying(directory: impl AsFd, proc_root: &Path) -> bool {
    look(directory, proc_root) == Some(true)
}

/// Returns whether the workload has a process that is not dying, among those that are looked at.
pub fn lives_on(directory: impl AsFd, proc_root: &Path) -> bool {
    look(directory, proc_root) == Some(false)
}

/// Looks at processes until one is not dying. Returns whether all are; `None` without processes.
fn look(directory: impl AsFd, proc_root: &Path) -> Option<bool> {
    let (mut looked_at, mut are_dying) = (0, None);
    for_each_process_until(directory, |pid| {
        looked_at += 1;
        are_dying = is_process_dying(proc_root, pid).or(are_dying);
        are_dying == Some(false) || looked_at >= LOOKED_AT
    });
    are_dying
}

/// Returns `None` if the process has exited.
fn is_process_dying(proc_root: &Path, pid: Pid) -> Option<bool> {
    let file = |name| read(rustix::fs::CWD, proc_root.join(format!("{}/{name}", pid.0))).ok();
    Some(is_exiting(&file("stat")?) || has_sigkill(&file("status")?))
}

/// Reads `stat`: the flags are the seventh field after the name, which may contain anything, and the threads the eighteenth. The main
/// thread of a program may have ended long before the others.
fn is_exiting(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let field = |place| rest.split(' ').nth(place)?.parse::<u64>().ok();
    field(6).is_some_and(|flags| flags & EXITING != 0) && field(17).is_some_and(|threads| threads <= 1)
}

/// Reads the pending signals in `status`: those of the thread, and those of the whole process.
fn has_sigkill(status: &str) -> bool {
    let masks = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")));
    masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & SIGKILL != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_workload_lives_on_with_one_process_that_is_not_dying() {
        let root = tempfile::tempdir().unwrap();
        let process = |pid: u32, flags: u64| {
            let directory = root.path().join(pid.to_string());
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("stat"), format!("{pid} (a) S 1 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 1 0"))
                .unwrap();
            fs::write(directory.join("status"), "SigPnd:\t0\nShdPnd:\t0\n").unwrap();
        };
        process(7, 4);
        process(8, 0);
        for (processes, dies, lives) in
            [("", false, false), ("7\n", true, false), ("7\n8\n", false, true), ("9\n", false, false)]
        {
            fs::write(root.path().join("cgroup.procs"), processes).unwrap();
            let cgroup = fs::File::open(root.path()).unwrap();
            assert_eq!(
                (is_dying(&cgroup, root.path()), lives_on(&cgroup, root.path())),
                (dies, lives),
                "{processes:?}"
            );
        }
    }

    #[test]
    fn exiting_and_killed_processes_are_dying() {
        let stat = |flags: u64, threads| format!("7 (a) b) S 1 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 {threads} 0");
        assert!(is_exiting(&stat(0x40_0004, 1)) && !is_exiting(&stat(0x40_0100, 1)) && !is_exiting(""));
        assert!(!is_exiting(&stat(0x40_0004, 2)), "only the main thread has ended");
        let status =
            |thread: &str, process: &str| format!("Name:\tx\nSigQ:\t0/1\nSigPnd:\t{thread}\nShdPnd:\t{process}\n");
        let (none, kill, term) = ("0000000000000000", "0000000000000100", "0000000000004000");
        for (thread, process, expected) in
            [(none, none, false), (none, term, false), (kill, none, true), (term, kill, true)]
        {
            assert_eq!(has_sigkill(&status(thread, process)), expected, "{thread} {process}");
        }
        assert_eq!(is_process_dying(Path::new("/proc"), Pid(std::process::id().cast_signed())), Some(false));
        assert_eq!(is_process_dying(Path::new("/nowhere"), Pid(1)), None);
    }
}
