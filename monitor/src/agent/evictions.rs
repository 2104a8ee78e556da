//! Evictions that the control plane is told of: which way a pod goes, what is said of it, and what comes of that.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::actions::stop::{Answer, Asked, NotDone, question};
use crate::cluster::EvictionUpdate;
use crate::cluster::ledger::{self, Begun};
use crate::cluster::{Intent, State, Verdict};
use crate::config::Quirk;
use crate::config::kubernetes_options::EvictionMethod;
use crate::eviction::evicted::{Cause, IMMEDIATE_GRACE_SECONDS};
use crate::eviction::{MetThreshold, message};
use crate::report::record::Record;
use crate::units::{Monotonic, Resource};
use crate::workloads::kubelet_summary::{ContainerStats, MemoryUsage, PodStats};
use crate::workloads::{Pod, PodSpecs, PodUid, container_memory};

use super::Agent;
use super::act::RankedWorkload;
use super::local_storage::Above;

/// What needs an API server that does not answer is tried again after so long.
const PUT_OFF: Duration = Duration::from_secs(5);

/// Who waits for what the API server says.
#[derive(Debug, Default)]
pub(super) struct Asking(Vec<(String, Answer)>);

impl Asking {
    fn take(&mut self, uid: &str) -> Option<Answer> {
        let place = self.0.iter().position(|(of, _)| of == uid)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// Tells who waits for it, if somebody does.
fn give(answer: Option<Answer>, outcome: Result<(), NotDone>) {
    if let Some(answer) = answer {
        answer.give(outcome);
    }
}

/// Why a workload has to go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Why<'w> {
    /// For a threshold, as the first of a ranking.
    Threshold(&'w MetThreshold, &'w RankedWorkload),
    /// For a limit of its own.
    Limit(&'w Above),
}

impl Why<'_> {
    pub(super) fn cause(self) -> Cause {
        match self {
            Self::Threshold(met, _) => met.threshold.signal.into(),
            Self::Limit(above) => above.cause,
        }
    }

    /// A limit of its own goes as fast as a hard threshold.
    pub(super) fn is_hard(self) -> bool {
        match self {
            Self::Threshold(met, _) => met.is_hard(),
            Self::Limit(_) => true,
        }
    }
}

/// Which way a workload goes.
#[derive(Debug)]
pub(super) enum Way {
    /// The agent ends it, and says so to nobody.
    Alone,
    /// The agent ends it, and the API server is told beside.
    Beside(Box<Intent>),
    /// The API server is asked to have it ended.
    Asking(Box<Intent>),
    /// It is to go with the API server's consent alone, which cannot be had now, for that reason.
    Later(String),
    /// It must not go.
    Never,
}

/// The same as far as the configuration and the API server's state decide it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Alone,
    Unknown,
    Beside,
    Asking,
    Later,
}

/// Pure: `is_known`, the pod is among those that the API server told of; `is_read`, it told of those of this node, which it knows by that
/// name: by a wrong one there are no pods, which says nothing of budgets and of who is protected.
fn choose(method: EvictionMethod, is_hard: bool, state: &State, is_known: bool, is_read: bool) -> Choice {
    let is_up = *state == State::Up;
    match (method, is_hard) {
        (EvictionMethod::Off, _) => Choice::Alone,
        (EvictionMethod::Delete | EvictionMethod::Evict, false) if is_known && is_up => Choice::Asking,
        (EvictionMethod::Delete, _) | (EvictionMethod::Evict, true) if is_known => Choice::Beside,
        // Whether a budget protects it nobody can say, nor where the API server does not list it.
        (EvictionMethod::Evict, false) => Choice::Later,
        // It answers, and does not know of whom: who is protected cannot be told. A hard threshold does not wait for that.
        (EvictionMethod::Delete, false) if is_up && !is_read => Choice::Later,
        (EvictionMethod::Delete | EvictionMethod::Evict, _) => Choice::Unknown,
    }
}

