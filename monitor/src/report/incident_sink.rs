//! Builds incidents from records: adds evidence and ids, and passes them to the journal.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::RateLimiter;
use super::afterwards;
use super::eviction_model::eviction_model;
use super::eviction_report::{EvictionRecord, StartedEviction, Trigger};
use super::incident_limiter::IncidentLimiter;
use super::log_sink;
use super::notifications::Notifier;
use super::oom_kill_report::{KillPlace, OomKillRecord, mark_of};
use super::record::Record;
use crate::actions::{Ended, Outcome as Ending};
use crate::cluster::Verdict;
use crate::config::{IncidentOptions, Mode};
use crate::eviction::SignalValue;
use crate::eviction::rank::Order;
use crate::incidents::model::{self, OomKill, Outcome, SignalHistory, Step, SwapWait};
use crate::incidents::oom_assembly::{Assembled, Assembler};
use crate::incidents::record_evidence::{self as evidence, Baselines};
use crate::incidents::sample_ring::{Sample, SampleRing};
use crate::incidents::writer::{JournalReport, Refused};
use crate::incidents::{Draft, Incident, IncidentIndex, Kind, Writer, text, writer};
use crate::kernel::Event;
use crate::runtime::Names;
use crate::units::{Bytes, CgroupId, Monotonic, Resource, Signal};

/// Incidents that wait for further victims keep the evidence of their first record; the oldest beyond this number lose it.
const INCOMPLETE: usize = 8;
/// An eviction had waited for swap if the wait ended at most this long before.
const SWAP_WAIT_COUNTS: Duration = Duration::from_secs(10);
/// Samples of a record if no buffer is left; a record made just before has all of them.
const FEW_SAMPLES: usize = 1_000;

/// Counts of incidents, and the state of their journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IncidentReport {
    /// Invocations of the OOM killer.
    pub oom_kills: u64,
    /// Evictions, including the dry runs of observe mode.
    pub evictions: u64,
    pub journal: JournalReport,
}

/// The node and its workloads at the time of an incident.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    pub at: Monotonic,
    pub took: Duration,
    /// The part of a record about them. Its other fields are empty.
    pub figures: Incident,
}

/// Context of the samples of `memory.available`.
#[derive(Debug, Clone, Copy)]
pub struct MemoryScale {
    pub capacity: Bytes,
    pub threshold: Option<Bytes>,
    /// Whether eBPF programs count reclaim stalls. Otherwise a count of zero is not evidence.
    pub counts_stalls: bool,
}

#[derive(Debug)]
pub struct Recorder {
    history: SampleRing,
    assembler: Assembler,
    pub(super) writer: Writer,
    pub notifier: Notifier,
    pub baselines: Baselines,
    pub evidence: Option<Evidence>,
    scale: Option<MemoryScale>,
    underway: HashMap<CgroupId, Incident>,
    /// The last wait for swap, and when it ended.
    swap_wait: Option<(Monotonic, SwapWait)>,
    incomplete: VecDeque<Incident>,
    node: String,
    counts: IncidentReport,
    log_limit: IncidentLimiter,
    drop_limit: RateLimiter,
}

impl Recorder {
    /// Opens the journal and starts its writer thread. `node` is the node's name. The second value is the reason if there is no journal.
    pub fn start(options: &IncidentOptions, node: String) -> std::io::Result<(Self, Option<String>)> {
        let (writer, missing) = Writer::start(&options.directory, options.max_size)?;
        let recorder = Self {
            history: SampleRing::default(),
            assembler: Assembler::default(),
            writer,
            notifier: Notifier::default(),
            baselines: Baselines::default(),
            evidence: None,
            scale: None,
            underway: HashMap::new(),
            swap_wait: None,
            incomplete: VecDeque::new(),
            node,
            counts: IncidentReport::default(),
            log_limit: IncidentLimiter::new(200, Duration::from_millis(100)),
            drop_limit: RateLimiter::new(1, Duration::from_secs(10)),
        };
        Ok((recorder, missing))
    }

    pub fn index(&self) -> Arc<IncidentIndex> {
        self.writer.index()
    }

