//! The Kubernetes events of a record. Reasons and first words are the kubelet's, so that alerts on them keep working. Beside a kubelet, which
//! sends its own, the events about the node have other reasons.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::log_sink::no_execute;
use super::record::Record;
use crate::eviction::conditions::{RECLAIM_EVENT, RECLAIM_EVENT_BESIDE_KUBELET, reclaim_message};
use crate::incidents::model::{OomKill, Victim};
use crate::incidents::text;
use crate::node::other_killers::Killer;
use crate::workloads::PodUid;
use crate::workloads::cgroup_path::{Role, role, workload};

/// The reason of an OOM kill in a container, as node-problem-detector has it.
const OOM_KILLING: &str = "OOMKilling";
/// The kubelet's reason for an OOM kill because the node had no memory left.
const SYSTEM_OOM: &str = "SystemOOM";
/// The reason of a threshold that evicts nothing yet.
const UNARMED: &str = "EvictionThresholdNotArmed";
/// The reason when what leaks cannot be evicted.
const PROTECTED_LEAK: &str = "ProtectedMemoryLeak";
/// The reason when system daemons exceed their reservation.
const ABOVE_RESERVATION: &str = "SystemMemoryAboveReservation";
/// One OOM kill may cost many pods a process each: further pods get no event.
const MOST_PODS: usize = 16;

/// An event to be sent to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDraft {
    /// The subject of the event; `None` for the node.
    pub pod: Option<PodUid>,
    pub is_warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl EventDraft {
    fn node(is_warning: bool, reason: &'static str, message: String) -> Self {
        Self { pod: None, is_warning, reason, message }
    }

    /// Returns whether a kubelet that writes events about killed containers has written the same.
    pub fn is_oom_kill_of_pod(&self) -> bool {
        self.pod.is_some() && self.reason == OOM_KILLING
    }
}

/// The events of this node that wait to be sent.
#[derive(Debug)]
pub(super) struct EventSink {
    node_name: Arc<str>,
    /// A kubelet runs on this node.
    has_kubelet: bool,
    drafts: Vec<EventDraft>,
}

impl EventSink {
    pub(super) fn new(node_name: Arc<str>) -> Self {
        Self { node_name, has_kubelet: false, drafts: Vec::new() }
    }

    pub(super) fn note(&mut self, record: &Record<'_>) {
        if let Record::OtherKiller { other, .. } = record {
            self.has_kubelet |= other.killer == Killer::Kubelet;
        }
        draft(record, &self.node_name, self.has_kubelet, &mut self.drafts);
    }

    pub(super) fn take(&mut self) -> Vec<EventDraft> {
        std::mem::take(&mut self.drafts)
    }
}

fn draft(record: &Record<'_>, node_name: &str, has_kubelet: bool, events: &mut Vec<EventDraft>) {
    match *record {
        Record::ConditionChanged { condition: Some(condition), status, .. } => {
            let text = condition.text(status);
            let reason = if has_kubelet { text.event_beside_kubelet } else { text.event };
            events.push(EventDraft::node(false, reason, format!("Node {node_name} status is now: {reason}")));
        }
        Record::ThresholdUnarmed { threshold, why, .. } => {
            let words = format!("Node {node_name}: the eviction threshold {threshold} {}", why.reason());
            events.push(EventDraft::node(true, UNARMED, words));
        }
        Record::Reclaiming(resource) => {
            let reason = if has_kubelet { RECLAIM_EVENT_BESIDE_KUBELET } else { RECLAIM_EVENT };
            events.push(EventDraft::node(true, reason, reclaim_message(resource)));
        }
        Record::ProtectedLeak { workload, fall, .. } => {
            events.push(EventDraft::node(true, PROTECTED_LEAK, protected_leak(workload, fall)));
        }
        Record::DaemonsAboveReservation(daemons) => {
            let (above, reserved, largest) = (daemons.above, daemons.reserved, daemons.words());
            let words =
                format!("System daemons exceed the {reserved} that are reserved for them by {above}: {largest}");
            events.push(EventDraft::node(true, ABOVE_RESERVATION, words));
        }
        Record::NoExecuteTaint { news, .. } => {
            let (reason, words) = no_execute(news);
            events.push(EventDraft::node(true, reason, words.to_owned()));
        }
        Record::OomIncident(kill) => oom_kill(kill, has_kubelet, events),
        _ => {}
    }
}

