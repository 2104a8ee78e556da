//! The answer as a table: a row for each line with a change.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::config::Policy;
use crate::eviction::SignalValue;
use crate::eviction::decider::Replayed;
use crate::eviction::rank::Candidate as _;
use crate::eviction::rank::Order;
use crate::units::{Amount, format_go_duration};

use super::super::output::{amount, few, printable};
use super::answer::Answer;

/// Width of a time to the second.
const TIME: usize = 20;
const SIGNAL: usize = 44;
const CONDITIONS: usize = 14;

/// The last row, so that an equal row is not repeated.
#[derive(Debug)]
pub struct Table<'a> {
    policy: &'a Policy,
    last: Option<State>,
    repeated: u64,
    repeated_until: String,
}

/// The parts of a row; a row is printed only if one of them changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    crossed: Vec<bool>,
    conditions: String,
    decision: String,
}

impl<'a> Table<'a> {
    pub fn new(policy: &'a Policy) -> Self {
        Self { policy, last: None, repeated: 0, repeated_until: String::new() }
    }

    /// Writes a row if the answer differs from the last row.
    pub fn write(&mut self, writer: &mut impl Write, answer: &Answer<'_>) -> io::Result<()> {
        let decision = &answer.decision;
        let conditions: Vec<&str> = decision.assessment.conditions.iter().map(|condition| condition.as_str()).collect();
        let conditions = if conditions.is_empty() { "-".to_owned() } else { conditions.join(",") };
        let crossed = decision.assessment.crossed.clone();
        let state = State { crossed, conditions, decision: decision_words(answer) };
        let evicts = decision.eviction.is_some() || !decision.local_storage.is_empty();
        if !evicts && self.last.as_ref() == Some(&state) {
            self.repeated += 1;
            answer.time.clone_into(&mut self.repeated_until);
            return Ok(());
        }
        if self.last.is_none() {
            writeln!(writer, "{:<TIME$}  {:<SIGNAL$}  {:<CONDITIONS$}  DECISION", "TIME", "SIGNAL", "CONDITIONS")?;
        }
        self.end(writer)?;
        let State { conditions, decision: words, .. } = &state;
        let signal = signal_words(answer);
        writeln!(writer, "{:<TIME$}  {signal:<SIGNAL$}  {conditions:<CONDITIONS$}  {words}", answer.time)?;
        self.explain(writer, answer)?;
        self.last = Some(state);
        Ok(())
    }

    /// Writes how often the last row was repeated.
    pub fn end(&mut self, writer: &mut impl Write) -> io::Result<()> {
        let repeated = std::mem::take(&mut self.repeated);
        if repeated > 0 {
            let lines = if repeated == 1 { "line" } else { "lines" };
            writeln!(writer, "{:<TIME$}  … {repeated} more {lines} like this, until {}", "", self.repeated_until)?;
        }
        Ok(())
    }

    /// Writes why the pod was chosen, and its message.
    fn explain(&self, writer: &mut impl Write, answer: &Answer<'_>) -> io::Result<()> {
        let decision = &answer.decision;
        if let Some(eviction) = &decision.eviction {
            let ranked = decision.ranking.iter().find(|ranked| std::ptr::eq(ranked.candidate.pod, eviction.pod));
            let resource = decision.acted_on.as_ref().map(|met| met.threshold.signal.resource());
            if let Some((ranked, resource)) = ranked.zip(resource) {
                let why = printable(ranked.explanation(Order::of(self.policy, resource)));
                writeln!(writer, "{:<TIME$}    why   {why}", "")?;
            }
            if let Some(worth) = decision.worth {
                writeln!(writer, "{:<TIME$}    worth {}", "", worth.words())?;
            }
            writeln!(writer, "{:<TIME$}    told  {}", "", printable(eviction.message.trim_end()))?;
            let others: Vec<String> = decision
                .ranking
                .iter()
                .filter(|ranked| !std::ptr::eq(ranked.candidate.pod, eviction.pod))
                .map(|ranked| ranked.candidate.name().to_string())
                .collect();
            if !others.is_empty() {
                writeln!(writer, "{:<TIME$}    rest  {}", "", printable(few(&others, SHOWN)))?;
            }
        }
        for eviction in &decision.local_storage {
            let (name, message) = (printable(eviction.pod.full_name()), printable(eviction.message.trim_end()));
            writeln!(writer, "{:<TIME$}    {name} ({}): {message}", "", eviction.cause.as_str())?;
        }
        Ok(())
    }
}