    pub fn add_sample(&mut self, at: Monotonic, available: Bytes) {
        self.history.push(at, available.0);
    }

    /// Copies at most `most` samples of the minute before `now`.
    pub fn recent(&self, now: Monotonic, most: usize, out: &mut Vec<Sample>) {
        self.history.copy_to(now, most, out);
    }

    pub fn set_scale(&mut self, scale: Option<MemoryScale>) {
        self.scale = scale.or(self.scale);
    }

    /// Returns the time until an OOM kill's incident is complete or stops waiting for its victims.
    pub fn next_due(&self, now: Monotonic) -> Option<Duration> {
        self.assembler.next_due(now)
    }

    pub fn counts(&self) -> IncidentReport {
        IncidentReport { journal: self.writer.report(), ..self.counts }
    }

    /// Notes the mark of a victim; its incident follows when the victim has exited.
    pub fn note_mark(&mut self, event: &Event, trigger: &KillPlace) {
        if let Some(mark) = mark_of(event, trigger) {
            let time = mark.at.wall();
            self.assembler.mark(mark, time);
        }
    }

    /// Takes the record into its incident. Returns the id of an incident that it begins or continues.
    pub(super) fn note(&mut self, record: &Record<'_>, names: &Names, now: Monotonic) -> Option<String> {
        match *record {
            Record::Eviction(eviction) => return Some(self.begin_eviction(eviction, names, now)),
            Record::EvictionEnded { ended, at, available } => self.end_eviction(ended, at, available, now),
            Record::EvictionSettled { pod_uid, verdict } => self.settle_eviction(pod_uid, verdict, now),
            Record::SwapFallsShort { waited, why, .. } if !waited.is_zero() => {
                let limit = why.as_str().to_owned();
                self.swap_wait = Some((now, SwapWait { waited_ms: waited.as_secs_f64() * 1e3, limit }));
            }
            Record::OomKill(kill) => return Some(self.add_kill(kill)),
            _ => {}
        }
        None
    }

    fn add_kill(&mut self, record: &OomKillRecord<'_>) -> String {
        let marked = Monotonic(record.kill.marked_at_ns);
        self.assembler.kill(record.assembled(), marked.wall()).to_owned()
    }

    /// The incidents of OOM kills that are complete by `now` or have waited long enough; `all`: the others too, because the agent stops.
    pub(super) fn assembled(&mut self, all: bool, now: Monotonic) -> Vec<Assembled> {
        if all { self.assembler.rest(now) } else { self.assembler.due(now) }
    }

    /// Records an OOM kill's incident. Returns the kill if this is the incident's first record.
    pub(super) fn record_assembled(
        &mut self,
        assembled: Assembled,
        names: &Names,
        mode: Mode,
        now: Monotonic,
    ) -> Option<OomKill> {
        // Keep the evidence of the first record: it is closer to the time of the kill.
        let first = self.take_incomplete(&assembled.id);
        let mut incident =
            first.unwrap_or_else(|| self.incident(Kind::OomKill, assembled.id.clone(), assembled.at, mode));
        incident.oom_kill = Some(assembled.kill);
        incident.name_rows(|workload, cgroup| names.identity(workload, cgroup));
        incident.summary = incident.oom_kill.as_ref().map(text::summary_of_oom_kill).unwrap_or_default();
        incident.steps = assembled.steps;
        let reported = (!assembled.again).then(|| {
            self.count_and_log(&incident, now);
            incident.oom_kill.clone()
        });
        if !assembled.complete {
            self.keep_incomplete(&incident);
        }
        let signal = self.signal_history(None);
        self.submit(incident, signal, now);
        reported.flatten()
    }

