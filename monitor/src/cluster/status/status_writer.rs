//! Writes the planned conditions and taints, and retries until the node has them.

use std::time::Duration;

use kube::api::{GetParams, Patch, PatchParams};
use kube::core::Request;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::KubernetesOptions;
use crate::config::kubernetes_options::Authority;
use crate::units::{CapabilityChange, Degradations};

use super::super::api_call::{Failure, TIMEOUT, call};
use super::super::api_client::Context;
use super::super::api_state::Event;
use super::super::backoff::{Backoff, jittered};
use super::super::{api_time, condition_names};
use super::node_object::{NodeObject, taint_name};
use super::status_patches;
use super::wanted::{Effect, NodeStatus};

/// Names among the missing capabilities.
const CONDITIONS: &str = "node conditions";
const TAINTS: &str = "node taints";
/// Attempts after conflicts. The kubelet writes the node's object every five minutes, controllers seldom.
const CONFLICTS: u32 = 5;
/// Time between two comparisons when there is nothing to write.
const IDLE_WAIT: Duration = Duration::from_secs(3_600);
/// Changes that are written at once; further ones wait for a second each.
const BURST: u32 = 10;
const BURST_WAIT: Duration = Duration::from_secs(1);
/// Age at which a `NoExecute` taint is not set any more: the pods that it evicts were checked when the loop asked for it.
const CHECKED_FOR: Duration = Duration::from_secs(30);
/// Timeout of the taints that go before the conditions.
const TAINT_TIMEOUT: Duration = Duration::from_secs(1);
const WAIT_AFTER_FAILURE: Duration = Duration::from_millis(200);
/// Timeout of a request when the agent stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct StatusWriter<'c> {
    context: &'c Context,
    nodes: Request,
    /// The node as last read or written.
    seen: Option<NodeObject>,
    heartbeat: Option<Instant>,
    backoff: Backoff,
    failing: bool,
    /// The node may have conditions or taints of ours.
    has_written: bool,
    /// This agent or an earlier one used standard names: those are removed as our own are.
    was_authority: bool,
    /// `NoExecute` taints that are wanted, by condition: the names in use, and since when. No time: checked under other names.
    checked: Vec<(String, Authority, Option<Instant>)>,
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
            seen: None,
            heartbeat: None,
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
            failing: false,
            has_written: false,
            was_authority: false,
            checked: Vec::new(),
            credit: BURST,
            written: Instant::now(),
            degradations: Degradations::default(),
            tainted,
        }
    }

    /// Writes what differs. Returns the time until it must be called again.
    pub(super) async fn write(&mut self, wanted: &NodeStatus, options: &KubernetesOptions) -> Duration {
        let authority = status_patches::authority(options.conditions, wanted.may_act);
        self.note_checks(wanted, authority, Instant::now());
        match self.try_to_write(wanted, authority, options.heartbeat).await {
            Ok(()) => {
                self.backoff.reset();
                self.failing = false;
                if authority == Authority::Off || wanted.conditions.is_empty() {
                    return IDLE_WAIT;
                }
                // Jitter must not delay the promised heartbeat: the sweeper takes three missed ones for a dead agent.
                let until = self.heartbeat.map_or(Duration::ZERO, |at| options.heartbeat.saturating_sub(at.elapsed()));
                until.mul_f64(0.9) + jittered(until / 10)
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

    async fn try_to_write(
        &mut self,
        wanted: &NodeStatus,
        authority: Authority,
        heartbeat: Duration,
    ) -> Result<(), Failure> {
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
        let is_taint_first = authority == Authority::Own && self.heartbeat.is_some();
        let is_early = is_taint_first && self.taints_in_time(wanted, authority).await;
        self.read().await?;
        let written = self.write_conditions(wanted, authority, heartbeat).await;
        self.report(CONDITIONS, written.as_ref().err());
        let tainted = if is_early { Ok(()) } else { self.write_taints(wanted, authority).await };
        self.report(TAINTS, tainted.as_ref().err());
        written.and(tainted)?;
        self.was_authority = authority == Authority::Standard;
        Ok(())
    }

    /// Writes the taints before the conditions. Returns false if that fails or takes long: the conditions must not wait for it.
    async fn taints_in_time(&mut self, wanted: &NodeStatus, authority: Authority) -> bool {
        let written = tokio::time::timeout(TAINT_TIMEOUT, self.write_taints(wanted, authority)).await;
        if written.is_err() {
            // The request may have been carried out.
            self.seen = None;
        }
        matches!(written, Ok(Ok(())))
    }

    /// Reads the node, unless it is known.
    async fn read(&mut self) -> Result<(), Failure> {
        if self.seen.is_none() {
            let read = self.get(TIMEOUT).await;
            self.report(CONDITIONS, read.as_ref().err());
            let seen = read?;
            // An agent that was killed as the authority leaves standard names; this one may be configured for others.
            self.was_authority |= status_patches::was_authority(&seen);
            self.seen = Some(seen);
        }
        Ok(())
    }

    async fn get(&self, timeout: Duration) -> Result<NodeObject, Failure> {
        let request = self.nodes.get(&self.context.node_name, &GetParams::default());
        call(&self.context.client, request, timeout).await
    }

    async fn write_conditions(
        &mut self,
        wanted: &NodeStatus,
        authority: Authority,
        heartbeat: Duration,
    ) -> Result<(), Failure> {
        let Some(seen) = &self.seen else { return Ok(()) };
        // A little early, because of the jitter.
        let is_due = self.heartbeat.is_none_or(|at| at.elapsed() >= heartbeat.mul_f64(0.9));
        let seconds = heartbeat.as_secs().max(1).to_string();
        let is_promised = seen.heartbeat_text() == Some(seconds.as_str());
        let now = api_time::now();
        let Some(mut body) = status_patches::conditions(wanted, authority, seen, &now, is_due || !is_promised) else {
            return Ok(());
        };
        if authority != Authority::Off {
            body["metadata"] = serde_json::json!({"annotations": {condition_names::HEARTBEAT: seconds}});
        }
        self.has_written = true;
        self.seen = Some(self.patch_conditions(&body, TIMEOUT).await?);
        self.heartbeat = Some(Instant::now());
        Ok(())
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
            let Some(seen) = &self.seen else { break };
            let wanted = self.without_stale_taints(wanted, authority, seen, Instant::now());
            let taints = status_patches::taints(&wanted, authority, self.was_authority, seen, &api_time::now());
            let Some(taints) = taints else {
                self.tell_tainted(&wanted);
                return Ok(());
            };
            self.has_written = true;
            let body = status_patches::taints_patch(&taints, seen);
            match self.patch_taints(&body, TIMEOUT).await {
                Ok(node) => {
                    self.seen = Some(node);
                    self.tell_tainted(&wanted);
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

    /// Tells the evictions that wait for a taint which conditions have theirs.
    fn tell_tainted(&self, wanted: &NodeStatus) {
        let kinds: Vec<String> = wanted.taints.iter().map(|taint| taint.kind.clone()).collect();
        self.tainted.send_if_modified(|before| {
            let is_new = *before != kinds;
            *before = kinds;
            is_new
        });
    }

    /// Notes since when each `NoExecute` taint is wanted.
    fn note_checks(&mut self, wanted: &NodeStatus, authority: Authority, now: Instant) {
        let is_wanted =
            |kind: &str| wanted.taints.iter().any(|taint| taint.effect == Effect::NoExecute && taint.kind == kind);
        self.checked.retain(|(kind, ..)| is_wanted(kind));
        for (_, under, since) in &mut self.checked {
            if *under != authority {
                (*under, *since) = (authority, None);
            }
        }
        for taint in wanted.taints.iter().filter(|taint| taint.effect == Effect::NoExecute) {
            if self.checked.iter().all(|(kind, ..)| *kind != taint.kind) {
                self.checked.push((taint.kind.clone(), authority, Some(now)));
            }
        }
    }

    /// Returns the status without `NoExecute` taints that the node does not have yet and whose check is too old.
    fn without_stale_taints(
        &self,
        wanted: &NodeStatus,
        authority: Authority,
        seen: &NodeObject,
        now: Instant,
    ) -> NodeStatus {
        let is_fresh = |kind: &str| {
            let checked = self.checked.iter().find(|(of, ..)| of == kind).and_then(|(.., since)| *since);
            checked.is_some_and(|since| now.saturating_duration_since(since) < CHECKED_FOR)
        };
        let is_there = |kind: &str| {
            condition_names::taint_key(kind, authority).is_some_and(|key| {
                seen.taints().iter().any(|taint| taint_name(taint) == (key.as_str(), Effect::NoExecute.as_str()))
            })
        };
        let mut wanted = wanted.clone();
        wanted
            .taints
            .retain(|taint| taint.effect != Effect::NoExecute || is_fresh(&taint.kind) || is_there(&taint.kind));
        wanted
    }

    async fn patch_taints(&self, body: &Value, timeout: Duration) -> Result<NodeObject, Failure> {
        let request = self.nodes.patch(&self.context.node_name, &PatchParams::default(), &Patch::Merge(body));
        call(&self.context.client, request, timeout).await
    }

    /// Removes all conditions and taints of ours: without an agent they would stay as they are.
    pub(super) async fn remove(&mut self) {
        if self.seen.is_none() && !self.has_written {
            return;
        }
        for _ in 0..CONFLICTS {
            match self.try_to_remove().await {
                Ok(()) => {
                    return tracing::info!(
                        event = "node_status_removed",
                        "conditions and taints removed from the node"
                    );
                }
                Err(failure @ (Failure::Forbidden(_) | Failure::Invalid(_) | Failure::NotFound(_))) => {
                    return log_not_removed(&failure);
                }
                Err(Failure::Conflict(_)) => {}
                Err(failure @ Failure::Later { .. }) => {
                    log_not_removed(&failure);
                    tokio::time::sleep(WAIT_AFTER_FAILURE).await;
                }
            }
        }
    }

    async fn try_to_remove(&mut self) -> Result<(), Failure> {
        let seen = self.get(STOP_TIMEOUT).await?;
        // Taints first: schedulers act on them.
        if let Some(taints) = status_patches::no_taints(&seen) {
            self.patch_taints(&status_patches::taints_patch(&taints, &seen), STOP_TIMEOUT).await?;
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
        if self.degradations.set(capability, reason.as_deref()) != CapabilityChange::Unchanged {
            self.context.reporter.report(Event::Degradation { capability, reason });
        }
    }
}

fn log_not_removed(failure: &Failure) {
    tracing::warn!(
        event = "node_status_left",
        reason = %failure,
        "conditions and taints may be left on the node: `node-pressure-monitor sweep` removes them when their heartbeat is old"
    );
}
