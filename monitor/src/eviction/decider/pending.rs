//! The rule of pending memory: after a kill the next one waits until the memory has come back, as long as the node can wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::eviction::fall::Window;
use crate::units::{Bytes, CgroupId, Monotonic};

/// The wait ends at once when half of the threshold would be reached within this time.
const AHEAD: f64 = 0.5;
/// The memory of a workload that was killed less than this ago counts as coming: its processes need a moment to exit.
const FRESH: Duration = Duration::from_millis(200);
/// The wait ends when nothing has come for this long. A kubelet unmounts a pod's tmpfs about two seconds after its processes.
const STALLED: Duration = Duration::from_secs(3);
/// The longest wait: for each own victim, and for all victims of others together.
const LONGEST: Duration = Duration::from_secs(10);
/// The memory has come back when at most this part of what was expected is left.
const REST: u64 = 20;
/// Less than this is not waited for.
const LITTLE: Bytes = Bytes::from_mib(1);
/// The memory is coming as long as at least this part of what was expected comes.
const PROGRESS: u64 = 100;

/// The memory of a workload that was killed, by the agent or by another program, or whose grace period ends soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DyingMemory {
    pub id: CgroupId,
    /// The bytes that were expected at the kill.
    pub expected: Bytes,
    /// The bytes that have not come back.
    pub left: Bytes,
    /// When it was killed, or when it was noted that its grace period ends.
    pub killed: Monotonic,
    /// When its grace period ends, if it was not killed yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ends: Option<Monotonic>,
    /// The bytes per second by which the workload grew until the kill.
    pub growth: i64,
    pub is_own: bool,
    /// Whether all of its processes are dying, as far as that was looked at. Then killing it again would not help.
    pub is_whole: bool,
    /// Whether it has processes.
    pub is_populated: bool,
}

/// The expectations of the present shortage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Pending {
    progress: Vec<Progress>,
    /// The bytes that are left of all expectations together.
    left: Window,
    /// When the wait for victims of others began.
    others_since: Option<Monotonic>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    id: CgroupId,
    left: Bytes,
    since: Monotonic,
}

