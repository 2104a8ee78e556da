//! Events on pods and on the node.
//!
//! What repeats is one event that counts; who repeats too much is cut short: an event costs etcd as much as a pod does, and a thousand
//! nodes run this.

mod aggregate;

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::KubernetesOptions;

use super::Event;
use super::api_call::{Failure, TIMEOUT, ask};
use super::api_threads::{Context, ended};
use super::api_time;
use super::backoff::Backoff;
use aggregate::{Aggregator, Write};

/// Who says it.
const COMPONENT: &str = "node-pressure-monitor";
/// What sending them is called among the capabilities that are missing.
const CAPABILITY: &str = "events";
/// An event that cannot be sent for so long is let go of: newer ones wait.
const GIVE_UP: Duration = Duration::from_secs(600);
/// After the loop has ended, for all that waits.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Something that people are to hear of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventRequest {
    /// What it happened to.
    pub object: InvolvedObject,
    /// `Warning`, not `Normal`.
    pub is_warning: bool,
    /// One CamelCase word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InvolvedObject {
    /// This node.
    Node,
    /// A pod on it.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Unique for ever.
        uid: String,
    },
}

/// An answer of which nothing is looked at.
#[derive(Debug, Deserialize)]
struct Ignored {}

/// Sends them, until there are no more.
pub(super) async fn send(
    context: &Context,
    mut happenings: mpsc::Receiver<(Timestamp, EventRequest)>,
    options: watch::Receiver<KubernetesOptions>,
) {
    let mut sender = Sender {
        context,
        aggregator: Aggregator::of(&context.node_name),
        patience: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
        is_refused: HashSet::new(),
    };
    let mut last: Vec<Write> = Vec::new();
    loop {
        let wait = sender.aggregator.until_due(Instant::now());
        let write = tokio::select! {
            biased;
            heard = happenings.recv() => {
                let Some((at, happening)) = heard else { break };
                if !options.borrow().events {
                    continue;
                }
                sender.aggregator.take(happening, at, Instant::now())
            }
            () = sleep(wait) => sender.aggregator.due(Instant::now()),
        };
        if let Some(write) = write {
            tokio::select! {
                biased;
                () = ended(options.clone()) => {
                    last.push(write);
                    break;
                }
                () = sender.carry_out(&write) => {}
            }
        }
    }
    // What was under way, what was not heard yet, and what was counted and not told.
    while let Ok((at, happening)) = happenings.try_recv() {
        if options.borrow().events {
            last.extend(sender.aggregator.take(happening, at, Instant::now()));
        }
    }
    let rest = async {
        let mut last = last.into_iter();
        while let Some(write) = last.next().or_else(|| sender.aggregator.rest()) {
            if sender.write(&write).await.is_err() {
                break;
            }
        }
    };
    let _out_of_time = tokio::time::timeout(LAST_WORDS, rest).await;
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

struct Sender<'c> {
    context: &'c Context,
    aggregator: Aggregator,
    patience: Backoff,
    /// The kinds of refusal that were said: each is once.
    is_refused: HashSet<Discriminant<Failure>>,
}

impl Sender<'_> {
    /// Until it is done, or cannot be.
    async fn carry_out(&mut self, write: &Write) {
        let begun = Instant::now();
        loop {
            let failure = match self.write(write).await {
                Ok(()) => break self.refused(None),
                Err(failure @ Failure::Later { .. }) if begun.elapsed() < GIVE_UP => failure,
                Err(failure) => break self.refused(Some(&failure)),
            };
            tokio::time::sleep(self.patience.after_failure(failure.retry_after())).await;
        }
        self.patience.reset();
    }

    async fn write(&self, write: &Write) -> Result<(), Failure> {
        if !write.is_new {
            match self.count(write).await {
                // It has lived its hour.
                Err(Failure::NotFound(_)) => {}
                answer => return answer,
            }
        }
        match self.create(write).await {
            // Its name says what it is: an earlier try was carried out, though the answer was lost.
            Err(Failure::Conflict(_)) if write.count == 1 => Ok(()),
            Err(Failure::Conflict(_)) => self.count(write).await,
            answer => answer,
        }
    }

    async fn create(&self, write: &Write) -> Result<(), Failure> {
        let Write { happening, name, count, first, last, .. } = write;
        let body = body(happening, name, &self.context.node_name, *count, [*first, *last]).to_string().into_bytes();
        let request = events(write).create(&PostParams::default(), body);
        ask::<Ignored>(&self.context.client, request, TIMEOUT).await.map(drop)
    }

    async fn count(&self, write: &Write) -> Result<(), Failure> {
        let patch = json!({
            "count": write.count,
            "lastTimestamp": api_time::words(write.last),
            "message": write.happening.message,
        });
        let request = events(write).patch(&write.name, &PatchParams::default(), &Patch::Merge(&patch));
        ask::<Ignored>(&self.context.client, request, TIMEOUT).await.map(drop)
    }

    /// Says once that events are refused, and once that they are not any more.
    fn refused(&mut self, failure: Option<&Failure>) {
        let reason = match failure {
            None if self.is_refused.is_empty() => return,
            None => {
                self.is_refused.clear();
                None
            }
            // A namespace that is going takes no more events; that is nobody's fault.
            Some(failure) if failure.to_string().contains("terminated") => return,
            Some(failure) => {
                if !self.is_refused.insert(discriminant(failure)) {
                    return;
                }
                Some(format!("{failure}; grant create and patch on events in all namespaces, if that is why"))
            }
        };
        // Nobody listens to the last words.
        let _gone = self.context.news.send(Event::Degradation { capability: CAPABILITY, reason });
    }
}

/// Where its namespace keeps its events; those of nodes are in the default one.
fn namespace(object: &InvolvedObject) -> &str {
    match object {
        InvolvedObject::Node => "default",
        InvolvedObject::Pod { namespace, .. } => namespace,
    }
}

fn events(write: &Write) -> Request {
    Request::new(format!("/api/v1/namespaces/{}/events", namespace(&write.happening.object)))
}

/// A `v1.Event` of the kind that kubelets write: that it happened so often between `first` and `last`.
pub(super) fn body(
    happening: &EventRequest,
    name: &str,
    node: &str,
    count: u32,
    [first, last]: [Timestamp; 2],
) -> serde_json::Value {
    let involved = match &happening.object {
        // As the kubelet refers to its node: by its name.
        InvolvedObject::Node => json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}),
        InvolvedObject::Pod { namespace, name, uid } => {
            json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid})
        }
    };
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace(&happening.object)},
        "involvedObject": involved,
        "type": if happening.is_warning { "Warning" } else { "Normal" },
        "reason": happening.reason,
        "message": happening.message,
        "source": {"component": COMPONENT, "host": node},
        "reportingComponent": COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": api_time::words(first),
        "lastTimestamp": api_time::words(last),
        "count": count,
    })
}
