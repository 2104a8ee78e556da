//! The rule of swap: under `corrected` semantics an eviction for `memory.available` waits while the kernel swaps out as fast as the available
//! memory falls.
//!
//! The wait has no bound of its own. It goes on only while every condition holds, and under them no task is short of memory: the eviction
//! follows as soon as one fails. A fall that goes on reaches half of the threshold or uses up the swap.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::eviction::fall::FallNow;
use crate::units::{Bytes, Monotonic};

use super::next::{Note, SwapLimit};
use super::pending::reaches_half;
use super::snapshot::SwapOut;

/// Older figures say nothing. The agent reads them every 100 ms.
const FRESH: Duration = Duration::from_millis(500);
/// The most thousandths of the last tenth of a second for which all tasks may have waited for memory. The kernel counts the work of kswapd
/// as a stall on a CPU that has nothing else to do, so it cannot be close to zero.
const MOST_STALLED: u32 = 250;
/// The fall over a second may be this much faster than swap-out: in a second the kernel's counters jump by some MiB.
const MOST_JUMP: f64 = 2.0;
/// No eviction waits for this long after the kernel's OOM killer has acted for the node.
const AFTER_OOM_KILL: Duration = Duration::from_secs(60);

/// The wait of the present shortage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SwapWait {
    /// The place of the threshold whose eviction waits, and since when.
    began: Option<(usize, Monotonic)>,
    /// The reason that was last reported.
    reported: Option<SwapLimit>,
}

/// The state of the signal.
#[derive(Debug, Clone, Copy)]
pub(super) struct SwapLevel {
    pub(super) available: f64,
    pub(super) threshold: f64,
    /// The bytes by which less is available than wanted.
    pub(super) missing: f64,
    pub(super) fall: Option<FallNow>,
    /// The time that an eviction would have to buy.
    pub(super) minimum: Duration,
}

impl SwapOut {
    /// Returns the swap that is left for the growing workloads.
    fn usable(&self) -> Bytes {
        self.room.map_or(self.free, |room| room.min(self.free))
    }

    /// Returns whether the kernel swaps out as fast as available memory falls.
    fn keeps_up(&self, level: SwapLevel, now: Monotonic) -> Result<(), SwapLimit> {
        let (Some(stalled), Some(fall)) = (self.stalled, level.fall) else { return Err(SwapLimit::Unknown) };
        if now.since(self.at) > FRESH {
            return Err(SwapLimit::Unknown);
        }
        if stalled > MOST_STALLED {
            return Err(SwapLimit::Stalls);
        }
        if reaches_half(level.available, level.threshold, fall.assumed()) {
            return Err(SwapLimit::HalfLeft);
        }
        let out = self.per_second.as_f64();
        if out < fall.steady.max(fall.least) || out * MOST_JUMP < fall.measured {
            return Err(SwapLimit::TooSlow);
        }
        if fall.is_falling() && self.room.is_none() {
            return Err(SwapLimit::NoGrower);
        }
        // Swap that is used up sooner would buy less time than an eviction has to.
        if self.usable().as_f64() <= level.missing + out * level.minimum.as_secs_f64() {
            return Err(SwapLimit::NoRoom);
        }
        Ok(())
    }
}

impl SwapWait {
    /// Returns whether an eviction waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.began.is_some()
    }

    /// Returns the swap that keeps up, or why none does. `oom_killed` is when the kernel's OOM killer last acted for the node.
    pub(super) fn judge(
        self,
        swap: Option<SwapOut>,
        level: SwapLevel,
        oom_killed: Option<Monotonic>,
        now: Monotonic,
    ) -> Result<SwapOut, SwapLimit> {
        let swap = swap.ok_or(SwapLimit::Unknown)?;
        if oom_killed.is_some_and(|at| now.since(at) < AFTER_OOM_KILL) {
            return Err(SwapLimit::OomKill);
        }
        swap.keeps_up(level, now).map(|()| swap)
    }

    /// Takes in the verdict on the eviction for a threshold. Returns what is to be reported, if that is new.
    pub(super) fn settle(
        &mut self,
        threshold: usize,
        verdict: Result<SwapOut, SwapLimit>,
        now: Monotonic,
    ) -> Option<Note> {
        match (verdict, self.began) {
            (Ok(_), Some(_)) => None,
            (Ok(swap), None) => {
                (self.began, self.reported) = (Some((threshold, now)), None);
                Some(Note::SwapKeepsUp { threshold, per_second: swap.per_second, usable: swap.usable() })
            }
            (Err(why), Some((waiting, since))) if waiting == threshold => {
                (self.began, self.reported) = (None, Some(why));
                Some(Note::SwapFallsShort { threshold, waited: now.since(since), why })
            }
            // Another threshold may still wait.
            (Err(why), _) => {
                let is_new = self.reported.replace(why) != Some(why);
                is_new.then_some(Note::SwapFallsShort { threshold, waited: Duration::ZERO, why })
            }
        }
    }
}
