//! The answer to one line of a trace.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::eviction::decider::Replayed;
use crate::eviction::evicted::{Eviction, REASON};
use crate::eviction::memory_benefit::Worth;
use crate::eviction::rank::Candidate as _;
use crate::eviction::synchronization::Synchronized;
use crate::eviction::{Armed, Observation};
use crate::units::Signal;
use crate::workloads::pod::FullName;

use super::super::output::Pairs;

/// The decision at one time.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The time as written.
    pub time: &'a str,
    pub armed: &'a [Armed],
    pub decision: Synchronized<'a>,
    pub pods: Option<&'a RawValue>,
}

/// Writes the answer as one line of JSON.
pub fn write_json(writer: &mut impl Write, answer: &Answer<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, &Record::of(answer))?;
    writer.write_all(b"\n")
}

/// Writes the outcome of replaying a recorded turn as one line of JSON.
pub fn write_replayed(writer: &mut impl Write, time: &str, replayed: &Replayed) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        time: &'a str,
        replayed: &'a Replayed,
    }
    serde_json::to_writer(&mut *writer, &Line { time, replayed })?;
    writer.write_all(b"\n")
}

/// An answer, with its fields in the printed order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    time: &'a str,
    signals: Pairs<&'static str, Value>,
    thresholds_met: Vec<String>,
    conditions: Vec<&'static str>,
    garbage_collection: Vec<&'static str>,
    ranking: Vec<FullName<'a>>,
    evict: Option<Evict<'a>>,
    local_storage_evictions: Vec<Evict<'a>>,
    /// The agent's rules that could not be applied, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_applied: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Value {
    available: i64,
    capacity: i64,
}

#[serde_with::skip_serializing_none]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Evict<'a> {
    pod: String,
    uid: &'a str,
    /// Missing, like the grace period, in an eviction for a limit of local storage.
    signal: Option<&'static str>,
    grace_period_seconds: Option<i64>,
    reason: &'static str,
    message: &'a str,
    /// What the end of the pod is worth, by the agent's rules for memory.
    worth: Option<String>,
}

impl<'a> Record<'a> {
    fn of(answer: &'a Answer<'_>) -> Self {
        let Answer { time, armed: _, decision, pods } = answer;
        Self {
            time,
            signals: signals(&decision.observation),
            thresholds_met: decision.assessment.met.iter().map(|met| met.threshold.to_string()).collect(),
            conditions: decision.assessment.conditions.iter().map(|condition| condition.as_str()).collect(),
            garbage_collection: decision.garbage_collection.iter().map(|collector| collector.as_str()).collect(),
            ranking: decision.ranking.iter().map(|ranked| ranked.candidate.name()).collect(),
            evict: decision
                .eviction
                .as_ref()
                .map(|eviction| Evict { worth: decision.worth.map(Worth::words), ..Evict::of(eviction) }),
            local_storage_evictions: decision.local_storage.iter().map(Evict::of).collect(),
            not_applied: decision.not_applied.iter().map(|rule| rule.as_str()).collect(),
            pods: *pods,
        }
    }
}

impl<'a> Evict<'a> {
    fn of(eviction: &'a Eviction<'_>) -> Self {
        let signal = eviction.cause.signal();
        Self {
            pod: eviction.pod.full_name(),
            uid: &eviction.pod.metadata.uid,
            signal: signal.map(Signal::as_str),
            grace_period_seconds: signal.map(|_| eviction.grace_period_seconds),
            reason: REASON,
            message: &eviction.message,
            worth: None,
        }
    }
}

fn signals(observation: &Observation) -> Pairs<&'static str, Value> {
    let values = Signal::ALL.into_iter().filter_map(|signal| {
        let value = observation.get(signal)?;
        Some((signal.as_str(), Value { available: value.available, capacity: value.capacity }))
    });
    Pairs(values.collect())
}
