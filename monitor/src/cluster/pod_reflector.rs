//! The pods of this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::KubernetesOptions;
use crate::units::Monotonic;
use crate::workloads::json_defaults::{entries, is_present, list, or_default};
use crate::workloads::pod::{Metadata, Owner, Spec, Status};
use crate::workloads::{Pod, PodSpecs};

use super::api_answer::Refusal;
use super::api_threads::Context;
use super::lenient_json;
use super::pod_cache::PodCache;
use super::reflector::{Reflector, follow};
use super::{Event, State};

/// Many changes in so short a time are told once: whoever is told looks at all of them.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// What reading them is called among the capabilities that are missing.
const READING: &str = "pods as written";

/// Watches them for ever.
pub(super) async fn watch(
    context: &Context,
    options: watch::Receiver<KubernetesOptions>,
    remembered: Option<PodCache>,
) {
    let mut mirror = Pods::new(context.clone(), options, remembered);
    follow(context, &mut mirror).await;
}

/// What is known of them.
struct Pods {
    context: Context,
    options: watch::Receiver<KubernetesOptions>,
    /// Keys of annotations that are kept beside those that are always looked at.
    keys: Vec<String>,
    /// By their UID.
    known: BTreeMap<String, Arc<Pod>>,
    /// Those that the list under way has named.
    listed: Option<BTreeMap<String, Arc<Pod>>>,
    due: Option<Instant>,
    remembered: Option<PodCache>,
    /// UIDs of those that cannot be read as a whole.
    partly: BTreeSet<String>,
    /// How many of them was said.
    told: usize,
}

impl Pods {
    fn new(context: Context, options: watch::Receiver<KubernetesOptions>, remembered: Option<PodCache>) -> Self {
        Self {
            context,
            options,
            keys: Vec::new(),
            known: BTreeMap::new(),
            listed: None,
            due: None,
            remembered,
            partly: BTreeSet::new(),
            told: 0,
        }
    }

    /// A pod and its resource version, without what cannot be read of it: nothing is guessed about that.
    fn read(&mut self, object: &[u8]) -> Option<(Pod, String)> {
        if let Ok(wire) = serde_json::from_slice::<Wire>(object) {
            let read = wire.pod(&self.keys);
            self.partly.remove(&read.0.metadata.uid);
            return Some(read);
        }
        match lenient_json::read::<Wire>(object) {
            Ok((wire, reason)) if !wire.metadata.uid.is_empty() => {
                let read = wire.pod(&self.keys);
                let metadata = &read.0.metadata;
                if self.partly.insert(metadata.uid.clone()) {
                    let pod = read.0.full_name();
                    tracing::warn!(
                        event = "pod_unreadable",
                        pod,
                        pod_uid = metadata.uid,
                        reason,
                        "a pod is known without what cannot be read of it"
                    );
                }
                Some(read)
            }
            Ok((_, reason)) | Err(reason) => {
                let whose = std::str::from_utf8(object).ok().and_then(whose);
                if whose.is_none_or(|(uid, _)| self.partly.insert(uid)) {
                    tracing::warn!(
                        event = "pod_unreadable",
                        reason,
                        "a pod cannot be read: it is known by its cgroup alone"
                    );
                }
                None
            }
        }
    }

    /// Says how many cannot be read as a whole, where that is news.
    fn tell_unreadable(&mut self) {
        let unreadable = self.partly.len();
        if std::mem::replace(&mut self.told, unreadable) != unreadable {
            let words =
                || format!("{unreadable} pods of this node cannot be read as a whole; the log says which, and why");
            let reason = (unreadable > 0).then(words);
            self.context.tell(Event::Degradation { capability: READING, reason });
        }
    }

    fn changed(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + TOLD_AFTER);
    }

    fn note(&mut self, state: State) {
        if self.context.shared.set_state(state.clone()) {
            self.context.tell(Event::State(state));
        }
    }
}

impl Reflector for Pods {
    const PATH: &'static str = "/api/v1/pods";
    const IS_SMALL: bool = false;

    fn field_selector(&self) -> String {
        format!("spec.nodeName={}", self.context.node_name)
    }

    fn begin(&mut self) {
        self.keys = keys(&self.options.borrow_and_update());
        self.listed = Some(BTreeMap::new());
    }

    fn listed(&mut self, object: &[u8]) {
        let Some((pod, _)) = self.read(object) else { return };
        // What is as it was is kept once.
        let known = self.known.get(&pod.metadata.uid).filter(|known| ***known == pod).cloned();
        if let Some(listed) = &mut self.listed {
            listed.insert(pod.metadata.uid.clone(), known.unwrap_or_else(|| Arc::new(pod)));
        }
    }

