//! The kernel's victim in the answer of `rank`.

use std::io::{self, Write};

use serde::Serialize;

use super::super::super::output::{aligned, amount as words, printable};
use super::{OomOrder, Scored};
use crate::units::{Amount, Resource};

/// Rows of the table.
const SHOWN: usize = 10;

/// Writes the first subjects, and whether the agent would evict the same workload.
pub fn table(writer: &mut impl Write, order: &OomOrder, agents: Option<&str>) -> io::Result<()> {
    let part = if order.is_exact { "PROCESS" } else { "CONTAINER" };
    writeln!(writer, "\nthe kernel's OOM killer: thousandths of memory and swap that are used, plus oom_score_adj\n")?;
    let titles = ["", "POD", part, "USAGE", "THOUSANDTHS", "OOM_SCORE_ADJ", "SCORE"].map(str::to_owned).to_vec();
    let row = |(index, scored): (usize, &Scored)| {
        let Scored { subject, usage_thousandths, score, .. } = scored;
        let part =
            subject.pid.map_or_else(|| printable(&subject.part), |pid| format!("{} ({pid})", printable(&subject.part)));
        let usage = words(Amount::from(subject.usage), Resource::Memory);
        let figures = [usage, usage_thousandths.to_string(), subject.adj.to_string(), score.to_string()];
        [(index + 1).to_string(), printable(&subject.workload), part].into_iter().chain(figures).collect()
    };
    let rows = order.scored.iter().take(SHOWN).enumerate().map(row);
    let table: Vec<Vec<String>> = [titles].into_iter().chain(rows).collect();
    writer.write_all(aligned(&table, 2, |column| column != 1 && column != 2).as_bytes())?;
    writeln!(writer, "\n{}", printable(conclusion(order, agents)))
}

fn conclusion(order: &OomOrder, agents: Option<&str>) -> String {
    let Some(victim) = order.victim() else {
        return "the kernel's OOM killer finds no victim here: no usage is known, or all are at -1000".to_owned();
    };
    let workload = &victim.subject.workload;
    let what = match victim.subject.pid {
        Some(pid) => format!("process {pid} ({}) of {workload}", victim.subject.part),
        None if victim.subject.part.is_empty() => workload.clone(),
        None => format!("container {} of {workload}", victim.subject.part),
    };
    let agents = match agents {
        Some(agents) if agents == workload => "the first that would be evicted, too".to_owned(),
        Some(agents) => format!("{agents} would be evicted first"),
        None => "no workload would be evicted".to_owned(),
    };
    format!("the kernel would kill {what}; {agents}")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer<'a> {
    /// Bytes of memory and swap.
    total: u64,
    victim: Option<Entry<'a>>,
    order: Vec<Entry<'a>>,
    spared: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    pod: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    usage: u64,
    usage_thousandths: i64,
    oom_score_adj: i64,
    score: i64,
}

impl<'a> Entry<'a> {
    fn of(scored: &'a Scored) -> Self {
        let Scored { subject, usage_thousandths, score, .. } = scored;
        let part = Some(subject.part.as_str()).filter(|part| !part.is_empty());
        Self {
            pod: &subject.workload,
            container: part.filter(|_| subject.pid.is_none()),
            process: part.filter(|_| subject.pid.is_some()),
            pid: subject.pid,
            usage: subject.usage.0,
            usage_thousandths: *usage_thousandths,
            oom_score_adj: subject.adj,
            score: *score,
        }
    }
}

pub fn json(order: &OomOrder) -> Answer<'_> {
    Answer {
        total: order.total.0,
        victim: order.victim().map(Entry::of),
        order: order.scored.iter().map(Entry::of).collect(),
        spared: order.spared,
    }
}
