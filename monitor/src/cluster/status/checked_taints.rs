//! `NoExecute` taints are set only while what the loop has checked about the pods that they evict is fresh.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::kubernetes_options::Authority;

use super::super::condition_names;
use super::node_object::{NodeObject, taint_name};
use super::wanted::{Effect, NodeStatus};

/// Age at which a taint is not set any more.
const CHECKED_FOR: Duration = Duration::from_secs(30);

/// The `NoExecute` taints that are wanted, by condition: the names in use, and since when. No time: checked under other names.
#[derive(Debug, Default)]
pub(super) struct CheckedTaints(Vec<(String, Authority, Option<Instant>)>);

impl CheckedTaints {
    /// Notes since when each taint is wanted.
    pub(super) fn note(&mut self, wanted: &NodeStatus, authority: Authority, now: Instant) {
        let is_wanted =
            |kind: &str| wanted.taints.iter().any(|taint| taint.effect == Effect::NoExecute && taint.kind == kind);
        self.0.retain(|(kind, ..)| is_wanted(kind));
        for (_, under, since) in &mut self.0 {
            if *under != authority {
                (*under, *since) = (authority, None);
            }
        }
        for taint in wanted.taints.iter().filter(|taint| taint.effect == Effect::NoExecute) {
            if self.0.iter().all(|(kind, ..)| *kind != taint.kind) {
                self.0.push((taint.kind.clone(), authority, Some(now)));
            }
        }
    }

    /// Returns the status without the taints that the node does not have yet and whose check is too old.
    pub(super) fn without_stale(
        &self,
        wanted: &NodeStatus,
        authority: Authority,
        seen: &NodeObject,
        now: Instant,
    ) -> NodeStatus {
        let is_fresh = |kind: &str| {
            let checked = self.0.iter().find(|(of, ..)| of == kind).and_then(|(.., since)| *since);
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
}
