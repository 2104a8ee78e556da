//! A deadline with the kernel's own precision.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timerfd. The runtime's own timers are rounded up to whole milliseconds, and wake the thread several times on the way to a
/// far deadline, which an agent that does nothing else would mostly be doing.
#[derive(Debug)]
pub struct Timer {
    timer: AsyncFd<OwnedFd>,
}

impl Timer {
    /// Makes one; it needs the runtime.
    ///
    /// # Errors
    /// When no descriptor is to be had.
    pub fn new() -> std::io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the descriptor is owned by the AsyncFd and stays open and the same until that is dropped.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
        Ok(Self { timer })
    }

    /// Resolves after `wait`. Dropped before that, it leaves nothing behind: the next wait starts anew.
    pub async fn sleep(&self, wait: Duration) {
        // Zero would disarm it.
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX).max(1);
        let value = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        let set = rustix::time::timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once);
        // It fails for impossible times only, of which the above makes none; then rather look than sleep for ever.
        if set.is_err() {
            return;
        }
        loop {
            let Ok(mut ready) = self.timer.readable().await else { return };
            // Readiness may be left from a wait that was dropped; setting the timer cleared what there was to read.
            let mut expirations = [0; 8];
            let read = rustix::io::read(self.timer.get_ref(), &mut expirations);
            ready.clear_ready();
            if read != Err(rustix::io::Errno::AGAIN) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn block_on(future: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
    }

    #[test]
    fn it_neither_fires_early_nor_remembers_a_dropped_wait() {
        block_on(async {
            let timer = Timer::new().unwrap();
            // Dropped after it fired, unseen.
            {
                let dropped = timer.sleep(Duration::from_millis(1));
                tokio::pin!(dropped);
                let _pending = futures_poll_once(dropped.as_mut()).await;
                std::thread::sleep(Duration::from_millis(5));
                tokio::task::yield_now().await;
            }
            let started = Instant::now();
            timer.sleep(Duration::from_millis(30)).await;
            assert!(started.elapsed() >= Duration::from_millis(30), "{:?}", started.elapsed());
            timer.sleep(Duration::ZERO).await;
        });
    }

    /// Polls once, whatever comes of it.
    async fn futures_poll_once(mut future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_ready())).await
    }
}
