//! A timer with the kernel's precision.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::units::signed;

/// A timerfd. tokio's timers round up to whole milliseconds, and wake the thread several times before a distant deadline, which would
/// be most of an idle agent's work.
#[derive(Debug)]
pub struct Timer {
    timer: AsyncFd<OwnedFd>,
}

impl Timer {
    /// Creates a timer. Must be called within the tokio runtime. Fails when no descriptor is left.
    pub fn new() -> std::io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the AsyncFd owns the descriptor, which stays open and unchanged until the AsyncFd is dropped.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
        Ok(Self { timer })
    }

    /// Resolves after `wait`. Cancel-safe: the next call starts the timer again.
    pub async fn sleep(&self, wait: Duration) {
        // Zero would disarm the timer.
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX).max(1);
        let value = Timespec {
            tv_sec: signed(nanos / 1_000_000_000),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        let set = rustix::time::timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once);
        // The call fails only for invalid times, which the above never sets. If it fails, returning is safer than waiting for ever.
        if set.is_err() {
            return;
        }
        loop {
            let Ok(mut ready) = self.timer.readable().await else { return };
            // The readiness may be that of a cancelled wait. Setting the timer has cleared its expiration, so the read then fails.
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
    fn a_cancelled_wait_does_not_shorten_the_next() {
        block_on(async {
            let timer = Timer::new().unwrap();
            // Cancelled after the timer has expired.
            {
                let dropped = timer.sleep(Duration::from_millis(1));
                tokio::pin!(dropped);
                let _pending = poll_once(dropped.as_mut()).await;
                std::thread::sleep(Duration::from_millis(5));
                tokio::task::yield_now().await;
            }
            let started = Instant::now();
            timer.sleep(Duration::from_millis(30)).await;
            assert!(started.elapsed() >= Duration::from_millis(30), "{:?}", started.elapsed());
            timer.sleep(Duration::ZERO).await;
        });
    }

    async fn poll_once(mut future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_ready())).await
    }
}
