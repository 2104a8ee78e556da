//! Removes what killed agents have left on their nodes: their conditions become Unknown, and their taints are removed.
//!
//! An agent's heartbeat is the Lease of its node. Leases and nodes are listed from the API server's cache, and a node is read from the
//! store when its agent is dead.

mod agent_lives;
mod node_list;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::api_call::{Failure, TIMEOUT, call};
use super::api_client::Access;
use super::condition_names::{self, Owner};
use super::status::node_object::{NodeCondition, NodeObject, taint_name};
use super::status::status_patches;
use super::{api_time, lease};
use agent_lives::{AgentLives, Dead, Lease};
use node_list::Source;

/// Attempts after conflicts with other writers of the node.
const CONFLICTS: u32 = 5;
/// The time from the deletion of a namespace to the end of its pods on every node that can be reached. A pod on another node keeps the namespace.
const PODS_END_WITHIN: Duration = Duration::from_secs(300);
/// Interval of looking for nodes that have conditions or taints of ours, and no Lease.
const LIST_NODES_EVERY: Duration = Duration::from_secs(3_600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Remove the conditions, taints and Leases of living agents, too.
    pub remove: bool,
    /// Leave the Leases: they are removed with their namespace, or with their nodes.
    pub keep_leases: bool,
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

/// The counts of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// The Leases of agents.
    pub agents: usize,
    /// The nodes with conditions or taints of ours, among those that were read.
    pub watched: usize,
    pub swept: usize,
    pub failed: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    #[error("the nodes cannot be listed: {0}; it needs list on nodes")]
    Nodes(String),
    #[error(transparent)]
    Leases(#[from] lease::ListError),
    #[error("the namespace {0} cannot be read: {1}; it needs get on namespaces")]
    Namespace(String, String),
    /// A wrong namespace would show every agent as dead.
    #[error(
        "no agent has a Lease in the namespace {0}, and {1} nodes have conditions or taints of agents: name the agents' namespace by \
             --namespace, or remove everything by --remove"
    )]
    NoLeases(String, usize),
    #[error("there is neither a node {0} nor a Lease of its agent: nothing is swept")]
    NoNode(String),
}

#[derive(Deserialize)]
struct Namespace {
    metadata: NamespaceMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamespaceMetadata {
    deletion_timestamp: Option<String>,
}

pub struct Sweeper {
    client: kube::Client,
    nodes: Request,
    leases: Request,
    /// The one node to sweep.
    only: Option<String>,
    rules: Rules,
    lives: AgentLives,
    nodes_listed: Option<Instant>,
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
        let (nodes, leases) = (Request::new("/api/v1/nodes"), lease::leases(&client));
        Ok(Self { client, nodes, leases, only, rules, lives: AgentLives::default(), nodes_listed: None })
    }

    /// Returns why agents may still run; `None` if none does. The caller repeats the call: an agent counts as dead when its Lease has not changed
    /// between calls for as long as it promises.
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub async fn agents_left(&mut self) -> Result<Option<String>, SweepError> {
        let name = self.client.default_namespace().to_owned();
        let request = Request::new("/api/v1/namespaces").get(&name, &GetParams::default());
        let namespace: Namespace = match call(&self.client, request, TIMEOUT).await {
            Ok(namespace) => namespace,
            Err(Failure::NotFound(_)) => return Ok(None),
            Err(failure) => return Err(SweepError::Namespace(name, failure.to_string())),
        };
        // Agents in a namespace that is being deleted may run without a Lease.
        if let Some(since) = namespace.metadata.deletion_timestamp {
            return Ok(
                (!is_settled(&since, Timestamp::now())).then(|| format!("the namespace {name} is being deleted"))
            );
        }
        let leases = self.leases_of_agents().await?;
        let now = Instant::now();
        self.lives.observe(leases, now);
        let living = self.lives.living(now);
        Ok((living > 0).then(|| format!("agents that may run, by the Leases in the namespace {name}: {living}")))
    }

    /// Lists the Leases in the namespace of the agents. The label alone makes no agent: every user of the namespace may set it.
    async fn leases_of_agents(&self) -> Result<Vec<Lease>, SweepError> {
        let mut leases = lease::list::<Lease>(&self.client, TIMEOUT).await?;
        leases.retain(Lease::is_of_agent);
        Ok(leases)
    }