    fn begin_eviction(&mut self, record: &EvictionRecord<'_>, names: &Names, now: Monotonic) -> String {
        let mode = record.action.mode();
        // A hard threshold may cut the grace period of a running eviction short: that is one incident, not two.
        let earlier = self.underway.remove(&record.cgroup);
        let trigger = match record.trigger {
            Trigger::Threshold(trigger, order) => Some((trigger, order)),
            Trigger::Limit { .. } => None,
        };
        let continued = earlier.as_ref().filter(|_| trigger.is_some());
        let named = trigger.map_or(record.woken, |(trigger, _)| trigger.decided);
        let new_id = || model::name(Kind::Eviction, named.wall(), record.cgroup);
        let id = continued.map_or_else(new_id, |earlier| earlier.id.clone());
        let begun = continued.map_or(record.woken, |earlier| Monotonic(earlier.monotonic_ns));
        let mut incident = self.incident(Kind::Eviction, id.clone(), begun, mode);
        let mut eviction = eviction_model(record);
        if record.trigger.cause().resource() == Resource::Memory {
            let is_recent = |(at, _): &(Monotonic, SwapWait)| now.since(*at) < SWAP_WAIT_COUNTS;
            eviction.swap_wait = self.swap_wait.take().filter(is_recent).map(|(_, wait)| wait);
        }
        if let Some(earlier) = continued.and_then(|earlier| earlier.eviction.clone()) {
            eviction.afterwards = earlier.afterwards;
            eviction.swap_wait = eviction.swap_wait.or(earlier.swap_wait);
        }
        incident.summary = text::summary_of_eviction(&eviction);
        incident.eviction = Some(eviction);
        incident.steps = continued.map(|earlier| earlier.steps.clone()).unwrap_or_default();
        let mut step = |name, at: Monotonic| {
            incident.steps.push(Step::at(name, model::millis(at.0.saturating_sub(begun.0))));
        };
        if let Some((trigger, _)) = trigger {
            step("woken", record.woken);
            step("sampled", trigger.sampled);
            step("ordered", trigger.ordered);
            step("decided", trigger.decided);
        }
        step("acted", record.acted);
        if let Some((trigger, order)) = trigger {
            put_ranking(&mut incident, trigger, order);
        }
        incident.name_rows(|workload, cgroup| names.identity(workload, cgroup));
        let signal = trigger.and_then(|_| self.eviction_history(&incident));
        if earlier.is_none() {
            self.count_and_log(&incident, now);
        }
        if mode == Mode::Enforce {
            self.underway.insert(record.cgroup, incident.clone());
        }
        self.submit(incident, signal, now);
        id
    }

    fn end_eviction(&mut self, ended: &Ended, at: Monotonic, available: Option<SignalValue>, now: Monotonic) {
        let Some(mut incident) = self.underway.remove(&ended.id) else { return };
        let since = |at: Monotonic| model::millis(at.0.saturating_sub(incident.monotonic_ns));
        let mut steps: Vec<Step> = ended.killed.map(|killed| Step::at("killed", since(killed))).into_iter().collect();
        let ended_after = since(at);
        if let Some(eviction) = &mut incident.eviction {
            let step = match &ended.outcome {
                Ending::Gone => {
                    eviction.outcome = Outcome::Gone;
                    let freed = |before: Option<i64>| Some(available?.available.saturating_sub(before?));
                    eviction.freed_bytes = freed(eviction.available_bytes);
                    eviction.freed = freed(eviction.available);
                    "gone"
                }
                Ending::Failed(reason) | Ending::Refused(reason) => {
                    eviction.outcome = Outcome::Failed;
                    eviction.failure = Some(reason.clone());
                    "failed"
                }
            };
            steps.push(Step::at(step, ended_after));
            incident.steps.append(&mut steps);
            incident.summary = text::summary_of_eviction(eviction);
        }
        let signal = self.eviction_history(&incident);
        self.submit(incident, signal, now);
    }

    /// Takes in what became of the pod at the API server.
    fn settle_eviction(&mut self, pod_uid: &str, verdict: &Verdict, now: Monotonic) {
        if let Some(words) = afterwards::settle(pod_uid, verdict, self.underway.values_mut())
            && let Err(reason) = self.writer.amend(pod_uid, words)
        {
            self.log_drop(pod_uid, reason, now);
        }
    }

