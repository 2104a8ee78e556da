//! What the loop hands to the room of incidents: each sample, each kill, each eviction, and what the node looked like.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::actions::{Ended, Outcome as How};
use crate::config::{Bytes, CgroupId, IncidentOptions, Mode, Resource, Signal};
use crate::eviction::rank::Order;
use crate::incidents::evidence::{self, Baselines, Counted, Growth};
use crate::incidents::history::History;
use crate::incidents::model::{
    self, Consumer, Eviction, Memory, Outcome, Place, Pressure, Reclaim, SignalHistory, Step,
};
use crate::incidents::oom::Assembler;
use crate::incidents::{Draft, Incident, Kind, Shelf, Writer, text, writer};
use crate::node::Monotonic;
use crate::report::{IncidentReport, PressureReport};

use super::act::Deed;
use super::gentle::Reclaimed;
use super::{Agent, Look};

/// In a storm of OOM kills the workloads are not measured for each.
const EVIDENCE_AGE: Duration = Duration::from_millis(250);
/// Samples of a record for which no buffer is left: another one has just been made, and has them.
const FEW_SAMPLES: usize = 1_000;

/// What is kept for the record of an incident, and the way to the disk.
#[derive(Debug)]
pub struct Recorder {
    history: History,
    pub(super) assembler: Assembler,
    writer: Writer,
    baselines: Baselines,
    evidence: Option<Evidence>,
    underway: HashMap<CgroupId, Incident>,
    node: String,
    report: IncidentReport,
}

/// The workloads as they were.
#[derive(Debug)]
struct Evidence {
    at: Monotonic,
    memory: Option<Memory>,
    consumers: Vec<Consumer>,
    protected: Vec<Place>,
    ranking: Vec<Place>,
    omitted: usize,
    growth: Option<Growth>,
    pressure: Vec<Pressure>,
}

impl Recorder {
    /// Opens the journal and starts the thread that writes it. Returns why there is no journal, too.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(options: &IncidentOptions) -> std::io::Result<(Self, Option<String>)> {
        let (writer, missing) = Writer::start(&options.directory, options.max_size)?;
        let recorder = Self {
            history: History::default(),
            assembler: Assembler::default(),
            writer,
            baselines: Baselines::default(),
            evidence: None,
            underway: HashMap::new(),
            node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            report: IncidentReport::default(),
        };
        Ok((recorder, missing))
    }

    /// What is shown over HTTP.
    #[must_use]
    pub fn shelf(&self) -> Arc<Shelf> {
        self.writer.shelf()
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

    /// Counts and tells an incident, once.
    fn tell(&mut self, incident: &Incident) {
        match incident.kind {
            Kind::OomKill => self.report.oom_kills += 1,
            Kind::Eviction => self.report.evictions += 1,
        }
        tracing::info!(
            event = "incident",
            id = incident.id,
            kind = incident.kind.as_str(),
            at_mono_ns = incident.monotonic_ns,
            summary = incident.summary,
            "recorded: node-pressure-monitor incidents {}",
            incident.id
        );
    }

    /// Hands a record over with the last minute before it.
    fn submit(&self, incident: Incident, signal: Option<SignalHistory>) {
        let at = Monotonic(incident.monotonic_ns);
        let (mut samples, most) = match self.writer.spare() {
            Some(buffer) => (buffer, writer::SAMPLES),
            None => (Vec::new(), FEW_SAMPLES),
        };
        let signal = signal.map(|mut signal| {
            signal.thinned = self.history.copy_to(at, most, &mut samples);
            (Signal::MemoryAvailable.as_str(), signal)
        });
        // What cannot be handed over is counted there.
        let _counted = self.writer.submit(Draft { incident, signal, samples });
    }
}

impl Agent {
    /// Incidents that are complete, or have been waited for long enough.
    pub(super) fn record_oom_kills(&mut self) {
        let now = Monotonic::now();
        if self.recorder.next_due(now).is_none_or(|wait| !wait.is_zero()) {
            return;
        }
        let due = self.recorder.assembler.due(now);
        self.refresh_evidence(now);
        for assembled in due {
            let mut incident = self.incident(Kind::OomKill, assembled.id, assembled.at);
            incident.summary = text::summary_of_oom_kill(&assembled.kill);
            incident.oom_kill = Some(assembled.kill);
            incident.steps = assembled.steps;
            if !assembled.again {
                self.recorder.tell(&incident);
            }
            let signal = self.signal_history(None);
            self.recorder.submit(incident, signal);
        }
    }

