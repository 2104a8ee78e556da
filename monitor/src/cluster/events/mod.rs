//! Kubernetes events on pods and on the node. Repetitions are counted in one event, and the rate per object is limited: an event costs
//! etcd as much as a pod does, and thousands of nodes run this agent.

mod aggregate;
pub mod event_request;

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::KubernetesOptions;

use super::api_call::{Failure, TIMEOUT, call};
use super::api_client::{Context, ended};
use super::api_state::Event;
use super::api_time;
use super::backoff::Backoff;
use aggregate::{Aggregator, EventWrite};

pub use event_request::{EventRequest, InvolvedObject};

/// Name among the missing capabilities.
const CAPABILITY: &str = "events";
/// An event that cannot be sent for this long is dropped, so that newer ones are sent.
const GIVE_UP: Duration = Duration::from_secs(600);
/// Time for all waiting events after the loop has ended.
const STOP_TIME: Duration = Duration::from_secs(3);

/// Sends events until the sender is dropped, then those that still wait.
pub(super) async fn send(
    context: &Context,
    mut requests: mpsc::Receiver<(Timestamp, EventRequest)>,
    options: watch::Receiver<KubernetesOptions>,
) {
    let mut sender = Sender {
        context,
        aggregator: Aggregator::of(&context.node_name),
        backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
        reported: HashSet::new(),
    };
    let mut last: Vec<EventWrite> = Vec::new();
    loop {
        let wait = sender.aggregator.until_due(Instant::now());
        let write = tokio::select! {
            biased;
            received = requests.recv() => {
                let Some((at, request)) = received else { break };
                if !options.borrow().events {
                    continue;
                }
                sender.aggregator.take(request, at, Instant::now())
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
    // Events that were under way, not received yet, or counted but not written.
    while let Ok((at, request)) = requests.try_recv() {
        if options.borrow().events {
            last.extend(sender.aggregator.take(request, at, Instant::now()));
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
    let _out_of_time = tokio::time::timeout(STOP_TIME, rest).await;
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
    backoff: Backoff,
    /// Kinds of failure that were reported; each is reported once.
    reported: HashSet<Discriminant<Failure>>,
}

impl Sender<'_> {
    /// Retries until the event is written, refused, or too old.
    async fn carry_out(&mut self, write: &EventWrite) {
        let begun = Instant::now();
        loop {
            let failure = match self.write(write).await {
                Ok(()) => break self.report(None),
                Err(failure @ Failure::Later { .. }) if begun.elapsed() < GIVE_UP => failure,
                Err(failure) => break self.report(Some(&failure)),
            };
            tokio::time::sleep(self.backoff.next_wait(failure.retry_after())).await;
        }
        self.backoff.reset();
    }

    async fn write(&self, write: &EventWrite) -> Result<(), Failure> {
        if !write.is_new {
            match self.update_count(write).await {
                // The API server has dropped the event after its hour.
                Err(Failure::NotFound(_)) => {}
                answer => return answer,
            }
        }
        match self.create(write).await {
            // The name identifies the event: an earlier attempt was carried out, though its answer was lost.
            Err(Failure::Conflict(_)) if write.count == 1 => Ok(()),
            Err(Failure::Conflict(_)) => self.update_count(write).await,
            answer => answer,
        }
    }

    async fn create(&self, write: &EventWrite) -> Result<(), Failure> {
        let EventWrite { request, name, count, first, last, .. } = write;
        let body = request.to_json(name, &self.context.node_name, *count, [*first, *last]).to_string().into_bytes();
        let request = events_of(write).create(&PostParams::default(), body);
        call::<IgnoredAny>(&self.context.client, request, TIMEOUT).await.map(drop)
    }

    async fn update_count(&self, write: &EventWrite) -> Result<(), Failure> {
        let patch = json!({
            "count": write.count,
            "lastTimestamp": api_time::format(write.last),
            "message": write.request.message,
        });
        let request = events_of(write).patch(&write.name, &PatchParams::default(), &Patch::Merge(&patch));
        call::<IgnoredAny>(&self.context.client, request, TIMEOUT).await.map(drop)
    }

    /// Reports once that events are refused, and once that they are accepted again.
    fn report(&mut self, failure: Option<&Failure>) {
        let reason = match failure {
            None if self.reported.is_empty() => return,
            None => {
                self.reported.clear();
                None
            }
            // A terminating namespace accepts no events; that is no fault.
            Some(failure) if failure.to_string().contains("terminated") => return,
            Some(failure) => {
                if !self.reported.insert(discriminant(failure)) {
                    return;
                }
                Some(format!("{failure}; grant create and patch on events in all namespaces, if that is why"))
            }
        };
        self.context.reporter.report(Event::Degradation { capability: CAPABILITY, reason });
    }
}

fn events_of(write: &EventWrite) -> Request {
    Request::new(format!("/api/v1/namespaces/{}/events", write.request.namespace()))
}
