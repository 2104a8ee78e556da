//! The answer as one JSON object.

use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::super::output::seconds;
use super::{Allocatable, Loaded};
use crate::config::{ConfigWarning, Policy, Quirk, RankingKey, Threshold, ThresholdValue};
use crate::units::{Quantity, Resource};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    kind: &'static str,
    semantics: &'static str,
    thresholds: Vec<ThresholdAnswer>,
    ranking: RankingAnswer,
    #[serde(serialize_with = "map")]
    quirks: Vec<(&'static str, bool)>,
    oom_score_adj: OomScoreAnswer,
    eviction_max_pod_grace_period: i64,
    #[serde(serialize_with = "seconds")]
    eviction_pressure_transition_period_seconds: Duration,
    local_storage_capacity_isolation: bool,
    #[serde(serialize_with = "map")]
    system_reserved: Vec<(&'a str, String)>,
    #[serde(serialize_with = "map")]
    kube_reserved: Vec<(&'a str, String)>,
    hard_thresholds_reserved: bool,
    #[serde(serialize_with = "map")]
    allocatable: Vec<(&'a str, AllocatableAnswer)>,
    warnings: Vec<WarningAnswer<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ThresholdAnswer {
    signal: &'static str,
    operator: &'static str,
    quantity: Option<String>,
    percentage: Option<Share>,
    #[serde(serialize_with = "seconds")]
    grace_period_seconds: Duration,
    min_reclaim: Option<ReclaimAnswer>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum ReclaimAnswer {
    Quantity(String),
    Percentage(Share),
}

/// A share of the capacity, 1 for all of it.
#[derive(Debug)]
struct Share(f32);

#[derive(Debug, Serialize)]
struct RankingAnswer {
    name: &'static str,
    #[serde(serialize_with = "map")]
    keys: Vec<(&'static str, Vec<&'static str>)>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OomScoreAnswer {
    guaranteed: i16,
    burstable_min: i16,
    burstable_max: i16,
    best_effort: i16,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AllocatableAnswer {
    capacity: String,
    system_reserved: String,
    kube_reserved: String,
    hard_threshold: String,
    huge_pages: String,
    allocatable: String,
    pods_limit: String,
}

#[derive(Debug, Serialize)]
struct WarningAnswer<'a> {
    line: usize,
    column: usize,
    field: &'a str,
    value: Option<&'a str>,
    reason: &'a str,
    fix: Option<&'a str>,
}

/// Renders the answer, ending with a line break.
pub fn render(loaded: &Loaded, left: &[Allocatable]) -> std::io::Result<String> {
    let policy = &loaded.config.policy;
    let answer = Answer {
        kind: loaded.kind.as_str(),
        semantics: policy.semantics.as_str(),
        thresholds: policy.thresholds.iter().map(threshold).collect(),
        ranking: ranking(policy),
        quirks: Quirk::ALL.iter().map(|quirk| (quirk.as_str(), policy.quirks.has(*quirk))).collect(),
        oom_score_adj: OomScoreAnswer {
            guaranteed: policy.oom_scores.guaranteed,
            burstable_min: policy.oom_scores.burstable_min,
            burstable_max: 999,
            best_effort: 1000,
        },
        eviction_max_pod_grace_period: policy.max_pod_grace_period,
        eviction_pressure_transition_period_seconds: policy.pressure_transition_period,
        local_storage_capacity_isolation: policy.local_storage_isolation,
        system_reserved: amounts(&policy.reservations.system),
        kube_reserved: amounts(&policy.reservations.kube),
        hard_thresholds_reserved: policy.reservations.hard_thresholds,
        allocatable: left.iter().map(|one| (one.resource.as_str(), allocatable(one))).collect(),
        warnings: loaded.warnings.iter().map(warning).collect(),
    };
    Ok(serde_json::to_string_pretty(&answer)? + "\n")
}

fn threshold(threshold: &Threshold) -> ThresholdAnswer {
    let (quantity, percentage) = match &threshold.value {
        ThresholdValue::Quantity(quantity) => (Some(quantity.canonical()), None),
        ThresholdValue::Percentage(percentage) => (None, Some(Share(percentage.fraction))),
    };
    ThresholdAnswer {
        signal: threshold.signal.as_str(),
        operator: "LessThan",
        quantity,
        percentage,
        grace_period_seconds: threshold.grace_period,
        min_reclaim: threshold.min_reclaim.as_ref().map(|value| match value {
            ThresholdValue::Quantity(quantity) => ReclaimAnswer::Quantity(quantity.canonical()),
            ThresholdValue::Percentage(percentage) => ReclaimAnswer::Percentage(Share(percentage.fraction)),
        }),
    }
}

fn ranking(policy: &Policy) -> RankingAnswer {
    let resources = [Resource::Memory, Resource::EphemeralStorage, Resource::Inodes, Resource::Pids];
    let keys = |resource| policy.ranking.keys(resource).iter().copied().map(RankingKey::as_str).collect();
    RankingAnswer {
        name: policy.ranking.as_str(),
        keys: resources.map(|resource| (resource.as_str(), keys(resource))).to_vec(),
    }
}

fn amounts(list: &[(String, Quantity)]) -> Vec<(&str, String)> {
    list.iter().map(|(name, amount)| (name.as_str(), amount.canonical())).collect()
}

fn allocatable(one: &Allocatable) -> AllocatableAnswer {
    AllocatableAnswer {
        capacity: one.capacity.canonical(),
        system_reserved: one.system_reserved.canonical(),
        kube_reserved: one.kube_reserved.canonical(),
        hard_threshold: one.hard_threshold.canonical(),
        huge_pages: one.huge_pages.canonical(),
        allocatable: one.allocatable.canonical(),
        pods_limit: one.pods_limit.canonical(),
    }
}

fn warning(ConfigWarning(warning): &ConfigWarning) -> WarningAnswer<'_> {
    WarningAnswer {
        line: warning.line,
        column: warning.column,
        field: &warning.field,
        value: warning.value.as_deref(),
        reason: &warning.reason,
        fix: warning.fix.as_deref(),
    }
}

/// Serializes pairs as a map in their order.
fn map<S: Serializer, K: Serialize, V: Serialize>(pairs: &[(K, V)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

/// Prints the fewest digits that parse to the same 32 bits, and no fraction if there is none, as Go does.
impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[expect(clippy::cast_possible_truncation, reason = "anything larger is printed with its fraction")]
        if self.0.fract() == 0.0 && self.0.abs() < 1e6 {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f32(self.0)
        }
    }
}
