//! The node's figures: the signals in the last minute, memory, pressure, stalls, and the largest workloads; and the steps of the
//! incident with their times.

use super::super::model::{Consumer, Incident, Memory, Pressure, SignalHistory, Step};
use super::text_page::{Page, clean, columns};
use super::words::{bytes, count, named, taken, time};

/// A column for each second.
const COLUMNS: u32 = 60;
const MINUTE: f64 = 60_000.0;
const SECOND: f64 = 1_000.0;
/// With this many samples in the last second, that second gets a drawing of its own.
const CLOSE_SAMPLES: usize = 5;
/// The most workloads in each list.
const SHOWN: usize = 6;
const STEPS_SHOWN: usize = 24;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub fn minute(page: &mut Page, incident: &Incident) {
    let has_figures = !incident.signals.is_empty() || incident.memory.is_some() || !incident.pressure.is_empty();
    let has_counts = incident.stalls_seconds.is_some() || !incident.inode_growth.is_empty();
    if !has_figures && !has_counts {
        return;
    }
    page.section("THE NODE IN THE MINUTE BEFORE");
    for (signal, history) in &incident.signals {
        signal_items(page, signal, history);
    }
    if let Some(memory) = &incident.memory {
        let taken = incident.evidence_after_ms.map(|after| format!(" ({})", taken(after))).unwrap_or_default();
        page.item("memory", &format!("{}{taken}", memory_words(memory)));
    }
    pressure_items(page, &incident.pressure);
    stall_items(page, incident);
}

fn signal_items(page: &mut Page, signal: &str, history: &SignalHistory) {
    let amount = |value: u64| if history.unit == "bytes" { bytes(value) } else { value.to_string() };
    let minute = || history.samples.iter().filter(|(before, _)| (0.0..=MINUTE).contains(before));
    // The value that held when the minute began counts, too.
    let held = history.samples.iter().rev().find(|(before, _)| *before > MINUTE).map(|(_, value)| (MINUTE, *value));
    let all: Vec<(f64, u64)> = held.into_iter().chain(minute().copied()).collect();
    let (Some(highest), Some(lowest)) =
        (all.iter().max_by_key(|(_, value)| *value), all.iter().rev().min_by_key(|(_, value)| *value))
    else {
        return page.item(signal, "no samples");
    };
    page.item("", signal);
    let row = |from: f64| spark(&history.samples, from, 0.0, COLUMNS, highest.1);
    page.drawing("60 s", &format!("|{}|", row(MINUTE)));
    let close = history.samples.iter().filter(|(before, _)| (0.0..=SECOND).contains(before)).count();
    if close >= CLOSE_SAMPLES {
        page.drawing("last 1 s", &format!("|{}|", row(SECOND)));
    }
    let at = |before: f64| {
        if before < 0.05 {
            "at the incident".to_owned()
        } else if before >= MINUTE {
            "a minute before".to_owned()
        } else {
            format!("{} before", time(before))
        }
    };
    let threshold = history.threshold.map(|threshold| format!("; threshold {}", amount(threshold))).unwrap_or_default();
    page.item(
        "",
        &format!(
            "highest {} ({}), lowest {} ({}){threshold}",
            amount(highest.1),
            at(highest.0),
            amount(lowest.1),
            at(lowest.0)
        ),
    );
    let mut notes = vec![count(all.len() as u64, "sample", "samples")];
    if history.thinned > 0 {
        notes.push(format!("{} older samples left out", history.thinned));
    }
    if let Some((before, value)) = history.samples.iter().rev().find(|(before, _)| *before < 0.0) {
        notes.push(format!("{} after the incident: {}", time(-before), amount(*value)));
    }
    page.item("", &notes.join(", "));
}

