//! Memory back from a workload before one is evicted: who is asked, how long is waited, and what came of it.

use std::time::Duration;

use crate::actions::reclaim::{self, ReclaimFirst, Reclaimer};
use crate::eviction::MetThreshold;
use crate::eviction::proactive_reclaim::{self as gentle, Answer, Futile, ReclaimOutcome};
use crate::eviction::rank::Ranked;
use crate::node::pinned_file::{Buffer, PinnedFile};
use crate::report::Dedup;
use crate::report::reclaim_report::{ReclaimAttempt, ReclaimRecord};
use crate::report::record::Record;
use crate::report::reporter::REPEAT_DRY_RUN;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::WorkloadUsage;

use super::act::candidates;
use super::{Agent, Look};

/// While the kernel is at it, the node is looked at this often: the pressure may be gone, or grow.
const CHECK: Duration = Duration::from_millis(10);
/// What the loop knows of such attempts.
#[derive(Debug)]
pub(super) struct Gentle {
    first: ReclaimFirst,
    running: Option<Attempt>,
    answer: Option<Answer>,
    rests_until: Option<Monotonic>,
    /// Asking that has an effect goes on until the deadline: who is asked may take more meanwhile.
    episode: Option<Episode>,
    /// What was said last of why it is not tried.
    told: Option<Futile>,
    would_ask: Dedup<CgroupId>,
    /// The last attempt, if it was in vain: the eviction that follows is to tell of it.
    in_vain: Option<ReclaimAttempt>,
}

/// One attempt after the other, for as long as a hard threshold may wait.
#[derive(Debug, Clone, Copy)]
struct Episode {
    started: Monotonic,
    deadline: Monotonic,
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

impl Gentle {
    pub(super) fn new(first: ReclaimFirst) -> Self {
        Self {
            first,
            running: None,
            answer: None,
            rests_until: None,
            episode: None,
            told: None,
            would_ask: Dedup::new(REPEAT_DRY_RUN),
            in_vain: None,
        }
    }

    /// From now on so. What is under way is given up: the kernel is told to stop.
    pub(super) fn set_first(&mut self, first: ReclaimFirst) {
        self.interrupt();
        *self = Self::new(first);
    }

    /// Returns when the kernel has answered; never, when nothing was asked. Cancel-safe.
    pub(super) async fn answered(&mut self) {
        match (&mut self.first, &self.running, self.answer) {
            (ReclaimFirst::Enforce(reclaimer), Some(_), None) => self.answer = Some(reclaimer.answer().await),
            _ => std::future::pending().await,
        }
    }

    /// How long until an attempt under way wants to be looked at.
    pub(super) fn next_check(&self, now: Monotonic) -> Option<Duration> {
        self.running.as_ref().map(|attempt| attempt.deadline.since(now).min(CHECK))
    }

