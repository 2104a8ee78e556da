//! Separates a process from the agent before it becomes a notification's program. The agent starts itself for this, because a fork of the
//! agent would make each page that the loop writes meanwhile fault.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// The name of the command that calls this.
pub const COMMAND: &str = "detached";
const OWN_SCORE: &str = "/proc/self/oom_score_adj";
/// The usual limit of open files. The agent raises its own, and some programs close every file below it.
const OPEN_FILES: u64 = 1024;

/// Becomes the program. Returns only if that fails.
///
/// The program runs in a session of its own, at `/`, with the nice value, the `oom_score_adj` and the limit of open files of an ordinary
/// process, and without the agent's files and capabilities. It inherits no locked memory: the kernel unlocks memory at execve(2).
pub fn exec(words: &[OsString]) -> io::Error {
    let Some((program, arguments)) = words.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program is named");
    };
    // Fails for the leader of a process group, which this process is not when the agent starts it.
    let _led = rustix::process::setsid();
    let _kept = rustix::process::setpriority_process(None, 0);
    if let Err(error) = give_up_protection() {
        return error;
    }
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let current = limit.maximum.map_or(Some(OPEN_FILES), |maximum| Some(maximum.min(OPEN_FILES)));
    let _kept = rustix::process::setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    close_files();
    let _stays = std::env::set_current_dir("/");
    if let Err(error) = give_up_capabilities() {
        return error;
    }
    Command::new(program).args(arguments).exec()
}

/// Gives up the agent's protection from the OOM killer. Other values stay: without a privilege they could not be lowered.
fn give_up_protection() -> io::Result<()> {
    let score = std::fs::read_to_string(OWN_SCORE)?;
    if score.trim_start().starts_with('-') { std::fs::write(OWN_SCORE, "0") } else { Ok(()) }
}

/// Gives up all capabilities for good: with them a program of root can reach every process through `/proc`. Under no_new_privs execve(2)
/// gives root only what it had before, so this needs no CAP_SETPCAP, unlike the bounding set.
fn give_up_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    set_no_new_privs(true)?;
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

/// Lets execve(2) close every file but stdin, stdout and stderr. The agent opens its files so; this is for files of the agent's starter.
fn close_files() {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = files.flatten().filter_map(|file| file.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2) {
        // SAFETY: F_SETFD only sets a flag of the descriptor (fcntl(2)). A number that is no descriptor any more is refused.
        unsafe {
            libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}