impl Agent {
    /// Which way a workload goes that is evicted with this `grace` period.
    pub(super) fn way(&mut self, uid: Option<&PodUid>, why: Why<'_>, grace: Duration) -> Way {
        let Some(uid) = uid.filter(|_| self.cluster.is_there()) else { return Way::Alone };
        let methods = self.config.kubernetes.evictions;
        let is_hard = why.is_hard();
        let method = if is_hard { methods.hard } else { methods.soft };
        let view = self.cluster.view();
        let pods: Arc<PodSpecs> = Arc::clone(&view.pods);
        let pod = pods.find(uid);
        if pod.is_some_and(Pod::is_critical) {
            return Way::Never;
        }
        let is_read = view.pods_as_of.is_some() && !view.node.uid.is_empty();
        match (choose(method, is_hard, &view.state, pod.is_some(), is_read), pod) {
            (Choice::Beside, Some(pod)) => Way::Beside(Box::new(self.intent(pod, why, method, grace, true))),
            (Choice::Asking, Some(pod)) => {
                // What is deleted goes whatever budgets say: it is not a question.
                let is_certain = method == EvictionMethod::Delete;
                Way::Asking(Box::new(self.intent(pod, why, method, grace, is_certain)))
            }
            (Choice::Later, _) => Way::Later(match &view.state {
                State::Down { reason, .. } => format!("the API server does not answer: {reason}"),
                State::Looking | State::Off | State::Up if is_read => {
                    "the API server does not list this pod on this node".to_owned()
                }
                State::Looking | State::Off | State::Up => view
                    .node
                    .degradation
                    .clone()
                    .unwrap_or_else(|| "the API server has not told the pods of this node yet".to_owned()),
            }),
            (Choice::Unknown, _) => {
                self.reporter.report(&Record::PodUnknown { pod_uid: &uid.0 }, Monotonic::now());
                Way::Alone
            }
            (Choice::Alone | Choice::Beside | Choice::Asking, _) => Way::Alone,
        }
    }

    fn intent(&self, pod: &Pod, why: Why<'_>, method: EvictionMethod, grace: Duration, is_certain: bool) -> Intent {
        let (message, annotations) = self.words(pod, why);
        let seconds = i64::try_from(grace.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let is_limit = matches!(why, Why::Limit(_));
        let without_mark = is_limit && self.config.policy.quirks.has(Quirk::LocalStorageWithoutDisruptionTarget);
        let intent = Intent {
            uid: pod.metadata.uid.clone(),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            method,
            is_certain,
            grace_seconds: if why.is_hard() { IMMEDIATE_GRACE_SECONDS } else { seconds },
            cause: why.cause().as_str().to_owned(),
            message,
            annotations,
            wants_mark: !without_mark,
            wants_event: self.config.kubernetes.events,
            decided_at: Timestamp::now(),
            decided_mono_ns: Monotonic::now().0,
        };
        intent.bounded()
    }

    /// What the kubelet would say, as far as it is known.
    fn words(&self, pod: &Pod, why: Why<'_>) -> (String, Vec<(String, String)>) {
        match why {
            Why::Limit(above) => (above.message.clone(), Vec::new()),
            Why::Threshold(met, ranked) => {
                let uid = PodUid(pod.metadata.uid.clone());
                let stats = self.stats_of(&uid, met.threshold.signal.resource(), ranked);
                let (message, annotations) = message::compose(&self.config.policy, met, pod, stats.as_ref());
                let owned = |(key, value): (&str, String)| (key.to_owned(), value);
                (message, annotations.into_iter().map(owned).collect())
            }
        }
    }

    /// What the pod uses now of what is short.
    fn stats_of(&self, uid: &PodUid, resource: Resource, ranked: &RankedWorkload) -> Option<PodStats> {
        let workload = &ranked.candidate.workload;
        let snapshot = self.runtime.view().snapshot;
        let name_of = |id: &str| Some(snapshot.as_ref()?.container(id)?.name.clone());
        match resource {
            Resource::Memory => {
                let tracked = self.sensors.tree.find(workload.id)?;
                let version = self.sensors.tree.hierarchy().version;
                let sets = container_memory::working_sets(tracked.directory(), &workload.name, version);
                let memory = |bytes: u64| Some(MemoryUsage { working_set_bytes: Some(bytes) });
                let stats = |(id, set): &(String, crate::units::Bytes)| {
                    Some(ContainerStats { name: name_of(id)?, memory: memory(set.0), ..ContainerStats::default() })
                };
                let containers = sets.iter().filter_map(stats).collect();
                Some(PodStats { containers, memory: memory(ranked.candidate.working_set.0), ..PodStats::default() })
            }
            Resource::EphemeralStorage | Resource::Inodes => {
                self.sensors.local.kept(uid, &workload.name, workload.id, &name_of)
            }
            Resource::Pids => Some(PodStats::default()),
        }
    }

    /// Writes down that a pod is about to go. False: the API server is not told; too much waits for it already.
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

    /// Has carried out what was written down.
    pub(super) fn hand_over(&mut self, intent: Intent) -> bool {
        let (uid, pod) = (intent.uid.clone(), intent.pod());
        let is_taken = self.cluster.evict(intent).is_ok();
        if !is_taken {
            // A certain eviction is in the ledger, for the next agent.
            let reason = "too many evictions wait for the API server";
            let record = Record::EvictionUnreported { pod: &pod, pod_uid: &uid, reason };
            self.reporter.report(&record, Monotonic::now());
        }
        is_taken
    }

    /// Asks the API server; what it says comes as an event.
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
        // Asked once more: nobody waits for the earlier answer.
        let _earlier = self.actions.asking.take(&uid);
        self.actions.asking.0.push((uid, answer));
        Ok(asked)
    }

