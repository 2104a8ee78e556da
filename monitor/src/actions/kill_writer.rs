//! Writes `cgroup.kill` on a thread of its own: the write takes the kernel's `cgroup_mutex`, which others can hold for seconds.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::self_protection::OWN_NICE;

/// The loop waits so long for a write. It takes microseconds while the mutex is free.
const PATIENCE: Duration = Duration::from_millis(20);
/// The beginning of the wait needs no system call, if another CPU can write meanwhile.
const SPIN: Duration = Duration::from_millis(5);

/// The states of an order that are no error number.
const PENDING: i32 = -1;
const ABANDONED: i32 = -2;
const WRITTEN: i32 = 0;

/// The thread. It starts before memory is short, and ends with the value.
#[derive(Debug)]
pub struct KillWriter {
    queue: Sender<Order>,
    is_held_up: Arc<AtomicBool>,
    spin: Duration,
}

#[derive(Debug)]
struct Order {
    files: Vec<Arc<OwnedFd>>,
    state: Arc<AtomicI32>,
    asker: Thread,
}

impl KillWriter {
    /// # Errors
    /// When no thread can be started.
    pub fn start() -> std::io::Result<Self> {
        let (queue, orders) = channel();
        let is_held_up = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_held_up);
        let carry_out = move || {
            // Without the right to it, a busy CPU delays the write, and the loop goes on without.
            let _usual = rustix::process::setpriority_process(None, OWN_NICE);
            carry_out(&orders, &of_thread);
        };
        std::thread::Builder::new().name("kill".to_owned()).stack_size(64 * 1024).spawn(carry_out)?;
        let is_alone = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        Ok(Self { queue, is_held_up, spin: if is_alone { Duration::ZERO } else { SPIN } })
    }

    /// Kills all processes of these cgroups, each by its open file `cgroup.kill`. Returns false if that takes too long: then nothing is known of
    /// them, and a write that has begun may still come.
    ///
    /// # Errors
    /// When the kernel refuses one. A cgroup that is gone needs no kill.
    pub fn kill(&self, files: Vec<Arc<OwnedFd>>) -> Result<bool, Errno> {
        if self.is_held_up.load(Ordering::Acquire) {
            return Ok(false);
        }
        let state = Arc::new(AtomicI32::new(PENDING));
        let order = Order { files, state: Arc::clone(&state), asker: std::thread::current() };
        if self.queue.send(order).is_err() {
            return Ok(false);
        }
        self.wait_for(&state);
        // The thread takes it back when it goes on.
        self.is_held_up.store(true, Ordering::Release);
        let Err(outcome) = state.compare_exchange(PENDING, ABANDONED, Ordering::AcqRel, Ordering::Acquire) else {
            return Ok(false);
        };
        self.is_held_up.store(false, Ordering::Release);
        if outcome == WRITTEN { Ok(true) } else { Err(Errno::from_raw_os_error(outcome)) }
    }

    fn wait_for(&self, state: &AtomicI32) {
        let begun = Instant::now();
        let is_pending = || state.load(Ordering::Acquire) == PENDING;
        while is_pending() && begun.elapsed() < self.spin {
            std::hint::spin_loop();
        }
        while is_pending() {
            let Some(rest) = PATIENCE.checked_sub(begun.elapsed()) else { return };
            std::thread::park_timeout(rest);
        }
    }
}

fn carry_out(orders: &Receiver<Order>, is_held_up: &AtomicBool) {
    for Order { files, state, asker } in orders {
        let is_asked = || state.load(Ordering::Acquire) == PENDING;
        // One that is restarted meanwhile must not be killed by an order that was given up.
        let outcomes = files.iter().take_while(|_| is_asked()).map(write);
        let refusal = outcomes.fold(None, |refusal, outcome| refusal.or(outcome.err()));
        let outcome = refusal.map_or(WRITTEN, Errno::raw_os_error);
        if state.compare_exchange(PENDING, outcome, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            asker.unpark();
        } else {
            is_held_up.store(false, Ordering::Release);
        }
    }
}

fn write(file: impl AsFd) -> Result<(), Errno> {
    match rustix::io::write(file, b"1") {
        // The cgroup was removed meanwhile.
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (OwnedFd, Arc<OwnedFd>) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        (read, Arc::new(write))
    }

    /// Fills a pipe, so that the next write does not return before it is read.
    fn full_pipe() -> (OwnedFd, Arc<OwnedFd>) {
        let (read, write) = pipe();
        let size = rustix::pipe::fcntl_getpipe_size(&write).unwrap();
        rustix::io::write(&write, &vec![0; size]).unwrap();
        (read, write)
    }

    #[test]
    fn a_write_is_answered() {
        let writer = KillWriter::start().unwrap();
        let (read, write) = pipe();
        assert_eq!(writer.kill(vec![Arc::clone(&write), write]), Ok(true));
        let mut text = [0; 4];
        assert_eq!(rustix::io::read(&read, &mut text), Ok(2));
        assert_eq!(&text[..2], b"11");
        assert_eq!(writer.kill(vec![Arc::new(read)]), Err(Errno::BADF), "it cannot be written");
    }

    #[test]
    fn a_write_that_hangs_holds_up_nobody_for_long() {
        let writer = KillWriter::start().unwrap();
        let (full, hangs) = full_pipe();
        let (read, after) = pipe();
        let begun = Instant::now();
        assert_eq!(writer.kill(vec![hangs, Arc::clone(&after)]), Ok(false));
        assert!(begun.elapsed() >= PATIENCE);
        assert_eq!(writer.kill(vec![Arc::clone(&after)]), Ok(false), "it hangs still");
        rustix::io::read(&full, &mut vec![0; 1 << 20]).unwrap();
        while writer.is_held_up.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(writer.kill(vec![after]), Ok(true));
        let mut text = [0; 4];
        assert_eq!(rustix::io::read(&read, &mut text), Ok(1), "what was given up is not written later");
    }
}
