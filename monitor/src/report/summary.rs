//! The summary for people: the node's figures and the agent's assessment.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::disk_usage_metrics::disk_usage;
use super::publications::Publication;
use super::stats::{Cgroups, CpuHistory};
use super::summary_figures::{Page, daemons, exhaustion, left_out, pressure, roles, sources, swap};
use super::{ClassReport, MemoryReport, NodeReport, ThresholdReport};
use crate::config::{Mode, Semantics, Threshold};
use crate::kernel::ProbeState;
use crate::units::{Bytes, Signal, format_go_duration};

#[derive(Debug)]
pub struct StartSummary<'a> {
    pub version: &'a str,
    pub mode: Mode,
    /// The figure of memory that evictions follow.
    pub semantics: Semantics,
    /// The cgroup version and where it is mounted, e.g. `v2 at /sys/fs/cgroup`.
    pub cgroup: &'a str,
    pub listen: SocketAddr,
    pub node: &'a NodeReport,
}

/// Renders the summary, at most 100 columns wide, with a trailing line break.
pub fn render_summary(summary: &StartSummary<'_>) -> String {
    let mut page = Page::default();
    page.row(
        "mode",
        match summary.mode {
            Mode::Observe => "observe: nothing is touched; what would be evicted is logged and counted",
            Mode::Enforce => "enforce: workloads are killed when a threshold is met; oom_score_adj is set",
        },
    );
    memory(&mut page, summary);
    thresholds(&mut page, summary);
    exhaustion(&mut page, summary.node);
    daemons(&mut page, summary.node);
    roles(&mut page, summary.node);
    pressure(&mut page, summary.node);
    workloads(&mut page, summary.node);
    disk_usage(&mut page, summary.node);
    probes(&mut page, summary.node);
    sources(&mut page, summary.node);
    summary.node.cluster.iter().for_each(|report| super::cluster_metrics::rows(&mut page, report));
    page.row("cgroup", summary.cgroup);
    page.row("metrics", &format!("http://{}/metrics", summary.listen));
    format!("node-pressure-monitor {}\n\n{}", summary.version, page.finish())
}

/// Renders the page of a publication. Reads the cgroup files of every workload to measure its working set.
pub fn render_page(publication: &Publication) -> String {
    let Publication { report, mode, semantics, hierarchy, listen, .. } = publication;
    let mut history = CpuHistory::default();
    let mut cgroups = Cgroups::new(hierarchy, &mut history);
    let mut measure = |workload: &str| {
        let memory = cgroups.memory(&cgroups.open(workload)?, workload)?;
        Some(Bytes(memory.working_set_bytes))
    };
    let node = NodeReport { classes: report.measured_classes(&mut measure), ..report.clone() };
    let hybrid = if hierarchy.hybrid { ", hybrid: v2 is mounted without the memory controller" } else { "" };
    render_summary(&StartSummary {
        version: env!("CARGO_PKG_VERSION"),
        mode: *mode,
        semantics: *semantics,
        cgroup: &format!("{} at {}{hybrid}", hierarchy.version, hierarchy.memory.display()),
        listen: *listen,
        node: &node,
    })
}

fn memory(page: &mut Page, summary: &StartSummary<'_>) {
    let Some(memory) = &summary.node.memory else {
        page.row("memory", "not readable: no threshold on memory.available can be met");
        return;
    };
    page.row("memory", &format!("capacity {}, working set {}", memory.capacity, memory.working_set));
    for semantics in [Semantics::Corrected, Semantics::Kubelet] {
        let acts = if semantics == summary.semantics { "<- compared with the thresholds" } else { "" };
        let available = memory.available(semantics);
        page.row("memory", &format!("available, {:<9} {available:>11}  {acts}", semantics.as_str()));
        let text = format!("= {}", formula(memory, semantics));
        page.wrapped("memory", &text, 2, 4);
    }
    if let Some(text) = left_out(&summary.node.figures) {
        page.wrapped("memory", &text, 0, 2);
    }
    if let Some(report) = summary.node.figures.swap.filter(|report| !report.total.is_zero()) {
        page.wrapped("memory", &swap(&report), 0, 2);
    }
}