    /// The attempt that was in vain, for the eviction that follows it.
    pub(super) fn take_in_vain(&mut self, now: Monotonic) -> Option<ReclaimAttempt> {
        self.in_vain.take().filter(|_| self.rests_until.is_some_and(|until| now < until))
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
    /// Looks at the attempt under way, if any. True while it is to be waited for.
    pub(super) fn waits_for_reclaim(&mut self, met: Option<&MetThreshold>, look: &Look) -> bool {
        let Some(attempt) = &self.actions.gentle.running else { return false };
        let now = Monotonic::now();
        let available = look.observation.get(crate::units::Signal::MemoryAvailable);
        let available = available.map_or(Bytes::ZERO, |value| value.available_bytes());
        let worth = gentle::is_worth_waiting(attempt.available_before, available);
        let answer = self.actions.gentle.answer.unwrap_or(Answer::Pending);
        let Some(outcome) = gentle::outcome(answer, met.is_some(), now >= attempt.deadline, worth) else { return true };
        if answer == Answer::Pending {
            self.actions.gentle.interrupt();
        }
        self.actions.gentle.answer = None;
        let Some(attempt) = self.actions.gentle.running.take() else { return false };
        let took = now.since(attempt.started);
        let episode = self.actions.gentle.episode.take();
        let since = episode.map_or(took, |episode| now.since(episode.started));
        self.actions.gentle.rests_until = Some(now.after(gentle::rest(since, self.config.evictions.cool_down)));
        // A cgroup that is gone gave back everything, but not to this.
        let usage = bytes_in(&attempt.usage, &mut Buffer::new()).unwrap_or(attempt.usage_before);
        let reclaimed = ReclaimAttempt {
            workload: attempt.workload,
            id: attempt.id,
            requested: attempt.requested,
            freed: attempt.usage_before.saturating_sub(usage),
            available_before: attempt.available_before,
            available_after: available,
            took,
            outcome,
        };
        let goes_on = gentle::goes_on(outcome, answer, reclaimed.freed);
        self.actions.gentle.episode = episode.filter(|episode| goes_on && now < episode.deadline);
        self.reporter.report(&Record::Reclaim(ReclaimRecord::Ended(&reclaimed)), now);
        self.actions.gentle.in_vain = Some(reclaimed).filter(|it| it.outcome != ReclaimOutcome::Sufficed);
        false
    }

    /// Asks a workload to give memory back, where that can help. True when it was asked, and its answer is to be waited for.
    pub(super) fn asks_first(&mut self, met: &MetThreshold) -> bool {
        let now = Monotonic::now();
        let resting = self.actions.gentle.rests_until.is_some_and(|until| now < until);
        self.actions.gentle.episode = self.actions.gentle.episode.filter(|episode| resting && now < episode.deadline);
        if matches!(self.actions.gentle.first, ReclaimFirst::Off) || (resting && self.actions.gentle.episode.is_none())
        {
            return false;
        }
        match self.whom_to_ask(met, now) {
            Ok((usage, requested)) => self.ask(met, &usage, requested, now),
            Err(futile) => {
                let rest = now.after(gentle::rest(Duration::ZERO, self.config.evictions.cool_down));
                self.actions.gentle.rests_until = self.actions.gentle.rests_until.max(Some(rest));
                self.actions.gentle.episode = None;
                if self.actions.gentle.told.replace(futile) != Some(futile) {
                    self.reporter.report(&Record::Reclaim(ReclaimRecord::Futile { met, futile }), now);
                }
                false
            }
        }
    }

    /// The candidate furthest above its request, and how much to ask of it.
    fn whom_to_ask(&mut self, met: &MetThreshold, now: Monotonic) -> Result<(WorkloadUsage, Bytes), Futile> {
        let mut usages: Vec<WorkloadUsage> = candidates(self.sensors.tree.usages()).collect();
        usages.retain(|usage| self.actions.evictor.is_candidate(usage.workload.id, met.is_hard(), now));
        // What is not told is not there to swap to.
        let swap_free = self.sensors.memory.details().ok().and_then(|details| details.swap_free).unwrap_or(Bytes::ZERO);
        loop {
            let ranked: Vec<_> = usages.iter().cloned().map(|candidate| Ranked { candidate }).collect();
            let place = gentle::furthest_above_request(&ranked).ok_or(Futile::NobodyAboveRequest)?;
            let Some(furthest) = usages.get(place) else { return Err(Futile::NobodyAboveRequest) };
            let above = furthest.working_set.saturating_sub(furthest.workload.request);
            let id = furthest.workload.id;
            if self.is_node_critical(id) {
                usages.retain(|usage| usage.workload.id != id);
                continue;
            }
            let tracked = self.sensors.tree.find(id).ok_or(Futile::NobodyAboveRequest)?;
            let holding = reclaim::holding(tracked.directory(), above, swap_free).map_err(|_| Futile::TooLittle)?;
            let missing = gentle::missing(&self.config.policy, met);
            return Ok((furthest.clone(), gentle::ask(self.config.policy.semantics, missing, &holding)?));
        }
    }

    fn ask(&mut self, met: &MetThreshold, usage: &WorkloadUsage, requested: Bytes, now: Monotonic) -> bool {
        let workload = &usage.workload;
        let Some(tracked) = self.sensors.tree.find(workload.id) else { return false };
        let reclaimer = match &mut self.actions.gentle.first {
            ReclaimFirst::Off => return false,
            ReclaimFirst::Observe => {
                if self.actions.gentle.would_ask.is_due(workload.id, now) {
                    let record = ReclaimRecord::DryRun { met, workload: &workload.name, requested };
                    self.reporter.report(&Record::Reclaim(record), now);
                }
                return false;
            }
            // One that was given up may still keep the kernel busy: nothing more is asked until that is over.
            ReclaimFirst::Enforce(reclaimer) if !reclaimer.is_idle() => return false,
            ReclaimFirst::Enforce(reclaimer) => reclaimer,
        };
        match begin(reclaimer, tracked, usage, requested, met.value.available_bytes(), now) {
            Ok(attempt) => {
                let whole = Episode { started: now, deadline: now.after(self.config.evictions.reclaim_deadline) };
                let episode = *self.actions.gentle.episode.get_or_insert(whole);
                self.actions.gentle.running = Some(Attempt { deadline: episode.deadline, ..attempt });
                self.actions.gentle.in_vain = None;
                self.actions.gentle.answer = None;
                self.actions.gentle.told = None;
                true
            }
            Err(error) => {
                self.actions.gentle.rests_until =
                    Some(now.after(gentle::rest(Duration::ZERO, self.config.evictions.cool_down)));
                let reason = error.to_string();
                let record = ReclaimRecord::Refused { workload: &workload.name, reason: &reason };
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
