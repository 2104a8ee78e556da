//! Removes what killed agents have left on their nodes.
//!
//! An agent confirms its conditions by a heartbeat. After three missed ones it counts as dead: its conditions become Unknown, and its
//! taints are removed.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::api::{GetParams, ListParams, Patch, PatchParams};
use kube::core::Request;
use serde::Deserialize;

use super::api_call::{Failure, TIMEOUT, call};
use super::api_client::Access;
use super::api_time;
use super::condition_names::{self, Owner};
use super::reflector::Meta;
use super::status::node_object::{NodeObject, taint_name};
use super::status::status_patches;

/// Nodes in a page of the list; each has some 15 KiB.
const PAGE: u32 = 100;
/// Attempts after conflicts with other writers of the node.
const CONFLICTS: u32 = 5;
/// Missed heartbeats of a dead agent.
const MISSED: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The agents' heartbeat interval; a longer one that a node names counts instead.
    pub heartbeat: Duration,
    /// Remove the conditions and taints of living agents, too.
    pub remove: bool,
    /// Report only.
    pub dry_run: bool,
    /// Compare the heartbeats' times with the clock, for a single round. Otherwise an agent is dead when its heartbeat does not change
    /// between rounds, whatever the node's clock shows.
    pub by_clock: bool,
}

/// The changes to one node, or in a dry run those that would be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    pub node: String,
    /// One text for each change.
    pub done: Vec<String>,
    pub failure: Option<String>,
}

/// The counts of a round over all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    pub nodes: usize,
    /// Nodes with conditions or taints of ours.
    pub watched: usize,
    pub swept: usize,
    pub failed: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the nodes cannot be listed: {0}")]
pub struct SweepError(String);

pub struct Sweeper {
    client: kube::Client,
    nodes: Request,
    selector: Option<String>,
    rules: Rules,
    liveness: Liveness,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeList {
    metadata: Meta,
    items: Option<Vec<NodeObject>>,
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sweeper").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Sweeper {
    /// Connects to the API server. `only`: the name of the one node to sweep.
    pub async fn connect(access: &Access, rules: Rules, only: Option<String>) -> Result<Self, String> {
        let client = access.client().await?;
        let selector = only.map(|node| format!("metadata.name={node}"));
        Ok(Self { client, nodes: Request::new("/api/v1/nodes"), selector, rules, liveness: Liveness::default() })
    }

    /// Checks every node once; calls `report` for each that was or would be changed.
    pub async fn round(&mut self, report: &mut impl FnMut(&Swept)) -> Result<Round, SweepError> {
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
            let list: NodeList = call(&self.client, self.nodes.list(&page), TIMEOUT).await.map_err(|failure| {
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
                    report(&swept);
                }
            }
            if list.metadata.next.is_empty() {
                break;
            }
            next = Some(list.metadata.next);
        }
        self.liveness.beats.retain(|node, _| there.contains(node));
        Ok(round)
    }

