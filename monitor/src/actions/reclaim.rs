//! Asking the kernel to take memory back from a workload (`memory.reclaim`, cgroup v2, Linux 5.19), before anybody is killed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
use crate::eviction::proactive_reclaim::{Answer, Holding};
use crate::node::pinned_file::{keyed_value, number_or_max};
use crate::node::{CgroupVersion, Hierarchy};
use crate::units::Bytes;
use crate::workloads::cgroup_processes::{children, read};

use super::ActionError;

/// Asked for at once. The kernel looks for signals and for its success now and then only; between two pieces we do.
const PIECE: u64 = 8 << 20;
/// Default action: none. With a handler it ends the system call that it arrives in.
const INTERRUPT: i32 = libc::SIGURG;

/// Whether workloads are asked to give memory back before one is evicted.
#[derive(Debug, Default)]
pub enum ReclaimFirst {
    /// No: it is not configured, or this machine cannot.
    #[default]
    Off,
    /// It is only said whom it would be.
    Observe,
    /// Yes, by this thread.
    Enforce(Reclaimer),
}

impl ReclaimFirst {
    /// As configured.
    ///
    /// # Errors
    /// Why this machine cannot.
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

/// Why this machine cannot.
///
/// # Errors
/// What it lacks.
pub fn is_possible(hierarchy: &Hierarchy) -> Result<(), String> {
    match hierarchy.version {
        CgroupVersion::V1 => Err("cgroup v1 has no memory.reclaim: evictions.reclaimDeadline has no effect".to_owned()),
        CgroupVersion::V2 if hierarchy.memory.join("memory.reclaim").exists() => Ok(()),
        CgroupVersion::V2 => {
            Err("this kernel has no memory.reclaim (Linux 5.19): evictions.reclaimDeadline has no effect".to_owned())
        }
    }
}

/// A thread that asks, started before memory is short: the kernel answers when it is done, and the loop must not wait for that.
#[derive(Debug)]
pub struct Reclaimer {
    orders: Sender<Order>,
    /// Each with the number of its order: one that was given up may still be answered when the next is under way.
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

    /// Whether the last order was answered, or nobody waits for its answer and it is over all the same.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.shared.busy.load(Ordering::Acquire)
    }

    /// Asks for `bytes` of the cgroup `directory`; what the kernel makes of it is [`Self::answer`].
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

    /// The kernel's answer. Cancel-safe.
    pub async fn answer(&mut self) -> Answer {
        loop {
            match self.answers.recv().await {
                Some((number, answer)) if number == self.last => return answer,
                Some(_given_up) => {}
                None => return std::future::pending().await,
            }
        }
    }

    /// Nobody waits any longer.
    pub fn interrupt(&self) {
        self.shared.stop.store(true, Ordering::Release);
        // SAFETY: a thread whose handle is held has not been given back, ended or not; the signal's handler does nothing.
        let _no_matter = unsafe { libc::pthread_kill(self.thread.as_pthread_t(), INTERRUPT) };
    }
}

/// Without a handler the signal would not even be seen. Not restarted: ending the system call is its purpose.
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
    // One that is started by a new configuration inherits the loop's precedence. Lowering it is always allowed.
    let _kept = rustix::process::setpriority_process(None, 0);
    while let Ok(order) = orders.recv() {
        let answer = carry_out(&order, &shared.stop);
        shared.busy.store(false, Ordering::Release);
        // Who gave up waiting has done so.
        let _unheard = reply.send((order.number, answer));
    }
}

fn carry_out(order: &Order, stop: &AtomicBool) -> Answer {
    let mut left = order.bytes.0;
    while left > 0 && !stop.load(Ordering::Acquire) {
        let piece = left.min(PIECE);
        match rustix::io::write(&order.file, piece.to_string().as_bytes()) {
            Ok(_) => left -= piece,
            // It found less than that: there is no more to be had.
            Err(Errno::AGAIN) => return Answer::Done,
            Err(Errno::INTR) => {}
            Err(_) => return Answer::Refused,
        }
    }
    Answer::Done
}

/// What the cgroup `directory` has that could be taken from it; `swap_free` is the node's.
///
/// # Errors
/// When its figures cannot be read.
pub fn holding(directory: BorrowedFd<'_>, above_request: Bytes, swap_free: Bytes) -> std::io::Result<Holding> {
    let stat = read(directory, "memory.stat")?;
    let bytes = |key| Bytes(keyed_value(&stat, key).unwrap_or(0));
    let swappable = if swap_free.is_zero() { Bytes::ZERO } else { swappable(directory, &stat).min(swap_free) };
    Ok(Holding { above_request, active_file: bytes("active_file"), inactive_file: bytes("inactive_file"), swappable })
}

/// Memory that may go to swap. A pod's own limit is usually none while its containers may not swap at all (the kubelet's
/// `NoSwap`), so what is below counts where there is anything.
fn swappable(directory: BorrowedFd<'_>, stat: &str) -> Bytes {
    let pages = |stat: &str| {
        let bytes = |key| keyed_value(stat, key).unwrap_or(0);
        Bytes(bytes("inactive_anon").saturating_add(bytes("active_anon")))
    };
    let own = pages(stat).min(swap_left(directory));
    let below: Vec<Bytes> = children(directory)
        .unwrap_or_default()
        .iter()
        .filter_map(|child| Some(pages(&read(child.as_fd(), "memory.stat").ok()?).min(swap_left(child.as_fd()))))
        .collect();
    if below.is_empty() { own } else { own.min(below.into_iter().sum()) }
}

/// What the cgroup's own limit leaves it of swap.
fn swap_left(directory: BorrowedFd<'_>) -> Bytes {
    let number = |name| number_or_max(&read(directory, name).unwrap_or_default());
    match (number("memory.swap.max"), number("memory.swap.current")) {
        (Ok(Some(limit)), Ok(Some(used))) => Bytes(limit).saturating_sub(Bytes(used)),
        (Ok(Some(limit)), _) => Bytes(limit),
        // Without the files swap is not accounted, and so not limited.
        (Ok(None) | Err(_), _) => Bytes::MAX,
    }
}

#[cfg(test)]
#[path = "reclaim_tests.rs"]
mod tests;