    /// Returns the history of an eviction's signal, without samples.
    fn eviction_history(&self, incident: &Incident) -> Option<SignalHistory> {
        // The samples are those of memory.
        let of_memory = [Signal::MemoryAvailable, Signal::AllocatableMemoryAvailable].map(Signal::as_str);
        let eviction = incident.eviction.as_ref().filter(|it| of_memory.contains(&it.signal.as_str()));
        let bytes = eviction.and_then(|eviction| eviction.threshold_bytes);
        self.signal_history(bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes))
    }

    /// Creates an incident with the evidence about the node.
    fn incident(&self, kind: Kind, id: String, at: Monotonic, mode: Mode) -> Incident {
        let figures = self.evidence.as_ref().map(|evidence| evidence.figures.clone()).unwrap_or_default();
        let mut incident = Incident {
            id,
            kind,
            time: at.wall(),
            monotonic_ns: at.0,
            node: self.node.clone(),
            mode: mode.as_str().to_owned(),
            ..figures
        };
        incident.evidence_after_ms = self.evidence.as_ref().map(|evidence| match evidence.at.0.checked_sub(at.0) {
            Some(after) => model::millis(after),
            None => -model::millis(at.0 - evidence.at.0),
        });
        if !self.scale.is_some_and(|scale| scale.counts_stalls) {
            (incident.stalls, incident.stalls_seconds) = (Vec::new(), None);
        }
        incident
    }

    /// Returns the history of `memory.available` without its samples.
    fn signal_history(&self, threshold: Option<Bytes>) -> Option<SignalHistory> {
        let scale = self.scale?;
        Some(SignalHistory {
            unit: "bytes".to_owned(),
            capacity: Some(scale.capacity.0),
            threshold: threshold.or(scale.threshold).map(|bytes| bytes.0),
            ..SignalHistory::default()
        })
    }

    fn count_and_log(&mut self, incident: &Incident, now: Monotonic) {
        match incident.kind {
            Kind::OomKill => self.counts.oom_kills += 1,
            Kind::Eviction => self.counts.evictions += 1,
        }
        if let Some(suppressed) = self.log_limit.admit(incident, now) {
            log_sink::incident(incident, suppressed);
        }
        self.notifier.offer(incident, now);
    }

    fn keep_incomplete(&mut self, incident: &Incident) {
        if self.incomplete.len() >= INCOMPLETE {
            self.incomplete.pop_front();
        }
        self.incomplete.push_back(incident.clone());
    }

    fn take_incomplete(&mut self, id: &str) -> Option<Incident> {
        let place = self.incomplete.iter().position(|incident| incident.id == id)?;
        self.incomplete.remove(place)
    }

    /// Passes the incident to the writer, with the samples of the preceding minute.
    fn submit(&mut self, incident: Incident, signal: Option<SignalHistory>, now: Monotonic) {
        let at = Monotonic(incident.monotonic_ns);
        let (mut samples, most) = match self.writer.spare() {
            Some(buffer) => (buffer, writer::SAMPLES),
            None => (Vec::new(), FEW_SAMPLES),
        };
        let signal = signal.map(|mut signal| {
            signal.thinned = self.history.copy_to(at, most, &mut samples);
            (Signal::MemoryAvailable.as_str(), signal)
        });
        let id = incident.id.clone();
        if let Err(reason) = self.writer.submit(Draft { incident, signal, samples }) {
            self.log_drop(&id, reason, now);
        }
    }

    /// Logs that an incident is not recorded. `id` is that of the incident, or of the pod whose eviction was to be amended.
    fn log_drop(&mut self, id: &str, reason: Refused, now: Monotonic) {
        if let Some(suppressed) = self.drop_limit.admit(now) {
            tracing::error!(event = "incident_dropped", id, %reason, suppressed, "the incident is not recorded");
        }
    }
}

/// Replaces the evidence's ranking by that of the decision.
fn put_ranking(incident: &mut Incident, trigger: &StartedEviction, order: Order<'_>) {
    let StartedEviction { met, victim, ranking, .. } = trigger;
    let (mut places, omitted) = evidence::ranking(ranking, order, met.threshold.signal.resource());
    places.extend(incident.ranking.drain(..).filter(|place| place.place.is_none()));
    (incident.ranking, incident.ranking_omitted) = (places, omitted);
    evidence::put_victim(&mut incident.top_consumers, &victim.candidate);
}