    /// An eviction that was begun, or in observe mode would have been.
    pub(super) fn record_eviction(&mut self, look: &Look, deed: &Deed) {
        let Deed { met, ranked, candidates, action, processes, .. } = deed;
        let workload = &ranked.candidate.workload;
        let enforcing = self.config.mode == Mode::Enforce;
        let eviction = Eviction {
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
            available_bytes: Some(met.value.available),
            threshold_bytes: Some(met.quantity.units()),
            reclaim: deed.reclaimed.as_ref().map(reclaim),
            ..Eviction::default()
        };
        self.refresh_evidence(Monotonic::now());
        // A hard threshold may cut the grace period of an eviction short: that is one incident, not two.
        let earlier = self.recorder.underway.remove(&workload.id);
        let id = earlier
            .as_ref()
            .map_or_else(|| model::name(Kind::Eviction, wall(deed.decided), workload.id), |earlier| earlier.id.clone());
        let begun = earlier.as_ref().map_or(look.woken, |earlier| Monotonic(earlier.monotonic_ns));
        let mut incident = self.incident(Kind::Eviction, id, begun);
        let order = Order::of(&self.config.policy, met.threshold.signal.resource());
        let (mut ranking, omitted) = evidence::ranking(candidates, order, Resource::Memory);
        ranking.extend(incident.ranking.drain(..).filter(|place| place.place.is_none()));
        (incident.ranking, incident.ranking_omitted) = (ranking, omitted);
        if let Some(victim) = incident.top_consumers.iter_mut().find(|it| it.workload == workload.name) {
            // It is on its way out already.
            victim.working_set_bytes = ranked.candidate.working_set.0;
        }
        incident.top_consumers.sort_by_key(|it| std::cmp::Reverse(it.working_set_bytes));
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
            self.recorder.tell(&incident);
        }
        let threshold = Some(met.quantity.bytes());
        if enforcing {
            self.recorder.underway.insert(workload.id, incident.clone());
        }
        let signal = self.signal_history(threshold);
        self.recorder.submit(incident, signal);
    }

    /// An eviction that has ended.
    pub(super) fn record_ended(&mut self, ended: &Ended, now: Monotonic) {
        let Some(mut incident) = self.recorder.underway.remove(&ended.id) else { return };
        let available = self.memory.sample().ok().map(|sample| self.observation(sample));
        let available = available.and_then(|observation| observation.get(Signal::MemoryAvailable));
        let mut threshold = None;
        if let Some(eviction) = &mut incident.eviction {
            let step = match &ended.outcome {
                How::Gone => {
                    eviction.outcome = Outcome::Gone;
                    let before = eviction.available_bytes.zip(available);
                    eviction.freed_bytes = before.map(|(before, now)| now.available.saturating_sub(before));
                    "gone"
                }
                How::Failed(reason) => {
                    eviction.outcome = Outcome::Failed;
                    eviction.failure = Some(reason.clone());
                    "failed"
                }
            };
            incident.steps.push(Step::at(step, model::millis(now.0.saturating_sub(incident.monotonic_ns))));
            incident.summary = text::summary_of_eviction(eviction);
            threshold = eviction.threshold_bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes);
        }
        if let Some(value) = available {
            // So that the record shows how far it came back.
            self.recorder.sampled(now, value.available_bytes());
        }
        let signal = self.signal_history(threshold);
        self.recorder.submit(incident, signal);
    }

    /// The kernel's counters now, to tell later what was added.
    pub(super) fn note_counters(&mut self) {
        let counted = self.counted();
        self.recorder.baselines.note(counted);
    }

    fn counted(&mut self) -> Counted {
        let (mut cgroups, mut inodes) = (Vec::new(), Vec::new());
        self.kernel.cgroups(&mut cgroups);
        self.kernel.inodes(&mut inodes);
        Counted::of(Monotonic::now(), &cgroups, &inodes)
    }

    /// Looks at the workloads, unless that was done just now.
    fn refresh_evidence(&mut self, now: Monotonic) {
        if self.recorder.evidence.as_ref().is_some_and(|evidence| now.since(evidence.at) < EVIDENCE_AGE) {
            return;
        }
        let counted = self.counted();
        let growth = self.recorder.baselines.growth(&counted, |id| self.owner_known(id));
        let usages = self.tree.usages();
        let (consumers, protected) = (evidence::consumers(&usages), evidence::protected(&usages));
        let order = Order::of(&self.config.policy, Resource::Memory);
        let candidates = usages.into_iter().filter(|usage| usage.workload.protection.is_none());
        let (ranking, omitted) = evidence::ranking(&order.rank(candidates), order, Resource::Memory);
        let meminfo = std::fs::read_to_string(self.config.proc_root.join("meminfo"));
        let memory = meminfo.ok().map(|text| evidence::memory(&text));
        let pressure = self.figures.pressures().iter().map(pressure).collect();
        let at = Monotonic::now();
        self.recorder.evidence =
            Some(Evidence { at, memory, consumers, protected, ranking, omitted, growth, pressure });
    }

    /// A record with what is known of the node.
    fn incident(&self, kind: Kind, id: String, at: Monotonic) -> Incident {
        let mut incident = Incident {
            id,
            kind,
            time: wall(at),
            monotonic_ns: at.0,
            node: self.recorder.node.clone(),
            mode: self.config.mode.as_str().to_owned(),
            ..Incident::default()
        };
        let Some(evidence) = &self.recorder.evidence else { return incident };
        incident.memory.clone_from(&evidence.memory);
        incident.pressure.clone_from(&evidence.pressure);
        incident.top_consumers.clone_from(&evidence.consumers);
        incident.ranking = evidence.ranking.iter().chain(&evidence.protected).cloned().collect();
        incident.ranking_omitted = evidence.omitted;
        let age = Monotonic::now().since(evidence.at).as_nanos();
        incident.evidence_age_ms = u64::try_from(age).ok().map(model::millis);
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
        let capacity = self.last.sample?.meminfo.total;
        let thresholds = || {
            let of_memory = self.armed.iter().filter(|armed| armed.threshold.signal == Signal::MemoryAvailable);
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

fn pressure(report: &PressureReport) -> Pressure {
    let [avg10, avg60, avg300] = report.averages.map(|share| (share * 1e4).round() / 1e2);
    Pressure {
        scope: report.scope.as_str().to_owned(),
        resource: report.resource.as_str().to_owned(),
        kind: report.kind.as_str().to_owned(),
        avg10,
        avg60,
        avg300,
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

/// What the wall clock showed at a time of the monotonic one.
pub(super) fn wall(at: Monotonic) -> Timestamp {
    let now = Timestamp::now();
    now.checked_sub(Monotonic::now().since(at)).unwrap_or(now)
}
