//! Writes what is planned, and writes it again until it is there.

use std::time::Duration;

use kube::api::{GetParams, Patch, PatchParams};
use kube::core::Request;
use serde_json::Value;
use tokio::time::Instant;

use crate::config::KubernetesOptions;
use crate::config::kubernetes_options::Authority;

use super::super::api_call::{Failure, TIMEOUT, ask};
use super::super::api_threads::Context;
use super::super::backoff::{Backoff, jittered};
use super::super::{Event, api_time, condition_names as names};
use super::node_object::{NodeObject, taint_name};
use super::status_patches as plan;
use super::{Effect, NodeStatus};

/// What they are called among the capabilities that are missing.
const CONDITIONS: &str = "node conditions";
const TAINTS: &str = "node taints";
/// Somebody else writes the node's object now and then: the kubelet every five minutes, controllers seldom.
const CONFLICTS: u32 = 5;
/// When nothing is to be done, it is looked so often all the same.
const SELDOM: Duration = Duration::from_secs(3_600);
/// A change that follows this many others is written at once; then so long must pass between two of them.
const BURST: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);
/// Whom a `NoExecute` taint would evict was looked at when it was asked for: later there may be other pods.
const JUDGED_FOR: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_millis(200);
/// When it stops, the agent does not have long.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// What is known of the node, and of how writing goes.
pub(super) struct StatusWriter<'c> {
    context: &'c Context,
    nodes: Request,
    seen: Option<NodeObject>,
    heartbeat: Option<Instant>,
    patience: Backoff,
    failing: bool,
    /// Something may be there of ours.
    has_written: bool,
    /// Standard names were used, by this agent or by one before it: they are to go as our own do.
    was_authority: bool,
    /// `NoExecute` taints that are asked for, by condition: under which names, and since when. No time: judged under other names.
    judged: Vec<(String, Authority, Option<Instant>)>,
    credit: u32,
    written: Instant,
    trouble: [(&'static str, Option<String>); 2],
}

impl<'c> StatusWriter<'c> {
    pub(super) fn new(context: &'c Context) -> Self {
        Self {
            context,
            nodes: Request::new("/api/v1/nodes"),
            seen: None,
            heartbeat: None,
            patience: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
            failing: false,
            has_written: false,
            was_authority: false,
            judged: Vec::new(),
            credit: BURST,
            written: Instant::now(),
            trouble: [(CONDITIONS, None), (TAINTS, None)],
        }
    }

    /// Does what is to be done now. Returns how long until there may be more.
    pub(super) async fn settle(&mut self, wanted: &NodeStatus, options: &KubernetesOptions) -> Duration {
        let authority = plan::authority(options.conditions, wanted.may_act);
        self.note_judgements(wanted, authority, Instant::now());
        match self.try_to_settle(wanted, authority, options.heartbeat).await {
            Ok(()) => {
                self.patience.reset();
                self.failing = false;
                if authority == Authority::Off || wanted.conditions.is_empty() {
                    return SELDOM;
                }
                // Not later than promised: who waits for three heartbeats must not be let down by jitter.
                let until = self.heartbeat.map_or(Duration::ZERO, |at| options.heartbeat.saturating_sub(at.elapsed()));
                until.mul_f64(0.9) + jittered(until / 10)
            }
            Err(failure) => {
                self.failing = true;
                // What was not answered may have been done all the same, or be done later: look again.
                self.seen = None;
                self.patience.after_failure(failure.retry_after())
            }
        }
    }

    /// How long to wait before a change is written.
    pub(super) fn pause(&mut self) -> Duration {
        if self.failing {
            return AFTER_FAILURE;
        }
        let rested = u32::try_from(self.written.elapsed().as_secs()).unwrap_or(BURST);
        self.credit = self.credit.saturating_add(rested).min(BURST);
        self.written = Instant::now();
        match self.credit.checked_sub(1) {
            Some(left) => {
                self.credit = left;
                Duration::ZERO
            }
            None => PAUSE,
        }
    }

    async fn try_to_settle(
        &mut self,
        wanted: &NodeStatus,
        authority: Authority,
        heartbeat: Duration,
    ) -> Result<(), Failure> {
        // Read before there is something to say, so that it takes one request then.
        self.look().await?;
        if wanted.conditions.is_empty() && authority != Authority::Off {
            return Ok(());
        }
        self.was_authority |= authority == Authority::Standard;
        if self.was_authority && authority != Authority::Standard {
            // By the conditions the taints are known as ours: these go first, for somebody may kill us in between.
            if let Err(failure @ (Failure::Later { .. } | Failure::Conflict(_))) =
                self.write_taints(wanted, authority).await
            {
                return Err(failure);
            }
        }
        let written = self.write_conditions(wanted, authority, heartbeat).await;
        self.say(CONDITIONS, written.as_ref().err());
        let tainted = self.write_taints(wanted, authority).await;
        self.say(TAINTS, tainted.as_ref().err());
        written.and(tainted)?;
        self.was_authority = authority == Authority::Standard;
        Ok(())
    }

    /// Reads the node, unless it is known.
    async fn look(&mut self) -> Result<(), Failure> {
        if self.seen.is_none() {
            let request = self.nodes.get(&self.context.node_name, &GetParams::default());
            let read = ask(&self.context.client, request, TIMEOUT).await;
            self.say(CONDITIONS, read.as_ref().err());
            let seen = read?;
            // One that was killed as the authority has left its names here, and this one may be told to use others.
            self.was_authority |= plan::was_authority(&seen);
            self.seen = Some(seen);
        }
        Ok(())
    }

    async fn write_conditions(
        &mut self,
        wanted: &NodeStatus,
        authority: Authority,
        heartbeat: Duration,
    ) -> Result<(), Failure> {
        let Some(seen) = &self.seen else { return Ok(()) };
        // A little before its time: jitter wakes us then.
        let is_due = self.heartbeat.is_none_or(|at| at.elapsed() >= heartbeat.mul_f64(0.9));
        let seconds = heartbeat.as_secs().max(1).to_string();
        let is_promised = seen.heartbeat_words() == Some(seconds.as_str());
        let Some(mut body) = plan::conditions(wanted, authority, seen, &api_time::now(), is_due || !is_promised) else {
            return Ok(());
        };
        if authority != Authority::Off {
            body["metadata"] = serde_json::json!({"annotations": {names::HEARTBEAT: seconds}});
        }
        self.has_written = true;
        self.seen = Some(self.patch_conditions(&body, TIMEOUT).await?);
        self.heartbeat = Some(Instant::now());
        Ok(())
    }

    async fn patch_conditions(&self, body: &Value, timeout: Duration) -> Result<NodeObject, Failure> {
        let patch = Patch::Strategic(body);
        let request = self.nodes.patch_subresource("status", &self.context.node_name, &PatchParams::default(), &patch);
        ask(&self.context.client, request, timeout).await
    }

    async fn write_taints(&mut self, wanted: &NodeStatus, authority: Authority) -> Result<(), Failure> {
        let mut failure = None;
        for _ in 0..CONFLICTS {
            self.look().await?;
            let Some(seen) = &self.seen else { break };
            let wanted = self.still_judged(wanted, authority, seen, Instant::now());
            let Some(taints) = plan::taints(&wanted, authority, self.was_authority, seen, &api_time::now()) else {
                return Ok(());
            };
            self.has_written = true;
            let body = plan::taints_patch(&taints, seen);
            match self.patch_taints(&body, TIMEOUT).await {
                Ok(node) => {
                    self.seen = Some(node);
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

    fn note_judgements(&mut self, wanted: &NodeStatus, authority: Authority, now: Instant) {
        let is_wanted =
            |kind: &str| wanted.taints.iter().any(|taint| taint.effect == Effect::NoExecute && taint.kind == kind);
        self.judged.retain(|(kind, ..)| is_wanted(kind));
        for (_, under, since) in &mut self.judged {
            if *under != authority {
                (*under, *since) = (authority, None);
            }
        }
        for taint in wanted.taints.iter().filter(|taint| taint.effect == Effect::NoExecute) {
            if self.judged.iter().all(|(kind, ..)| *kind != taint.kind) {
                self.judged.push((taint.kind.clone(), authority, Some(now)));
            }
        }
    }

    /// Without the `NoExecute` taints that are not there yet, and were judged too long ago to be set now.
    fn still_judged(&self, wanted: &NodeStatus, authority: Authority, seen: &NodeObject, now: Instant) -> NodeStatus {
        let is_fresh = |kind: &str| {
            let judged = self.judged.iter().find(|(of, ..)| of == kind).and_then(|(.., since)| *since);
            judged.is_some_and(|since| now.saturating_duration_since(since) < JUDGED_FOR)
        };
        let is_there = |kind: &str| {
            names::taint_key(kind, authority).is_some_and(|key| {
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
        let patch = Patch::Merge(body);
        let request = self.nodes.patch(&self.context.node_name, &PatchParams::default(), &patch);
        ask(&self.context.client, request, timeout).await
    }

    /// Takes everything of ours off the node: nobody keeps it true any more.
    pub(super) async fn remove(&mut self) {
        if self.seen.is_none() && !self.has_written {
            return;
        }
        for _ in 0..CONFLICTS {
            match self.try_to_remove().await {
                Ok(()) => {
                    return tracing::info!(event = "node_status_removed", "conditions and taints are off the node");
                }
                // The loop waits for a few seconds; the sweeper has as long as it takes.
                Err(failure @ (Failure::Forbidden(_) | Failure::Invalid(_) | Failure::NotFound(_))) => {
                    return tell_left(&failure);
                }
                Err(Failure::Conflict(_)) => {}
                Err(failure @ Failure::Later { .. }) => {
                    tell_left(&failure);
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    async fn try_to_remove(&mut self) -> Result<(), Failure> {
        let request = self.nodes.get(&self.context.node_name, &GetParams::default());
        let seen: NodeObject = ask(&self.context.client, request, LAST_TIMEOUT).await?;
        // First what others act on.
        if let Some(taints) = plan::no_taints(&seen) {
            self.patch_taints(&plan::taints_patch(&taints, &seen), LAST_TIMEOUT).await?;
        }
        if let Some(body) = plan::no_conditions(&seen) {
            self.patch_conditions(&body, LAST_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Tells the loop what does not work, or that it works again; once.
    fn say(&mut self, what: &'static str, failure: Option<&Failure>) {
        let Some((_, told)) = self.trouble.iter_mut().find(|(of, _)| *of == what) else { return };
        // That the server does not answer is told by who watches it.
        let failure = failure.filter(|failure| !matches!(failure, Failure::Later { .. } | Failure::Conflict(_)));
        let reason = failure.map(|failure| {
            let fix = match failure {
                Failure::Forbidden(_) => "grant patch on nodes and nodes/status, and get on nodes",
                Failure::NotFound(_) => "write the name that `kubectl get nodes` prints to kubernetes.nodeName",
                Failure::Invalid(_) | Failure::Conflict(_) | Failure::Later { .. } => "see the API server's log",
            };
            format!("{failure}; {fix}")
        });
        if reason.is_some() != told.is_some() {
            let trouble = Event::Degradation { capability: what, reason: reason.clone() };
            // Nobody listens to the last words.
            let _gone = self.context.news.send(trouble);
        }
        *told = reason;
    }
}

fn tell_left(failure: &Failure) {
    tracing::warn!(
        event = "node_status_left",
        reason = %failure,
        "conditions and taints may be left on the node: `node-pressure-monitor sweep` finds them when their heartbeat is old"
    );
}
