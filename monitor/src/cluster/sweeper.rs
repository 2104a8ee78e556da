//! What agents have left on their nodes: one that was killed can take nothing away itself.
//!
//! An agent confirms its conditions once in a while. Where nobody has for three times as long, it is not there: its conditions are known
//! no longer, and its taints keep no pod away any more.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::api::{GetParams, ListParams, Patch, PatchParams};
use kube::core::Request;
use serde::Deserialize;

use super::api_call::{Failure, TIMEOUT, ask};
use super::api_client::Access;
use super::api_time;
use super::condition_names::{self as names, Owner};
use super::status::node_object::{NodeObject, taint_name};
use super::status::status_patches as plan;

/// Nodes that are read at once: some 15 KiB each.
const PAGE: u32 = 100;
/// Somebody else may be writing the node's object.
const CONFLICTS: u32 = 5;
/// Heartbeats that may be missed.
const MISSED: u32 = 3;

/// What a sweeper does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How often agents confirm their conditions.
    pub heartbeat: Duration,
    /// Everything of ours goes, of living agents too.
    pub remove: bool,
    /// Only said, not done.
    pub dry_run: bool,
    /// There is one round: then the times on the nodes must tell who is dead. Otherwise it is who does not change them any more, whatever
    /// the clocks of the nodes show.
    pub by_clock: bool,
}

/// What was done, or would have been, on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// The node.
    pub node: String,
    /// Each thing, for people.
    pub done: Vec<String>,
    /// Why it was not all done.
    pub failure: Option<String>,
}

/// What a round has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Those with something of ours on them.
    pub watched: usize,
    /// Those on which something was done.
    pub swept: usize,
    /// Those on which something could not be done.
    pub failed: usize,
}

/// Why there was no round.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the nodes cannot be listed: {0}")]
pub struct SweepError(String);

/// Goes from node to node.
pub struct Sweeper {
    client: kube::Client,
    nodes: Request,
    selector: Option<String>,
    rules: Rules,
    judge: Judge,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeList {
    metadata: ListMetadata,
    items: Option<Vec<NodeObject>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sweeper").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Sweeper {
    /// With a way to the API server; `only` this node, where one is named.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(access: &Access, rules: Rules, only: Option<String>) -> Result<Self, String> {
        let client = access.client().await?;
        let selector = only.map(|node| format!("metadata.name={node}"));
        Ok(Self { client, nodes: Request::new("/api/v1/nodes"), selector, rules, judge: Judge::default() })
    }

    /// Looks at every node once; `tell` hears of each on which there was something to do.
    ///
    /// # Errors
    /// When the nodes cannot be listed.
    pub async fn round(&mut self, tell: &mut impl FnMut(&Swept)) -> Result<Round, SweepError> {
        let mut round = Round::default();
        let mut there = HashSet::new();
        let mut next: Option<String> = None;
        loop {
            let page = ListParams {
                limit: Some(PAGE),
                continue_token: next.take(),
                field_selector: self.selector.clone(),
                ..ListParams::default()
            };
            let list: NodeList = ask(&self.client, self.nodes.list(&page), TIMEOUT).await.map_err(|failure| {
                SweepError(format!("{failure}; it needs list on nodes, patch on nodes and nodes/status"))
            })?;
            for node in list.items.unwrap_or_default() {
                round.nodes += 1;
                if !has_ours(&node) {
                    continue;
                }
                round.watched += 1;
                there.insert(node.metadata.name.clone());
                if let Some(swept) = self.sweep(node).await {
                    round.swept += usize::from(!swept.done.is_empty());
                    round.failed += usize::from(swept.failure.is_some());
                    tell(&swept);
                }
            }
            next = list.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                break;
            }
        }
        self.judge.beats.retain(|node, _| there.contains(node));
        Ok(round)
    }

    async fn sweep(&mut self, node: NodeObject) -> Option<Swept> {
        let message = if self.rules.remove {
            String::new()
        } else {
            self.judge.is_dead(&node, &self.rules, Timestamp::now(), Instant::now())?
        };
        let mut swept = Swept { node: node.metadata.name.clone(), done: Vec::new(), failure: None };
        let mut tries = CONFLICTS;
        let mut next = Ok(node);
        while let Ok(node) = next {
            match self.clean(node, &message, &mut swept.done).await {
                Ok(()) => break,
                Err(Failure::Conflict(_)) if self.rules.remove && tries > 0 => {
                    tries -= 1;
                    next = ask(&self.client, self.nodes.get(&swept.node, &GetParams::default()), TIMEOUT).await;
                }
                // Its agent is back, or somebody else has changed the node: the next round sees.
                Err(Failure::Conflict(_)) if !self.rules.remove => break,
                Err(failure) => next = Err(failure),
            }
            if let Err(failure) = &next {
                swept.failure = Some(failure.to_string());
            }
        }
        (!swept.done.is_empty() || swept.failure.is_some()).then_some(swept)
    }

    async fn clean(&self, mut node: NodeObject, message: &str, done: &mut Vec<String>) -> Result<(), Failure> {
        let name = node.metadata.name.clone();
        let params = PatchParams::default();
        // First what others act on.
        if let Some(left) = plan::no_taints(&node) {
            let gone = node.taints().iter().filter(|taint| !left.contains(taint)).map(|taint| {
                let (key, effect) = taint_name(taint);
                format!("taint {key}:{effect} removed")
            });
            let gone: Vec<String> = gone.collect();
            if !self.rules.dry_run {
                let body = plan::taints_patch(&left, &node);
                node = ask(&self.client, self.nodes.patch(&name, &params, &Patch::Merge(body)), TIMEOUT).await?;
            }
            done.extend(gone);
        }
        let (body, what) = if self.rules.remove {
            (plan::no_conditions(&node), "removed".to_owned())
        } else {
            (plan::forsaken_conditions(&node, message, &api_time::now()), format!("Unknown: {message}"))
        };
        if let Some(body) = body {
            let touched = node.ours().filter(|seen| self.rules.remove || !seen.is_forsaken());
            let touched: Vec<&str> = touched.map(|condition| condition.kind.as_str()).collect();
            let touched = touched.join(", ");
            if !self.rules.dry_run {
                let request = self.nodes.patch_subresource("status", &name, &params, &Patch::Strategic(body));
                let _node: NodeObject = ask(&self.client, request, TIMEOUT).await?;
            }
            done.push(format!("conditions {touched} {what}"));
        }
        Ok(())
    }
}