    /// Checks every agent once; calls `report` for each node that was or would be changed.
    pub async fn round(&mut self, report: &mut impl FnMut(&Swept)) -> Result<Round, SweepError> {
        let leases = self.leases_of_agents().await?;
        let mut round = Round { agents: leases.len(), ..Round::default() };
        if self.rules.remove || self.rules.by_clock {
            self.sweep_once(&leases, &mut round, report).await?;
        } else {
            self.sweep_dead(leases, &mut round, report).await?;
        }
        Ok(round)
    }

    /// Sweeps the nodes whose agents have died since an earlier round.
    async fn sweep_dead(
        &mut self,
        leases: Vec<Lease>,
        round: &mut Round,
        report: &mut impl FnMut(&Swept),
    ) -> Result<(), SweepError> {
        let is_alone = leases.is_empty();
        let meant = leases.into_iter().filter(|lease| self.is_meant(lease)).collect();
        self.lives.observe(meant, Instant::now());
        if self.nodes_listed.is_none_or(|at| at.elapsed() >= LIST_NODES_EVERY) {
            let (ours, _) = self.list_ours().await?;
            self.suspect_namespace(is_alone, ours.len())?;
            for node in ours {
                let is_swept =
                    node.ours().all(NodeCondition::is_abandoned) && status_patches::no_taints(&node).is_none();
                self.lives.observe_ours(&node.metadata.name, is_swept, Instant::now());
            }
            self.nodes_listed = Some(Instant::now());
        }
        for dead in self.lives.dead(Instant::now()) {
            match self.sweep_if_dead(&dead, round, report).await {
                Ok(true) => self.lives.note_done(&dead.node),
                Ok(false) => {}
                Err(failure) => {
                    round.failed += 1;
                    report(&Swept { node: dead.node, done: Vec::new(), failure: Some(failure.to_string()) });
                }
            }
        }
        Ok(())
    }

    /// Sweeps the node of a dead agent. Returns whether that is done. The list came from a cache, which may be old: so the Lease is read first.
    async fn sweep_if_dead(
        &self,
        dead: &Dead,
        round: &mut Round,
        report: &mut impl FnMut(&Swept),
    ) -> Result<bool, Failure> {
        let lease = call::<Lease>(&self.client, self.leases.get(&dead.node, &GetParams::default()), TIMEOUT).await;
        let lease = match lease {
            Ok(lease) => Some(lease).filter(Lease::is_of_agent),
            Err(Failure::NotFound(_)) => None,
            Err(failure) => return Err(failure),
        };
        if lease != dead.lease {
            return Ok(false);
        }
        match self.read(&dead.node).await {
            Ok(node) if has_ours(&node) => {
                round.watched += 1;
                Ok(self.sweep(node, &dead.message, round, report).await)
            }
            Ok(_) | Err(Failure::NotFound(_)) => Ok(true),
            Err(failure) => Err(failure),
        }
    }

    fn is_meant(&self, lease: &Lease) -> bool {
        self.only.as_ref().is_none_or(|node| *node == lease.metadata.name)
    }

    /// Refuses to sweep when no agent at all has a Lease.
    fn suspect_namespace(&self, is_alone: bool, nodes: usize) -> Result<(), SweepError> {
        if is_alone && nodes > 0 && !self.rules.remove {
            return Err(SweepError::NoLeases(self.client.default_namespace().to_owned(), nodes));
        }
        Ok(())
    }

    /// Sweeps all nodes whose agents are dead by the clock, or with `remove` all nodes.
    async fn sweep_once(
        &self,
        leases: &[Lease],
        round: &mut Round,
        report: &mut impl FnMut(&Swept),
    ) -> Result<(), SweepError> {
        let (ours, listed) = self.list_ours().await?;
        if let Some(only) = self.only.as_ref().filter(|_| listed == 0 && !leases.iter().any(|it| self.is_meant(it))) {
            return Err(SweepError::NoNode(only.clone()));
        }
        self.suspect_namespace(leases.is_empty(), ours.len())?;
        round.watched = ours.len();
        for node in ours {
            let lease = leases.iter().find(|lease| lease.metadata.name == node.metadata.name);
            let message = match self.rules.remove {
                true => Some(String::new()),
                false => agent_lives::death_by_clock(lease, Timestamp::now()),
            };
            if let Some(message) = message {
                self.sweep(node, &message, round, report).await;
            }
        }
        if self.rules.remove && !self.rules.dry_run && !self.rules.keep_leases {
            self.remove_leases(leases.iter().filter(|lease| self.is_meant(lease)), round, report).await;
        }
        Ok(())
    }

