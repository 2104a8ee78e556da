//! What the cluster is told of what happens, as events. Reasons and first words are the kubelet's, so that alerts on them keep working.

use std::collections::BTreeMap;

use crate::cluster::events::InvolvedObject;
use crate::cluster::{Event, EventRequest};
use crate::config::Mode;
use crate::eviction::NodeCondition;
use crate::eviction::conditions::NodeEvent;
use crate::incidents::model::{OomKill, Victim};
use crate::incidents::text;
use crate::units::{Monotonic, Signal};
use crate::workloads::PodUid;
use crate::workloads::cgroup_path::{Role, role, workload};

use super::act::Deed;
use super::{Agent, Look, allow};

/// A process of a container was killed for want of memory; the kernel's own log calls it so, and node-problem-detector.
const OOM_KILLING: &str = "OOMKilling";
/// The kubelet's word for an OOM kill because the node had no memory left.
const SYSTEM_OOM: &str = "SystemOOM";
/// One OOM kill may cost many pods a process each.
const PODS: usize = 16;

impl Agent {
    /// A condition of the node has changed.
    pub(super) fn tell_condition(&mut self, condition: NodeCondition, holds: bool) {
        if !self.cluster.is_there() {
            return;
        }
        let event = condition.text(holds).event;
        let node = self.cluster.view().node_name;
        self.tell_of_node(false, event, format!("Node {node} status is now: {event}"));
    }

    /// Something is to be got back now. The kubelet says so at every pass; here it is said now and then, and counted by who sends it.
    pub(super) fn tell_reclaiming(&mut self, look: &Look, deed: Option<&Deed>) {
        if self.config.mode != Mode::Enforce || look.assessment.met.is_empty() || !self.cluster.is_there() {
            return;
        }
        let of_deed = deed.map(|deed| deed.met.threshold.signal);
        let first = || look.assessment.to_act_on().first().map(|met| met.threshold.signal);
        let Some(resource) = of_deed.or_else(first).map(Signal::resource) else { return };
        if deed.is_some() || self.reporter.reclaiming.is_due(resource, Monotonic::now()) {
            self.tell_of_node(true, NodeEvent::REASON, NodeEvent { resource }.message());
        }
    }

    /// An OOM kill: to the node, and to each pod that lost a process, whether or not its container survives.
    pub(super) fn tell_pods_of_oom_kill(&mut self, kill: &OomKill) {
        if !self.cluster.is_there() {
            return;
        }
        let story = text::summary_of_oom_kill(kill);
        let mut pods: BTreeMap<PodUid, Vec<Victim>> = BTreeMap::new();
        for victim in &kill.victims {
            let Some(uid) = pod_of(victim) else { continue };
            if pods.len() < PODS || pods.contains_key(&uid) {
                pods.entry(uid).or_default().push(victim.clone());
            }
        }
        let is_alone = pods.len() == 1;
        for (uid, victims) in pods {
            let Some(about) = self.about(&uid) else { continue };
            // Of several pods each hears of its own.
            let message = if is_alone {
                story.clone()
            } else {
                text::summary_of_oom_kill(&OomKill { victims, victims_omitted: 0, ..kill.clone() })
            };
            self.tell(EventRequest { object: about, is_warning: true, reason: OOM_KILLING.to_owned(), message });
        }
        match kill.victims.first().filter(|_| kill.constraint.as_deref() == Some("none")) {
            Some(first) => {
                let process = first.comm.as_deref().unwrap_or("unknown");
                let words = format!("System OOM encountered, victim process: {process}, pid: {}; {story}", first.pid);
                self.tell_of_node(true, SYSTEM_OOM, words);
            }
            None => self.tell_of_node(true, OOM_KILLING, story),
        }
    }

    /// As the API server knows the pod: a static one by its mirror.
    fn about(&self, uid: &PodUid) -> Option<InvolvedObject> {
        let pods = self.cluster.view().pods;
        if let Some(metadata) = pods.find(uid).map(|pod| &pod.metadata) {
            let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
            return Some(InvolvedObject::Pod { namespace, name, uid: metadata.uid.clone() });
        }
        let (named, _) = self.pod_named(Some(uid));
        let (namespace, name) = named.as_deref()?.split_once('/')?;
        Some(InvolvedObject::Pod { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.0.clone() })
    }

    pub(super) fn tell_of_node(&mut self, is_warning: bool, reason: &str, message: String) {
        self.tell(EventRequest { object: InvolvedObject::Node, is_warning, reason: reason.to_owned(), message });
    }

    fn tell(&mut self, happening: EventRequest) {
        if !self.cluster.is_there() {
            return;
        }
        let reason = happening.reason.clone();
        if self.cluster.send_event(happening).is_err()
            && let Some(suppressed) = allow(&mut self.reporter.limits.events)
        {
            tracing::warn!(
                event = "event_dropped",
                reason,
                suppressed,
                "too many events wait for the API server: this one is not sent"
            );
        }
    }

    /// Something that the API server does not let us do, or does again.
    pub(super) fn hear_trouble(&self, event: &Event) {
        let Event::Degradation { capability, reason } = event else { return };
        self.reporter.health.set_degradation(capability, reason.as_deref());
        match reason {
            Some(reason) => tracing::warn!(event = "degraded", capability, reason, "the API server refuses it"),
            None => tracing::info!(event = "restored", capability, "the API server takes it again"),
        }
    }
}

/// The pod that a victim was part of, by its cgroup.
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
