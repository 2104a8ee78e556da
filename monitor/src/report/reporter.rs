//! Passes each record to the log, the metrics, the incidents and the Kubernetes events.

use std::sync::Arc;
use std::time::Duration;

use super::event_sink::{self, EventDraft, EventSink};
use super::eviction_latency::EvictionTimes;
use super::limits::{ConditionLog, LogLimits};
use super::log_sink;
use super::metrics_sink;
use super::node_digest::node_digest;
use super::node_status::{NodeStatusSink, StatusFacts};
use super::record::{KnownPods, Record};
use super::{ConfigState, Dedup, Health, LoopState, Metrics, Publications, Recorder, logging, notifications};
use crate::cluster::events::InvolvedObject;
use crate::cluster::{Cluster, EventRequest};
use crate::config::{KubernetesOptions, Mode, NotificationOptions, Threshold};
use crate::eviction::evicted::Cause;
use crate::eviction::{Armed, Assessment, NodeCondition, Observation};
use crate::incidents::writer;
use crate::runtime::Names;
use crate::sensors::Sensors;
use crate::sensors::control_plane::SoftEvictions;
use crate::sensors::figure_report::DaemonsReport;
use crate::units::{CapabilityChange, CgroupId, Monotonic, Resource, Signal, split_degradation};
use crate::workloads::PodUid;

/// Interval between reports of the same dry run or deferred eviction.
pub const REPEAT_DRY_RUN: Duration = Duration::from_secs(60);
/// Interval between events about the same resource being reclaimed.
const REPEAT_RECLAIMING: Duration = Duration::from_secs(10);

/// System daemons that have kept to their reservation for this long are reported again when they exceed it.
const DAEMONS_WITHIN: Duration = Duration::from_secs(300);

/// State that the sinks share with the HTTP server, and the log writer.
#[derive(Debug)]
pub struct Outlets {
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    pub publications: Arc<Publications>,
    pub log: logging::Writer,
}

#[derive(Debug)]
pub struct Reporter {
    pub outlets: Outlets,
    pub recorder: Recorder,
    /// The names as of this turn.
    pub(super) names: Names,
    status: NodeStatusSink,
    pub(super) conditions: ConditionLog,
    pub(super) times: EvictionTimes,
    /// Why no workload was evicted in the last turn although a threshold was met.
    pub(super) waits: Option<String>,
    limits: LogLimits,
    /// Whether thresholds were reported that evict nothing yet.
    pub(super) has_unarmed: bool,
    /// Thresholds reported as met and not yet as recovered.
    met: Vec<Threshold>,
    reclaiming: Dedup<Resource>,
    pub(super) dry_runs: Dedup<(Signal, CgroupId)>,
    deferred: Dedup<usize>,
    pub(super) limit_dry_runs: Dedup<(Cause, CgroupId)>,
    pub(super) reclaim_dry_runs: Dedup<CgroupId>,
    /// Whether outdated facts about maintenance were reported.
    is_maintenance_outdated: bool,
    /// When system daemons were found above their reservation.
    daemons_above: Option<Monotonic>,
    /// Events for the API server; `None` without one.
    events: Option<EventSink>,
}

impl Reporter {
    /// Creates a reporter. `node_name` is the node's name at the API server, or `None` without one.
    pub fn new(outlets: Outlets, recorder: Recorder, node_name: Option<Arc<str>>) -> Self {
        Self {
            waits: None,
            outlets,
            recorder,
            names: Names::default(),
            status: NodeStatusSink::default(),
            conditions: ConditionLog::default(),
            times: EvictionTimes::default(),
            limits: LogLimits::default(),
            has_unarmed: false,
            met: Vec::new(),
            reclaiming: Dedup::new(REPEAT_RECLAIMING),
            dry_runs: Dedup::new(REPEAT_DRY_RUN),
            deferred: Dedup::new(REPEAT_DRY_RUN),
            limit_dry_runs: Dedup::new(REPEAT_DRY_RUN),
            reclaim_dry_runs: Dedup::new(REPEAT_DRY_RUN),
            is_maintenance_outdated: false,
            daemons_above: None,
            events: node_name.map(EventSink::new),
        }
    }

