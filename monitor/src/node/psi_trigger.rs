//! Pressure stall information: the kernel's own doorbell, for machines where the eBPF one is missing.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A PSI trigger (Linux 5.2): the kernel signals when tasks stalled on memory for a part of a window.
#[derive(Debug)]
pub struct PsiTrigger {
    trigger: AsyncFd<OwnedFd>,
}

/// Stall and window. The kernel looks ten times a window, and the shortest it accepts is 500 ms; without CAP_SYS_RESOURCE
/// only windows of whole multiples of 2 s are (Linux 6.4).
const TRIGGERS: [(Duration, Duration); 2] =
    [(Duration::from_millis(20), Duration::from_millis(500)), (Duration::from_millis(20), Duration::from_secs(2))];

impl PsiTrigger {
    /// Registers the trigger on `pressure/memory`; it ends with the value.
    ///
    /// # Errors
    /// When PSI is off (`psi=1` on the kernel's command line turns it on) or the trigger is refused.
    pub fn register(proc_root: &Path) -> Result<Self, String> {
        let path = proc_root.join("pressure/memory");
        let say = |what: &str, error: std::io::Error| format!("{what} {}: {error}", path.display());
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|errno| say("cannot open", errno.into()) + "; boot with psi=1 on Linux 4.20 or later")?;
        // The kernel wants the terminating zero to be part of the write.
        let set = |(stall, window): (Duration, Duration)| {
            let text = format!("some {} {}\0", stall.as_micros(), window.as_micros());
            rustix::io::write(&file, text.as_bytes())
        };
        let [best, slow] = TRIGGERS;
        set(best).or_else(|_| set(slow)).map_err(|errno| say("cannot set a trigger on", errno.into()))?;
        // SAFETY: the descriptor is owned by the AsyncFd and stays open and the same until that is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(file, Interest::PRIORITY | Interest::ERROR) };
        let trigger = registered.map_err(|error| say("cannot poll", error.into()))?;
        Ok(Self { trigger })
    }

    /// Resolves when the trigger fires, at most once a window.
    ///
    /// # Errors
    /// When the kernel has taken the trigger away: from then on it would ring without end and mean nothing.
    pub async fn fired(&self) -> Result<(), String> {
        match self.trigger.ready(Interest::PRIORITY | Interest::ERROR).await {
            Ok(guard) if guard.ready().is_error() => Err("the kernel has given up the PSI trigger".to_owned()),
            Ok(mut guard) => {
                guard.clear_ready();
                Ok(())
            }
            // The reactor is gone, and the loop with it.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor without a trigger is what the kernel makes of one that it has taken away: it polls as an error for ever.
    #[tokio::test]
    async fn a_trigger_that_is_gone_is_an_error_and_no_signal() {
        let Ok(file) = rustix::fs::open("/proc/pressure/memory", OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
        else {
            println!("skipped: no PSI on this machine");
            return;
        };
        // SAFETY: the descriptor is owned by the AsyncFd and stays open and the same until that is dropped.
        let trigger = unsafe { AsyncFd::register_with_interest(file, Interest::PRIORITY | Interest::ERROR) }.unwrap();
        let gone = PsiTrigger { trigger };
        let told = tokio::time::timeout(Duration::from_secs(5), gone.fired()).await.unwrap();
        assert!(told.unwrap_err().contains("given up"));
    }
}
