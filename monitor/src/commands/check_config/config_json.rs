//! The answer as one JSON object.

use std::time::Duration;

use serde::Serialize;
use serde::ser::Serializer;

use super::super::output::{Pairs, seconds};
use super::{Allocatable, Capacity, Loaded};
use crate::config::{ConfigWarning, Policy, Quirk, RankingKey, Threshold, ThresholdValue};
use crate::units::{Quantity, Resource};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    kind: &'static str,
    mode: &'static str,
    pools: Vec<PoolAnswer<'a>>,
    semantics: &'static str,
    thresholds: Vec<ThresholdAnswer>,
    ranking: RankingAnswer,
    quirks: Pairs<&'static str, bool>,
    oom_score_adj: Pairs<&'static str, i16>,
    eviction_max_pod_grace_period: i64,
    #[serde(serialize_with = "seconds")]
    eviction_pressure_transition_period_seconds: Duration,
    local_storage_capacity_isolation: bool,
    system_reserved: Pairs<&'a str, String>,
    kube_reserved: Pairs<&'a str, String>,
    hard_thresholds_reserved: bool,
    allocatable: Pairs<&'a str, Pairs<&'static str, String>>,
    warnings: &'a [ConfigWarning],
}

#[derive(Debug, Serialize)]
struct PoolAnswer<'a> {
    name: &'a str,
    mode: &'static str,
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
    /// In the unit of the signal, where its capacity is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
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
    keys: Pairs<&'static str, Vec<&'static str>>,
}

/// Renders the answer, ending with a line break.
pub fn render(loaded: &Loaded, left: &[Allocatable], capacity: &Capacity<'_>) -> std::io::Result<String> {
    let policy = &loaded.config.policy;
    let answer = Answer {
        kind: loaded.kind.as_str(),
        mode: loaded.config.mode.as_str(),
        pools: loaded
            .config
            .pools
            .iter()
            .map(|it| PoolAnswer { name: &it.name, mode: it.config.mode.as_str() })
            .collect(),
        semantics: policy.semantics.as_str(),
        thresholds: policy.thresholds.iter().map(|it| threshold(it, policy, capacity)).collect(),
        ranking: ranking(policy),
        quirks: Pairs(Quirk::ALL.map(|quirk| (quirk.as_str(), policy.quirks.has(quirk))).to_vec()),
        oom_score_adj: Pairs(vec![
            ("guaranteed", policy.oom_scores.guaranteed),
            ("burstableMin", policy.oom_scores.burstable_min),
            ("burstableMax", 999),
            ("bestEffort", 1000),
        ]),
        eviction_max_pod_grace_period: policy.max_pod_grace_period,
        eviction_pressure_transition_period_seconds: policy.pressure_transition_period,
        local_storage_capacity_isolation: policy.local_storage_isolation,
        system_reserved: amounts(&policy.reservations.system),
        kube_reserved: amounts(&policy.reservations.kube),
        hard_thresholds_reserved: policy.reservations.hard_thresholds,
        allocatable: Pairs(left.iter().map(|one| (one.resource.as_str(), allocatable(one))).collect()),
        warnings: &loaded.warnings,
    };
    Ok(serde_json::to_string_pretty(&answer)? + "\n")
}

fn threshold(threshold: &Threshold, policy: &Policy, capacity: &Capacity<'_>) -> ThresholdAnswer {
    let capacity = capacity.of(threshold.signal);
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
        amount: capacity.map(|capacity| threshold.value.resolve(capacity.value_bytes(), policy.quirks).units()),
    }
}

fn ranking(policy: &Policy) -> RankingAnswer {
    let resources = [Resource::Memory, Resource::EphemeralStorage, Resource::Inodes, Resource::Pids];
    let keys = |resource| policy.ranking.keys(resource).iter().copied().map(RankingKey::as_str).collect();
    RankingAnswer {
        name: policy.ranking.as_str(),
        keys: Pairs(resources.map(|resource| (resource.as_str(), keys(resource))).to_vec()),
    }
}

fn amounts(list: &[(String, Quantity)]) -> Pairs<&str, String> {
    Pairs(list.iter().map(|(name, amount)| (name.as_str(), amount.canonical())).collect())
}

fn allocatable(one: &Allocatable) -> Pairs<&'static str, String> {
    let amounts = [
        ("capacity", &one.capacity),
        ("systemReserved", &one.system_reserved),
        ("kubeReserved", &one.kube_reserved),
        ("hardThreshold", &one.hard_threshold),
        ("hugePages", &one.huge_pages),
        ("allocatable", &one.allocatable),
        ("podsLimit", &one.pods_limit),
    ];
    Pairs(amounts.map(|(name, amount)| (name, amount.canonical())).to_vec())
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
