//! Orders to the container runtime: stop and remove pods, and collect garbage before an eviction.

use std::time::Duration;

use crate::config::{Mode, MonitorConfig, Quirk};
use crate::eviction::collection::CollectionEnd;
use crate::eviction::{Armed, Observation};
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::statfs::Statfs;
use crate::runtime::{CollectEnd, CollectOrder, Event, KubeletWait, StopError, StopOrder, Stopped, TearDown};
use crate::sensors::Sensors;
use crate::sensors::filesystem_signals::values;
use crate::units::Signal;
use crate::workloads::{PodUid, WorkloadTree};

use super::garbage::{garbage_for, until_enough};
use super::stop::{NotDone, Order, OrderKind};
use super::{ActionNote, Actions};

impl Actions {
    pub fn hand_orders(&mut self, tree: &WorkloadTree) {
        for Order { pod, what, answer } in self.orders.queue.take() {
            let (grace, by, remove) = match what {
                OrderKind::Stop { grace } => (grace, TearDown::Runtime, false),
                OrderKind::Remove { by } => (Duration::ZERO, by, true),
            };
            let wait = kubelet_wait(tree, &pod, by);
            let order = StopOrder { uid: pod.clone(), by, wait, grace, remove };
            match self.runtime.stop_pod(order) {
                Ok(()) => self.orders.given.push((pod, remove, answer)),
                Err(reason) => answer.give(Err(NotDone::Failed(reason.to_string()))),
            }
        }
    }

    /// Orders the removal of the containers that the kubelet keeps of an evicted pod. An earlier agent did not get to it.
    pub fn finish_removal(&mut self, pod_uid: &str, tree: &WorkloadTree) {
        let (uid, by) = (PodUid(pod_uid.to_owned()), TearDown::Kubelet);
        let wait = kubelet_wait(tree, &uid, by);
        let order = StopOrder { uid, by, wait, grace: Duration::ZERO, remove: true };
        if let Err(reason) = self.runtime.stop_pod(order) {
            self.notes.push(ActionNote::RestLeft { pod_uid: pod_uid.to_owned(), reason: reason.to_string() });
        }
    }

    /// Takes what the runtime has done: the decider learns the end of a collection, and a waiter the outcome of its order.
    pub fn take_runtime_event(&mut self, event: &Event, sensors: &mut Sensors) {
        match event {
            Event::State(_) => {}
            Event::Collected(collected) => {
                self.collected = Some(match collected.end {
                    CollectEnd::Enough => CollectionEnd::Enough,
                    CollectEnd::Exhausted => CollectionEnd::Exhausted,
                    CollectEnd::Interrupted(_) => CollectionEnd::Interrupted,
                    CollectEnd::Listed => CollectionEnd::Listed,
                });
                sensors.signals.filesystems.ask_now();
            }
            Event::Stopped(stopped) => self.answer_order(stopped),
        }
        self.hint_stores(sensors);
    }

    fn answer_order(&mut self, stopped: &Stopped) {
        let is_it = |(pod, remove, _): &(PodUid, bool, _)| *pod == stopped.uid && *remove == stopped.remove;
        let Some(index) = self.orders.given.iter().position(is_it) else { return };
        let (_, remove, answer) = self.orders.given.swap_remove(index);
        answer.give(match &stopped.result {
            Ok(_) => Ok(()),
            // A pod that the runtime does not know counts as removed.
            Err(StopError::Unknown) if remove => Ok(()),
            Err(StopError::Static) => Err(NotDone::Critical),
            Err(reason) => Err(NotDone::Failed(reason.to_string())),
        });
    }

    /// Passes the runtime's store paths to the filesystem sensors.
    pub fn hint_stores(&mut self, sensors: &mut Sensors) {
        let stores = sensors.platform.runtime.view().stores;
        let hints = FilesystemHints { image: stores.image, container: stores.container };
        if hints != self.orders.hints {
            self.orders.hints = hints.clone();
            sensors.signals.filesystems.hint(hints);
        }
    }

    /// Orders the runtime to collect garbage until no threshold is met. Returns false if the runtime cannot take the
    /// order.
    pub fn collect_garbage(&self, signal: Signal, config: &MonitorConfig, armed: &[Armed], sensors: &Sensors) -> bool {
        let quirks = config.policy.quirks;
        let what = garbage_for(signal, sensors.signals.filesystems.layout(), quirks);
        let (proc_root, configured) = (&config.proc_root, &config.filesystems);
        let mut statfs = Statfs::new(proc_root);
        let choices = Role::ALL.map(|role| (role, Choice::of(role, configured, &self.orders.hints)));
        let observe = move || {
            // A missing filesystem has no signal and does not prolong the collection.
            let sample = |(role, choice): &(Role, Choice)| statfs.sample(*role, choice).ok();
            let samples: Vec<_> = choices.iter().filter_map(sample).collect();
            Observation { signals: values(&samples) }
        };
        let is_enough = until_enough(config.policy.clone(), armed.to_vec(), observe);
        let dry_run = config.mode == Mode::Observe;
        let awaits_space = !quirks.has(Quirk::ImagesCountAsFreed);
        self.runtime.collect(CollectOrder { what, dry_run, awaits_space, is_enough }).is_ok()
    }
}

/// Returns what a removal waits for, if the kubelet tears down the pod.
fn kubelet_wait(tree: &WorkloadTree, pod: &PodUid, by: TearDown) -> Option<KubeletWait> {
    match by {
        TearDown::Kubelet => Some(KubeletWait { cgroup: tree.cgroup_of(pod)?, at_most: by.patience() }),
        TearDown::Runtime => None,
    }
}
