//! Finds out whether a workload is dying: its processes have received SIGKILL, from any sender, or are exiting.

use std::os::fd::AsFd;
use std::path::Path;

use crate::units::Pid;

use super::cgroup_processes::{Monitors, for_each_process_until, read};
use super::membership::has_exited;

/// So many processes are looked at, and no more after the first one that is not dying.
const LOOKED_AT: usize = 64;
/// `PF_EXITING` in the kernel's `sched.h`.
const EXITING: u64 = 0x4;
/// SIGKILL in a mask of signals.
const SIGKILL: u64 = 1 << 8;

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Dying,
    /// The main thread has ended. SIGKILL does not show any more in a thread that has taken it, so the others may be dying.
    MainThreadEnded,
    Alive,
}

/// Returns whether the workload with this open cgroup has processes, and all that are looked at are dying.
pub fn is_dying(directory: impl AsFd, monitors: Monitors, proc_root: &Path) -> bool {
    let mut are_dying = false;
    look(directory, monitors, proc_root, |state| {
        are_dying = state == State::Dying;
        !are_dying
    });
    are_dying
}

/// Returns whether the workload has a process that is alive, among those that are looked at.
pub fn lives_on(directory: impl AsFd, monitors: Monitors, proc_root: &Path) -> bool {
    let mut lives = false;
    look(directory, monitors, proc_root, |state| {
        lives = state == State::Alive;
        lives
    });
    lives
}

/// Looks at processes until `is_enough`. Skips one that has exited.
fn look(directory: impl AsFd, monitors: Monitors, proc_root: &Path, mut is_enough: impl FnMut(State) -> bool) {
    let mut looked_at = 0;
    for_each_process_until(directory, monitors, |pid| {
        looked_at += 1;
        state(proc_root, pid).is_some_and(&mut is_enough) || looked_at >= LOOKED_AT
    });
}

/// Returns `None` if the process has exited. A process that cannot be read is taken for alive.
fn state(proc_root: &Path, pid: Pid) -> Option<State> {
    let file = |name| read(rustix::fs::CWD, proc_root.join(format!("{}/{name}", pid.0)));
    let stat_and_status = || {
        let of_stat = state_by_stat(&file("stat")?);
        // The file `stat` shows the signals of the main thread, and a fatal signal reaches each thread. A main thread that has ended shows
        // only in `status` that the others are to end.
        let is_dying = of_stat == State::MainThreadEnded && has_sigkill(&file("status")?);
        Ok(if is_dying { State::Dying } else { of_stat })
    };
    match stat_and_status() {
        Ok(state) => Some(state),
        Err(error) if has_exited(&error) => None,
        Err(_unreadable) => Some(State::Alive),
    }
}

/// Reads `stat`: the flags are the seventh field after the name, which may contain anything, the threads the eighteenth, and the pending
/// signals of the main thread the twenty-ninth. The main thread of a program may have ended long before the others.
fn state_by_stat(stat: &str) -> State {
    let Some((_, rest)) = stat.rsplit_once(") ") else { return State::Alive };
    let field = |place| rest.split(' ').nth(place)?.parse::<u64>().ok();
    match (field(6), field(17)) {
        (Some(flags), Some(0 | 1)) if flags & EXITING != 0 => State::Dying,
        (Some(flags), _) if flags & EXITING != 0 => State::MainThreadEnded,
        _ if field(28).is_some_and(|pending| pending & SIGKILL != 0) => State::Dying,
        _ => State::Alive,
    }
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

    /// Returns the file `stat` of a process, up to its pending signals and one more field.
    fn stat_of(pid: u32, flags: u64, threads: u32, pending: u64) -> String {
        format!(
            "{pid} (a) b) S 1 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 {threads} 0 9 10 11 12 13 14 15 16 17 {pending} 4096"
        )
    }

    #[test]
    fn a_workload_lives_on_with_one_process_that_is_alive() {
        let root = tempfile::tempdir().unwrap();
        let process = |pid: u32, flags: u64, threads: u32| {
            let directory = root.path().join(pid.to_string());
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("stat"), stat_of(pid, flags, threads, 0)).unwrap();
            fs::write(directory.join("status"), "SigPnd:\t0\nShdPnd:\t0\n").unwrap();
        };
        (1..=6).for_each(|pid| process(pid, 4, 1));
        process(7, 4, 3);
        process(8, 0, 1);
        for (processes, dies, lives) in [
            ("", false, false),
            ("1", true, false),
            ("9", false, false),
            ("1 8", false, true),
            ("1 2 3 4 5 6 8", false, true),
            // The main thread has taken SIGKILL and ended; another one is stuck.
            ("7", false, false),
            ("1 7 8", false, true),
        ] {
            fs::write(root.path().join("cgroup.procs"), processes.replace(' ', "\n") + "\n").unwrap();
            let cgroup = fs::File::open(root.path()).unwrap();
            let found = [is_dying, lives_on].map(|ask| ask(&cgroup, Monitors::Included, root.path()));
            assert_eq!(found, [dies, lives], "{processes:?}");
        }
    }

    #[test]
    fn exiting_and_killed_processes_are_dying() {
        let stat = |flags, threads, pending| stat_of(7, flags, threads, pending);
        for (text, expected) in [
            (stat(0x40_0004, 1, 0), State::Dying),
            (stat(0x40_0004, 2, 0x100), State::MainThreadEnded),
            (stat(0x40_0100, 1, 0), State::Alive),
            (stat(0x40_0100, 1, 0x4000), State::Alive),
            (stat(0x40_0100, 9, 0x4100), State::Dying),
            (String::new(), State::Alive),
        ] {
            assert_eq!(state_by_stat(&text), expected, "{text}");
        }
        let status =
            |thread: &str, process: &str| format!("Name:\tx\nSigQ:\t0/1\nSigPnd:\t{thread}\nShdPnd:\t{process}\n");
        let (none, kill, term) = ("0000000000000000", "0000000000000100", "0000000000004000");
        for (thread, process, expected) in
            [(none, none, false), (none, term, false), (kill, none, true), (term, kill, true)]
        {
            assert_eq!(has_sigkill(&status(thread, process)), expected, "{thread} {process}");
        }
        assert_eq!(state(Path::new("/proc"), Pid(std::process::id().cast_signed())), Some(State::Alive));
        assert_eq!(state(Path::new("/nowhere"), Pid(1)), None);
    }

    #[test]
    fn a_name_cut_in_a_character_does_not_end_a_process() {
        let root = tempfile::tempdir().unwrap();
        for (pid, name) in [(1, b"caf\xc3".as_slice()), (2, b"\xff\xfe"), (3, b"") /* unreadable */] {
            let directory = root.path().join(pid.to_string());
            fs::create_dir_all(&directory).unwrap();
            if name.is_empty() {
                fs::create_dir(directory.join("stat")).unwrap();
                continue;
            }
            let stat = stat_of(pid, 0, 1, 0x100).replace("a) b", "NAME").into_bytes();
            let at = stat.windows(4).position(|part| part == b"NAME").unwrap();
            fs::write(directory.join("stat"), [&stat[..at], name, &stat[at + 4..]].concat()).unwrap();
        }
        assert_eq!(
            [1, 2, 3].map(|pid| state(root.path(), Pid(pid))),
            [State::Dying, State::Dying, State::Alive].map(Some)
        );
    }
}
