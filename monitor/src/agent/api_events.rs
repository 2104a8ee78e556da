//! Hands the Kubernetes events of the turn's records to the thread that sends them.

use crate::cluster::EventRequest;
use crate::cluster::events::InvolvedObject;
use crate::report::event_sink::EventDraft;
use crate::report::record::Record;
use crate::units::Monotonic;
use crate::workloads::PodUid;

use super::Agent;

impl Agent {
    /// Hands over the events drafted in this turn. An event about a pod that no source knows is not sent.
    pub(super) fn send_events(&mut self) {
        for EventDraft { pod, is_warning, reason, message } in self.reporter.take_events() {
            let about = match &pod {
                None => Some(InvolvedObject::Node),
                Some(uid) => self.about(uid),
            };
            let Some(about) = about else { continue };
            let event = EventRequest { object: about, is_warning, reason: reason.to_owned(), message };
            if self.cluster.send_event(event).is_err() {
                self.reporter.report(&Record::EventDropped { reason }, Monotonic::now());
            }
        }
    }

    /// The pod as the API server knows it: a static pod by its mirror.
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
}
