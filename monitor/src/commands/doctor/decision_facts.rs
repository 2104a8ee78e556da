//! The decisions that an agent of this boot has left in its file.

use std::path::PathBuf;

use serde::Serialize;

use crate::actions::kept_state;
use crate::config::{MonitorConfig, Threshold};
use crate::eviction::budget::Class;
use crate::eviction::decider::Kept;
use crate::units::Monotonic;

/// The file, and what an agent that starts now goes on from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decisions {
    pub file: PathBuf,
    /// Why an agent that starts now does not use the file.
    pub unused: Option<String>,
    /// The thresholds that are armed, also those that are not configured any more.
    pub armed: Vec<String>,
    pub waiting: Vec<WaitingThreshold>,
    pub budgets: Vec<BudgetLeft>,
}

/// A threshold that was met when it arrived.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingThreshold {
    pub threshold: String,
    pub since_seconds: u64,
}

/// The evictions of the last minute, and how many are allowed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetLeft {
    pub cause: &'static str,
    pub spent: usize,
    pub allowed: usize,
}

/// Reads the file beside the lock. Returns nothing if there is no such file. Also returns the state that an agent goes on from.
pub fn find(config: &MonitorConfig, workloads: usize) -> (Option<Decisions>, Kept) {
    let now = Monotonic::now();
    let file = kept_state::path(&config.lock_file);
    let empty = |unused| Decisions { file: file.clone(), unused, armed: vec![], waiting: vec![], budgets: vec![] };
    let kept = match kept_state::left_beside(&config.lock_file, now) {
        Ok(Some(kept)) => kept,
        Ok(None) => return (None, Kept::default()),
        Err(reason) => return (Some(empty(Some(reason))), Kept::default()),
    };
    let named = |threshold: &Threshold| format!("{} {threshold}", threshold.kind());
    let waiting = kept.waiting().map(|(threshold, since)| WaitingThreshold {
        threshold: named(threshold),
        since_seconds: now.since(since).as_secs(),
    });
    let budgets = Class::ALL.into_iter().map(|class| {
        let (spent, allowed) = kept.budget(&config.evictions, (class, workloads), now);
        BudgetLeft { cause: class.as_str(), spent, allowed }
    });
    let decisions = Decisions {
        armed: kept.armed().map(named).collect(),
        waiting: waiting.collect(),
        budgets: budgets.collect(),
        ..empty(None)
    };
    (Some(decisions), kept)
}
