//! `node-pressure-monitor tolerations`: the running pods that taints would evict.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::eviction::tolerations::{Fate, Outcome, Taint, TaintError, outcome};
use crate::workloads::Pod;
use crate::workloads::pod::FullName;

use super::input::CommandError;
use super::output::{self, TableOrJson, printable};
use super::rank::read;

/// Options of `tolerations`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// Pods: a list as kubectl get pods -A -o json prints it, one pod, or an array of pods; - is standard input
    #[arg(long, value_name = "PODS.json")]
    pods: PathBuf,
    /// Taint of the node, as kubectl taint takes it; repeat the option for each taint, also for those already set
    #[arg(long = "taint", value_name = "KEY[=VALUE]:EFFECT", required = true, value_parser = parse)]
    taints: Vec<Taint>,
    /// Only pods of this node; default: all pods
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TableOrJson::Table)]
    output: TableOrJson,
}

const HELP: &str = r#"  kubectl get pods -A -o json --field-selector spec.nodeName=NODE > pods.json
  node-pressure-monitor tolerations --pods pods.json --taint node-pressure-monitor/memory-pressure:NoExecute

A taint with the effect NoExecute evicts running pods that do not tolerate it, critical pods included. If the tolerations of a pod give
tolerationSeconds, the pod is evicted after the shortest of them. NoSchedule and PreferNoSchedule evict no running pod; the answer says if a
pod could not be scheduled again (NoSchedule), or if the scheduler would prefer other nodes for it (PreferNoSchedule). The rules are those of Kubernetes 1.36.

--output json prints one object:

  {"taints", "pods": [{"pod", "uid", "fate": "goesAtOnce"|"goesAfter"|"stays", "seconds", "because", "keptAwayBy", "avoidedBy",
   "exempt"}]}

exempt is the reason why the agent itself would never evict the pod. Terminated pods are left out.

Exit status: 0 answered; 1 the pods are wrong, or the answer cannot be written; 2 wrong usage, or a file that cannot be read."#;

fn parse(text: &str) -> Result<Taint, TaintError> {
    text.parse()
}

pub fn run(options: &Options) -> Result<(), CommandError> {
    let mut pods = read::pods(&options.pods)?;
    if let Some(node) = &options.node {
        let before = pods.len();
        pods.retain(|pod| pod.spec.node_name == *node);
        if pods.len() < before {
            output::note(format_args!("{} of {before} pods are not on {node} and left out", before - pods.len()));
        }
    }
    pods.retain(Pod::is_active);
    let mut rows: Vec<Row<'_>> = pods.iter().map(|pod| Row::of(pod, &options.taints)).collect();
    rows.sort_by(|a, b| a.outcome.fate.cmp(&b.outcome.fate).then_with(|| a.pod.cmp(&b.pod)));
    let write = |out: &mut _| match options.output {
        TableOrJson::Table => table(out, &rows, &options.taints),
        TableOrJson::Json => json(out, &rows, &options.taints),
    };
    output::answer(write).map_err(CommandError::Output)
}

#[derive(Debug)]
struct Row<'a> {
    pod: FullName<'a>,
    uid: &'a str,
    outcome: Outcome<'a>,
    exempt: Option<String>,
}

impl<'a> Row<'a> {
    fn of(pod: &'a Pod, taints: &'a [Taint]) -> Self {
        Self {
            pod: pod.qualified_name(),
            uid: &pod.metadata.uid,
            outcome: outcome(&pod.spec.tolerations, taints),
            exempt: pod.exemption().map(|exemption| exemption.as_str().to_owned()),
        }
    }

    fn reason(&self) -> String {
        let Outcome { fate, because, kept_away_by, avoided_by } = &self.outcome;
        let mut reason = match (fate, because) {
            (Fate::GoesAfter(_), Some(taint)) => format!("tolerates {taint} only for this time"),
            (Fate::GoesAtOnce, Some(taint)) => format!("does not tolerate {taint}"),
            (Fate::GoesAtOnce | Fate::GoesAfter(_) | Fate::Stays, _) => String::new(),
        };
        let mut add = |text: String| {
            if !reason.is_empty() {
                reason.push_str("; ");
            }
            reason.push_str(&text);
        };
        match (fate, kept_away_by, avoided_by) {
            (Fate::Stays, Some(taint), _) => add(format!("could not be scheduled again because of {taint}")),
            (Fate::Stays, None, Some(taint)) => {
                add(format!("could be scheduled again, if no other node is better, in spite of {taint}"));
            }
            _ => {}
        }
        if let (Fate::GoesAtOnce | Fate::GoesAfter(_), Some(exempt)) = (fate, &self.exempt) {
            add(format!("the agent itself would never evict it: {exempt}"));
        }
        reason
    }
}

fn table(writer: &mut impl Write, rows: &[Row<'_>], taints: &[Taint]) -> io::Result<()> {
    let names: Vec<String> = taints.iter().map(ToString::to_string).collect();
    writeln!(writer, "with {}:\n", names.join(", "))?;
    let pods: Vec<String> = rows.iter().map(|row| printable(row.pod)).collect();
    let width = pods.iter().map(|pod| pod.chars().count()).max().unwrap_or(0).max(3);
    writeln!(writer, "{:<width$}  {:<16}  WHY", "POD", "FATE")?;
    for (row, pod) in rows.iter().zip(&pods) {
        let fate = match row.outcome.fate {
            Fate::GoesAtOnce => "evicted at once".to_owned(),
            Fate::GoesAfter(time) => format!("evicted in {} s", time.as_secs()),
            Fate::Stays => "stays".to_owned(),
        };
        let line = format!("{pod:<width$}  {fate:<16}  {}", printable(row.reason()));
        writeln!(writer, "{}", line.trim_end())?;
    }
    let evicted = rows.iter().filter(|row| row.outcome.fate != Fate::Stays).count();
    writeln!(writer, "\n{evicted} of {} pods would be evicted", rows.len())
}

fn json(writer: &mut impl Write, rows: &[Row<'_>], taints: &[Taint]) -> io::Result<()> {
    let answer = |row: &Row<'_>| {
        let (fate, seconds) = match row.outcome.fate {
            Fate::GoesAtOnce => ("goesAtOnce", None),
            Fate::GoesAfter(time) => ("goesAfter", Some(time.as_secs())),
            Fate::Stays => ("stays", None),
        };
        json!({
            "pod": row.pod.to_string(),
            "uid": row.uid,
            "fate": fate,
            "seconds": seconds,
            "because": row.outcome.because.map(ToString::to_string),
            "keptAwayBy": row.outcome.kept_away_by.map(ToString::to_string),
            "avoidedBy": row.outcome.avoided_by.map(ToString::to_string),
            "exempt": row.exempt,
        })
    };
    let pods: Vec<Value> = rows.iter().map(answer).collect();
    let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
    serde_json::to_writer(&mut *writer, &json!({"taints": taints, "pods": pods}))?;
    writeln!(writer)
}