    /// Reports a record to every sink. Returns whether the rate limit admitted its log line.
    pub fn report(&mut self, record: &Record<'_>, now: Monotonic) -> bool {
        let incident = self.recorder.note(record, &self.names, now);
        self.times.note(record, incident.as_deref(), &self.outlets.metrics.evictions, now);
        let suppressed = self.limits.admit(record, now);
        if suppressed.is_some() || LogLimits::is_counted_always(record) {
            metrics_sink::count(record, &self.outlets.metrics);
        }
        if record.changes_gauges() {
            self.outlets.publications.outdate();
        }
        let Some(suppressed) = suppressed else { return false };
        log_sink::write(record, &self.names, incident.as_deref(), suppressed);
        if let Some(events) = &mut self.events {
            events.note(record);
        }
        true
    }

    /// Reports the thresholds that are met, and those that no longer are. A value that hovers about a threshold crosses it at every turn:
    /// a suppressed change is reported at a later turn if it still holds.
    pub fn report_thresholds(
        &mut self,
        armed: &[Armed],
        assessment: &Assessment,
        observation: &Observation,
        (wakeup, sampled): (&'static str, Monotonic),
        now: Monotonic,
    ) {
        for (place, Armed { threshold, .. }) in armed.iter().enumerate() {
            let met = assessment.met.iter().find(|met| met.threshold == *threshold);
            let is_crossed = assessment.crossed.get(place).copied().unwrap_or(false);
            let is_reported = self.met.contains(threshold);
            if let Some(met) = met.filter(|_| !is_reported) {
                if self.report(&Record::ThresholdMet { met, wakeup, sampled }, now) {
                    self.met.push(threshold.clone());
                }
            } else if is_reported && !is_crossed && met.is_none() {
                let Some(value) = observation.get(threshold.signal) else { continue };
                if self.report(&Record::ThresholdRecovered { threshold, value, sampled }, now) {
                    self.met.retain(|reported| reported != threshold);
                }
            }
        }
    }

    pub fn rearm(&mut self, armed: &[Armed]) {
        self.met.retain(|reported| armed.iter().any(|armed| armed.threshold == *reported));
    }

    /// Reports a condition if its status has changed; `condition` is `None` for one that follows from PSI.
    pub fn report_condition(&mut self, name: &str, status: bool, condition: Option<NodeCondition>, now: Monotonic) {
        if let Some(suppressed) = self.conditions.update(name, status, now) {
            self.report(&Record::ConditionChanged { name, status, condition, suppressed }, now);
        }
    }

    pub fn forget_condition(&mut self, name: &str) {
        self.conditions.forget(name);
    }

    /// Sends the event about a scarce resource: at every eviction, otherwise at most once per interval.
    pub fn report_reclaiming(&mut self, resource: Resource, has_evicted: bool, now: Monotonic) {
        if has_evicted || self.reclaiming.is_due(resource, now) {
            self.report(&Record::Reclaiming(resource), now);
        }
    }

    pub fn forget_dry_runs(&mut self) {
        self.dry_runs.clear();
    }

    /// Reports a soft eviction deferred by maintenance, at most once a minute.
    pub fn report_deferred(&mut self, met: &crate::eviction::MetThreshold, reason: &str, now: Monotonic) {
        if self.deferred.is_due(met.place, now) {
            self.report(&Record::EvictionDeferred { met, reason }, now);
        }
    }

    pub fn forget_reclaim_dry_runs(&mut self) {
        self.reclaim_dry_runs.clear();
    }

    /// Reports once that the facts about the node's maintenance are too old to defer the soft evictions that are due.
    pub fn report_outdated_maintenance(&mut self, soft: &SoftEvictions, assessment: &Assessment, now: Monotonic) {
        let age = match soft {
            SoftEvictions::Outdated(age) if assessment.met.iter().any(|met| !met.is_hard()) => Some(*age),
            SoftEvictions::Allowed | SoftEvictions::Outdated(_) => return,
            SoftEvictions::Deferred => None,
        };
        let was_reported = std::mem::replace(&mut self.is_maintenance_outdated, age.is_some());
        if let Some(age) = age.filter(|_| !was_reported) {
            self.report(&Record::MaintenanceOutdated { age }, now);
        }
    }

    /// Reports the begin, a new reason, or the end of the node's maintenance. `defers`: soft evictions wait for its end.
    pub fn report_maintenance(&mut self, reason: Option<&str>, defers: bool, now: Monotonic) {
        if reason.is_none() {
            self.deferred.clear();
        }
        self.report(&Record::Maintenance { reason, defers }, now);
    }

    /// Reports that system daemons exceed their reservation, once until they have kept to it for a while.
    pub fn report_daemons(&mut self, daemons: Option<&DaemonsReport>, now: Monotonic) {
        let Some(daemons) = daemons.filter(|daemons| !daemons.above.is_zero()) else { return };
        let before = self.daemons_above.replace(now);
        if before.is_none_or(|before| now.since(before) >= DAEMONS_WITHIN) {
            self.report(&Record::DaemonsAboveReservation(daemons), now);
        }
    }

    /// Sets the reason for a missing capability, or `None` if it is available. Only a change is logged; `/readyz` and the metrics show
    /// the state.
    pub fn set_capability(&mut self, capability: &str, reason: Option<&str>, effect: &str, now: Monotonic) {
        self.set_pod_source(capability, reason, effect, KnownPods::default(), now);
    }

    /// Like `set_capability`, for a source of pods. The log line has the number of pods that stay known.
    pub fn set_pod_source(
        &mut self,
        capability: &str,
        reason: Option<&str>,
        effect: &str,
        known: KnownPods,
        now: Monotonic,
    ) {
        match (self.outlets.health.set_degradation(capability, reason), reason) {
            (CapabilityChange::Degraded, Some(reason)) => {
                self.report(&Record::Degraded { capability, reason, effect, known }, now);
            }
            (CapabilityChange::Restored, _) => {
                self.report(&Record::Restored { capability }, now);
            }
            (CapabilityChange::Degraded | CapabilityChange::Unchanged, _) => {}
        }
    }

    /// Sets the capabilities that were found missing at the start, each as `capability: reason`.
    pub fn set_missing(&mut self, missing: &[String], now: Monotonic) {
        for text in missing {
            let (capability, reason) = split_degradation(text);
            self.set_capability(capability, Some(reason), "a capability is missing", now);
        }
    }

    /// Like `set_missing`, after a reload: those of `before` that are not among `missing` are restored.
    pub fn replace_missing(&mut self, before: &[String], missing: &[String], now: Monotonic) {
        for text in before.iter().filter(|text| !missing.contains(text)) {
            self.set_capability(split_degradation(text).0, None, "", now);
        }
        self.set_missing(missing, now);
    }

    /// Sets whether incidents can be written.
    pub fn check_journal(&mut self, now: Monotonic) {
        let reason = self.recorder.writer.degradation();
        self.set_capability(writer::CAPABILITY, reason.as_deref(), "incidents are not written to the journal", now);
    }

    /// Puts other options of notifications in force.
    pub fn follow_notifications(&mut self, options: &NotificationOptions, now: Monotonic) {
        if let Err(error) = self.recorder.notifier.follow(options) {
            let reason = format!("the thread that sends them cannot be started: {error}");
            return self.set_capability(notifications::CAPABILITY, Some(&reason), notifications::EFFECT, now);
        }
        // Refusals by an earlier receiver are out of date.
        self.check_notifications(now);
    }

    /// Sets whether notifications are sent.
    pub fn check_notifications(&mut self, now: Monotonic) {
        let reason = self.recorder.notifier.degradation();
        self.set_capability(notifications::CAPABILITY, reason.as_deref(), notifications::EFFECT, now);
    }

    /// Publishes the node's conditions and taints if they have changed.
    pub fn publish_status(
        &mut self,
        state: &LoopState<'_>,
        configuration: &ConfigState,
        cluster: &Cluster,
        now: Monotonic,
    ) {
        if !cluster.is_there() {
            return;
        }
        let facts = StatusFacts {
            mode: state.config.mode,
            options: &state.config.kubernetes,
            conditions: state.known_conditions(),
            configuration,
        };
        self.status.observe_leak(state.decision.protected_leak(), |leak| {
            let workload = leak.id.map(|id| state.sensors.workloads.owner(id));
            event_sink::protected_leak(workload.as_deref(), leak.fall)
        });
        let pressure = state.sensors.pressure.statuses();
        let (status, news) = self.status.update(facts, pressure, || cluster.view(), now);
        for (condition, news) in &news {
            self.report(&Record::NoExecuteTaint { condition: *condition, news }, now);
        }
        if let Some(status) = status {
            cluster.publish(status);
        }
    }

    /// Publishes the digest of the node that its next heartbeat carries.
    pub fn publish_digest(&self, state: &LoopState<'_>, configuration: &ConfigState, cluster: &Cluster) {
        if cluster.is_there() {
            let now = jiff::Timestamp::now();
            cluster.publish_digest(node_digest(state, configuration, &self.recorder.index(), now));
        }
    }

    pub const fn status(&self) -> &NodeStatusSink {
        &self.status
    }

    /// Records the incidents of OOM kills that are complete, or have waited long enough; `all`: the others too, because the agent stops.
    /// The caller must refresh the evidence first.
    pub fn report_oom_incidents(&mut self, all: bool, mode: Mode, now: Monotonic) {
        for assembled in self.recorder.assembled(all, now) {
            if let Some(kill) = self.recorder.record_assembled(assembled, &self.names, mode, now) {
                self.report(&Record::OomIncident(&kill), now);
            }
        }
    }

    /// Hands the Kubernetes events drafted since the last call to the thread that sends them. An event about a pod that
    /// no source knows is not sent.
    pub fn send_events(&mut self, sensors: &Sensors, cluster: &Cluster, options: &KubernetesOptions, now: Monotonic) {
        let drafts =
            self.take_events().into_iter().filter(|draft| options.pod_oom_events || !draft.is_oom_kill_of_pod());
        for EventDraft { pod, is_warning, reason, message } in drafts {
            let about = match &pod {
                None => Some(InvolvedObject::Node),
                Some(uid) => involved_pod(uid, sensors),
            };
            let Some(object) = about else { continue };
            let event = EventRequest { object, is_warning, reason: reason.to_owned(), message };
            if cluster.send_event(event).is_err() {
                self.report(&Record::EventDropped { reason }, now);
            }
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<EventDraft> {
        self.events.as_mut().map(EventSink::take).unwrap_or_default()
    }
}

/// Returns the pod as the API server knows it: a static pod by its mirror pod.
fn involved_pod(uid: &PodUid, sensors: &Sensors) -> Option<InvolvedObject> {
    let pods = sensors.platform.cluster.view().pods;
    if let Some(metadata) = pods.find(uid).map(|pod| &pod.metadata) {
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        return Some(InvolvedObject::Pod { namespace, name, uid: metadata.uid.clone() });
    }
    let (named, _) = sensors.pod_named(Some(uid));
    let (namespace, name) = named.as_deref()?.split_once('/')?;
    Some(InvolvedObject::Pod { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.0.clone() })
}
