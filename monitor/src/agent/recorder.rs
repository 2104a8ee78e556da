//! What the loop hands to the room of incidents: each sample, each kill, each eviction, and what the node looked like.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::actions::{Ended, Outcome as How};
use crate::config::{IncidentOptions, Mode};
use crate::eviction::SignalValue;
use crate::eviction::rank::Order;
use crate::incidents::model::{self, Eviction, Outcome, Reclaim, SignalHistory, Step};
use crate::incidents::oom_assembly::{Assembled, Assembler};
use crate::incidents::record_evidence::{self as evidence, Baselines};
use crate::incidents::sample_ring::SampleRing;
use crate::incidents::{Draft, Incident, IncidentIndex, Kind, Writer, text, writer};
use crate::report::{IncidentReport, RateLimiter};
use crate::units::{Amount, Bytes, CgroupId, Monotonic, Resource, Signal};

use super::act::Deed;
use super::evidence::Evidence;
use super::gentle::Reclaimed;
use super::tell::{of_bytes, of_others};
use super::{Agent, Look, allow};

/// Incidents that wait for their last victims, to be told again with the evidence of then.
const INCOMPLETE: usize = 8;
/// In a storm so many are said at once, then one in so long.
const SAID: (u32, Duration) = (200, Duration::from_millis(100));
/// Samples of a record for which no buffer is left: another one has just been made, and has them.
const FEW_SAMPLES: usize = 1_000;

/// What is kept for the record of an incident, and the way to the disk.
#[derive(Debug)]
pub struct Recorder {
    history: SampleRing,
    pub(super) assembler: Assembler,
    writer: Writer,
    pub(super) baselines: Baselines,
    pub(super) evidence: Option<Evidence>,
    underway: HashMap<CgroupId, Incident>,
    incomplete: VecDeque<Incident>,
    node: String,
    report: IncidentReport,
    said: RateLimiter,
    refused: RateLimiter,
}

impl Recorder {
    /// Opens the journal and starts the thread that writes it. Returns why there is no journal, too.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(options: &IncidentOptions) -> std::io::Result<(Self, Option<String>)> {
        let (writer, missing) = Writer::start(&options.directory, options.max_size)?;
        let recorder = Self {
            history: SampleRing::default(),
            assembler: Assembler::default(),
            writer,
            baselines: Baselines::default(),
            evidence: None,
            underway: HashMap::new(),
            incomplete: VecDeque::new(),
            node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            report: IncidentReport::default(),
            said: RateLimiter::new(SAID.0, SAID.1),
            refused: RateLimiter::new(1, Duration::from_secs(10)),
        };
        Ok((recorder, missing))
    }

    /// What is shown over HTTP.
    #[must_use]
    pub fn index(&self) -> Arc<IncidentIndex> {
        self.writer.index()
    }

    /// A value of `memory.available`.
    pub(super) fn sampled(&mut self, at: Monotonic, available: Bytes) {
        self.history.push(at, available.0);
    }

    pub(super) fn next_due(&self, now: Monotonic) -> Option<Duration> {
        self.assembler.next_due(now)
    }

    pub(super) fn report(&self) -> IncidentReport {
        IncidentReport { journal: self.writer.report(), ..self.report }
    }

    /// Why incidents cannot be written now.
    pub(super) fn trouble(&self) -> Option<String> {
        self.writer.degradation()
    }

    /// Counts and tells an incident, once.
    fn tell(&mut self, incident: &Incident) {
        match incident.kind {
            Kind::OomKill => self.report.oom_kills += 1,
            Kind::Eviction => self.report.evictions += 1,
        }
        let Some(suppressed) = allow(&mut self.said) else { return };
        tracing::info!(
            event = "incident",
            id = incident.id,
            kind = incident.kind.as_str(),
            at_mono_ns = incident.monotonic_ns,
            summary = incident.summary,
            suppressed,
            "recorded: node-pressure-monitor incidents {}",
            incident.id
        );
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

    /// Hands a record over with the last minute before it.
    fn submit(&mut self, incident: Incident, signal: Option<SignalHistory>) {
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
        if let Err(reason) = self.writer.submit(Draft { incident, signal, samples })
            && let Some(suppressed) = allow(&mut self.refused)
        {
            tracing::error!(event = "incident_dropped", id, %reason, suppressed, "an incident is not kept");
        }
    }
}

impl Agent {
    /// Incidents that are complete, or have been waited for long enough.
    pub(super) fn record_oom_kills(&mut self) {
        let now = Monotonic::now();
        if self.reporter.recorder.next_due(now).is_none_or(|wait| !wait.is_zero()) {
            return;
        }
        let due = self.reporter.recorder.assembler.due(now);
        self.record_assembled(due, now);
    }