fn memory_words(memory: &Memory) -> String {
    let parts = [
        (memory.total_bytes, "total"),
        (memory.free_bytes, "free"),
        (memory.anon_bytes, "anonymous"),
        (memory.active_file_bytes, "active file"),
        (memory.inactive_file_bytes, "inactive file"),
        (memory.shmem_bytes, "shared"),
        (memory.slab_reclaimable_bytes, "reclaimable slab"),
        (memory.slab_unreclaimable_bytes, "other slab"),
        (memory.tables_and_stacks_bytes, "page tables and stacks"),
        (memory.hugetlb_bytes.filter(|size| *size > 0), "huge pages"),
    ];
    let parts: Vec<String> =
        parts.into_iter().filter_map(|(size, what)| size.map(|size| format!("{} {what}", bytes(size)))).collect();
    let swap = match memory.swap_total_bytes.zip(memory.swap_free_bytes) {
        Some((0, _)) => "; no swap".to_owned(),
        Some((total, free)) => format!("; swap {} of {} used", bytes(total.saturating_sub(free)), bytes(total)),
        None => String::new(),
    };
    format!("{}{swap}", parts.join(", "))
}

fn pressure_items(page: &mut Page, pressure: &[Pressure]) {
    if pressure.is_empty() {
        return;
    }
    let mut label = "pressure";
    for line in pressure.iter().filter(|line| line.avg10 > 0.0 || line.avg60 > 0.0) {
        page.item(
            label,
            &format!(
                "{} {} {}: {:.1} % of the last 10 s, {:.1} % of the last 60 s",
                line.scope, line.resource, line.kind, line.avg10, line.avg60
            ),
        );
        label = "";
    }
    if !label.is_empty() {
        page.item(label, "none in PSI's averages, which the kernel updates every two seconds");
    }
}

fn stall_items(page: &mut Page, incident: &Incident) {
    let span = incident.stalls_seconds.map(|span| time(span * SECOND));
    if let Some(span) = span.as_ref().filter(|_| incident.stalls.is_empty()) {
        page.item("stalls", &format!("no workload stalled in reclaim in the last {span}"));
    }
    let span = span.map(|span| format!(" in the last {span}")).unwrap_or_default();
    for (index, stalls) in incident.stalls.iter().take(SHOWN).enumerate() {
        let why = if stalls.kind == "memcg" { "at its own limit" } else { "because the node was short of memory" };
        page.item(
            if index == 0 { "stalls" } else { "" },
            &format!(
                "{}: {}, {} in total{span}, {why}",
                named(&stalls.workload, stalls.name.as_ref()),
                count(stalls.count, "stall", "stalls"),
                time(stalls.seconds * SECOND)
            ),
        );
    }
    for (index, growth) in incident.inode_growth.iter().take(SHOWN).enumerate() {
        let label = if index == 0 { "inodes" } else { "" };
        let made = growth.created.saturating_sub(growth.removed);
        page.item(
            label,
            &format!(
                "{} created {made} more inodes than it removed on {}",
                named(&growth.workload, growth.name.as_ref()),
                growth.device
            ),
        );
    }
}

pub fn consumers(page: &mut Page, incident: &Incident) {
    if incident.top_consumers.is_empty() {
        return;
    }
    let taken = incident.evidence_after_ms.map(|after| format!(" ({})", taken(after))).unwrap_or_default();
    page.section(&format!("LARGEST WORKLOADS{taken}"));
    let shown = incident.top_consumers.iter().take(SHOWN);
    let width = shown.clone().map(|it| columns(&named(&it.workload, it.name.as_ref()))).max().unwrap_or(0).min(56);
    for Consumer { workload, name, qos_class, working_set_bytes, request_bytes } in shown {
        let request = match *request_bytes {
            0 => "no request".to_owned(),
            request => format!("request {}", bytes(request)),
        };
        page.line(&format!(
            "  {:>10}  {:<width$}  {:<10}  {request}",
            bytes(*working_set_bytes),
            clean(&named(workload, name.as_ref())),
            clean(qos_class)
        ));
    }
}