/// Returns the formula of the figure with its numbers.
fn formula(memory: &MemoryReport, semantics: Semantics) -> String {
    match semantics {
        Semantics::Corrected => {
            let mut text = format!("MemAvailable {}", memory.mem_available);
            for (what, bytes) in &memory.additions {
                let _ = write!(text, " + {what} {bytes}");
            }
            for (what, bytes) in &memory.corrections {
                let _ = write!(text, " - {what} {bytes}");
            }
            text
        }
        Semantics::Kubelet => {
            format!("MemTotal {} - (usage {} - inactive_file {})", memory.mem_total, memory.usage, memory.inactive_file)
        }
    }
}

fn thresholds(page: &mut Page, summary: &StartSummary<'_>) {
    if summary.node.thresholds.is_empty() {
        page.row("thresholds", "none: nothing will ever be evicted");
        return;
    }
    let width = summary.node.thresholds.iter().map(|report| report.threshold.to_string().len()).max().unwrap_or(0);
    for report in &summary.node.thresholds {
        let threshold = &report.threshold;
        let memory = summary.node.memory.as_ref().filter(|_| threshold.signal == Signal::MemoryAvailable);
        let other = summary.node.figures.signals.iter().find(|report| report.signal == threshold.signal);
        let available = memory
            .map(|memory| memory.available(summary.semantics))
            .or_else(|| other.map(|report| Bytes(u64::try_from(report.available).unwrap_or(0))));
        let name = threshold.to_string();
        page.row("thresholds", &format!("{} {name:<width$}  {}", threshold.kind(), standing(report, available)));
        let whom = report.evicts.as_ref().map(|evicts| format!("may evict {evicts}"));
        if let Some(text) = report.reported_only.map(|why| format!("reported only: {why}")).or(whom) {
            page.wrapped("thresholds", &text, 2, 4);
        }
    }
}

fn standing(report: &ThresholdReport, available: Option<Bytes>) -> String {
    let grace = |threshold: &Threshold| {
        if threshold.is_hard() {
            String::new()
        } else {
            format!(", evicts after {}", format_go_duration(threshold.grace_period))
        }
    };
    let is_bytes = report.threshold.signal.resource().is_bytes();
    let words = |amount: Bytes| if is_bytes { amount.to_string() } else { amount.0.to_string() };
    let distance = match (report.bytes, available) {
        (Some(value), Some(available)) if report.met => {
            format!("MET: {} below {}", words(value.saturating_sub(available)), words(value))
        }
        (Some(value), Some(available)) => {
            format!("{} above {}", words(available.saturating_sub(value)), words(value))
        }
        (Some(_), None) if report.met => "MET".to_owned(),
        (Some(_), None) => "not met".to_owned(),
        (None, _) => "not observed: can not be met".to_owned(),
    };
    let unarmed = report.unarmed.map_or(String::new(), |why| format!("; evicts nothing: {}", why.reason()));
    match report.reported_only {
        Some(_) => distance + &unarmed,
        None => distance + &grace(&report.threshold) + &unarmed,
    }
}

fn workloads(page: &mut Page, node: &NodeReport) {
    let total: usize = node.classes.iter().map(|class| class.count).sum();
    if total == 0 {
        page.row("workloads", "none found: nothing could be evicted");
    }
    for class in node.classes.iter().filter(|class| class.count > 0) {
        let ClassReport { qos_class, count, working_set, largest, .. } = class;
        page.row("workloads", &format!("{qos_class:<10} {count:>4} {working_set:>11}"));
        for (name, bytes) in largest {
            page.largest("workloads", *bytes, &node.names.of(name).display);
        }
    }
    if !node.protected.is_empty() {
        let names: Vec<_> = node.protected.iter().map(|path| node.names.of(path).display).collect();
        let text = format!("protected  {:>4} {}", names.len(), names.join(", "));
        page.row("workloads", &text);
    }
    for reach in &node.patterns {
        let text = format!("{}: \"{}\" {}", reach.field, reach.pattern, reach.sentence());
        page.wrapped("patterns", &text, 0, 2);
    }
}

fn probes(page: &mut Page, node: &NodeReport) {
    let attached: Vec<_> =
        node.probes.iter().filter(|probe| probe.is_attached()).map(|probe| probe.name.as_str()).collect();
    let head = format!("{} of {} attached", attached.len(), node.probes.len());
    let names = if attached.is_empty() { String::new() } else { format!(": {}", attached.join(", ")) };
    page.wrapped("probes", &format!("{head}{names}"), 0, 2);
    for probe in &node.probes {
        if let ProbeState::Missing(reason) = &probe.state {
            page.wrapped("probes", &format!("missing {}: {reason}", probe.name), 0, 2);
        }
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
