//! Releases the memory of a killed process before its own exit does.

use std::os::fd::AsRawFd;
use std::sync::mpsc::{Sender, channel};

use rustix::process::PidfdFlags;

use crate::units::Pid;

/// A thread that calls `process_mrelease` (Linux 5.15). Releasing takes time proportional to the memory, and the loop
/// must not wait. The thread starts before memory is short.
#[derive(Debug)]
pub struct Releaser {
    queue: Sender<Vec<Pid>>,
}

impl Releaser {
    /// Starts the thread; it ends with the value.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start() -> std::io::Result<Self> {
        let (queue, work) = channel::<Vec<Pid>>();
        let release_all = move || {
            for pid in work.into_iter().flatten() {
                release(pid);
            }
        };
        std::thread::Builder::new().name("release".to_owned()).stack_size(64 * 1024).spawn(release_all)?;
        Ok(Self { queue })
    }

    /// Queues processes that have been killed.
    pub fn release(&self, pids: Vec<Pid>) {
        // Without the thread the kernel frees the memory later, at the exit.
        let _unreleased = self.queue.send(pids);
    }
}

/// Whether this kernel has `process_mrelease` (Linux 5.15).
pub fn is_possible() -> bool {
    // SAFETY: descriptor -1 never exists, so the call has no effect. It touches no memory of this process.
    let refused = unsafe { libc::syscall(libc::SYS_process_mrelease, -1, 0) };
    refused == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

/// Releases the memory of one process. The kernel refuses a process that is not dying, so a reused pid is safe.
fn release(pid: Pid) {
    let Some(raw) = rustix::process::Pid::from_raw(pid.0) else { return };
    let Ok(pidfd) = rustix::process::pidfd_open(raw, PidfdFlags::empty()) else { return };
    // SAFETY: process_mrelease takes a descriptor, which is open here, and flags, which must be 0. It touches no memory
    // of this process.
    unsafe {
        libc::syscall(libc::SYS_process_mrelease, pidfd.as_raw_fd(), 0);
    }
}
