//! A notification by a program.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::detached;
use super::failure_text::{SHOWN, log_first_line};
use super::notice::Notice;
use super::permitted;
use crate::config::NotificationOptions;

/// Time from SIGTERM to SIGKILL of a program that has run too long.
const GRACE: Duration = Duration::from_secs(1);
/// Without a PATH of its own, the agent gives the program this one.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs the program of the options, and waits until it ends. `agent` is this program.
pub(super) fn run(agent: &Path, options: &NotificationOptions, notice: &Notice) -> Result<(), String> {
    let Some((name, arguments)) = options.command.split_first() else { return Ok(()) };
    let named = |reason: String| format!("{name}: {reason}");
    let program = permitted::program(Path::new(name), &options.commands).map_err(named)?;
    let stdin =
        document(&notice.json()?).map_err(|error| named(format!("the incident cannot be handed over: {error}")))?;
    let path = std::env::var("PATH").unwrap_or_else(|_| USUAL_PATH.to_owned());
    let mut command = Command::new(agent);
    command
        .args([detached::COMMAND, "--"])
        .arg(program)
        .args(arguments)
        .env_clear()
        .env("PATH", path)
        .envs(notice.variables());
    let child = command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| named(format!("cannot be started: {error}")))?;
    let mut story = Story::of(child.stderr.take());
    let failure = match wait(&mut child, &mut story, options.timeout).map_err(|error| named(error.to_string()))? {
        Ended::Itself(status) if status.success() => return Ok(()),
        Ended::Itself(status) => status.to_string(),
        Ended::Late => format!("ended after {} s, the timeout", options.timeout.as_secs_f64()),
    };
    log_first_line(name, &story.bytes);
    Err(named(failure))
}

/// Returns a file in memory, at its beginning. A program that does not read it blocks nothing.
fn document(json: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("incident", MemfdFlags::CLOEXEC)?);
    file.write_all(json)?;
    file.rewind()?;
    Ok(file)
}

enum Ended {
    Itself(ExitStatus),
    Late,
}

/// Waits for the program's end, and ends it and its process group after the timeout.
fn wait(child: &mut Child, story: &mut Story, timeout: Duration) -> std::io::Result<Ended> {
    let pid = Pid::from_child(child);
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        // Before Linux 5.3, or without a free descriptor, the end of the program cannot be awaited.
        Err(errno) => {
            signal_group(child, Signal::KILL);
            child.wait()?;
            return Err(errno.into());
        }
    };
    let mut deadline = Instant::now() + timeout;
    let mut signals = [Signal::TERM, Signal::KILL].into_iter();
    let mut is_late = false;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut files = vec![PollFd::new(&pidfd, PollFlags::IN)];
        files.extend(story.stderr.as_ref().map(|stderr| PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::IN)));
        let left = Timespec { tv_sec: left.as_secs().try_into().unwrap_or(1), tv_nsec: left.subsec_nanos().into() };
        let _interrupted = poll(&mut files, Some(&left));
        let has_ended = files.first().is_some_and(|file| !file.revents().is_empty());
        story.read();
        if has_ended {
            if is_late {
                // Children that ignore SIGTERM remain in the group, whose id is free only after the wait.
                signal_group(child, Signal::KILL);
            }
            let status = child.wait()?;
            return Ok(if is_late { Ended::Late } else { Ended::Itself(status) });
        }
        if Instant::now() < deadline {
            continue;
        }
        is_late = true;
        deadline = Instant::now() + GRACE;
        // After SIGKILL the wait goes on: only the kernel can delay the end now.
        signal_group(child, signals.next().unwrap_or(Signal::KILL));
    }
}

fn signal_group(child: &mut Child, signal: Signal) {
    if kill_process_group(Pid::from_child(child), signal).is_err() {
        // It has no group of its own yet.
        let _gone = child.kill();
    }
}

/// The start of the program's stderr. The rest is read and dropped, so that the program can go on.
struct Story {
    stderr: Option<ChildStderr>,
    bytes: Vec<u8>,
}

impl Story {
    fn of(stderr: Option<ChildStderr>) -> Self {
        let does_not_block = |file: &ChildStderr| {
            let flags = fcntl_getfl(file).unwrap_or(OFlags::empty());
            fcntl_setfl(file, flags | OFlags::NONBLOCK).is_ok()
        };
        Self { stderr: stderr.filter(does_not_block), bytes: Vec::new() }
    }

    fn read(&mut self) {
        let Some(stderr) = &mut self.stderr else { return };
        let mut buffer = [0; 4096];
        match stderr.read(&mut buffer) {
            Ok(0) => self.stderr = None,
            Ok(length) => {
                let room = SHOWN.saturating_sub(self.bytes.len());
                self.bytes.extend(buffer.iter().take(length.min(room)));
            }
            Err(_) => {}
        }
    }
}
