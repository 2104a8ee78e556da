//! Orders to the container runtime: stop and remove pods, and collect garbage before an eviction.

use std::collections::BTreeMap;

use crate::actions::garbage::{garbage_for, until_enough};
use crate::actions::stop::{Answer, NotDone, Order, OrderKind, OrderQueue};
use crate::config::Mode;
use crate::eviction::Observation;
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::statfs::Statfs;
use crate::runtime::{CollectOrder, StopError, StopOrder, Stopped};
use crate::sensors::filesystem_signals::values;
use crate::units::Signal;
use crate::workloads::PodUid;

use super::Agent;

/// Orders that were handed to the runtime, with their waiters.
#[derive(Debug)]
pub(super) struct Orders {
    queue: OrderQueue,
    given: Vec<(PodUid, bool, Answer)>,
    hints: FilesystemHints,
}

impl Orders {
    pub(super) const fn on(queue: OrderQueue) -> Self {
        Self { queue, given: Vec::new(), hints: FilesystemHints { image: None, container: None } }
    }
}

impl Agent {
    /// Hands the queued orders to the runtime.
    pub(super) fn hand_orders(&mut self) {
        for Order { pod, what, answer } in self.actions.orders.queue.take() {
            let (grace, remove) = match what {
                OrderKind::Stop { grace } => (grace, false),
                OrderKind::Remove => (std::time::Duration::ZERO, true),
            };
            match self.runtime.stop_pod(StopOrder { uid: pod.clone(), grace, remove }) {
                Ok(()) => self.actions.orders.given.push((pod, remove, answer)),
                Err(reason) => answer.give(Err(NotDone::Failed(reason.to_string()))),
            }
        }
    }

    /// Sends the outcome of an order to its waiter.
    pub(super) fn answer_order(&mut self, stopped: &Stopped) {
        let is_it = |(pod, remove, _): &(PodUid, bool, Answer)| *pod == stopped.uid && *remove == stopped.remove;
        let Some(index) = self.actions.orders.given.iter().position(is_it) else { return };
        let (_, remove, answer) = self.actions.orders.given.swap_remove(index);
        answer.give(match &stopped.result {
            Ok(_) => Ok(()),
            // A pod that the runtime does not know counts as removed.
            Err(StopError::Unknown) if remove => Ok(()),
            Err(StopError::Static) => Err(NotDone::Critical),
            Err(reason) => Err(NotDone::Failed(reason.to_string())),
        });
    }

    /// Returns a pod's namespace and name, and its labels, from the runtime or the pod source.
    pub(super) fn pod_named(&self, uid: Option<&PodUid>) -> (Option<String>, BTreeMap<String, String>) {
        let Some(uid) = uid else { return Default::default() };
        let named = |namespace: &str, name: &str| Some(format!("{namespace}/{name}"));
        let snapshot = self.runtime.view().snapshot;
        if let Some(sandbox) = snapshot.as_ref().and_then(|snapshot| snapshot.sandbox_of(uid)) {
            return (named(&sandbox.pod.namespace, &sandbox.pod.name), sandbox.labels.as_ref().clone());
        }
        let metadata = self.sensors.pods.specs().find(uid).map(|pod| &pod.metadata);
        (metadata.and_then(|it| named(&it.namespace, &it.name)), BTreeMap::new())
    }

    /// Passes the runtime's store paths to the filesystem sensors.
    pub(super) fn hint_stores(&mut self) {
        let stores = self.runtime.view().stores;
        let hints = FilesystemHints { image: stores.image, container: stores.container };
        if hints != self.actions.orders.hints {
            self.actions.orders.hints = hints.clone();
            self.sensors.signals.filesystems.hint(hints);
        }
    }

    /// Orders the runtime to collect garbage until no threshold is met. Returns false if the runtime cannot take the
    /// order.
    pub(super) fn collect_garbage(&mut self, signal: Signal) -> bool {
        let what = garbage_for(signal, self.sensors.signals.filesystems.layout());
        let (proc_root, configured) = (&self.config.proc_root, &self.config.filesystems);
        let mut statfs = Statfs::new(proc_root);
        let choices = Role::ALL.map(|role| (role, Choice::of(role, configured, &self.actions.orders.hints)));
        let observe = move || {
            // A missing filesystem has no signal and does not prolong the collection.
            let sample = |(role, choice): &(Role, Choice)| statfs.sample(*role, choice).ok();
            let samples: Vec<_> = choices.iter().filter_map(sample).collect();
            Observation { signals: values(&samples) }
        };
        let is_enough = until_enough(self.config.policy.clone(), self.decision.armed().to_vec(), observe);
        let dry_run = self.config.mode == Mode::Observe;
        self.runtime.collect(CollectOrder { what, dry_run, is_enough }).is_ok()
    }
}
