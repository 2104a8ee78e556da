//! PSI and the node's memory and conditions.

use node_pressure_state::{Pressure, State};
use ratatui::text::Line;

use crate::text::{amount, fit, fit_right};
use crate::view::look::{Look, labelled};

/// Returns PSI in one line: the share of the last ten seconds in which some, or all, tasks waited.
pub fn line(state: &State, columns: usize) -> Line<'static> {
    let of = |resource: &str, kind: &str| {
        let mut lines = state.pressure.iter().filter(|it| it.scope == "system");
        lines.find(|it| it.resource == resource && it.kind == kind).map(|it| it.avg10)
    };
    let words = ["memory", "io", "cpu"].into_iter().filter_map(|resource| {
        let some = of(resource, "some")?;
        Some(match of(resource, "full") {
            Some(full) => format!("{resource} {:.1}/{}", some * 100.0, percent(full)),
            None => format!("{resource} {}", percent(some)),
        })
    });
    let words: Vec<String> = words.collect();
    let words = if words.is_empty() { "not measured".to_owned() } else { words.join("  ") };
    Line::raw(fit(&format!("PSI of 10 s, some/full: {words}"), columns))
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Returns PSI as a table.
pub fn pane(state: &State, look: Look, columns: usize) -> Vec<Line<'static>> {
    let row = |name: &str, averages: [&str; 3]| {
        let [ten, minute, five] = averages.map(|text| fit_right(text, 8));
        format!("{}{ten}{minute}{five}", fit(name, 24))
    };
    let mut lines = vec![
        look.title("pressure (PSI)", columns),
        Line::styled(row("share of time stalled", ["10 s", "60 s", "300 s"]), look.faint()),
    ];
    lines.extend(state.pressure.iter().map(|it| {
        let Pressure { scope, resource, kind, avg10, avg60, avg300 } = it;
        let averages = [avg10, avg60, avg300].map(|share| percent(*share));
        Line::raw(row(&format!("{scope} {resource} {kind}"), averages.each_ref().map(String::as_str)))
    }));
    lines
}

/// Returns the node's memory, conditions and configuration.
pub fn node(state: &State, look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = vec![look.title("node", columns)];
    if let Some(memory) = &state.memory {
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| amount(bytes, "bytes"));
        let words = [
            bytes(memory.working_set_bytes)
                .zip(bytes(memory.capacity_bytes))
                .map(|(set, of)| format!("{set} working set of {of}")),
            bytes(memory.corrected_bytes).map(|left| format!("available {left} corrected")),
            bytes(memory.kubelet_bytes).map(|left| format!("{left} as the kubelet counts")),
            (memory.swap_total_bytes.unwrap_or_default() > 0)
                .then(|| bytes(memory.swap_free_bytes).zip(bytes(memory.swap_total_bytes)))
                .flatten()
                .map(|(free, of)| format!("swap {free} free of {of}")),
        ];
        lines.extend(labelled("memory", &words.into_iter().flatten().collect::<Vec<_>>().join(", "), columns));
    }
    let conditions = state.conditions.iter().map(|it| {
        let holds = it.holds.map_or("unknown", |holds| if holds { "true" } else { "false" });
        match it.since.filter(|_| it.holds == Some(true)) {
            Some(since) => format!("{} {holds} since {}", it.condition, since.strftime("%H:%M:%SZ")),
            None => format!("{} {holds}", it.condition),
        }
    });
    let conditions = conditions.collect::<Vec<_>>().join(", ");
    if !conditions.is_empty() {
        lines.extend(labelled("conditions", &conditions, columns));
    }
    let agent = &state.agent;
    let file = agent.configuration.file.as_deref().unwrap_or("defaults");
    lines.extend(labelled(
        "agent",
        &format!("{} {}, semantics {}, {file}", agent.version, agent.cgroup, agent.semantics),
        columns,
    ));
    lines
}