    /// With the agent stopping, what has not been told yet.
    pub(super) fn record_rest(&mut self) {
        self.drain_events();
        self.tell_events();
        let now = Monotonic::now();
        let rest = self.reporter.recorder.assembler.rest(now);
        self.record_assembled(rest, now);
    }

    fn record_assembled(&mut self, assembled: Vec<Assembled>, now: Monotonic) {
        if assembled.is_empty() {
            return;
        }
        self.refresh_evidence(now);
        for assembled in assembled {
            // The evidence of the first time is nearer to what happened.
            let first = self.reporter.recorder.take_incomplete(&assembled.id);
            let fresh = || self.incident(Kind::OomKill, assembled.id.clone(), assembled.at);
            let mut incident = first.unwrap_or_else(fresh);
            incident.summary = text::summary_of_oom_kill(&assembled.kill);
            incident.oom_kill = Some(assembled.kill);
            incident.steps = assembled.steps;
            if !assembled.again {
                self.reporter.recorder.tell(&incident);
                if let Some(kill) = &incident.oom_kill {
                    self.tell_pods_of_oom_kill(kill);
                }
            }
            if !assembled.complete {
                self.reporter.recorder.keep_incomplete(&incident);
            }
            let signal = self.signal_history(None);
            self.reporter.recorder.submit(incident, signal);
        }
    }

    /// An eviction that was begun, or in observe mode would have been.
    pub(super) fn record_eviction(&mut self, look: &Look, deed: &Deed) {
        let Deed { met, ranked, candidates, action, processes, .. } = deed;
        let workload = &ranked.candidate.workload;
        let enforcing = self.config.mode == Mode::Enforce;
        let (pod, labels) = self.pod_named(workload.kind.pod_uid());
        let eviction = Eviction {
            pod,
            labels,
            signal: met.threshold.signal.as_str().to_owned(),
            threshold: met.threshold.to_string(),
            kind: met.threshold.kind().to_owned(),
            mode: self.config.mode.as_str().to_owned(),
            workload: workload.name.clone(),
            cgroup_id: Some(workload.id.0),
            qos_class: workload.qos.as_str().to_owned(),
            action: (*action).to_owned(),
            outcome: if enforcing { Outcome::Underway } else { Outcome::Observed },
            processes: enforcing.then_some(*processes),
            working_set_bytes: Some(ranked.candidate.working_set.0),
            used: ranked.candidate.other.and_then(|other| other.used).map(Amount::units),
            available_bytes: of_bytes(met, met.value.available),
            threshold_bytes: of_bytes(met, met.quantity.units()),
            available: of_others(met, met.value.available),
            threshold_value: of_others(met, met.quantity.units()),
            reclaim: deed.reclaimed.as_ref().map(reclaim),
            ..Eviction::default()
        };
        self.refresh_evidence(Monotonic::now());
        // A hard threshold may cut the grace period of an eviction short: that is one incident, not two.
        let earlier = self.reporter.recorder.underway.remove(&workload.id);
        let id = earlier.as_ref().map_or_else(
            || model::name(Kind::Eviction, deed.decided.wall(), workload.id),
            |earlier| earlier.id.clone(),
        );
        let begun = earlier.as_ref().map_or(look.woken, |earlier| Monotonic(earlier.monotonic_ns));
        let mut incident = self.incident(Kind::Eviction, id, begun);
        let order = Order::of(&self.config.policy, met.threshold.signal.resource());
        let resource = met.threshold.signal.resource();
        let (mut ranking, omitted) = evidence::ranking(candidates, order, resource);
        ranking.extend(incident.ranking.drain(..).filter(|place| place.place.is_none()));
        (incident.ranking, incident.ranking_omitted) = (ranking, omitted);
        evidence::put_victim(&mut incident.top_consumers, &ranked.candidate);
        incident.summary = text::summary_of_eviction(&eviction);
        incident.eviction = Some(eviction);
        incident.steps = earlier.as_ref().map(|earlier| earlier.steps.clone()).unwrap_or_default();
        for (step, at) in [
            ("woken", look.woken),
            ("sampled", look.sampled),
            ("ordered", deed.ordered),
            ("decided", deed.decided),
            ("acted", deed.acted),
        ] {
            incident.steps.push(Step::at(step, model::millis(at.0.saturating_sub(begun.0))));
        }
        if earlier.is_none() {
            self.reporter.recorder.tell(&incident);
        }
        // The history is that of memory.
        let threshold = Some(met.quantity.bytes()).filter(|_| resource == Resource::Memory);
        if enforcing {
            self.reporter.recorder.underway.insert(workload.id, incident.clone());
        }
        let signal = self.signal_history(threshold);
        self.reporter.recorder.submit(incident, signal);
    }

