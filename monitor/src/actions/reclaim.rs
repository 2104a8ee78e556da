//! Proactive reclaim: the kernel takes memory back from a workload (`memory.reclaim`, cgroup v2, Linux 5.19) before an
//! eviction.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::config::{self};
use crate::eviction::proactive_reclaim::Answer;
use crate::node::{CgroupVersion, Hierarchy};
use crate::units::Bytes;

use super::action_error::ActionError;

/// Bytes of one write. The kernel rarely checks for signals and for its progress within a write, so the agent checks
/// between two writes.
const PIECE: u64 = 8 << 20;
/// The default action of this signal is none. With a handler the signal ends the system call that it interrupts.
const INTERRUPT: i32 = libc::SIGURG;

/// Whether the agent tries to reclaim memory before an eviction.
#[derive(Debug, Default)]
pub enum ReclaimFirst {
    /// Off: not configured, or impossible on this machine.
    #[default]
    Off,
    /// Dry run: the candidate is only reported.
    Observe,
    /// On: this thread writes the requests.
    Enforce(Reclaimer),
}

impl ReclaimFirst {
    /// Returns the mode as configured.
    ///
    /// # Errors
    /// The reason if reclaim is impossible on this machine.
    pub fn of(mode: config::Mode, deadline: Duration, hierarchy: &Hierarchy) -> Result<Self, String> {
        if deadline.is_zero() {
            return Ok(Self::Off);
        }
        is_possible(hierarchy)?;
        match mode {
            config::Mode::Observe => Ok(Self::Observe),
            config::Mode::Enforce => {
                let started = Reclaimer::start();
                started.map(Self::Enforce).map_err(|error| format!("cannot start the thread that asks: {error}"))
            }
        }
    }
}

/// Checks that reclaim is possible on this machine.
///
/// # Errors
/// The missing requirement.
pub fn is_possible(hierarchy: &Hierarchy) -> Result<(), String> {
    match hierarchy.version {
        CgroupVersion::V1 => Err("cgroup v1 has no memory.reclaim: evictions.reclaimDeadline has no effect".to_owned()),
        CgroupVersion::V2 if hierarchy.memory.join("memory.reclaim").exists() => Ok(()),
        CgroupVersion::V2 => {
            Err("this kernel has no memory.reclaim (Linux 5.19): evictions.reclaimDeadline has no effect".to_owned())
        }
    }
}

/// A thread that writes the requests. The kernel answers only when it is done, and the loop must not wait. The thread
/// starts before memory is short.
#[derive(Debug)]
pub struct Reclaimer {
    orders: Sender<Order>,
    /// Answers with the number of their order. The answer to an interrupted order may arrive during the next order.
    answers: mpsc::UnboundedReceiver<(u64, Answer)>,
    last: u64,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    busy: AtomicBool,
    stop: AtomicBool,
}

#[derive(Debug)]
struct Order {
    number: u64,
    file: OwnedFd,
    bytes: Bytes,
}

impl Reclaimer {
    /// Starts the thread; it ends with the value.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start() -> std::io::Result<Self> {
        catch_interrupts()?;
        let (orders, work) = channel();
        let (reply, answers) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let run = move || serve(&work, &reply, &of_thread);
        let thread = std::thread::Builder::new().name("reclaim".to_owned()).stack_size(64 * 1024).spawn(run)?;
        Ok(Self { orders, answers, last: 0, shared, thread })
    }

    /// Whether the last order is over: it was answered, or it was interrupted and has ended since.
    pub fn is_idle(&self) -> bool {
        !self.shared.busy.load(Ordering::Acquire)
    }

    /// Asks for `bytes` of the cgroup `directory`. [`Self::answer`] returns the outcome.
    ///
    /// # Errors
    /// When the cgroup is gone or cannot be asked.
    pub fn ask(&mut self, directory: impl AsFd, bytes: Bytes) -> Result<(), ActionError> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, "memory.reclaim", flags, Mode::empty())
            .map_err(|errno| ActionError::refused("cannot open memory.reclaim", errno))?;
        self.last += 1;
        self.shared.stop.store(false, Ordering::Release);
        self.shared.busy.store(true, Ordering::Release);
        self.orders
            .send(Order { number: self.last, file, bytes })
            .map_err(|_| ActionError::refused("the thread that reclaims has ended", std::io::Error::other("no thread")))
    }

    /// Waits for the kernel's answer. Cancel-safe.
    pub async fn answer(&mut self) -> Answer {
        loop {
            match self.answers.recv().await {
                Some((number, answer)) if number == self.last => return answer,
                Some(_given_up) => {}
                None => return std::future::pending().await,
            }
        }
    }

    /// Interrupts the order under way; its answer is dropped.
    pub fn interrupt(&self) {
        self.shared.stop.store(true, Ordering::Release);
        // SAFETY: the handle is held, so the thread id is valid even after the thread has ended. The signal's handler
        // does nothing.
        let _no_matter = unsafe { libc::pthread_kill(self.thread.as_pthread_t(), INTERRUPT) };
    }
}

/// Installs the handler, without which the signal would be ignored. SA_RESTART is not set, so that the signal ends the
/// system call.
fn catch_interrupts() -> std::io::Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: all-zero is a valid sigaction with an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the action is whole, and its handler does nothing, which is safe anywhere.
    match unsafe { libc::sigaction(INTERRUPT, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn serve(orders: &Receiver<Order>, reply: &mpsc::UnboundedSender<(u64, Answer)>, shared: &Shared) {
    // A thread started by a reload inherits the loop's priority. Lowering a priority is always allowed.
    let _kept = rustix::process::setpriority_process(None, 0);
    while let Ok(order) = orders.recv() {
        let answer = carry_out(&order, &shared.stop);
        shared.busy.store(false, Ordering::Release);
        // The receiver may have stopped waiting.
        let _sent = reply.send((order.number, answer));
    }
}

fn carry_out(order: &Order, stop: &AtomicBool) -> Answer {
    let mut left = order.bytes.0;
    while left > 0 && !stop.load(Ordering::Acquire) {
        let piece = left.min(PIECE);
        match rustix::io::write(&order.file, piece.to_string().as_bytes()) {
            Ok(_) => left -= piece,
            // The kernel reclaimed less than the piece: nothing more can be reclaimed.
            Err(Errno::AGAIN) => return Answer::Done,
            Err(Errno::INTR) => {}
            Err(_) => return Answer::Refused,
        }
    }
    Answer::Done
}

#[cfg(test)]
#[path = "reclaim_tests.rs"]
mod tests;
