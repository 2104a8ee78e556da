//! Metrics of how long evictions take, and of what they free.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use prometheus::proto::{LabelPair, Metric};
use prometheus::{HistogramVec, IntCounterVec};

use super::eviction_report::{EvictionRecord, Trigger};
use super::openmetrics::Exemplar;
use super::record::Record;
use super::register::{LATENCY_BUCKETS, NAMESPACE, metrics};
use crate::actions::{Action, Outcome};
use crate::cluster::Verdict;
use crate::config::Threshold;
use crate::eviction::evicted::Cause;
use crate::eviction::{MetThreshold, Observation};
use crate::units::{CgroupId, Moment, Monotonic, lock};

/// Evictions that are followed to the API server's answer, and to the first measurement after their end. The oldest beyond this number
/// are not.
const FOLLOWED: usize = 64;
/// The kind of an eviction for a limit of the pod's own.
const LIMIT: &str = "limit";

metrics! {
    struct Latencies {
        /// Seconds from the moment at which an eviction was due until the victim's processes were signalled, or the API server was asked to
        /// evict it. Due: a threshold was met, its grace period included, or the previous eviction ended.
        kill: HistogramVec = "eviction_kill_latency_seconds"{signal, kind},
        /// Seconds from the moment at which an eviction was due until no process of the victim was left.
        end: HistogramVec = "eviction_end_latency_seconds"{signal, kind},
        /// Seconds from the moment at which an eviction was due until the API server confirmed the victim's end.
        report: HistogramVec = "eviction_report_latency_seconds"{signal, kind},
        /// Bytes by which a signal rose from the decision on an eviction to its first measurement after the victim's end.
        freed: IntCounterVec = "eviction_freed_bytes_total"{signal},
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Kill,
    End,
    Report,
}

/// A bucket of a histogram: its stage, its labels, and its place.
type Bucket = (Stage, &'static str, &'static str, usize);

#[derive(Debug)]
pub struct EvictionMetrics {
    latencies: Latencies,
    /// The last incident of each bucket.
    exemplars: Mutex<HashMap<Bucket, Exemplar>>,
}

impl EvictionMetrics {
    pub(super) fn new(registry: &super::register::Registry) -> prometheus::Result<Self> {
        Ok(Self { latencies: Latencies::new(registry)?, exemplars: Mutex::default() })
    }

    /// Starts the series of a threshold at zero: `increase()` misses the first eviction of a series that appears with it.
    pub(super) fn start_series(&self, threshold: &Threshold, has_api_server: bool) {
        let labels = [threshold.signal.as_str(), threshold.kind()];
        self.latencies.kill.with_label_values(&labels);
        self.latencies.end.with_label_values(&labels);
        if has_api_server {
            self.latencies.report.with_label_values(&labels);
        }
        if threshold.signal.resource().is_bytes() {
            self.latencies.freed.with_label_values(&labels[..1]);
        }
    }

    fn took(&self, stage: Stage, eviction: &Followed, now: Monotonic) {
        let Followed { cause, kind, due, incident, .. } = eviction;
        let seconds = now.since(*due).as_secs_f64();
        let family = match stage {
            Stage::Kill => &self.latencies.kill,
            Stage::End => &self.latencies.end,
            Stage::Report => &self.latencies.report,
        };
        family.with_label_values(&[cause.as_str(), kind]).observe(seconds);
        let bucket = (stage, cause.as_str(), *kind, LATENCY_BUCKETS.partition_point(|edge| *edge < seconds));
        let exemplar = Exemplar { incident: incident.clone(), value: seconds, time: now.wall() };
        lock(&self.exemplars).insert(bucket, exemplar);
    }

    /// Returns the last incident in a bucket of one of the histograms.
    pub(super) fn exemplar(&self, family: &str, metric: &Metric, bucket: usize) -> Option<Exemplar> {
        let stage = match family.strip_prefix(NAMESPACE)? {
            "_eviction_kill_latency_seconds" => Stage::Kill,
            "_eviction_end_latency_seconds" => Stage::End,
            "_eviction_report_latency_seconds" => Stage::Report,
            _ => return None,
        };
        let label = |name| metric.get_label().iter().find(|label| label.name() == name).map(LabelPair::value);
        let (signal, kind) = (label("signal")?, label("kind")?);
        let exemplars = lock(&self.exemplars);
        let is_it = |it: &Bucket| it.0 == stage && it.1 == signal && it.2 == kind && it.3 == bucket;
        exemplars.iter().find(|(key, _)| is_it(key)).map(|(_, exemplar)| exemplar.clone())
    }
}

/// The times of evictions. An eviction is due when a threshold is met, and again when an eviction has ended while it still is.
#[derive(Debug, Default)]
pub(super) struct EvictionTimes {
    due: Vec<(Threshold, Monotonic)>,
    followed: VecDeque<Followed>,
}

#[derive(Debug)]
struct Followed {
    cgroup: CgroupId,
    pod_uid: Option<String>,
    cause: Cause,
    kind: &'static str,
    due: Monotonic,
    incident: String,
    /// The signal's value at the decision, until it is measured after the end; only of signals that count bytes.
    available: Option<i64>,
    ended: Option<Monotonic>,
    is_reported: bool,
}

impl EvictionTimes {
    /// Notes the thresholds that are met since the loop woke at `woken`, and what ended evictions have freed by then.
    pub(super) fn note_turn(
        &mut self,
        met: &[MetThreshold],
        observation: &Observation,
        woken: Monotonic,
        metrics: &EvictionMetrics,
    ) {
        self.due.retain(|(threshold, _)| met.iter().any(|met| met.threshold == *threshold));
        for met in met {
            if !self.due.iter().any(|(threshold, _)| *threshold == met.threshold) {
                self.due.push((met.threshold.clone(), woken));
            }
        }
        for index in 0..self.followed.len() {
            self.count_freed(index, observation, metrics);
        }
    }

    fn count_freed(&mut self, index: usize, observation: &Observation, metrics: &EvictionMetrics) {
        let Some(Followed { cause: Cause::Signal(signal), ended: Some(ended), available, .. }) =
            self.followed.get_mut(index)
        else {
            return;
        };
        let (signal, ended) = (*signal, Moment::from(*ended));
        let Some(value) = observation.get(signal).filter(|value| value.at.is_none_or(|at| at > ended)) else { return };
        let Some(before) = available.take() else { return };
        let freed = u64::try_from(value.available.saturating_sub(before)).unwrap_or(0);
        metrics.latencies.freed.with_label_values(&[signal.as_str()]).inc_by(freed);
        // The same bytes must not count for another eviction, too.
        for other in self.followed.iter_mut().filter(|other| other.cause == Cause::Signal(signal)) {
            other.available = other.available.map(|before| before.max(value.available));
        }
    }

    /// Takes in what happened to an eviction. `incident` is the id of the incident that the record belongs to.
    pub(super) fn note(
        &mut self,
        record: &Record<'_>,
        incident: Option<&str>,
        metrics: &EvictionMetrics,
        now: Monotonic,
    ) {
        match *record {
            Record::Eviction(eviction) if eviction.action != Action::DryRun => {
                self.begin(eviction, incident.unwrap_or_default(), metrics);
            }
            Record::EvictionEnded { ended, at, .. } => {
                self.restart(|_| true, at);
                let is_gone = ended.outcome == Outcome::Gone;
                let is_it = |it: &Followed| it.cgroup == ended.id && it.ended.is_none();
                let Some(place) = self.followed.iter().position(is_it) else { return };
                if !is_gone {
                    self.followed.remove(place);
                } else if let Some(eviction) = self.followed.get_mut(place) {
                    metrics.took(Stage::End, eviction, at);
                    eviction.ended = Some(at);
                }
            }
            Record::EvictionSettled { pod_uid, verdict: Verdict::Accepted | Verdict::Gone | Verdict::Done(_) } => {
                let is_it = |it: &&mut Followed| it.pod_uid.as_deref() == Some(pod_uid);
                let last = self.followed.iter_mut().rev().find(is_it);
                if let Some(eviction) = last.filter(|eviction| !eviction.is_reported) {
                    eviction.is_reported = true;
                    metrics.took(Stage::Report, eviction, now);
                }
            }
            Record::ThresholdArmed { threshold, .. } => self.restart(|due| due == threshold, now),
            _ => {}
        }
    }

    /// Lets evictions for the thresholds that are met be due from `now` on.
    fn restart(&mut self, is_meant: impl Fn(&Threshold) -> bool, now: Monotonic) {
        for (_, due) in self.due.iter_mut().filter(|(threshold, _)| is_meant(threshold)) {
            *due = now;
        }
    }

    fn begin(&mut self, record: &EvictionRecord<'_>, incident: &str, metrics: &EvictionMetrics) {
        let (due, kind, available) = match record.trigger {
            Trigger::Threshold(eviction, _) => {
                let MetThreshold { threshold, value, .. } = &eviction.met;
                let since = self.due.iter().find(|(due, _)| due == threshold).map(|(_, since)| *since);
                let is_bytes = threshold.signal.resource().is_bytes();
                (since, threshold.kind(), is_bytes.then_some(value.available))
            }
            Trigger::Limit { measured, .. } => (Some(measured), LIMIT, None),
        };
        let eviction = Followed {
            cgroup: record.cgroup,
            pod_uid: record.pod_uid.map(|uid| uid.0.clone()),
            cause: record.trigger.cause(),
            kind,
            due: due.unwrap_or(record.woken),
            incident: incident.to_owned(),
            available,
            ended: None,
            is_reported: false,
        };
        metrics.took(Stage::Kill, &eviction, record.acted);
        // A hard threshold may cut the grace period of a running eviction short.
        self.followed.retain(|it| it.cgroup != record.cgroup || it.ended.is_some());
        if self.followed.len() >= FOLLOWED {
            self.followed.pop_front();
        }
        self.followed.push_back(eviction);
    }
}

#[cfg(test)]
#[path = "eviction_latency_tests.rs"]
mod tests;