    /// What came of an eviction at the API server.
    pub(super) fn hear_settled(&mut self, settled: EvictionUpdate) {
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

    /// It could be evicted if the API server answered; whoever else can be is tried.
    pub(super) fn put_off(&mut self, met: &MetThreshold, workload: &str, reason: &str) {
        let now = Monotonic::now();
        self.decision.answered.set((met.threshold.signal, met.is_hard()), now, PUT_OFF);
        self.retry_at(Some(now.after(PUT_OFF)));
        let record = Record::EvictionPutOff { signal: met.threshold.signal, workload, reason };
        self.reporter.report(&record, now);
    }

    /// Keeps the ledger small, and says what is amiss with it. At a time when nothing is near.
    pub(super) fn keep_ledger(&mut self) {
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
    fn which_way_a_pod_goes() {
        use EvictionMethod::{Delete, Evict, Off};
        let down = State::Down { reason: "refused".to_owned(), since: Monotonic(0) };
        for (method, is_hard, state, is_known, is_read, expected) in [
            (Off, true, &State::Up, true, true, Choice::Alone),
            (Off, false, &down, false, false, Choice::Alone),
            (Delete, true, &State::Up, true, true, Choice::Beside),
            (Delete, true, &down, true, true, Choice::Beside),
            (Evict, true, &down, true, true, Choice::Beside),
            (Delete, true, &down, false, false, Choice::Unknown),
            (Evict, false, &State::Up, true, true, Choice::Asking),
            (Delete, false, &State::Up, true, true, Choice::Asking),
            (Delete, false, &down, true, true, Choice::Beside),
            (Evict, false, &down, true, true, Choice::Later),
            (Evict, false, &down, false, true, Choice::Later),
            (Evict, false, &State::Looking, false, false, Choice::Later),
            (Evict, false, &State::Up, false, false, Choice::Later),
            (Evict, false, &State::Up, false, true, Choice::Later),
            (Evict, true, &State::Up, false, false, Choice::Unknown),
            (Delete, true, &State::Up, false, false, Choice::Unknown),
            (Delete, false, &State::Up, false, true, Choice::Unknown),
            (Delete, false, &State::Up, false, false, Choice::Later),
            (Delete, false, &down, false, false, Choice::Unknown),
        ] {
            let chosen = choose(method, is_hard, state, is_known, is_read);
            assert_eq!(chosen, expected, "{method:?} {is_hard} {state:?} {is_known} {is_read}");
        }
    }

    #[test]
    fn an_answer_is_given_to_who_waits_for_it() {
        let mut asking = Asking::default();
        let (answer, asked) = question();
        asking.0.push(("u".to_owned(), answer));
        assert!(asking.take("v").is_none());
        asking.take("u").unwrap().give(Ok(()));
        assert_eq!(asked.answer(), Some(Ok(())));
        assert!(asking.take("u").is_none());
    }
}
