//! The agent's actions on the machine. Each action is idempotent and checks its target. Only enforce mode acts on workloads.

mod action_error;
mod api_evictions;
mod audits;
mod carried_out;
mod carry_out;
mod ended_pods;
pub mod evict;
pub mod frozen;
pub mod garbage;
pub mod kept_state;
pub mod kill;
pub mod kill_writer;
pub mod oom_score;
mod pending_removals;
mod proactive_reclaim;
pub mod reclaim;
pub mod release;
mod runtime_orders;
pub mod score_record;
pub mod self_protection;
pub mod stop;
mod waiters;

use crate::cluster::Cluster;
use crate::config::{EvictionLimits, MonitorConfig};
use crate::eviction::Observation;
use crate::eviction::collection::CollectionEnd;
use crate::eviction::decider::{Decider, EndedEviction, Snapshot};
use crate::eviction::evicted::Cause;
use crate::eviction::proactive_reclaim::ReclaimOutcome;
use crate::runtime::Runtime;
use crate::sensors::Sensors;
use crate::units::{Amount, Bytes, Monotonic, Signal};
use crate::workloads::WorkloadUsage;

use pending_removals::PendingRemovals;
use reclaim::ReclaimFirst;
use waiters::{ApiEvictions, RuntimeOrders};

pub use action_error::ActionError;
pub use audits::Audits;
pub use carried_out::{Action, ActionNote, Started};
pub use evict::{Ended, Evictor, Outcome, StoppedPod};
pub use frozen::FreezeRecord;
pub use kept_state::KeptState;
pub use kill::Target;
pub use proactive_reclaim::{ProactiveReclaim, ReclaimAttempt};
pub use score_record::{Restored, ScoreRecord};
pub use stop::PodStopper;

/// Carries out what the decider asks for. Nothing here reports: what happened is kept as notes for the caller.
#[derive(Debug)]
pub struct Actions {
    pub evictor: Evictor,
    pub reclaim: ProactiveReclaim,
    pub audits: Audits,
    pub runtime: Runtime,
    pub cluster: Cluster,
    /// Evictions that ended since the decider last took them in: without a sample there is no turn, and the budget must
    /// count them.
    ended: Vec<EndedEviction>,
    /// A garbage collection that ended since the last turn.
    collected: Option<CollectionEnd>,
    orders: RuntimeOrders,
    asking: ApiEvictions,
    pending: PendingRemovals,
    notes: Vec<ActionNote>,
}

impl Actions {
    /// `queue` leads from the evictor to the runtime.
    pub fn new(
        evictor: Evictor,
        queue: stop::OrderQueue,
        first: ReclaimFirst,
        runtime: Runtime,
        cluster: Cluster,
    ) -> Self {
        Self {
            evictor,
            reclaim: ProactiveReclaim::new(first),
            audits: Audits::default(),
            runtime,
            cluster,
            ended: Vec::new(),
            collected: None,
            orders: RuntimeOrders::on(queue),
            asking: ApiEvictions::default(),
            pending: PendingRemovals::default(),
            notes: Vec::new(),
        }
    }

    /// Returns a snapshot with the state of the actions, and with what has ended since the last turn.
    pub fn snapshot(&mut self, sensors: &Sensors, now: Monotonic) -> Snapshot {
        Snapshot {
            under_way: self.evictor.under_way().collect(),
            ended: std::mem::take(&mut self.ended),
            collected: self.collected.take(),
            expected: self.pending.expected(sensors, sensors.disk.is_pressed(), now),
            reclaim: self.reclaim.facts(),
            ..Snapshot::default()
        }
    }

    /// Returns the space on disks that pods which were evicted or have ended are about to free, by signal.
    pub fn expected_space(&mut self, sensors: &Sensors, now: Monotonic) -> Vec<(Signal, Amount)> {
        self.pending.expected(sensors, true, now)
    }

    /// Takes the notes since the last call.
    pub fn take_notes(&mut self) -> Vec<ActionNote> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the number of evicted and ended pods whose disk usage is about to be freed.
    pub fn pods_expected(&self) -> usize {
        self.pending.len()
    }

    /// Polls the evictions under way, and returns those that ended.
    pub fn poll(&mut self, limits: &EvictionLimits, sensors: &mut Sensors, now: Monotonic) -> Vec<Ended> {
        self.evictor.note_moving(|workload| sensors.is_moved_away(workload));
        let ended = self.evictor.poll(limits, now);
        for ended in &ended {
            self.ended.push(EndedEviction { id: ended.id, cause: ended.cause, end: ended.end });
            match ended.outcome {
                Outcome::Gone => sensors.note_evicted(ended.id, &ended.name, now),
                Outcome::Failed(_) | Outcome::Refused(_) => self.pending.forget(&ended.name),
            }
            let is_refused = matches!((ended.cause, &ended.outcome), (Cause::Signal(_), Outcome::Refused(_)));
            if ended.cause.is_for_disk() && !is_refused {
                sensors.signals.filesystems.ask_now();
            }
        }
        ended
    }

    /// Asks the kernel to reclaim memory from the candidate at `place`, until the deadline. Returns false if the request is impossible.
    pub fn begin_reclaim(
        &mut self,
        place: usize,
        request: (Bytes, Monotonic),
        decider: &Decider<WorkloadUsage>,
        sensors: &Sensors,
    ) -> bool {
        let Some(usage) = decider.ranking().get(place).map(|ranked| &ranked.candidate) else { return false };
        let Some(tracked) = sensors.workloads.tree().find(usage.workload.id) else { return false };
        let available = decider.acted_on().map_or(Bytes::ZERO, |met| met.value.available_bytes());
        match self.reclaim.begin(tracked, usage, request, available) {
            Ok(has_begun) => has_begun,
            Err(error) => {
                let (workload, reason) = (usage.workload.name.clone(), error.to_string());
                self.notes.push(ActionNote::ReclaimRefused { workload, reason });
                false
            }
        }
    }

    /// Ends the reclaim attempt with `outcome`. Returns by how much the usage of the workload fell.
    pub fn end_reclaim(&mut self, outcome: ReclaimOutcome, interrupt: bool, seen: &Observation) -> Bytes {
        let Some(ended) = self.reclaim.end(outcome, interrupt, seen) else { return Bytes::ZERO };
        let freed = ended.freed;
        self.notes.push(ActionNote::ReclaimEnded(ended));
        freed
    }

    /// Tries `memory.reclaim` as the configuration says. Returns the reason if that is impossible.
    pub fn follow_reclaim(&mut self, config: &MonitorConfig, sensors: &Sensors) -> Option<String> {
        let hierarchy = sensors.workloads.tree().hierarchy();
        let (first, missing) = match ReclaimFirst::of(config.mode, config.evictions.reclaim_deadline, hierarchy) {
            Ok(first) => (first, None),
            Err(reason) => (ReclaimFirst::Off, Some(reason)),
        };
        self.reclaim.set_first(first);
        missing
    }
}