/// Writes the outcome of replaying a recorded turn.
pub fn write_replayed(writer: &mut impl Write, time: &str, replayed: &Replayed) -> io::Result<()> {
    let Replayed { steps, victim, explanation, difference } = replayed;
    let victim = victim.as_deref().unwrap_or("no workload");
    match difference {
        None => writeln!(writer, "{time}  {steps} steps, the same as recorded: evicts {}", printable(victim))?,
        Some(difference) => {
            writeln!(writer, "{time}  {steps} steps, NOT as recorded: evicts {}", printable(victim))?;
            writeln!(writer, "{:<TIME$}    differs  {}", "", printable(difference))?;
        }
    }
    match explanation {
        Some(explanation) => writeln!(writer, "{:<TIME$}    why   {}", "", printable(explanation)),
        None => Ok(()),
    }
}

/// Number of further candidates shown in their order.
const SHOWN: usize = 4;

/// Returns the signal acted on or with a crossed threshold; without one the first signal.
fn signal_words(answer: &Answer<'_>) -> String {
    let decision = &answer.decision;
    let crossed = answer.armed.iter().zip(&decision.assessment.crossed).find(|(_, crossed)| **crossed);
    let acted_on = decision.acted_on.as_ref().map(|met| met.threshold.signal);
    let signal = acted_on.or_else(|| crossed.map(|(armed, _)| armed.threshold.signal));
    let value = match signal {
        Some(signal) => decision.observation.get(signal),
        None => decision.observation.signals.first().copied(),
    };
    value.map_or_else(|| "-".to_owned(), value_words)
}

fn value_words(value: SignalValue) -> String {
    let resource = value.signal.resource();
    let words = |units| amount(Amount::from_units(units), resource);
    format!("{} {} of {}", value.signal, words(value.available), words(value.capacity))
}

fn decision_words(answer: &Answer<'_>) -> String {
    let decision = &answer.decision;
    let assessment = &decision.assessment;
    let mut words = String::new();
    if !decision.garbage_collection.is_empty() {
        let collectors: Vec<&str> = decision.garbage_collection.iter().map(|collector| collector.as_str()).collect();
        // Writing to a String does not fail.
        let _ = write!(words, "collects garbage ({})", collectors.join(", "));
        words.push_str(if decision.collection_sufficed { ", which is enough" } else { ", " });
    }
    let local = decision.local_storage.len();
    match (&decision.eviction, &decision.acted_on) {
        (Some(eviction), Some(met)) => {
            let (name, grace) = (printable(eviction.pod.full_name()), eviction.grace_period_seconds);
            let _ = write!(words, "evicts {name} within {grace} s for {}", met.threshold);
        }
        (None, Some(met)) if !decision.collection_sufficed => {
            let _ = write!(words, "finds no pod to evict for {}", met.threshold);
        }
        _ if local > 0 => {
            let pods = if local == 1 { "pod" } else { "pods" };
            let _ = write!(words, "evicts {local} {pods} above a limit of local storage");
        }
        (_, Some(_)) => {}
        (_, None) if !assessment.met.is_empty() => words.push_str("waits for newer statistics"),
        (_, None) => {
            let crossed = answer.armed.iter().zip(&assessment.crossed).filter(|(_, crossed)| **crossed);
            let waiting: Vec<String> = crossed
                .map(|(armed, _)| {
                    format!("{} to last {}", armed.threshold, format_go_duration(armed.threshold.grace_period))
                })
                .collect();
            if !waiting.is_empty() {
                let _ = write!(words, "waits for {}", waiting.join(" or "));
            }
        }
    }
    if words.is_empty() { "-".to_owned() } else { words }
}
