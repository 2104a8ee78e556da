//! Evictions that are reported to the control plane: the intent, its message, and the outcome.

use jiff::Timestamp;

use crate::actions::stop::{Answer, Asked, NotDone, question};
use crate::cluster::EvictionUpdate;
use crate::cluster::ledger::{self, Begun};
use crate::cluster::{Intent, State, Verdict};
use crate::config::Quirk;
use crate::eviction::decider::{Choice, Route};
use crate::eviction::evicted::IMMEDIATE_GRACE_SECONDS;
use crate::eviction::{MetThreshold, message};
use crate::report::record::Record;
use crate::units::{Monotonic, Resource};
use crate::workloads::kubelet_summary::{ContainerStats, MemoryUsage, PodStats};
use crate::workloads::{Pod, PodUid, container_memory};

use super::Agent;
use super::local_storage::Above;
use super::turn::RankedWorkload;

/// Evictions that wait for the API server's answer, by pod UID.
#[derive(Debug, Default)]
pub(super) struct Asking(Vec<(String, Answer)>);

impl Asking {
    fn take(&mut self, uid: &str) -> Option<Answer> {
        let place = self.0.iter().position(|(of, _)| of == uid)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// Sends the outcome to the waiter, if any.
fn give(answer: Option<Answer>, outcome: Result<(), NotDone>) {
    if let Some(answer) = answer {
        answer.give(outcome);
    }
}

/// The cause of an eviction, with the facts for its message.
#[derive(Debug, Clone)]
pub(super) enum Why<'w> {
    Threshold(Box<(MetThreshold, RankedWorkload)>),
    Limit(&'w Above),
}

impl Agent {
    /// Returns the eviction to request from, or report to, the API server; `None` if the API server does not list the
    /// pod.
    pub(super) fn intent(&self, uid: &PodUid, choice: &Choice, why: &Why<'_>) -> Option<Intent> {
        let pods = self.cluster.view().pods;
        let pod = pods.find(uid)?;
        let (message, annotations) = self.words(pod, why);
        let methods = self.config.kubernetes.evictions;
        let seconds = i64::try_from(choice.grace.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let is_limit = matches!(why, Why::Limit(_));
        let without_mark = is_limit && self.config.policy.quirks.has(Quirk::LocalStorageWithoutDisruptionTarget);
        let intent = Intent {
            uid: pod.metadata.uid.clone(),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            method: if choice.is_hard { methods.hard } else { methods.soft },
            is_certain: choice.route != Route::Requested { insists: false },
            grace_seconds: if choice.is_hard { IMMEDIATE_GRACE_SECONDS } else { seconds },
            cause: choice.cause.as_str().to_owned(),
            message,
            annotations,
            wants_mark: !without_mark,
            wants_event: self.config.kubernetes.events,
            decided_at: Timestamp::now(),
            decided_mono_ns: Monotonic::now().0,
        };
        Some(intent.bounded())
    }

    /// Composes the kubelet's message and annotations, as far as the facts are known.
    fn words(&self, pod: &Pod, why: &Why<'_>) -> (String, Vec<(String, String)>) {
        match why {
            Why::Limit(above) => (above.message.clone(), Vec::new()),
            Why::Threshold(of) => {
                let (met, ranked) = &**of;
                let uid = PodUid(pod.metadata.uid.clone());
                let stats = self.stats_of(&uid, met.threshold.signal.resource(), ranked);
                let (message, annotations) = message::compose(&self.config.policy, met, pod, stats.as_ref());
                let owned = |(key, value): (&str, String)| (key.to_owned(), value);
                (message, annotations.into_iter().map(owned).collect())
            }
        }
    }

    /// Returns the pod's present usage of the resource that is short.
    fn stats_of(&self, uid: &PodUid, resource: Resource, ranked: &RankedWorkload) -> Option<PodStats> {
        let workload = &ranked.candidate.workload;
        let snapshot = self.runtime.view().snapshot;
        let name_of = |id: &str| Some(snapshot.as_ref()?.container(id)?.name.clone());
        match resource {
            Resource::Memory => {
                let tracked = self.sensors.workloads.tree().find(workload.id)?;
                let version = self.sensors.workloads.tree().hierarchy().version;
                let sets = container_memory::working_sets(tracked.directory(), &workload.name, version);
                let memory = |bytes: u64| Some(MemoryUsage { working_set_bytes: Some(bytes) });
                let stats = |(id, set): &(String, crate::units::Bytes)| {
                    Some(ContainerStats { name: name_of(id)?, memory: memory(set.0), ..ContainerStats::default() })
                };
                let containers = sets.iter().filter_map(stats).collect();
                Some(PodStats { containers, memory: memory(ranked.candidate.working_set.0), ..PodStats::default() })
            }
            Resource::EphemeralStorage | Resource::Inodes => {
                self.sensors.disk.pod_stats((uid, &workload.name, workload.id), &name_of).map(|(stats, _)| stats)
            }
            Resource::Pids => Some(PodStats::default()),
        }
    }

    /// Writes the intent to the ledger. Returns false if the ledger is full or has the intent already.
    pub(super) fn note_intent(&mut self, intent: &Intent) -> bool {
        match self.cluster.ledger().begin(intent) {
            Ok(Begun::New) => true,
            Ok(Begun::Already) => false,
            Err(full) => {
                let (pod, reason) = (intent.pod(), full.to_string());
                let record = Record::EvictionUnreported { pod: &pod, pod_uid: &intent.uid, reason: &reason };
                self.reporter.report(&record, Monotonic::now());
                false
            }
        }
    }

    /// Hands the intent to the thread of the API server. Returns false if its queue is full.
    pub(super) fn hand_over(&mut self, intent: Intent) -> bool {
        let (uid, pod) = (intent.uid.clone(), intent.pod());
        let is_taken = self.cluster.evict(intent).is_ok();
        if !is_taken {
            // The ledger keeps a certain eviction for the next agent.
            let reason = "too many evictions wait for the API server";
            let record = Record::EvictionUnreported { pod: &pod, pod_uid: &uid, reason };
            self.reporter.report(&record, Monotonic::now());
        }
        is_taken
    }

    /// Requests the eviction from the API server; the outcome arrives as an event.
    pub(super) fn ask_api_server(&mut self, intent: &Intent) -> Result<Asked, String> {
        let uid = intent.uid.clone();
        if let Err(full) = self.cluster.ledger().begin(intent) {
            return Err(full.to_string());
        }
        let is_certain = intent.is_certain;
        if !self.hand_over(intent.clone()) {
            if !is_certain {
                self.cluster.ledger().end(intent);
            }
            return Err("too much waits for the API server".to_owned());
        }
        let (answer, asked) = question();
        // A repeated request replaces the earlier one, which has no waiter any more.
        let _earlier = self.actions.asking.take(&uid);
        self.actions.asking.0.push((uid, answer));
        Ok(asked)
    }

    /// Handles the outcome of an eviction at the API server.
    pub(super) fn handle_settled(&mut self, settled: EvictionUpdate) {
        let EvictionUpdate { uid, verdict } = settled;
        let answer = match &verdict {
            Verdict::Delayed(_) => None,
            _ => self.actions.asking.take(&uid),
        };
        if !(answer.is_some() && matches!(verdict, Verdict::Refused(_))) {
            self.reporter.report(&Record::EvictionSettled { pod_uid: &uid, verdict: &verdict }, Monotonic::now());
        }
        match verdict {
            Verdict::Accepted | Verdict::Gone | Verdict::Done(_) => give(answer, Ok(())),
            Verdict::Refused(reason) => give(answer, Err(NotDone::Refused(reason))),
            Verdict::NoAnswer(reason) => {
                give(answer, Err(NotDone::Failed(format!("the API server did not answer in time: {reason}"))));
            }
            Verdict::GivenUp(reason) => give(answer, Err(NotDone::Failed(reason))),
            Verdict::Delayed(_) => {}
        }
    }

    /// Returns the reason why the API server cannot be asked now.
    pub(super) fn why_put_off(&self) -> String {
        let view = self.cluster.view();
        let is_read = view.pods_as_of.is_some() && !view.node.uid.is_empty();
        match &view.state {
            State::Down { reason, .. } => format!("the API server does not answer: {reason}"),
            State::Looking | State::Off | State::Up if is_read => {
                "the API server does not list this pod on this node".to_owned()
            }
            State::Looking | State::Off | State::Up => view
                .node
                .degradation
                .clone()
                .unwrap_or_else(|| "the API server has not listed the pods of this node yet".to_owned()),
        }
    }

    /// Tidies the ledger and reports its degradation, unless a threshold is near.
    pub(super) fn tidy_ledger(&mut self) {
        if self.cluster.is_there() && !self.is_near() {
            self.cluster.ledger().tidy();
            let reason = self.cluster.ledger().degradation();
            let effect = "an agent that ends in mid-eviction may leave it unfinished";
            self.reporter.set_capability(ledger::CAPABILITY, reason.as_deref(), effect, Monotonic::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reaches_its_waiter() {
        let mut asking = Asking::default();
        let (answer, asked) = question();
        asking.0.push(("u".to_owned(), answer));
        assert!(asking.take("v").is_none());
        asking.take("u").unwrap().give(Ok(()));
        assert_eq!(asked.answer(), Some(Ok(())));
        assert!(asking.take("u").is_none());
    }
}
