//! Writes the planned conditions and taints, and retries until the node has them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{GetParams, Patch, PatchParams};
use kube::core::Request;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::KubernetesOptions;
use crate::config::kubernetes_options::Authority;
use crate::units::Degradations;

use super::super::api_call::{Failure, STOP_TIMEOUT, TIMEOUT, call};
use super::super::api_client::Context;
use super::super::api_time;
use super::super::backoff::Backoff;
use super::checked_taints::CheckedTaints;
use super::next_look::{Look, NextLook};
use super::node_object::NodeObject;
use super::status_patches;
use super::taint_requests::TaintRequests;
use super::wanted::NodeStatus;

/// Names among the missing capabilities.
const CONDITIONS: &str = "node conditions";
const TAINTS: &str = "node taints";
/// Attempts after conflicts with other writers of taints.
const CONFLICTS: u32 = 5;
/// The time for which the first read waits for the node's reflector, which lists the node at the same time.
const LISTED_WITHIN: Duration = Duration::from_secs(1);
/// The node is read after this time in any case: its watch may be refused.
const IDLE_WAIT: Duration = Duration::from_secs(3_600);
/// Changes that are written at once; further ones wait for a second each.
const BURST: u32 = 10;
const BURST_WAIT: Duration = Duration::from_secs(1);
/// The time for which the conditions wait for the taints.
const TAINTS_FIRST: Duration = Duration::from_secs(1);
const WAIT_AFTER_FAILURE: Duration = Duration::from_millis(200);

pub(super) struct StatusWriter<'c> {
    context: &'c Context,
    nodes: Request,
    taint_requests: TaintRequests<'c>,
    /// The node as last read, watched or written.
    seen: Option<NodeObject>,
    /// The node was read before, or its reflector was waited for.
    was_read: bool,
    next_look: NextLook,
    backoff: Backoff,
    failing: bool,
    /// The node may have conditions or taints of ours.
    has_written: bool,
    /// This agent or an earlier one used standard names: those are removed as our own are.
    was_authority: bool,
    checked: CheckedTaints,
    /// Changes left of the burst.
    credit: u32,
    written: Instant,
    degradations: Degradations,
    /// The conditions whose taint is on the node.
    tainted: watch::Sender<Vec<String>>,
}

impl<'c> StatusWriter<'c> {
    pub(super) fn new(context: &'c Context, tainted: watch::Sender<Vec<String>>) -> Self {
        Self {
            context,
            nodes: Request::new("/api/v1/nodes"),
            taint_requests: TaintRequests::of(context),
            seen: None,
            was_read: false,
            next_look: NextLook::default(),
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
            failing: false,
            has_written: false,
            was_authority: false,
            checked: CheckedTaints::default(),
            credit: BURST,
            written: Instant::now(),
            degradations: Degradations::default(),
            tainted,
        }
    }

    /// Writes what differs. Returns the time until it must be called again.
    pub(super) async fn write(&mut self, wanted: &NodeStatus, options: &KubernetesOptions) -> Duration {
        let authority = status_patches::authority(options.conditions, wanted.may_act);
        self.checked.note(wanted, authority, Instant::now());
        self.next_look.note_write();
        match self.try_to_write(wanted, authority).await {
            Ok(()) => {
                self.backoff.reset();
                self.failing = false;
                IDLE_WAIT
            }
            Err(failure) => {
                self.failing = true;
                // A request without an answer may have been carried out: read the node again.
                self.seen = None;
                self.backoff.next_wait(failure.retry_after())
            }
        }
    }

    /// Returns the time to wait before a change is written: none for a burst, then a second each.
    pub(super) fn wait_before_change(&mut self) -> Duration {
        if self.failing {
            return WAIT_AFTER_FAILURE;
        }
        let gained = u32::try_from(self.written.elapsed().as_secs()).unwrap_or(BURST);
        self.credit = self.credit.saturating_add(gained).min(BURST);
        self.written = Instant::now();
        match self.credit.checked_sub(1) {
            Some(left) => {
                self.credit = left;
                Duration::ZERO
            }
            None => BURST_WAIT,
        }
    }