    fn end(&mut self) {
        let Some(listed) = self.listed.take() else { return };
        self.partly.retain(|uid| listed.contains_key(uid));
        self.known = listed;
        self.context.shared.with(|view| view.counts.lists += 1);
        self.due = Some(Instant::now());
    }

    fn put(&mut self, object: &str) -> Option<String> {
        self.context.shared.with(|view| view.counts.changes += 1);
        let Some((pod, version)) = self.read(object.as_bytes()) else {
            let (uid, version) = whose(object)?;
            if self.known.remove(&uid).is_some() {
                self.changed();
            }
            return Some(version);
        };
        // Most changes are of what is not kept, or of what nothing is decided by.
        let known = self.known.get(&pod.metadata.uid);
        if known.is_none_or(|known| **known != pod) {
            let is_news = known.is_none_or(|known| !known.decides_as(&pod, &self.keys));
            self.known.insert(pod.metadata.uid.clone(), Arc::new(pod));
            if is_news {
                self.changed();
            }
        }
        Some(version)
    }

    fn remove(&mut self, object: &str) -> Option<String> {
        self.context.shared.with(|view| view.counts.changes += 1);
        let (uid, version) = whose(object)?;
        self.partly.remove(&uid);
        if self.known.remove(&uid).is_some() {
            self.changed();
        }
        Some(version)
    }

    fn heard(&mut self) {
        self.note(State::Up);
        self.tell_unreadable();
        // While a list is not whole, pods are what they were before it.
        if self.listed.is_none() {
            let now = Monotonic::now();
            self.context.shared.with(|view| view.pods_as_of = Some(now));
            self.remembered.iter_mut().for_each(|remembered| remembered.confirm(now, &self.known));
        }
    }

    fn failed(&mut self, refusal: &Refusal, times: u32) {
        // Who asks to be left alone for a moment is not down.
        if refusal.wait.is_some() && times < 2 {
            return;
        }
        self.note(State::Down { reason: refusal.reason.clone(), since: Monotonic::now() });
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn publish(&mut self) {
        if self.due.take().is_none() {
            return;
        }
        let specs = Arc::new(PodSpecs::new(self.known.values().cloned()));
        let now = Monotonic::now();
        self.context.shared.with(|view| (view.pods, view.pods_as_of) = (specs, Some(now)));
        self.context.tell(Event::Pods);
        if let Some(remembered) = &mut self.remembered {
            remembered.change();
            remembered.confirm(now, &self.known);
        }
    }

    async fn outdated(&mut self) {
        while self.options.changed().await.is_ok() {
            if keys(&self.options.borrow_and_update()) != self.keys {
                return;
            }
        }
        // Nobody will say anything any more.
        std::future::pending::<()>().await;
    }
}

/// The keys of the annotations that protect.
fn keys(options: &KubernetesOptions) -> Vec<String> {
    let key = |text: &String| text.split_once('=').map_or(text.as_str(), |(key, _)| key).to_owned();
    options.protect.annotations.iter().map(key).collect()
}

/// UID and resource version of an object of which nothing else may be readable.
fn whose(object: &str) -> Option<(String, String)> {
    let Whose { metadata } = serde_json::from_str(object).ok()?;
    (!metadata.uid.is_empty()).then_some((metadata.uid, metadata.resource_version))
}

#[derive(Deserialize)]
struct Whose {
    metadata: WhoseMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WhoseMetadata {
    #[serde(deserialize_with = "or_default")]
    uid: String,
    #[serde(deserialize_with = "or_default")]
    resource_version: String,
}

/// A pod as it comes: with all its annotations, of which few are kept.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    #[serde(deserialize_with = "or_default")]
    metadata: WireMetadata,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireMetadata {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    namespace: String,
    #[serde(deserialize_with = "or_default")]
    uid: String,
    #[serde(deserialize_with = "or_default")]
    resource_version: String,
    #[serde(deserialize_with = "entries")]
    annotations: Vec<(String, String)>,
    #[serde(deserialize_with = "list")]
    owner_references: Vec<Owner>,
    #[serde(deserialize_with = "is_present")]
    deletion_timestamp: bool,
}

impl Wire {
    fn pod(self, keys: &[String]) -> (Pod, String) {
        let Self { metadata, spec, status } = self;
        let WireMetadata { name, namespace, uid, resource_version, annotations, .. } = metadata;
        let metadata = Metadata {
            name,
            namespace,
            uid,
            annotations: Metadata::kept(annotations, keys),
            owners: metadata.owner_references,
            is_being_deleted: metadata.deletion_timestamp,
        };
        (Pod { metadata, spec, status }.without_forged_source().bounded(), resource_version)
    }
}

#[cfg(test)]
#[path = "pod_reflector_tests.rs"]
mod tests;