impl Default for Pending {
    fn default() -> Self {
        let left = Window::of(Duration::from_millis(200), Duration::from_millis(10));
        Self { progress: Vec::new(), left, others_since: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    pub(super) available: f64,
    pub(super) threshold: f64,
    /// The bytes per second by which the available memory falls, without what the victims grew by.
    pub(super) fall: f64,
    /// Whether the kernel's OOM killer is near: the fall has what came back in it then, and what may come is not relied on. `None` for a threshold
    /// that has no cliff.
    pub(super) is_cliff: Option<bool>,
}

/// Returns whether half of the threshold is reached, or will be soon at this fall in bytes per second.
pub(super) fn reaches_half(available: f64, threshold: f64, fall: f64) -> bool {
    available - fall * AHEAD <= threshold / 2.0
}

impl Level {
    /// Returns whether there is no shortage with this free memory, which the figure leaves out. It is not relied on when half of the
    /// threshold is reached, or will be soon.
    pub(super) fn is_over_with(self, free: Bytes) -> bool {
        !reaches_half(self.available, self.threshold, self.fall) && self.available + free.as_f64() >= self.threshold
    }
}

impl Pending {
    /// Takes in how much of each expectation is left.
    pub(super) fn observe(&mut self, dying: &[DyingMemory], now: Monotonic) {
        let known = self.progress.len();
        self.progress.retain(|progress| dying.iter().any(|dying| dying.id == progress.id));
        if self.progress.len() < known {
            // An expectation that has ended is no memory that has come.
            self.left = Self::default().left;
        }
        for dying in dying {
            let step = Bytes(dying.expected.0 / PROGRESS);
            match self.progress.iter_mut().find(|progress| progress.id == dying.id) {
                Some(progress) if dying.left.saturating_add(step) < progress.left => {
                    (progress.left, progress.since) = (dying.left, now);
                }
                Some(_) => {}
                None => {
                    self.progress.push(Progress { id: dying.id, left: dying.left, since: now });
                    // Before, there was less that could come.
                    self.left = Self::default().left;
                }
            }
        }
        if !dying.is_empty() {
            self.left.observe(sum(dying), now);
        }
    }

    /// Forgets the wait for victims of others when the shortage has ended.
    pub(super) fn end_shortage(&mut self) {
        self.others_since = None;
    }

    /// Returns the bytes that the next eviction waits for, or `None` if it does not wait.
    pub(super) fn waits(&mut self, dying: &[DyingMemory], level: Level, now: Monotonic) -> Option<Bytes> {
        if dying.iter().any(|dying| !dying.is_own && dying.is_missing()) {
            self.others_since.get_or_insert(now);
        }
        let (mut left, mut fresh) = (Bytes::ZERO, 0.0);
        let mut is_waiting = false;
        for dying in self.awaited(dying, now) {
            is_waiting = true;
            left = left.saturating_add(dying.left);
            if dying.grace_ends.is_none() && now.since(dying.killed) < FRESH {
                fresh += dying.left.as_f64() / AHEAD;
            }
        }
        let came = if level.is_cliff == Some(true) { None } else { self.left.fall(sum(dying), now) };
        let coming = came.unwrap_or(0.0).max(fresh).max(0.0);
        let falls = level.fall - coming;
        // Away from the cliff there is time to wait.
        let may_hurry = level.is_cliff != Some(false);
        let is_urgent = may_hurry && falls > 0.0 && reaches_half(level.available, level.threshold, falls);
        (is_waiting && !is_urgent).then_some(left)
    }

    /// Returns the workload that has most of the awaited memory.
    pub(super) fn most_awaited(&self, dying: &[DyingMemory], now: Monotonic) -> Option<CgroupId> {
        self.awaited(dying, now).max_by_key(|dying| dying.left).map(|dying| dying.id)
    }

    /// Returns the bytes that killed workloads have yet to give back, as long as they are awaited.
    pub(super) fn expected(&self, dying: &[DyingMemory], now: Monotonic) -> Bytes {
        self.awaited(dying, now).filter(|dying| dying.grace_ends.is_none()).map(|dying| dying.left).sum()
    }

    fn awaited<'a>(&'a self, dying: &'a [DyingMemory], now: Monotonic) -> impl Iterator<Item = &'a DyingMemory> {
        dying.iter().filter(move |dying| dying.is_missing() && self.is_awaited(dying, now))
    }

    fn is_awaited(&self, dying: &DyingMemory, now: Monotonic) -> bool {
        let progressed = self.progress.iter().find(|progress| progress.id == dying.id).map(|progress| progress.since);
        // Nothing can come before the kill. A workload that is noted inside its grace period may be killed later.
        let since = progressed.unwrap_or(now).max(dying.grace_ends.unwrap_or(dying.killed));
        // Another program may have killed its victim long before the shortage. The wait for that victim begins with the shortage.
        let (since, began) = match self.others_since.unwrap_or(now) {
            _ if dying.is_own => (since, dying.killed),
            others_since => (since.max(others_since), others_since),
        };
        now.since(since) < STALLED && now.since(began) < LONGEST
    }
}

impl DyingMemory {
    /// A kill counts for this time. No eviction waits longer for the memory of an own victim.
    pub const COUNTS_FOR: Duration = Duration::from_secs(12);

    fn is_missing(&self) -> bool {
        self.is_populated || !self.is_back()
    }

    /// Returns whether the kill is so recent that it counts.
    pub fn is_recent(&self, now: Monotonic) -> bool {
        now.since(self.killed) < Self::COUNTS_FOR
    }

    pub fn is_back(&self) -> bool {
        self.left <= Bytes(self.expected.0 / REST).max(LITTLE)
    }
}

fn sum(dying: &[DyingMemory]) -> i64 {
    dying.iter().map(|dying| dying.left).sum::<Bytes>().signed()
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