    async fn try_to_write(&mut self, wanted: &NodeStatus, authority: Authority) -> Result<(), Failure> {
        // Read before there is something to write, so that the first condition takes one request.
        self.read().await?;
        if wanted.conditions.is_empty() && authority != Authority::Off {
            return Ok(());
        }
        self.was_authority |= authority == Authority::Standard;
        if self.was_authority && authority != Authority::Standard {
            // The conditions identify the taints as ours, so taints go first: the agent may be killed in between.
            if let Err(failure @ (Failure::Later { .. } | Failure::Conflict(_))) =
                self.write_taints(wanted, authority).await
            {
                return Err(failure);
            }
        }
        // An eviction waits for the taint. But the first conditions tell a sweeper whose the taint is, so they go before it.
        let is_taint_first = authority == Authority::Own && self.has_conditions();
        let written = match is_taint_first {
            true => self.write_conditions_after_taints(wanted, authority).await,
            false => self.write_conditions(wanted, authority).await,
        };
        self.report(CONDITIONS, written.as_ref().err());
        let tainted = self.write_taints(wanted, authority).await;
        self.report(TAINTS, tainted.as_ref().err());
        written.and(tainted)?;
        self.was_authority = authority == Authority::Standard;
        Ok(())
    }

    /// Writes the taints, and the conditions when their request is answered, or beside it when it takes long. An outdated object is read and
    /// the taints are tried once more.
    async fn write_conditions_after_taints(
        &mut self,
        wanted: &NodeStatus,
        authority: Authority,
    ) -> Result<(), Failure> {
        for _ in 0..2 {
            let Some((request, named)) = self.taints_request(wanted, authority) else { break };
            let mut request = pin!(request);
            let Ok(answer) = tokio::time::timeout(TAINTS_FIRST, &mut request).await else {
                let (written, answer) = tokio::join!(self.write_conditions(wanted, authority), request);
                self.take_tainted(answer, named);
                // Which of the two answers is the newer one is not known.
                self.seen = None;
                return written;
            };
            let is_outdated = matches!(answer, Err(Failure::Conflict(_)));
            self.take_tainted(answer, named);
            self.read().await?;
            if !is_outdated {
                break;
            }
        }
        self.write_conditions(wanted, authority).await
    }

    /// Takes the answer to an early request for taints. After a failure the node is read, and the taints are written again.
    fn take_tainted(&mut self, answer: Result<NodeObject, Failure>, named: Vec<String>) {
        self.taint_requests.note(&answer);
        self.seen = answer.ok();
        if self.seen.is_some() {
            self.tell_tainted(named);
        }
    }

