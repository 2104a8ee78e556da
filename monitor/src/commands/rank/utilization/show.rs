//! The answer as a table or as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::super::output::{self, aligned, printable};
use super::classify::{Row, Share, Thresholds, Verdict};

/// The nodes, and the parameters of the strategy by which they are judged.
pub struct Answer<'a> {
    pub rows: &'a [Row<'a>],
    pub thresholds: &'a Thresholds,
    pub targets: &'a Thresholds,
    /// So many underutilized nodes are accepted.
    pub number_of_nodes: usize,
}

pub fn table(writer: &mut impl Write, answer: &Answer<'_>) -> io::Result<()> {
    let Answer { rows, thresholds, targets, .. } = answer;
    writeln!(writer, "thresholds {}; target thresholds {}\n", percentages(thresholds), percentages(targets))?;
    let titles = ["NODE", "CPU", "MEMORY", "PODS", "VERDICT"].map(str::to_owned).to_vec();
    let cells = |row: &Row<'_>| {
        let share = |share: &Share| format!("{:.1}% of {}", share.percent, share.allocatable.canonical());
        let mut verdict =
            row.verdict.map_or_else(|| "left out: not ready".to_owned(), |verdict| verdict.as_str().to_owned());
        if row.node.is_unschedulable() {
            verdict.push_str(" (unschedulable)");
        }
        [printable(row.node.name())].into_iter().chain(row.shares.iter().map(share)).chain([verdict]).collect()
    };
    let table: Vec<Vec<String>> = [titles].into_iter().chain(rows.iter().map(cells)).collect();
    writer.write_all(aligned(&table, 3, |column| (1..4).contains(&column)).as_bytes())?;
    writeln!(writer, "\n{}", printable(conclusion(answer)))
}

fn percentages(Thresholds(thresholds): &Thresholds) -> String {
    thresholds.iter().map(|(resource, percent)| format!("{resource} {percent}%")).collect::<Vec<_>>().join(", ")
}

/// Returns a note on a node about which the descheduler knows less than the scheduler: a resize there is pending or infeasible.
pub fn specified_note(specified: &Row<'_>) -> String {
    let share = |share: &Share| format!("{} {:.1}%", share.resource, share.percent);
    let shares: Vec<String> = specified.shares.iter().map(share).collect();
    let verdict = specified.verdict.map_or("left out", Verdict::as_str);
    format!(
        "node {}: pods there ask for more or less than they have (a resize in place); the descheduler counts what they ask for: {}: {verdict}",
        printable(specified.node.name()),
        shares.join(", ")
    )
}

/// Returns what `LowNodeUtilization` would do with these nodes, by the conditions of descheduler 0.36 in their order.
fn conclusion(answer: &Answer<'_>) -> String {
    let Answer { rows, number_of_nodes, .. } = answer;
    let of = |verdict| -> Vec<String> {
        rows.iter().filter(|row| row.verdict == Some(verdict)).map(|row| row.node.name().to_owned()).collect()
    };
    let (under, over) = (of(Verdict::Underutilized), of(Verdict::Overutilized));
    let nothing = |reason: &str| format!("LowNodeUtilization would evict nothing: {reason}");
    if under.is_empty() {
        nothing("no node is underutilized")
    } else if under.len() <= *number_of_nodes {
        let number = under.len();
        nothing(&format!("{number} underutilized, and numberOfNodes accepts up to {number_of_nodes}"))
    } else if under.len() == rows.iter().filter(|row| row.verdict.is_some()).count() {
        nothing("all nodes are underutilized")
    } else if over.is_empty() {
        nothing("no node is overutilized")
    } else {
        let [over, under] = [over, under].map(|names| output::few(&names, output::NAMES));
        format!("LowNodeUtilization would evict pods from {over}, to make the scheduler use {under}")
    }
}

pub fn json(writer: &mut impl Write, answer: &Answer<'_>) -> io::Result<()> {
    let Answer { rows, thresholds, targets, number_of_nodes } = answer;
    let limits = |Thresholds(limits): &Thresholds| -> Value {
        limits.iter().map(|(resource, percent)| (resource.clone(), Value::from(*percent))).collect()
    };
    let share = |share: &Share| {
        let Share { resource, requested, allocatable, percent } = share;
        let amounts =
            json!({"requested": requested.canonical(), "allocatable": allocatable.canonical(), "percent": percent});
        ((*resource).to_owned(), amounts)
    };
    let node = |row: &Row<'_>| {
        json!({
            "node": row.node.name(),
            "ready": row.node.is_ready(),
            "unschedulable": row.node.is_unschedulable(),
            "utilization": row.shares.iter().map(share).collect::<Value>(),
            "verdict": row.verdict.map(Verdict::as_str),
        })
    };
    let answer = json!({
        "numberOfNodes": number_of_nodes,
        "conclusion": conclusion(answer),
        "thresholds": limits(thresholds),
        "targetThresholds": limits(targets),
        "nodes": rows.iter().map(node).collect::<Vec<_>>(),
    });
    serde_json::to_writer_pretty(&mut *writer, &answer)?;
    writer.write_all(b"\n")
}
