//! The answer as JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::eviction::rank::{Candidate as _, KeyValue};
use crate::units::Amount;
use crate::workloads::Preference;
use crate::workloads::pod::FullName;

use super::super::output::{Pairs, seconds};
use super::oom::{self, OomOrder};
use super::verdict::{Judged, Row, Verdict};

/// Writes one JSON object.
pub fn write(writer: &mut impl Write, verdict: &Verdict<'_>, node: &str, oom: Option<&OomOrder>) -> io::Result<()> {
    let Verdict { signal, value, thresholds, order: _, ranking, first, eviction, not_applied } = verdict;
    let answer = Answer {
        signal: signal.as_str(),
        node,
        available: value.map(|value| value.available),
        capacity: value.map(|value| value.capacity),
        time: value.and_then(|value| value.at).map(super::time_words),
        thresholds: thresholds.iter().map(Threshold::of).collect(),
        ranking: ranking.iter().map(|row| Ranked::of(row, verdict)).collect(),
        first: first.and_then(|first| ranking.get(first)).map(|row| row.ranked.candidate.name()),
        grace_period_seconds: eviction.as_ref().map(|eviction| eviction.grace_period_seconds),
        message: eviction.as_ref().map(|eviction| eviction.message.as_str()),
        not_applied: not_applied.iter().map(|rule| rule.as_str()).collect(),
        oom: oom.map(oom::json),
    };
    serde_json::to_writer_pretty(&mut *writer, &answer)?;
    writer.write_all(b"\n")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    signal: &'static str,
    node: &'a str,
    available: Option<i64>,
    capacity: Option<i64>,
    time: Option<String>,
    thresholds: Vec<Threshold>,
    ranking: Vec<Ranked<'a>>,
    first: Option<FullName<'a>>,
    grace_period_seconds: Option<i64>,
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_applied: Vec<&'static str>,
    /// With `--oom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    oom: Option<oom::Answer<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Threshold {
    threshold: String,
    kind: &'static str,
    #[serde(serialize_with = "seconds")]
    grace_period_seconds: Duration,
    quantity: Option<i64>,
    met: bool,
}

impl Threshold {
    fn of(judged: &Judged) -> Self {
        Self {
            threshold: judged.threshold.to_string(),
            kind: judged.threshold.kind(),
            grace_period_seconds: judged.threshold.grace_period,
            quantity: judged.quantity.map(Amount::units),
            met: judged.met,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ranked<'a> {
    pod: FullName<'a>,
    uid: &'a str,
    /// `kind/name` of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    qos_class: &'static str,
    priority: i32,
    /// The usage that the place follows from: by the agent's rules for memory what the end of the pod gives back.
    usage: Option<i64>,
    request: Option<i64>,
    exempt: Option<&'a str>,
    keys: Pairs<&'static str, Value>,
    explanation: &'a str,
}

impl<'a> Ranked<'a> {
    fn of(row: &'a Row<'_>, verdict: &Verdict<'_>) -> Self {
        let Row { ranked, exempt, explanation } = row;
        let facts = ranked.facts(verdict.order);
        let keys = verdict.order.keys().iter().map(|key| key.as_str()).zip(ranked.keys(verdict.order));
        Self {
            pod: ranked.candidate.name(),
            uid: &ranked.candidate.pod.metadata.uid,
            owner: ranked.candidate.pod.owner(),
            qos_class: facts.qos.as_str(),
            priority: facts.priority,
            usage: facts.usage.map(Amount::units),
            request: facts.request.map(Amount::units),
            exempt: exempt.as_deref(),
            keys: Pairs(keys.map(|(name, value)| (name, json(value))).collect()),
            explanation,
        }
    }
}

fn json(value: KeyValue) -> Value {
    match value {
        KeyValue::Preference(Preference::None) => "none".into(),
        KeyValue::Preference(_) => "avoid".into(),
        KeyValue::QosClass(class) => class.as_str().into(),
        KeyValue::ExceedsRequests(exceeds) => exceeds.into(),
        KeyValue::Priority(priority) => priority.into(),
        KeyValue::UsageAboveRequest(amount)
        | KeyValue::Excess(amount)
        | KeyValue::Usage(amount)
        | KeyValue::Request(amount) => amount.units().into(),
        KeyValue::NoStatistics => Value::Null,
    }
}