    /// Reads the node, unless it is known. The first time the reflector has read it already. Its object may be as old as the API
    /// server's cache; its watch then delivers the rest.
    async fn read(&mut self) -> Result<(), Failure> {
        if self.seen.is_some() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.was_read, true)
            && let Some(node) = self.listed().await
        {
            self.learn((*node).clone());
            return Ok(());
        }
        let read = self.get(TIMEOUT).await;
        self.report(CONDITIONS, read.as_ref().err());
        self.learn(read?);
        Ok(())
    }

    async fn listed(&self) -> Option<Arc<NodeObject>> {
        let mut nodes = self.context.node.subscribe();
        let listed = tokio::time::timeout(LISTED_WITHIN, nodes.wait_for(Option::is_some)).await;
        listed.ok()?.ok()?.clone()
    }

    fn learn(&mut self, seen: NodeObject) {
        // An agent that was killed as the authority leaves standard names; this one may be configured for others.
        self.was_authority |= status_patches::was_authority(&seen);
        self.has_written |= seen.ours().next().is_some();
        self.seen = Some(seen);
    }

    async fn get(&self, timeout: Duration) -> Result<NodeObject, Failure> {
        let request = self.nodes.get(&self.context.node_name, &GetParams::default());
        call(&self.context.client, request, timeout).await
    }

    async fn write_conditions(&mut self, wanted: &NodeStatus, authority: Authority) -> Result<(), Failure> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let Some(body) = status_patches::conditions(wanted, authority, seen, &api_time::now()) else {
            return Ok(());
        };
        self.has_written = true;
        self.seen = Some(self.patch_conditions(&body, TIMEOUT).await?);
        Ok(())
    }

    fn has_conditions(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.ours().next().is_some())
    }

    /// Returns when to look at the node again, at the latest by `deadline`.
    pub(super) fn due(&self, deadline: Instant) -> Instant {
        self.next_look.at().map_or(deadline, |at| at.min(deadline))
    }

    /// Has the node read before the next write, unless the change to look at is known. Call it when the time of [`Self::due`] is over.
    pub(super) fn come_due(&mut self) {
        if self.next_look.take() == Look::Read {
            self.seen = None;
        }
    }

    /// Takes in the node as its reflector delivers it. Soon after a change by another writer the wanted status is compared again: that
    /// writer may have removed conditions or taints of ours.
    pub(super) fn note_node(&mut self, node: &NodeObject) {
        let Some(seen) = &self.seen else { return };
        let [now, before] = [node, seen].map(|node| node.metadata.resource_version.as_str());
        if self.next_look.note(now, before, Instant::now()) {
            self.learn(node.clone());
        }
    }

    async fn patch_conditions(&self, body: &Value, timeout: Duration) -> Result<NodeObject, Failure> {
        let patch = Patch::Strategic(body);
        let request = self.nodes.patch_subresource("status", &self.context.node_name, &PatchParams::default(), &patch);
        call(&self.context.client, request, timeout).await
    }

    async fn write_taints(&mut self, wanted: &NodeStatus, authority: Authority) -> Result<(), Failure> {
        let mut failure = None;
        for _ in 0..CONFLICTS {
            self.read().await?;
            let Some((request, named)) = self.taints_request(wanted, authority) else { return Ok(()) };
            let answer = request.await;
            self.taint_requests.note(&answer);
            match answer {
                Ok(node) => {
                    self.seen = Some(node);
                    self.tell_tainted(named);
                    return Ok(());
                }
                Err(conflict @ Failure::Conflict(_)) => {
                    self.seen = None;
                    failure = Some(conflict);
                }
                Err(other) => return Err(other),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Returns the request that gives the node its taints, and the conditions whose taint it then has; none: it has them already.
    fn taints_request(
        &mut self,
        wanted: &NodeStatus,
        authority: Authority,
    ) -> Option<(impl Future<Output = Result<NodeObject, Failure>> + use<'c>, Vec<String>)> {
        let seen = self.seen.as_ref()?;
        let wanted = self.checked.without_stale(wanted, authority, seen, Instant::now());
        let named: Vec<String> = wanted.taints.iter().map(|taint| taint.kind.clone()).collect();
        let Some(taints) = status_patches::taints(&wanted, authority, self.was_authority, seen, &api_time::now())
        else {
            self.tell_tainted(named);
            return None;
        };
        self.has_written = true;
        let request = self.taint_requests.build(&taints, seen);
        Some((request.send(TIMEOUT), named))
    }

    /// Tells the evictions that wait for a taint which conditions have theirs.
    fn tell_tainted(&self, kinds: Vec<String>) {
        self.tainted.send_if_modified(|before| {
            let is_new = *before != kinds;
            *before = kinds;
            is_new
        });
    }

    /// Removes all conditions and taints of ours: without an agent they would stay as they are. Returns whether none is left.
    pub(super) async fn remove(&mut self) -> bool {
        if self.seen.is_none() && !self.has_written {
            return true;
        }
        for _ in 0..CONFLICTS {
            match self.try_to_remove().await {
                Ok(()) => {
                    tracing::info!(event = "node_status_removed", "conditions and taints removed from the node");
                    return true;
                }
                Err(failure @ (Failure::Forbidden(_) | Failure::Invalid(_) | Failure::NotFound(_))) => {
                    log_not_removed(&failure);
                    return false;
                }
                Err(Failure::Conflict(_)) => {}
                Err(failure @ Failure::Later { .. }) => {
                    log_not_removed(&failure);
                    tokio::time::sleep(WAIT_AFTER_FAILURE).await;
                }
            }
        }
        false
    }

    async fn try_to_remove(&mut self) -> Result<(), Failure> {
        let seen = self.get(STOP_TIMEOUT).await?;
        // Taints first: schedulers act on them.
        if let Some(taints) = status_patches::no_taints(&seen) {
            let written = self.taint_requests.build(&taints, &seen).send(STOP_TIMEOUT).await;
            self.taint_requests.note(&written);
            written?;
        }
        if let Some(body) = status_patches::no_conditions(&seen) {
            self.patch_conditions(&body, STOP_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Reports a capability to the loop when it is first missing, and when it is restored.
    fn report(&mut self, capability: &'static str, failure: Option<&Failure>) {
        // The pods' reflector reports that the API server does not answer.
        let failure = failure.filter(|failure| !matches!(failure, Failure::Later { .. } | Failure::Conflict(_)));
        let reason = failure.map(|failure| {
            let fix = match failure {
                Failure::Forbidden(_) => "grant patch on nodes and nodes/status, and get on nodes",
                Failure::NotFound(_) => "write the name that `kubectl get nodes` prints to kubernetes.nodeName",
                Failure::Invalid(_) | Failure::Conflict(_) | Failure::Later { .. } => "see the API server's log",
            };
            format!("{failure}; {fix}")
        });
        self.context.reporter.set_capability(&mut self.degradations, capability, reason);
    }
}

fn log_not_removed(failure: &Failure) {
    tracing::warn!(
        event = "node_status_left",
        reason = %failure,
        "conditions and taints may be left on the node: `node-pressure-monitor sweep` removes them when the agent's heartbeat is old"
    );
}
