//! The answer as a table or as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::super::output::{aligned, printable};
use super::super::nodes::Node;
use super::victims::{Candidate, Fit, Victims};
use crate::units::Quantity;

/// The question and its answer.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The node's name; empty if no pod names a node.
    pub node: &'a str,
    pub priority: i32,
    /// Empty if the requests of the pending pod are not known.
    pub requests: &'a [(String, Quantity)],
    pub victims: Victims<'a>,
}

pub fn table(writer: &mut impl Write, answer: &Answer<'_>) -> io::Result<()> {
    let Answer { node, priority, requests, victims } = answer;
    let Victims { candidates, spared, fit } = victims;
    let place = if node.is_empty() { String::new() } else { format!("node {}: ", printable(node)) };
    let (may, all) = (candidates.len(), candidates.len() + spared);
    let left_out = format!("{spared} of equal or higher priority are left out");
    writeln!(writer, "{place}a pending pod of priority {priority} may preempt {may} of {all} pods; {left_out}\n")?;
    if may > 0 {
        let mut rows = vec![titles(requests, fit.is_some())];
        rows.extend(candidates.iter().enumerate().map(|(index, candidate)| row(index, candidate, requests)));
        let is_right = |column| column == 0 || column == 2 || (4..4 + requests.len()).contains(&column);
        writer.write_all(aligned(&rows, 2, is_right).as_bytes())?;
        writeln!(writer)?;
    }
    writeln!(writer, "{}", conclusion(answer))
}

fn titles(requests: &[(String, Quantity)], with_fit: bool) -> Vec<String> {
    let fixed = ["", "POD", "PRIORITY", "STARTED"].map(str::to_owned);
    let requested = requests.iter().map(|(resource, _)| printable(resource.to_uppercase()));
    fixed.into_iter().chain(requested).chain(with_fit.then(|| "PREEMPTED".to_owned())).collect()
}

fn row(index: usize, candidate: &Candidate<'_>, requests: &[(String, Quantity)]) -> Vec<String> {
    let Candidate { pod, preempted } = candidate;
    let started = pod.status.start_time.map_or_else(|| "-".to_owned(), |time| time.to_string());
    let fixed = [(index + 1).to_string(), printable(pod.qualified_name()), pod.priority().to_string(), started];
    let requested = requests.iter().map(|(resource, _)| pod.scheduled_request(resource).canonical());
    let preempted = preempted.map(|preempted| if preempted { "yes" } else { "no" }.to_owned());
    let note = pod.metadata.deletion.map(|_| "already terminating".to_owned());
    fixed.into_iter().chain(requested).chain(preempted).chain(note).collect()
}

fn conclusion(answer: &Answer<'_>) -> String {
    let Answer { requests, victims, .. } = answer;
    let amounts = |list: &[(String, Quantity)]| {
        let amount = |(resource, amount): &(String, Quantity)| format!("{resource} {}", amount.canonical());
        printable(list.iter().map(amount).collect::<Vec<_>>().join(", "))
    };
    let subject = format!("the pending pod requests {}", amounts(requests));
    match &victims.fit {
        None if victims.candidates.is_empty() => "no pod may be preempted".to_owned(),
        None if !requests.is_empty() => {
            format!("{subject}: whether it fits is not known, because the requests of some pods are not known")
        }
        None => "the requests of the pending pod decide which of these are preempted: give --requests and --nodes"
            .to_owned(),
        Some(Fit::WithoutPreemption) => format!("{subject}: it fits without preemption"),
        Some(Fit::AfterPreemption) => {
            let count = victims.candidates.iter().filter(|it| it.preempted == Some(true)).count();
            format!(
                "{subject}: it fits once {} preempted",
                if count == 1 { "1 pod is".to_owned() } else { format!("{count} pods are") }
            )
        }
        Some(Fit::Never(free)) => {
            format!("{subject}: it does not fit, and preemption does not help: {} would be free then", amounts(free))
        }
    }
}

pub fn json(writer: &mut impl Write, answer: &Answer<'_>) -> io::Result<()> {
    let Answer { node, priority, requests, victims: Victims { candidates, spared, fit } } = answer;
    let amounts = |amount: &dyn Fn(&str, &Quantity) -> Quantity| -> Value {
        requests.iter().map(|(name, own)| (name.clone(), Value::from(amount(name, own).canonical()))).collect()
    };
    let candidate = |Candidate { pod, preempted }: &Candidate<'_>| {
        json!({
            "pod": pod.qualified_name(),
            "uid": pod.metadata.uid,
            "priority": pod.priority(),
            "startTime": pod.status.start_time.map(|time| time.to_string()),
            "terminating": pod.metadata.deletion.is_some(),
            "requests": amounts(&|name, _| pod.scheduled_request(name)),
            "preempted": preempted,
        })
    };
    let (fits, free) = match fit {
        None => (None, None),
        Some(Fit::WithoutPreemption) => (Some("withoutPreemption"), None),
        Some(Fit::AfterPreemption) => (Some("afterPreemption"), None),
        Some(Fit::Never(free)) => (Some("never"), Some(free)),
    };
    let free = free.map(|free| free.iter().map(|(name, amount)| (name.clone(), amount.canonical())).collect::<Value>());
    let answer = json!({
        "node": node,
        "priority": priority,
        "requests": amounts(&|_, own| own.clone()),
        "fits": fits,
        "insufficient": free,
        "candidates": candidates.iter().map(candidate).collect::<Vec<_>>(),
        "spared": spared,
    });
    serde_json::to_writer_pretty(&mut *writer, &answer)?;
    writer.write_all(b"\n")
}

/// Returns a note on a node on which the scheduler preempts nothing.
pub fn cordon_note(node: &Node) -> Option<String> {
    node.is_unschedulable().then(|| {
        format!(
            "node {} is unschedulable: the scheduler preempts there only for a pod that tolerates that",
            node.name()
        )
    })
}
