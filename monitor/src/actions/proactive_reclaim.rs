//! Reclaims memory from a workload before an eviction (`memory.reclaim`), and waits for the outcome.

use std::path::Path;
use std::time::Duration;

use crate::eviction::Observation;
use crate::eviction::decider::ReclaimFacts;
use crate::eviction::proactive_reclaim::{Answer, ReclaimOutcome};
use crate::node::pinned_file::{Buffer, FileError, PinnedFile};
use crate::units::{Bytes, CgroupId, Monotonic, Signal};
use crate::workloads::{Tracked, WorkloadUsage};

use super::action_error::ActionError;
use super::reclaim::{ReclaimFirst, Reclaimer};

/// Interval of observations during an attempt: the pressure may end, or grow.
const CHECK: Duration = Duration::from_millis(10);

/// One write to a workload's `memory.reclaim`, and its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReclaimAttempt {
    pub workload: String,
    pub id: CgroupId,
    pub requested: Bytes,
    /// Decrease of the workload's usage during the write.
    pub freed: Bytes,
    /// Available memory of the node before the write; the next field has it after the write.
    pub available_before: Bytes,
    pub available_after: Bytes,
    pub took: Duration,
    pub outcome: ReclaimOutcome,
}

#[derive(Debug)]
pub struct ProactiveReclaim {
    first: ReclaimFirst,
    running: Option<Attempt>,
    answer: Option<Answer>,
    /// The last attempt, if it failed: the record of the following eviction names it.
    in_vain: Option<(Monotonic, ReclaimAttempt)>,
}

#[derive(Debug)]
struct Attempt {
    workload: String,
    id: CgroupId,
    requested: Bytes,
    usage: PinnedFile,
    usage_before: Bytes,
    available_before: Bytes,
    started: Monotonic,
    deadline: Monotonic,
}

impl ProactiveReclaim {
    pub fn new(first: ReclaimFirst) -> Self {
        Self { first, running: None, answer: None, in_vain: None }
    }

    /// Sets the mode. An attempt under way is interrupted.
    pub fn set_first(&mut self, first: ReclaimFirst) {
        self.interrupt();
        *self = Self::new(first);
    }

    /// Waits for the kernel's answer; pends forever without a request. Cancel-safe.
    pub async fn answered(&mut self) {
        match (&mut self.first, &self.running, self.answer) {
            (ReclaimFirst::Enforce(reclaimer), Some(_), None) => self.answer = Some(reclaimer.answer().await),
            _ => std::future::pending().await,
        }
    }

    /// Returns the time until the next check of an attempt under way.
    pub fn next_check(&self, now: Monotonic) -> Option<Duration> {
        self.running.as_ref().map(|attempt| attempt.deadline.since(now).min(CHECK))
    }

    /// Returns the failed attempt, for the eviction that follows immediately.
    pub fn take_in_vain(&mut self, now: Monotonic) -> Option<ReclaimAttempt> {
        /// A later eviction is unrelated to the attempt.
        const RELATED: Duration = Duration::from_secs(1);
        let (ended, attempt) = self.in_vain.take()?;
        (now.since(ended) < RELATED.max(attempt.took.saturating_mul(10))).then_some(attempt)
    }

    pub fn facts(&self) -> ReclaimFacts {
        match (&self.first, &self.running) {
            (ReclaimFirst::Observe, _) => ReclaimFacts::DryRun,
            (ReclaimFirst::Enforce(_), Some(_)) => ReclaimFacts::Busy(self.answer.unwrap_or(Answer::Pending)),
            (ReclaimFirst::Enforce(reclaimer), None) if reclaimer.is_idle() => ReclaimFacts::Idle,
            // The kernel may still work on an interrupted request.
            (ReclaimFirst::Off, _) | (ReclaimFirst::Enforce(_), None) => ReclaimFacts::Off,
        }
    }

    /// Asks the kernel to reclaim `bytes` from a candidate. Returns false if the mode is not enforce.
    ///
    /// # Errors
    /// When the cgroup is gone or cannot be asked.
    pub(super) fn begin(
        &mut self,
        tracked: &Tracked,
        usage: &WorkloadUsage,
        (bytes, deadline): (Bytes, Monotonic),
        available: Bytes,
    ) -> Result<bool, ActionError> {
        let ReclaimFirst::Enforce(reclaimer) = &mut self.first else { return Ok(false) };
        let attempt = begin(reclaimer, tracked, usage, bytes, available, Monotonic::now())?;
        self.running = Some(Attempt { deadline, ..attempt });
        self.in_vain = None;
        self.answer = None;
        Ok(true)
    }

    /// Ends the attempt under way with `outcome`.
    pub(super) fn end(
        &mut self,
        outcome: ReclaimOutcome,
        interrupt: bool,
        seen: &Observation,
    ) -> Option<ReclaimAttempt> {
        if interrupt {
            self.interrupt();
        }
        self.answer = None;
        let attempt = self.running.take()?;
        let now = Monotonic::now();
        // A removed cgroup has given back all its memory, but not because of the request.
        let usage = attempt.usage.read_number(&mut Buffer::new()).map_or(attempt.usage_before, Bytes);
        let available = seen.get(Signal::MemoryAvailable).map_or(Bytes::ZERO, |value| value.available_bytes());
        let ended = ReclaimAttempt {
            workload: attempt.workload,
            id: attempt.id,
            requested: attempt.requested,
            freed: attempt.usage_before.saturating_sub(usage),
            available_before: attempt.available_before,
            available_after: available,
            took: now.since(attempt.started),
            outcome,
        };
        self.in_vain = Some((now, ended.clone())).filter(|_| outcome != ReclaimOutcome::Sufficed);
        Some(ended)
    }

    fn interrupt(&self) {
        if let ReclaimFirst::Enforce(reclaimer) = &self.first {
            reclaimer.interrupt();
        }
    }
}

fn begin(
    reclaimer: &mut Reclaimer,
    tracked: &Tracked,
    usage: &WorkloadUsage,
    requested: Bytes,
    available_before: Bytes,
    now: Monotonic,
) -> Result<Attempt, ActionError> {
    let workload = &usage.workload;
    let refused =
        |error: FileError| ActionError::refused(workload.name.clone(), std::io::Error::other(error.to_string()));
    let file = PinnedFile::open_at(tracked.directory(), Path::new(&workload.name), "memory.current");
    let file = file.map_err(refused)?;
    let usage_before = file.read_number(&mut Buffer::new()).map_or(usage.working_set, Bytes);
    reclaimer.ask(tracked.directory(), requested)?;
    Ok(Attempt {
        workload: workload.name.clone(),
        id: workload.id,
        requested,
        usage: file,
        usage_before,
        available_before,
        started: now,
        deadline: now,
    })
}
