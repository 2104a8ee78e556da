//! Reclaims memory from a workload before an eviction (`memory.reclaim`), and waits for the outcome.

use std::time::Duration;

use crate::actions::reclaim::{ReclaimFirst, Reclaimer};
use crate::eviction::Observation;
use crate::eviction::decider::ReclaimFacts;
use crate::eviction::proactive_reclaim::{Answer, ReclaimOutcome};
use crate::node::pinned_file::{Buffer, PinnedFile};
use crate::report::Dedup;
use crate::report::reclaim_report::{ReclaimAttempt, ReclaimRecord};
use crate::report::record::Record;
use crate::report::reporter::REPEAT_DRY_RUN;
use crate::units::{Bytes, CgroupId, Monotonic, Signal};
use crate::workloads::WorkloadUsage;

use super::Agent;

/// Interval of observations during an attempt: the pressure may end, or grow.
const CHECK: Duration = Duration::from_millis(10);
/// State of the reclaim attempts.
#[derive(Debug)]
pub(super) struct ProactiveReclaim {
    first: ReclaimFirst,
    running: Option<Attempt>,
    answer: Option<Answer>,
    would_ask: Dedup<CgroupId>,
    /// The last attempt, if it failed: the record of the following eviction names it.
    in_vain: Option<(Monotonic, ReclaimAttempt)>,
}

/// An attempt under way.
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
    pub(super) fn new(first: ReclaimFirst) -> Self {
        Self { first, running: None, answer: None, would_ask: Dedup::new(REPEAT_DRY_RUN), in_vain: None }
    }

    /// Sets the mode. An attempt under way is interrupted.
    pub(super) fn set_first(&mut self, first: ReclaimFirst) {
        self.interrupt();
        *self = Self::new(first);
    }

    /// Waits for the kernel's answer; pends forever without a request. Cancel-safe.
    pub(super) async fn answered(&mut self) {
        match (&mut self.first, &self.running, self.answer) {
            (ReclaimFirst::Enforce(reclaimer), Some(_), None) => self.answer = Some(reclaimer.answer().await),
            _ => std::future::pending().await,
        }
    }

    /// Returns the time until the next check of an attempt under way.
    pub(super) fn next_check(&self, now: Monotonic) -> Option<Duration> {
        self.running.as_ref().map(|attempt| attempt.deadline.since(now).min(CHECK))
    }

    /// Returns the failed attempt, for the eviction that follows immediately.
    pub(super) fn take_in_vain(&mut self, now: Monotonic) -> Option<ReclaimAttempt> {
        /// A later eviction is unrelated to the attempt.
        const RELATED: Duration = Duration::from_secs(1);
        let (ended, attempt) = self.in_vain.take()?;
        (now.since(ended) < RELATED.max(attempt.took.saturating_mul(10))).then_some(attempt)
    }

    /// Returns whether the dry run on this workload is to be reported.
    pub(super) fn is_dry_run_due(&mut self, id: CgroupId, now: Monotonic) -> bool {
        self.would_ask.is_due(id, now)
    }

    /// Returns the facts about reclaim for the decider.
    pub(super) fn facts(&self) -> ReclaimFacts {
        match (&self.first, &self.running) {
            (ReclaimFirst::Observe, _) => ReclaimFacts::DryRun,
            (ReclaimFirst::Enforce(_), Some(_)) => ReclaimFacts::Busy(self.answer.unwrap_or(Answer::Pending)),
            (ReclaimFirst::Enforce(reclaimer), None) if reclaimer.is_idle() => ReclaimFacts::Idle,
            // The kernel may still work on an interrupted request.
            (ReclaimFirst::Off, _) | (ReclaimFirst::Enforce(_), None) => ReclaimFacts::Off,
        }
    }

    fn interrupt(&self) {
        if let ReclaimFirst::Enforce(reclaimer) = &self.first {
            reclaimer.interrupt();
        }
    }
}

fn bytes_in(file: &PinnedFile, buffer: &mut Buffer) -> Option<Bytes> {
    file.read(buffer).ok()?.trim().parse().ok().map(Bytes)
}

impl Agent {
    /// Ends the attempt with `outcome`. Returns by how much the usage of the workload fell.
    pub(super) fn end_reclaim(&mut self, outcome: ReclaimOutcome, interrupt: bool, seen: &Observation) -> Bytes {
        if interrupt {
            self.actions.reclaim.interrupt();
        }
        self.actions.reclaim.answer = None;
        let Some(attempt) = self.actions.reclaim.running.take() else { return Bytes::ZERO };
        let now = Monotonic::now();
        // A removed cgroup has given back all its memory, but not because of the request.
        let usage = bytes_in(&attempt.usage, &mut Buffer::new()).unwrap_or(attempt.usage_before);
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
        self.reporter.report(&Record::Reclaim(ReclaimRecord::Ended(&ended)), now);
        let freed = ended.freed;
        self.actions.reclaim.in_vain = Some((now, ended)).filter(|_| outcome != ReclaimOutcome::Sufficed);
        freed
    }

    /// Asks the kernel to reclaim `bytes` from the candidate at `place`. Returns false if the request is impossible.
    pub(super) fn begin_reclaim(&mut self, place: usize, bytes: Bytes, deadline: Monotonic) -> bool {
        let Some(usage) = self.decision.ranking().get(place).map(|ranked| &ranked.candidate) else { return false };
        let available = self.decision.acted_on().map_or(Bytes::ZERO, |met| met.value.available_bytes());
        let Some(tracked) = self.sensors.workloads.tree().find(usage.workload.id) else { return false };
        let ReclaimFirst::Enforce(reclaimer) = &mut self.actions.reclaim.first else { return false };
        let now = Monotonic::now();
        match begin(reclaimer, tracked, usage, bytes, available, now) {
            Ok(attempt) => {
                self.actions.reclaim.running = Some(Attempt { deadline, ..attempt });
                self.actions.reclaim.in_vain = None;
                self.actions.reclaim.answer = None;
                true
            }
            Err(error) => {
                let reason = error.to_string();
                let record = ReclaimRecord::Refused { workload: &usage.workload.name, reason: &reason };
                self.reporter.report(&Record::Reclaim(record), now);
                false
            }
        }
    }
}

fn begin(
    reclaimer: &mut Reclaimer,
    tracked: &crate::workloads::Tracked,
    usage: &WorkloadUsage,
    requested: Bytes,
    available_before: Bytes,
    now: Monotonic,
) -> Result<Attempt, crate::actions::ActionError> {
    let workload = &usage.workload;
    let refused = |error: crate::node::pinned_file::FileError| {
        crate::actions::ActionError::refused(workload.name.clone(), std::io::Error::other(error.to_string()))
    };
    let file = PinnedFile::open_at(tracked.directory(), std::path::Path::new(&workload.name), "memory.current");
    let file = file.map_err(refused)?;
    let usage_before = bytes_in(&file, &mut Buffer::new()).unwrap_or(usage.working_set);
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