fn has_ours(node: &NodeObject) -> bool {
    let is_ours = |taint: &serde_json::Value| names::owner(taint_name(taint).0) == Owner::Us;
    node.ours().next().is_some() || node.taints().iter().any(is_ours)
}

/// Tells the dead from the living. Pure but for the clocks that it is told.
#[derive(Debug, Default)]
struct Judge {
    /// The last heartbeat of each node, and when it was first seen.
    beats: HashMap<String, (Option<String>, Instant)>,
}

impl Judge {
    /// What is to be said of an agent that is dead.
    fn is_dead(&mut self, node: &NodeObject, rules: &Rules, wall: Timestamp, now: Instant) -> Option<String> {
        let beat = node.ours().filter_map(|condition| condition.last_heartbeat_time.as_deref()).max();
        // What the agent itself promises counts where it is longer: its configuration is not the sweeper's.
        let patience = rules.heartbeat.max(node.heartbeat().unwrap_or_default()).saturating_mul(MISSED);
        let is_dead = if rules.by_clock {
            let at = beat.and_then(api_time::read);
            at.is_none_or(|at| Duration::try_from(wall.duration_since(at)).is_ok_and(|age| age >= patience))
        } else {
            let (before, since) =
                self.beats.entry(node.metadata.name.clone()).or_insert_with(|| (beat.map(str::to_owned), now));
            if before.as_deref() != beat {
                (*before, *since) = (beat.map(str::to_owned), now);
            }
            now.saturating_duration_since(*since) >= patience
        };
        is_dead.then(|| match beat {
            Some(beat) => format!("the node pressure monitor of this node was last heard of at {beat}"),
            None => "the node pressure monitor of this node was never heard of".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RULES: Rules = Rules { heartbeat: Duration::from_secs(60), remove: false, dry_run: false, by_clock: false };

    fn node(beat: &str) -> NodeObject {
        let condition = json!({"type": "MonitorMemoryPressure", "status": "True", "lastHeartbeatTime": beat});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": [condition]}})).unwrap()
    }

    #[test]
    fn who_does_not_change_its_heartbeat_any_more_is_dead_whatever_its_clock_shows() {
        let (mut judge, start, wall) = (Judge::default(), Instant::now(), Timestamp::now());
        let mut dead = |beat: &str, second| {
            judge.is_dead(&node(beat), &RULES, wall, start + Duration::from_secs(second)).is_some()
        };
        let [old, older] = ["2020-01-01T00:00:00Z", "2019-01-01T00:00:00Z"];
        assert!(!dead(old, 0) && !dead(old, 179));
        assert!(!dead(older, 180), "it is alive, though its clock went back");
        assert!(!dead(older, 359) && dead(older, 360));
    }

    #[test]
    fn in_a_single_round_the_times_tell() {
        let by_clock = Rules { by_clock: true, ..RULES };
        let wall: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let dead = |node: &NodeObject| Judge::default().is_dead(node, &by_clock, wall, Instant::now());
        assert_eq!(dead(&node("2026-11-21T11:57:01Z")), None);
        assert!(dead(&node("2026-11-21T11:57:00Z")).is_some_and(|words| words.ends_with("at 2026-11-21T11:57:00Z")));
        assert_eq!(dead(&node("2026-11-21T12:30:00Z")), None, "of the future");
        let slow = |seconds: &str| -> NodeObject {
            let condition = json!({"type": "MonitorMemoryPressure", "lastHeartbeatTime": "2026-11-21T11:50:00Z"});
            let annotations = json!({names::HEARTBEAT: seconds, "other": "words"});
            serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations},
                "status": {"conditions": [condition]}}))
            .unwrap()
        };
        assert_eq!(dead(&slow("300")), None, "as its agent has promised");
        assert!(dead(&slow("10")).is_some() && dead(&slow("often")).is_some());
    }

    #[test]
    fn only_nodes_with_something_of_ours_are_looked_at() {
        let other: NodeObject = serde_json::from_value(json!({"spec": {"taints": [{"key": "dedicated"}]}, "status": {
            "conditions": [{"type": "Ready", "status": "True"}]}}))
        .unwrap();
        assert!(!has_ours(&other) && has_ours(&node("")));
        let tainted =
            json!({"spec": {"taints": [{"key": "node-pressure-monitor/pid-pressure", "effect": "NoExecute"}]}});
        assert!(has_ours(&serde_json::from_value(tainted).unwrap()));
    }
}