    async fn sweep(&mut self, node: NodeObject) -> Option<Swept> {
        let message = if self.rules.remove {
            String::new()
        } else {
            self.liveness.death(&node, &self.rules, Timestamp::now(), Instant::now())?
        };
        let mut swept = Swept { node: node.metadata.name.clone(), done: Vec::new(), failure: None };
        let mut tries = CONFLICTS;
        let mut next = Ok(node);
        while let Ok(node) = next {
            match self.clean(node, &message, &mut swept.done).await {
                Ok(()) => break,
                Err(Failure::Conflict(_)) if self.rules.remove && tries > 0 => {
                    tries -= 1;
                    next = call(&self.client, self.nodes.get(&swept.node, &GetParams::default()), TIMEOUT).await;
                }
                // The agent is back, or another writer has changed the node: the next round decides.
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
        let (removed, unknown) = match self.rules.dry_run {
            true => ("would be removed", "would become Unknown"),
            false => ("removed", "Unknown"),
        };
        // Taints first: schedulers act on them.
        if let Some(left) = status_patches::no_taints(&node) {
            let swept = node.taints().iter().filter(|taint| !left.contains(taint)).map(|taint| {
                let (key, effect) = taint_name(taint);
                format!("taint {key}:{effect} {removed}")
            });
            let swept: Vec<String> = swept.collect();
            if !self.rules.dry_run {
                let body = status_patches::taints_patch(&left, &node);
                node = call(&self.client, self.nodes.patch(&name, &params, &Patch::Merge(body)), TIMEOUT).await?;
            }
            done.extend(swept);
        }
        let (body, what) = if self.rules.remove {
            (status_patches::no_conditions(&node), removed.to_owned())
        } else {
            (status_patches::abandoned_conditions(&node, message, &api_time::now()), format!("{unknown}: {message}"))
        };
        if let Some(body) = body {
            let touched = node.ours().filter(|seen| self.rules.remove || !seen.is_abandoned());
            let touched: Vec<&str> = touched.map(|condition| condition.kind.as_str()).collect();
            let touched = touched.join(", ");
            if !self.rules.dry_run {
                let request = self.nodes.patch_subresource("status", &name, &params, &Patch::Strategic(body));
                let _node: NodeObject = call(&self.client, request, TIMEOUT).await?;
            }
            done.push(format!("conditions {touched} {what}"));
        }
        Ok(())
    }
}

fn has_ours(node: &NodeObject) -> bool {
    let is_ours = |taint: &serde_json::Value| condition_names::owner(taint_name(taint).0) == Owner::Us;
    node.ours().next().is_some() || node.taints().iter().any(is_ours)
}

/// Decides which agents are dead. Pure; the caller passes the times.
#[derive(Debug, Default)]
struct Liveness {
    /// The last heartbeat of each node, and when it was first read.
    beats: HashMap<String, (Option<String>, Instant)>,
}

impl Liveness {
    /// Returns the message for the conditions of a dead agent; none: the agent is alive.
    fn death(&mut self, node: &NodeObject, rules: &Rules, wall: Timestamp, now: Instant) -> Option<String> {
        let beat = node.ours().filter_map(|condition| condition.last_heartbeat_time.as_deref()).max();
        // The agent's configuration may have a longer interval than the sweeper's.
        let timeout = rules.heartbeat.max(node.heartbeat().unwrap_or_default()).saturating_mul(MISSED);
        let is_dead = if rules.by_clock {
            let at = beat.and_then(api_time::parse);
            at.is_none_or(|at| Duration::try_from(wall.duration_since(at)).is_ok_and(|age| age >= timeout))
        } else {
            let (before, since) =
                self.beats.entry(node.metadata.name.clone()).or_insert_with(|| (beat.map(str::to_owned), now));
            if before.as_deref() != beat {
                (*before, *since) = (beat.map(str::to_owned), now);
            }
            now.saturating_duration_since(*since) >= timeout
        };
        is_dead.then(|| match beat {
            Some(beat) => format!("the node pressure monitor of this node sent its last heartbeat at {beat}"),
            None => "the node pressure monitor of this node has never sent a heartbeat".to_owned(),
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
    fn a_heartbeat_that_stays_the_same_means_dead() {
        let (mut liveness, start, wall) = (Liveness::default(), Instant::now(), Timestamp::now());
        let mut dead = |beat: &str, second| {
            liveness.death(&node(beat), &RULES, wall, start + Duration::from_secs(second)).is_some()
        };
        let [old, older] = ["2020-01-01T00:00:00Z", "2019-01-01T00:00:00Z"];
        assert!(!dead(old, 0) && !dead(old, 179));
        assert!(!dead(older, 180), "alive, although the clock went back");
        assert!(!dead(older, 359) && dead(older, 360));
    }

    #[test]
    fn in_a_single_round_the_clock_decides() {
        let by_clock = Rules { by_clock: true, ..RULES };
        let wall: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let dead = |node: &NodeObject| Liveness::default().death(node, &by_clock, wall, Instant::now());
        assert_eq!(dead(&node("2026-11-21T11:57:01Z")), None);
        assert!(dead(&node("2026-11-21T11:57:00Z")).is_some_and(|text| text.ends_with("at 2026-11-21T11:57:00Z")));
        assert_eq!(dead(&node("2026-11-21T12:30:00Z")), None, "in the future");
        let slow = |seconds: &str| -> NodeObject {
            let condition = json!({"type": "MonitorMemoryPressure", "lastHeartbeatTime": "2026-11-21T11:50:00Z"});
            let annotations = json!({condition_names::HEARTBEAT: seconds, "other": "text"});
            serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations},
                "status": {"conditions": [condition]}}))
            .unwrap()
        };
        assert_eq!(dead(&slow("300")), None, "the interval that the agent names");
        assert!(dead(&slow("10")).is_some() && dead(&slow("often")).is_some());
    }

    #[test]
    fn nodes_without_our_names_are_skipped() {
        let other: NodeObject = serde_json::from_value(json!({"spec": {"taints": [{"key": "dedicated"}]}, "status": {
            "conditions": [{"type": "Ready", "status": "True"}]}}))
        .unwrap();
        assert!(!has_ours(&other) && has_ours(&node("")));
        let tainted =
            json!({"spec": {"taints": [{"key": "node-pressure-monitor/pid-pressure", "effect": "NoExecute"}]}});
        assert!(has_ours(&serde_json::from_value(tainted).unwrap()));
    }
}