/// Draws the lowest value of each column, from `from` to `to` milliseconds before the incident, between zero and `full`. Columns before
/// the first sample are blank.
fn spark(samples: &[(f64, u64)], from: f64, to: f64, columns: u32, full: u64) -> String {
    let width = (from - to) / f64::from(columns);
    let mut line = String::new();
    for column in 0..columns {
        let begin = from - width * f64::from(column);
        let end = begin - width;
        // The value that held when the column began, and the samples within it. The last column includes its end.
        let is_last = column + 1 == columns;
        let held = samples.iter().rev().find(|(before, _)| *before >= begin).map(|(_, value)| *value);
        let within =
            samples.iter().filter(|(before, _)| *before < begin && (*before > end || is_last && *before >= end));
        let lowest = within.map(|(_, value)| *value).chain(held).min();
        line.push(lowest.map_or(' ', |value| block(value, full)));
    }
    line
}

fn block(value: u64, full: u64) -> char {
    let last = BLOCKS.len() as u128 - 1;
    let full = u128::from(full.max(1));
    let level = (u128::from(value) * last + full / 2) / full;
    BLOCKS[usize::try_from(level.min(last)).unwrap_or(0)]
}

pub fn timeline(page: &mut Page, incident: &Incident) {
    if incident.steps.is_empty() {
        return;
    }
    page.section("TIMELINE");
    let mut before: Option<f64> = None;
    for step in incident.steps.iter().take(STEPS_SHOWN) {
        let later = before.map(|before| format!("+{}", time((step.ms - before).max(0.0)))).unwrap_or_default();
        before = Some(step.ms);
        page.line(&format!("  {:>12}  {:>10}  {}", time(step.ms), later, step_words(step, incident)));
    }
    if let Some(rest) = incident.steps.len().checked_sub(STEPS_SHOWN).filter(|rest| *rest > 0) {
        page.line(&format!("  {:>12}  {:>10}  … and {rest} more", "", ""));
    }
}

fn step_words(step: &Step, incident: &Incident) -> String {
    let pid = step.pid.map_or_else(|| "the process".to_owned(), |pid| format!("process {pid}"));
    let (cause, left) = incident.eviction.as_ref().map_or(("", None), |eviction| {
        let in_bytes = eviction.threshold_bytes.zip(eviction.available_bytes);
        (eviction.signal.as_str(), in_bytes.or_else(|| eviction.threshold_value.zip(eviction.available)))
    });
    match step.step.as_str() {
        "invoked" => "the kernel's OOM killer was invoked".to_owned(),
        "marked" => format!("the OOM killer chose {pid}"),
        "exited" => format!("{pid} exited"),
        "woken" => "the agent woke up".to_owned(),
        "sampled" => match left {
            Some((threshold, available)) if available < threshold => {
                format!("the agent measured {cause} below its threshold")
            }
            _ => format!("the agent measured {cause}"),
        },
        "ordered" => "the agent ranked the workloads".to_owned(),
        "decided" => "a second measurement confirmed the decision".to_owned(),
        "acted" => match incident.eviction.as_ref().map(|eviction| eviction.action.as_str()) {
            Some("term") => "the agent sent SIGTERM to the victim's processes".to_owned(),
            Some("ask") => "the agent asked the API server to evict the victim".to_owned(),
            Some("would_kill") => "observe mode: the agent sent no signal".to_owned(),
            _ => "the agent sent SIGKILL to the victim's processes".to_owned(),
        },
        "killed" => "the agent sent SIGKILL: the grace period was over".to_owned(),
        "reclaimed" => "proactive reclaim ended".to_owned(),
        "gone" => "the victim had no process left".to_owned(),
        "failed" => "the eviction had failed".to_owned(),
        other => clean(&other.replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next_and_dips_show() {
        let samples = [(50.0, 80), (35.0, 10), (34.0, 80), (10.0, 40), (0.0, 0), (-5.0, 80)];
        assert_eq!(spark(&samples, 60.0, 0.0, 6, 80), " █▂██▁");
        assert_eq!(spark(&samples, 10.0, 0.0, 5, 80), "▅▅▅▅▁");
        assert_eq!(spark(&[], 10.0, 0.0, 3, 80), "   ");
        assert_eq!(spark(&[(9.0, 5)], 10.0, 0.0, 2, 0), "██");
    }
}
