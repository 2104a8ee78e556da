//! Watches the pods of this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::KubernetesOptions;
use crate::units::Monotonic;
use crate::workloads::json_defaults::{entries, list, or_default};
use crate::workloads::pod::{Deletion, Metadata, Owner, Spec, Status, has_ended};
use crate::workloads::{Pod, PodSpecs};

use super::api_answer::Refusal;
use super::api_client::Context;
use super::api_state::{Event, State};
use super::lenient_json;
use super::pod_cache::PodCache;
use super::reflector::{self, Reflector};
use super::watch_stream::Frame;

/// Changes within this time are published together: the loop looks at all pods each time.
const PUBLISH_DELAY: Duration = Duration::from_secs(1);

/// Name among the missing capabilities.
const CAPABILITY: &str = "pods as written";

pub(super) async fn watch(context: &Context, options: watch::Receiver<KubernetesOptions>, cache: Option<PodCache>) {
    let mut pods = PodReflector {
        context: context.clone(),
        options,
        keys: Vec::new(),
        known: BTreeMap::new(),
        listed: None,
        due: None,
        cache,
        unreadable: BTreeSet::new(),
        reported_unreadable: 0,
    };
    reflector::run(context, &mut pods).await;
}

struct PodReflector {
    context: Context,
    options: watch::Receiver<KubernetesOptions>,
    /// Keys of the annotations that the options name; they are kept beside those that the agent always needs.
    keys: Vec<String>,
    /// By UID.
    known: BTreeMap<String, Arc<Pod>>,
    /// While a list is read: the pods that it has named.
    listed: Option<BTreeMap<String, Arc<Pod>>>,
    due: Option<Instant>,
    cache: Option<PodCache>,
    /// UIDs of pods with fields that cannot be read.
    unreadable: BTreeSet<String>,
    reported_unreadable: usize,
}

impl PodReflector {
    /// Reads a pod and its resource version. Fields that cannot be read are left out.
    fn read(&mut self, object: &[u8]) -> Option<(Pod, String)> {
        if let Ok(wire) = serde_json::from_slice::<Wire>(object) {
            let read = wire.pod(&self.keys);
            self.unreadable.remove(&read.0.metadata.uid);
            return Some(read);
        }
        match lenient_json::read::<Wire>(object) {
            Ok((wire, reason)) if !wire.metadata.uid.is_empty() => {
                let read = wire.pod(&self.keys);
                let metadata = &read.0.metadata;
                if self.unreadable.insert(metadata.uid.clone()) {
                    let pod = read.0.full_name();
                    tracing::warn!(
                        event = "pod_unreadable",
                        pod,
                        pod_uid = metadata.uid,
                        reason,
                        "fields of a pod cannot be read; the agent uses the others"
                    );
                }
                Some(read)
            }
            Ok((_, reason)) | Err(reason) => {
                let identity = std::str::from_utf8(object).ok().and_then(identity);
                if identity.is_none_or(|(uid, _)| self.unreadable.insert(uid)) {
                    tracing::warn!(
                        event = "pod_unreadable",
                        reason,
                        "a pod cannot be read; the agent knows it by its cgroup only"
                    );
                }
                None
            }
        }
    }

    fn report_unreadable(&mut self) {
        let unreadable = self.unreadable.len();
        if std::mem::replace(&mut self.reported_unreadable, unreadable) != unreadable {
            let text =
                || format!("{unreadable} pods of this node cannot be read as a whole; the log says which, and why");
            let reason = (unreadable > 0).then(text);
            self.context.reporter.report(Event::Degradation { capability: CAPABILITY, reason });
        }
    }

    /// Notes a pod that had ended, and is in another phase again.
    fn note_overwritten(&self, known: Option<&Pod>, pod: &Pod) {
        if known.is_some_and(|known| has_ended(&known.status.phase)) && !has_ended(&pod.status.phase) {
            self.context.overwritten.note(&pod.metadata.uid);
        }
    }

    fn changed(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + PUBLISH_DELAY);
    }
}

impl Reflector for PodReflector {
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
        // An unchanged pod shares its memory with the known one.
        let known = self.known.get(&pod.metadata.uid).filter(|known| ***known == pod).cloned();
        if let Some(listed) = &mut self.listed {
            listed.insert(pod.metadata.uid.clone(), known.unwrap_or_else(|| Arc::new(pod)));
        }
    }

    fn end(&mut self) {
        let Some(listed) = self.listed.take() else { return };
        for (uid, pod) in &listed {
            self.note_overwritten(self.known.get(uid).map(Arc::as_ref), pod);
        }
        self.unreadable.retain(|uid| listed.contains_key(uid));
        self.known = listed;
        self.context.reporter.with(|view| view.counts.lists += 1);
        self.due = Some(Instant::now());
    }

    fn put(&mut self, object: &str) -> Option<String> {
        self.context.reporter.with(|view| view.counts.changes += 1);
        let Some((pod, version)) = self.read(object.as_bytes()) else {
            let (uid, version) = identity(object)?;
            if self.known.remove(&uid).is_some() {
                self.changed();
            }
            return Some(version);
        };
        let known = self.known.get(&pod.metadata.uid);
        self.note_overwritten(known.map(Arc::as_ref), &pod);
        // Most changes are of fields that are not kept, or that decide nothing.
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
        self.context.reporter.with(|view| view.counts.changes += 1);
        let (uid, version) = identity(object)?;
        self.unreadable.remove(&uid);
        if self.known.remove(&uid).is_some() {
            self.changed();
        }
        Some(version)
    }

    fn answered(&mut self) {
        self.context.reporter.set_state(State::Up);
        self.report_unreadable();
        // An incomplete list confirms nothing.
        if self.listed.is_none() {
            let now = Monotonic::now();
            self.context.reporter.with(|view| view.pods_as_of = Some(now));
            self.cache.iter_mut().for_each(|cache| cache.confirm(now, &self.known));
        }
    }

    fn failed(&mut self, refusal: &Refusal, times: u32) {
        // A server that asks for one retry is not down.
        if refusal.wait.is_some() && times < 2 {
            return;
        }
        let state = State::Down { reason: refusal.reason.clone(), since: Monotonic::now() };
        self.context.reporter.set_state(state);
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
        self.context.reporter.with(|view| (view.pods, view.pods_as_of) = (specs, Some(now)));
        self.context.reporter.report(Event::Pods);
        if let Some(cache) = &mut self.cache {
            cache.change();
            cache.confirm(now, &self.known);
        }
    }

    async fn outdated(&mut self) {
        while self.options.changed().await.is_ok() {
            if keys(&self.options.borrow_and_update()) != self.keys {
                return;
            }
        }
        // The loop has ended.
        std::future::pending::<()>().await;
    }
}

/// Returns the keys of the annotations that protect pods.
fn keys(options: &KubernetesOptions) -> Vec<String> {
    let key = |text: &String| text.split_once('=').map_or(text.as_str(), |(key, _)| key).to_owned();
    options.protect.annotations.iter().map(key).collect()
}

/// Returns UID and resource version of a pod whose other fields may be unreadable.
fn identity(object: &str) -> Option<(String, String)> {
    let Frame { metadata } = serde_json::from_str(object).ok()?;
    (!metadata.uid.is_empty()).then_some((metadata.uid, metadata.resource_version))
}

/// A pod as the API server sends it, with all annotations.
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
    deletion_timestamp: Option<Deletion>,
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
            deletion: metadata.deletion_timestamp,
        };
        (Pod { metadata, spec, status }.without_forged_source().bounded(), resource_version)
    }
}

#[cfg(test)]
#[path = "pod_reflector_tests.rs"]
mod tests;