    /// An eviction for a limit of the pod's own: no signal of the node has part in it.
    pub(super) fn submit_eviction(&mut self, incident: Incident, id: CgroupId) {
        self.reporter.recorder.tell(&incident);
        if incident.eviction.as_ref().is_some_and(|eviction| eviction.outcome == Outcome::Underway) {
            self.reporter.recorder.underway.insert(id, incident.clone());
        }
        self.reporter.recorder.submit(incident, None);
    }

    /// An eviction that was found ended at `at`, and what was available right after.
    pub(super) fn record_ended(&mut self, ended: &Ended, at: Monotonic, available: Option<SignalValue>) {
        let Some(mut incident) = self.reporter.recorder.underway.remove(&ended.id) else { return };
        let since = |at: Monotonic| model::millis(at.0.saturating_sub(incident.monotonic_ns));
        let mut steps: Vec<Step> = ended.killed.map(|killed| Step::at("killed", since(killed))).into_iter().collect();
        let ended_after = since(at);
        let mut threshold = None;
        if let Some(eviction) = &mut incident.eviction {
            let step = match &ended.outcome {
                How::Gone => {
                    eviction.outcome = Outcome::Gone;
                    let freed = |before: Option<i64>| Some(available?.available.saturating_sub(before?));
                    eviction.freed_bytes = freed(eviction.available_bytes);
                    eviction.freed = freed(eviction.available);
                    "gone"
                }
                How::Failed(reason) | How::Refused(reason) => {
                    eviction.outcome = Outcome::Failed;
                    eviction.failure = Some(reason.clone());
                    "failed"
                }
            };
            steps.push(Step::at(step, ended_after));
            incident.steps.append(&mut steps);
            incident.summary = text::summary_of_eviction(eviction);
            let of_memory = ended.cause.resource() == Resource::Memory;
            let bytes = eviction.threshold_bytes.filter(|_| of_memory);
            threshold = bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes);
        }
        let signal = self.signal_history(threshold);
        self.reporter.recorder.submit(incident, signal);
    }

    /// A record with what is known of the node.
    pub(super) fn incident(&self, kind: Kind, id: String, at: Monotonic) -> Incident {
        let mut incident = Incident {
            id,
            kind,
            time: at.wall(),
            monotonic_ns: at.0,
            node: self.reporter.recorder.node.clone(),
            mode: self.config.mode.as_str().to_owned(),
            ..Incident::default()
        };
        let Some(evidence) = &self.reporter.recorder.evidence else { return incident };
        incident.memory.clone_from(&evidence.memory);
        incident.pressure.clone_from(&evidence.pressure);
        incident.top_consumers.clone_from(&evidence.consumers);
        incident.ranking = evidence.ranking.iter().chain(&evidence.protected).cloned().collect();
        incident.ranking_omitted = evidence.omitted;
        incident.evidence_after_ms = Some(match evidence.at.0.checked_sub(at.0) {
            Some(after) => model::millis(after),
            None => -model::millis(at.0 - evidence.at.0),
        });
        if let Some(growth) = &evidence.growth {
            incident.inode_growth.clone_from(&growth.inodes);
            // Where nobody counts, none is not known to be none.
            if self.counts_stalls() {
                incident.stalls.clone_from(&growth.stalls);
                incident.stalls_seconds = Some(growth.span.as_secs_f64());
            }
        }
        incident
    }

    /// What there is to say about the signal besides its samples.
    fn signal_history(&self, threshold: Option<Bytes>) -> Option<SignalHistory> {
        let capacity = self.sensors.sample?.meminfo.total;
        let thresholds = || {
            let of_memory =
                self.decision.armed.iter().filter(|armed| armed.threshold.signal == Signal::MemoryAvailable);
            let capacity = i64::try_from(capacity.0).unwrap_or(i64::MAX);
            of_memory.map(move |armed| armed.threshold.value.resolve(capacity, self.config.policy.quirks).bytes()).max()
        };
        Some(SignalHistory {
            unit: "bytes".to_owned(),
            capacity: Some(capacity.0),
            threshold: threshold.or_else(thresholds).map(|bytes| bytes.0),
            ..SignalHistory::default()
        })
    }
}

fn reclaim(reclaimed: &Reclaimed) -> Reclaim {
    Reclaim {
        workload: reclaimed.workload.clone(),
        requested_bytes: reclaimed.requested.0,
        freed_bytes: Some(reclaimed.freed.0),
        available_before_bytes: Some(reclaimed.available_before.0),
        available_after_bytes: Some(reclaimed.available_after.0),
        took_ms: reclaimed.took.as_secs_f64() * 1e3,
        outcome: reclaimed.outcome.as_str().to_owned(),
    }
}
