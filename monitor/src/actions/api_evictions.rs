//! Evictions that are reported to the control plane: the intent, its message, and the outcome.

use jiff::Timestamp;

use crate::cluster::ledger::{Begun as InLedger, Unfinished};
use crate::cluster::{Begun, EvictionUpdate, Intent, Verdict};
use crate::config::{MonitorConfig, Policy, Quirk};
use crate::eviction::decider::{Choice, Route};
use crate::eviction::evicted::IMMEDIATE_GRACE_SECONDS;
use crate::eviction::message;
use crate::eviction::rank::Ranked;
use crate::eviction::thresholds::NodeCondition;
use crate::runtime::container_name;
use crate::sensors::Sensors;
use crate::units::{Bytes, Monotonic, Resource, signed};
use crate::workloads::kubelet_summary::{ContainerStats, MemoryUsage, PodMemory, PodStats};
use crate::workloads::{Pod, PodUid, WorkloadUsage, container_memory};

use super::carried_out::Reason;
use super::stop::{Asked, NotDone, question};
use super::{ActionNote, Actions};

impl Actions {
    /// Writes the intent to the ledger. Returns false if the ledger is full or has the intent already.
    pub(super) fn note_intent(&mut self, intent: &Intent) -> bool {
        match self.cluster.ledger().begin(intent) {
            Ok(InLedger::New) => true,
            Ok(InLedger::Already) => false,
            Err(full) => {
                self.note_unreported(intent.pod(), intent.uid.clone(), full.to_string());
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
            self.note_unreported(pod, uid, "too many evictions wait for the API server".to_owned());
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
        let _earlier = self.asking.take(&uid);
        self.asking.0.push((uid, answer));
        Ok(asked)
    }

    fn note_unreported(&mut self, pod: String, pod_uid: String, reason: String) {
        self.notes.push(ActionNote::Unreported { pod, pod_uid, reason });
    }

    /// Drops the evictions that are not settled at the API server. Returns those whose pod has not ended there.
    pub fn call_off(&self, is_meant: impl Fn(&Unfinished) -> bool) -> Vec<Intent> {
        let mut unfinished = self.cluster.ledger().unfinished();
        unfinished.retain(is_meant);
        unfinished.iter().for_each(|unfinished| self.cluster.ledger().end(&unfinished.intent));
        unfinished.into_iter().filter(|it| !it.progress.removed).map(|it| it.intent).collect()
    }

    /// Takes in the outcome of an eviction at the API server. Returns whether it is to be reported: a refusal that an
    /// eviction waits for is reported at the end of that eviction.
    pub fn settle(&mut self, settled: &EvictionUpdate) -> bool {
        let EvictionUpdate { uid, verdict, .. } = settled;
        let outcome = match verdict {
            Verdict::Delayed(_) => return true,
            Verdict::Accepted | Verdict::Gone | Verdict::Done(_) => Ok(()),
            Verdict::Refused(reason) => Err(NotDone::Refused(reason.clone())),
            Verdict::Begun(Begun { reason, is_explicit }) => {
                Err(NotDone::Begun { reason: reason.clone(), is_explicit: *is_explicit })
            }
            Verdict::NoAnswer(reason) => {
                Err(NotDone::Failed(format!("the API server did not answer in time: {reason}")))
            }
            Verdict::GivenUp(reason) => Err(NotDone::Failed(reason.clone())),
            Verdict::Restarted => Err(NotDone::Failed("the kubelet has restarted it, and it runs".to_owned())),
        };
        let Some(answer) = self.asking.take(uid) else { return true };
        answer.give(outcome);
        !matches!(verdict, Verdict::Refused(_))
    }
}

/// Returns the eviction to request from, or report to, the API server; `None` if the API server does not list the pod.
pub(super) fn intent(
    uid: &PodUid,
    choice: &Choice,
    reason: Reason<'_>,
    sensors: &Sensors,
    config: &MonitorConfig,
) -> Option<Intent> {
    let pods = sensors.platform.cluster.view().pods;
    let pod = pods.find(uid)?;
    let (message, annotations) = words(pod, reason, sensors, &config.policy);
    let methods = config.kubernetes.evictions;
    let seconds = signed(choice.grace.as_millis().div_ceil(1000));
    let is_limit = matches!(reason, Reason::Limit(_));
    let without_mark = is_limit && config.policy.quirks.has(Quirk::LocalStorageWithoutDisruptionTarget);
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
        wants_event: config.kubernetes.events,
        frees_disk: choice.cause.is_for_disk(),
        condition: choice.cause.signal().map(|signal| NodeCondition::of(signal).as_str().to_owned()),
        decided_at: Timestamp::now(),
        decided_mono_ns: Monotonic::now().0,
    };
    Some(intent.bounded())
}

/// Composes the kubelet's message and annotations, as far as the facts are known.
fn words(pod: &Pod, reason: Reason<'_>, sensors: &Sensors, policy: &Policy) -> (String, Vec<(String, String)>) {
    match reason {
        Reason::Limit(above) => (above.message.clone(), Vec::new()),
        Reason::Threshold(met, ranked) => {
            let stats = stats_of(pod, met.threshold.signal.resource(), ranked, sensors);
            let layout = sensors.signals.filesystems.layout();
            let (message, annotations) = message::compose(policy, layout, met, pod, stats.as_ref());
            (message, annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        }
    }
}

/// Returns the pod's present usage of the resource that is short.
fn stats_of(pod: &Pod, resource: Resource, ranked: &Ranked<WorkloadUsage>, sensors: &Sensors) -> Option<PodStats> {
    let workload = &ranked.candidate.workload;
    let snapshot = sensors.platform.runtime.view().snapshot;
    let name_of = |id: &str| container_name(Some(pod), snapshot.as_deref(), id).map(str::to_owned);
    match resource {
        Resource::Memory => {
            let tree = sensors.workloads.tree();
            let directory = tree.find(workload.id)?.directory();
            let sets = container_memory::working_sets(directory, &workload.name, tree.hierarchy().version);
            let memory =
                |bytes: Bytes| Some(MemoryUsage { working_set_bytes: Some(bytes.0), ..MemoryUsage::default() });
            let stats = |(id, set): &(String, Bytes)| {
                Some(ContainerStats { name: name_of(id)?, memory: memory(*set), ..ContainerStats::default() })
            };
            let containers = sets.iter().filter_map(stats).collect();
            let working_set_bytes = Some(ranked.candidate.working_set.0);
            let memory = Some(PodMemory { working_set_bytes, ..PodMemory::default() });
            Some(PodStats { containers, memory, ..PodStats::default() })
        }
        Resource::EphemeralStorage | Resource::Inodes => {
            let uid = PodUid(pod.metadata.uid.clone());
            sensors.disk.pod_stats((&uid, &workload.name, workload.id), &name_of).map(|(stats, _)| stats)
        }
        Resource::Pids => Some(PodStats::default()),
    }
}