/// Appends one event per pod that lost a process, and one for the node.
fn oom_kill(kill: &OomKill, has_kubelet: bool, events: &mut Vec<EventDraft>) {
    let summary = text::summary_of_oom_kill(kill);
    let mut pods: BTreeMap<PodUid, Vec<Victim>> = BTreeMap::new();
    for victim in &kill.victims {
        let Some(uid) = pod_of(victim) else { continue };
        if pods.len() < MOST_PODS || pods.contains_key(&uid) {
            pods.entry(uid).or_default().push(victim.clone());
        }
    }
    let is_alone = pods.len() == 1;
    for (uid, victims) in pods {
        // Each of several pods gets a summary of its own victims.
        let message = if is_alone {
            summary.clone()
        } else {
            text::summary_of_oom_kill(&OomKill { victims, victims_omitted: 0, ..kill.clone() })
        };
        events.push(EventDraft { pod: Some(uid), is_warning: true, reason: OOM_KILLING, message });
    }
    let is_of_node = kill.constraint.as_deref() == Some("none");
    match kill.victims.first().filter(|_| is_of_node && !has_kubelet) {
        Some(first) => {
            let process = first.comm.as_deref().unwrap_or("unknown");
            let words = format!("System OOM encountered, victim process: {process}, pid: {}; {summary}", first.pid);
            events.push(EventDraft::node(true, SYSTEM_OOM, words));
        }
        None => events.push(EventDraft::node(true, OOM_KILLING, summary)),
    }
}

/// Returns the words about a leak that cannot be evicted. `workload` is the protected one that leaks, and `fall` is in bytes per second.
pub(super) fn protected_leak(workload: Option<&str>, fall: f64) -> String {
    let what =
        workload.map_or_else(|| "no pod that can be evicted".to_owned(), |name| format!("{name}, which is protected"));
    let fall = fall / 1_048_576.0;
    format!(
        "Memory falls by {fall:.0} MiB/s because of {what}; evictions did not help, and no further pod is evicted for it"
    )
}

fn pod_of(victim: &Victim) -> Option<PodUid> {
    let of = |path: &str| match role(path) {
        Role::Pod(uid, _) => Some(uid),
        _ => None,
    };
    let by_workload = victim.workload.as_deref().and_then(of);
    by_workload.or_else(|| of(workload(victim.cgroup.as_deref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oom_kill_of_a_pod_is_what_a_kubelet_may_report_too() {
        let pod = |uid: &str| format!("kubepods/burstable/pod{uid}");
        for (workload, constraint, expected) in [
            (pod("u-1"), "memcg", [true, false]),
            (pod("u-1"), "none", [true, false]),
            ("kubepods/system/besteffort/podu-2".to_owned(), "memcg", [true, false]),
        ] {
            let victim = Victim { pid: 7, workload: Some(workload.clone()), ..Victim::default() };
            let kill = OomKill { victims: vec![victim], constraint: Some(constraint.to_owned()), ..OomKill::default() };
            for has_kubelet in [true, false] {
                let mut events = Vec::new();
                oom_kill(&kill, has_kubelet, &mut events);
                let found: Vec<bool> = events.iter().map(EventDraft::is_oom_kill_of_pod).collect();
                assert_eq!(found, expected, "{workload}: one event on the pod, one on the node");
                let is_kubelets = events.iter().any(|event| event.reason == SYSTEM_OOM);
                assert_eq!(
                    is_kubelets,
                    !has_kubelet && constraint == "none",
                    "SystemOOM is the kubelet's where there is one"
                );
            }
        }
    }

    #[test]
    fn a_victim_belongs_to_the_pod_above_it() {
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c_3d.slice";
        let container = format!("{pod}/cri-containerd-{}.scope", "a".repeat(64));
        let victim = |workload: Option<&str>, cgroup: Option<&str>| Victim {
            workload: workload.map(str::to_owned),
            cgroup: cgroup.map(str::to_owned),
            ..Victim::default()
        };
        let uid = Some(PodUid("1b2c-3d".to_owned()));
        assert_eq!(pod_of(&victim(Some(pod), None)), uid);
        assert_eq!(pod_of(&victim(None, Some(&container))), uid);
        assert_eq!(pod_of(&victim(Some("system.slice/a.service"), Some("system.slice/a.service"))), None);
        assert_eq!(pod_of(&victim(None, None)), None);
    }
}
