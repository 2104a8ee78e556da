//! The selected workload, and the exempt ones.

use node_pressure_state::WorkloadState;
use ratatui::text::Line;

use crate::model::{Model, Row};
use crate::text::{amount, fit, period, rate};
use crate::view::look::{Look, labelled};
use crate::view::ranking::reason;

/// Returns the selected workload's reason in one line.
pub fn line(row: &Row<'_>, columns: usize) -> Line<'static> {
    let owner = row.state.and_then(|state| state.name.owner.as_deref());
    let owner = owner.map(|owner| format!(" of {owner}")).unwrap_or_default();
    Line::raw(fit(&format!("> {}{owner}: {}", row.display, reason(row)), columns))
}

pub fn pane(model: &Model, row: &Row<'_>, look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = vec![look.title(row.display, columns)];
    let mut say = |label: &str, text: &str| {
        if !text.is_empty() {
            lines.extend(labelled(label, text, columns));
        }
    };
    let signal = model.selected_signal().map(|signal| &*signal.signal).unwrap_or_default();
    match (row.exempt(), row.place.and_then(|place| place.place)) {
        (Some(why), _) => say("exempt", why),
        (None, Some(place)) => {
            let next = if row.is_next { "the next to be evicted" } else { "a candidate" };
            say("place", &format!("{place} by {signal}: {next}"));
        }
        (None, None) => {}
    }
    if let Some(place) = row.place {
        let bound = if place.at_most { "; its usage is an upper bound" } else { "" };
        let keys = place.keys.iter().map(|key| &*key.value).collect::<Vec<_>>().join(", ");
        say("ranked by", &format!("{keys}{bound}"));
    }
    if let Some(state) = row.state {
        say("is", &identity(state));
        say("memory", &memory(state));
        say("stalls", &stalls(state));
        say("disk", &disk(state));
        let pids = state.pids.map(|pids| format!("{pids}")).unwrap_or_default();
        say("processes", &pids);
        let kills = state.oom_kills.filter(|kills| *kills > 0).map(|kills| format!("{kills}")).unwrap_or_default();
        say("OOM kills", &kills);
    }
    say("cgroup", row.workload);
    lines
}

fn joined(words: impl IntoIterator<Item = Option<String>>) -> String {
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn identity(state: &WorkloadState) -> String {
    joined([
        state.name.owner.as_ref().map(|owner| format!("of {owner}")),
        state.name.container.as_ref().map(|container| format!("container {container}")),
        Some(state.qos_class.clone()).filter(|class| !class.is_empty()),
        state.priority.map(|priority| format!("priority {priority}")),
    ])
}

fn memory(state: &WorkloadState) -> String {
    joined([
        state.memory_bytes.map(|bytes| amount(bytes, "bytes")),
        state.memory_bytes_per_second.map(|change| rate(change, "bytes")).filter(|change| change != "0"),
        state.memory_request_bytes.map(|bytes| format!("request {}", amount(bytes, "bytes"))),
    ])
}

fn stalls(state: &WorkloadState) -> String {
    let Some(count) = state.stalls.filter(|count| *count > 0) else { return String::new() };
    joined([state.stall_seconds.map(period), Some(format!("{count} times in reclaim"))])
}

fn disk(state: &WorkloadState) -> String {
    joined([
        state.disk_bytes.map(|bytes| amount(bytes, "bytes")),
        state.disk_inodes.map(|inodes| format!("{inodes} inodes")),
    ])
}

/// Returns why the exempt workloads are exempt: each reason with its workloads.
pub fn exempt(rows: &[Row<'_>], look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let Some(why) = row.exempt() else { continue };
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(row.display),
            None => reasons.push((why, vec![row.display])),
        }
    }
    if reasons.is_empty() {
        return Vec::new();
    }
    let count: usize = reasons.iter().map(|(_, names)| names.len()).sum();
    let mut lines = vec![look.title(&format!("{count} exempt"), columns)];
    for (reason, names) in reasons {
        lines.push(Line::raw(fit(&format!("{reason}:"), columns)));
        lines.extend(names.into_iter().map(|name| Line::styled(fit(&format!("  {name}"), columns), look.faint())));
    }
    lines
}