    async fn remove_leases<'l>(
        &self,
        leases: impl Iterator<Item = &'l Lease>,
        round: &mut Round,
        report: &mut impl FnMut(&Swept),
    ) {
        for Lease { metadata, .. } in leases {
            let request = self.leases.delete(&metadata.name, &DeleteParams::default());
            if let Err(failure) = call::<IgnoredAny>(&self.client, request, TIMEOUT).await
                && !matches!(failure, Failure::NotFound(_))
            {
                round.failed += 1;
                let failure = Some(format!("its Lease is left: {failure}"));
                report(&Swept { node: metadata.name.clone(), done: Vec::new(), failure });
            }
        }
    }

    /// Lists the nodes with conditions or taints of ours, and counts all. A single round has no later one that would find what a cache lacks.
    async fn list_ours(&self) -> Result<(Vec<NodeObject>, usize), SweepError> {
        let from = if self.rules.remove || self.rules.by_clock { Source::Store } else { Source::Cache };
        let (mut ours, mut listed) = (Vec::new(), 0);
        let keep = |node| {
            listed += 1;
            if has_ours(&node) {
                ours.push(node);
            }
        };
        node_list::read(&self.client, self.only.as_deref(), from, keep).await.map_err(SweepError::Nodes)?;
        Ok((ours, listed))
    }

    async fn read(&self, node: &str) -> Result<NodeObject, Failure> {
        call(&self.client, self.nodes.get(node, &GetParams::default()), TIMEOUT).await
    }

    /// Sweeps a node. Returns whether that is done.
    async fn sweep(&self, node: NodeObject, message: &str, round: &mut Round, report: &mut impl FnMut(&Swept)) -> bool {
        let mut swept = Swept { node: node.metadata.name.clone(), done: Vec::new(), failure: None };
        let mut tries = CONFLICTS;
        let mut next = Ok(node);
        let mut is_done = false;
        while let Ok(node) = next {
            match self.clean(node, message, &mut swept.done).await {
                Ok(()) => {
                    is_done = true;
                    break;
                }
                Err(Failure::Conflict(_)) if self.rules.remove && tries > 0 => {
                    tries -= 1;
                    next = self.read(&swept.node).await;
                }
                // The agent is back, or another writer has changed the node: the next round decides.
                Err(Failure::Conflict(_)) if !self.rules.remove => break,
                Err(failure) => next = Err(failure),
            }
            if let Err(failure) = &next {
                swept.failure = Some(failure.to_string());
            }
        }
        round.swept += usize::from(!swept.done.is_empty());
        round.failed += usize::from(swept.failure.is_some());
        if !swept.done.is_empty() || swept.failure.is_some() {
            report(&swept);
        }
        is_done
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

/// Returns whether the agents of a namespace that was deleted then have ended, where a node can be reached.
fn is_settled(deleted: &str, now: Timestamp) -> bool {
    api_time::parse(deleted).is_some_and(|since| api_time::has_passed(since, PODS_END_WITHIN, now))
}

fn has_ours(node: &NodeObject) -> bool {
    let is_ours = |taint: &serde_json::Value| condition_names::owner(taint_name(taint).0) == Owner::Us;
    node.ours().next().is_some() || node.taints().iter().any(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_on_a_dead_node_does_not_keep_the_others_waiting() {
        let now: Timestamp = "2026-11-26T10:05:00Z".parse().unwrap();
        for (deleted, expected) in [
            ("2026-11-26T10:00:00Z", true),
            ("2026-11-26T10:00:01Z", false),
            ("2026-11-26T10:06:00Z", false),
            ("?", false),
        ] {
            assert_eq!(is_settled(deleted, now), expected, "{deleted}");
        }
    }

    #[test]
    fn nodes_without_our_names_are_skipped() {
        let node = |object| -> NodeObject { serde_json::from_value(object).unwrap() };
        assert!(!has_ours(&node(json!({"spec": {"taints": [{"key": "dedicated"}]}, "status": {
            "conditions": [{"type": "Ready", "status": "True"}]}}))));
        let condition = json!({"type": "MonitorMemoryPressure", "status": "True"});
        assert!(has_ours(&node(json!({"status": {"conditions": [condition]}}))));
        let taint = json!({"key": "node-pressure-monitor/pid-pressure", "effect": "NoExecute"});
        assert!(has_ours(&node(json!({"spec": {"taints": [taint]}}))));
    }
}
