//! The answer as a table.

use std::io::{self, Write};

use crate::config::{Policy, RankingKey};
use crate::eviction::rank::Candidate as _;
use crate::eviction::rank::{Facts, KeyValue};
use crate::units::{Amount, Resource, format_go_duration};
use crate::workloads::Preference;

use super::super::output::{aligned, amount as words, printable};
use super::verdict::{ExpectedEviction, Judged, Verdict};

/// Writes the observation, the pods with every ranking key, and the eviction of the first pod.
pub fn write(writer: &mut impl Write, verdict: &Verdict<'_>, policy: &Policy, node: &str) -> io::Result<()> {
    observed(writer, verdict, node)?;
    let keys: Vec<&str> = verdict.order.keys().iter().map(|key| key.as_str()).collect();
    writeln!(writer, "ranking {}: {}, then the name\n", policy.ranking.as_str(), keys.join(", "))?;
    pods(writer, verdict)?;
    conclusion(writer, verdict)
}

fn observed(writer: &mut impl Write, verdict: &Verdict<'_>, node: &str) -> io::Result<()> {
    let resource = verdict.signal.resource();
    if !node.is_empty() {
        write!(writer, "node {}: ", printable(node))?;
    }
    match verdict.value {
        None => writeln!(writer, "{} is not observed: the statistics do not say enough", verdict.signal)?,
        Some(value) => {
            let at =
                value.at.map_or_else(|| "at a time not given".to_owned(), |at| format!("at {}", super::time_words(at)));
            let (available, capacity) = (Amount::from_units(value.available), Amount::from_units(value.capacity));
            writeln!(
                writer,
                "{} was {} of {} {at}",
                verdict.signal,
                words(available, resource),
                words(capacity, resource)
            )?;
        }
    }
    if verdict.thresholds.is_empty() {
        writeln!(writer, "  no threshold is set on it: no pod is evicted for it")?;
    }
    let texts = verdict.thresholds.iter().map(|judged| judged.threshold.to_string());
    let width = texts.map(|text| text.len()).max().unwrap_or(0);
    for judged in &verdict.thresholds {
        let threshold = judged.threshold.to_string();
        writeln!(writer, "  {} {threshold:<width$}  {}", judged.threshold.kind(), state(judged, verdict))?;
    }
    Ok(())
}

fn state(judged: &Judged, verdict: &Verdict<'_>) -> String {
    let resource = verdict.signal.resource();
    let Some((quantity, value)) = judged.quantity.zip(verdict.value) else { return "not observed".to_owned() };
    let left = Amount::from_units(value.available) - quantity;
    if !judged.met {
        return format!("not met: {} above it", words(left, resource));
    }
    let below = words(Amount::ZERO - left, resource);
    if judged.threshold.is_hard() {
        format!("met: {below} below it")
    } else {
        let grace = format_go_duration(judged.threshold.grace_period);
        format!("met: {below} below it; acted on when that lasts for {grace}")
    }
}

fn pods(writer: &mut impl Write, verdict: &Verdict<'_>) -> io::Result<()> {
    use RankingKey::{Priority, QosClass, Request, Usage};
    let keys = verdict.order.keys();
    let facts = [QosClass, Priority, Usage, Request];
    let none_preferred =
        verdict.ranking.iter().all(|row| row.ranked.facts(verdict.order).preference == Preference::None);
    let says_something = |key: &RankingKey| !(none_preferred && *key == RankingKey::Preference);
    let others = facts.into_iter().filter(|key| !keys.contains(key));
    let columns: Vec<RankingKey> = keys.iter().copied().filter(says_something).chain(others).collect();
    let resource = verdict.signal.resource();
    let mut table: Vec<Vec<String>> = Vec::with_capacity(verdict.ranking.len() + 1);
    let titles = columns.iter().map(|key| title(*key).to_owned());
    table.push(["".to_owned(), "POD".to_owned()].into_iter().chain(titles).chain(["".to_owned()]).collect());
    for (index, row) in verdict.ranking.iter().enumerate() {
        let facts = row.ranked.facts(verdict.order);
        let cells = columns.iter().map(|key| cell(KeyValue::of(*key, &facts), &facts, resource));
        let note = match &row.exempt {
            Some(exempt) => format!("exempt: {exempt}"),
            None if verdict.first == Some(index) => "<- would be evicted first".to_owned(),
            None => String::new(),
        };
        let name = printable(row.ranked.candidate.name());
        table.push([(index + 1).to_string(), name].into_iter().chain(cells).chain([note]).collect());
    }
    let is_right = |column| column != 1 && column <= columns.len() + 1;
    writer.write_all(aligned(&table, 2, is_right).as_bytes())
}

fn title(key: RankingKey) -> &'static str {
    match key {
        RankingKey::Preference => "PREFERENCE",
        RankingKey::QosClass => "QOS CLASS",
        RankingKey::ExceedsRequests => "EXCEEDS REQUEST",
        RankingKey::Priority => "PRIORITY",
        RankingKey::UsageAboveRequest => "ABOVE REQUEST",
        RankingKey::Excess => "EXCESS",
        RankingKey::Usage => "USAGE",
        RankingKey::Request => "REQUEST",
    }
}

fn cell(value: KeyValue, facts: &Facts, resource: Resource) -> String {
    match value {
        KeyValue::Preference(Preference::None) => "-".to_owned(),
        KeyValue::Preference(_) => "avoid".to_owned(),
        KeyValue::QosClass(class) => class.to_string(),
        KeyValue::ExceedsRequests(true) => "yes".to_owned(),
        KeyValue::ExceedsRequests(false) => "no".to_owned(),
        KeyValue::Priority(priority) => priority.to_string(),
        KeyValue::Request(_) if facts.request.is_none() => "-".to_owned(),
        KeyValue::UsageAboveRequest(amount)
        | KeyValue::Excess(amount)
        | KeyValue::Usage(amount)
        | KeyValue::Request(amount) => words(amount, resource),
        KeyValue::NoStatistics => "no statistics".to_owned(),
    }
}

fn conclusion(writer: &mut impl Write, verdict: &Verdict<'_>) -> io::Result<()> {
    writeln!(writer)?;
    let Some(row) = verdict.first.and_then(|first| verdict.ranking.get(first)) else {
        return writeln!(writer, "no pod would be evicted: none is active, or all are exempt");
    };
    writeln!(writer, "first: {}", printable(&row.explanation))?;
    if let Some(ExpectedEviction { threshold, met, grace_period_seconds, message }) = &verdict.eviction {
        let once = if *met { "" } else { "once that is met: " };
        let grace = match grace_period_seconds {
            0 => "killed at once".to_owned(),
            seconds => format!("grace period {seconds} s"),
        };
        writeln!(writer, "for {threshold}: {once}{grace}, message: {}", printable(message.trim_end()))?;
    }
    Ok(())
}
