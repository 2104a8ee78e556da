//! Wake-ups by a PSI trigger, for machines where the eBPF programs cannot wake the loop.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A PSI trigger (Linux 5.2). The kernel signals it when tasks stalled on memory for a part of a window.
#[derive(Debug)]
pub struct PsiTrigger {
    trigger: AsyncFd<OwnedFd>,
}

/// Stall and window, the preferred first. The kernel checks ten times per window, and accepts no window below 500 ms. Without
/// `CAP_SYS_RESOURCE` it accepts only multiples of 2 s (Linux 6.4).
const TRIGGERS: [(Duration, Duration); 2] =
    [(Duration::from_millis(20), Duration::from_millis(500)), (Duration::from_millis(20), Duration::from_secs(2))];

impl PsiTrigger {
    /// Registers the trigger on `pressure/memory`. Dropping the value removes it. Fails when PSI is off, or the kernel refuses the trigger.
    pub fn register(proc_root: &Path) -> Result<Self, String> {
        let path = proc_root.join("pressure/memory");
        let failed = |what: &str, error: std::io::Error| format!("cannot {what} {}: {error}", path.display());
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|errno| failed("open", errno.into()) + "; boot with psi=1 on Linux 4.20 or later")?;
        // The kernel requires the terminating zero in the write.
        let set = |(stall, window): (Duration, Duration)| {
            let text = format!("some {} {}\0", stall.as_micros(), window.as_micros());
            rustix::io::write(&file, text.as_bytes())
        };
        let [best, slow] = TRIGGERS;
        set(best).or_else(|_| set(slow)).map_err(|errno| failed("set a trigger on", errno.into()))?;
        // SAFETY: the AsyncFd owns the descriptor, which stays open and unchanged until the AsyncFd is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(file, Interest::PRIORITY | Interest::ERROR) };
        let trigger = registered.map_err(|error| failed("poll", error.into()))?;
        Ok(Self { trigger })
    }

    /// Resolves when the trigger fires, at most once per window.
    /// Fails when the kernel has removed the trigger. The descriptor then polls as ready for ever.
    pub async fn fired(&self) -> Result<(), String> {
        match self.trigger.ready(Interest::PRIORITY | Interest::ERROR).await {
            Ok(guard) if guard.ready().is_error() => Err("the kernel has removed the PSI trigger".to_owned()),
            Ok(mut guard) => {
                guard.clear_ready();
                Ok(())
            }
            // The reactor has ended, and the loop with it.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor without a trigger polls as an error for ever, like one whose trigger the kernel has removed.
    #[tokio::test]
    async fn a_removed_trigger_is_an_error() {
        let Ok(file) = rustix::fs::open("/proc/pressure/memory", OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
        else {
            println!("skipped: no PSI on this machine");
            return;
        };
        // SAFETY: the AsyncFd owns the descriptor, which stays open and unchanged until the AsyncFd is dropped.
        let trigger = unsafe { AsyncFd::register_with_interest(file, Interest::PRIORITY | Interest::ERROR) }.unwrap();
        let removed = PsiTrigger { trigger };
        let fired = tokio::time::timeout(Duration::from_secs(5), removed.fired()).await.unwrap();
        assert!(fired.unwrap_err().contains("removed"));
    }
}
