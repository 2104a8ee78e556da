//! An eviction: what happened, who went, and why this one.

use super::super::model::{Eviction, Incident, Outcome, Place};
use super::page::Page;
use super::words::{bytes, capital, count, name, signed_bytes, time};

/// The kind of an eviction for a limit of the pod's own: no threshold of the node was met.
const LIMIT: &str = "limit";

/// The story in one line.
pub fn summary(eviction: &Eviction) -> String {
    let of = name(&eviction.workload);
    let used = eviction.working_set_bytes.map(|used| format!(", {}", bytes(used))).unwrap_or_default();
    let for_what = match eviction.kind.as_str() {
        LIMIT => format!("for {}", eviction.signal),
        _ => format!("for {}", eviction.threshold),
    };
    match eviction.outcome {
        Outcome::Gone => {
            let freed =
                eviction.freed_bytes.map(|freed| format!("; {} freed", signed_bytes(freed))).unwrap_or_default();
            format!("{of}{used}, evicted {for_what}{freed}")
        }
        Outcome::Underway => format!("{of}{used}, being evicted {for_what}"),
        Outcome::Failed => format!("{of}{used}, could not be evicted {for_what}"),
        Outcome::Observed => format!("{of}{used}, would have been evicted {for_what} (observe mode)"),
    }
}

/// What happened and why, in whole sentences.
pub fn story(page: &mut Page, incident: &Incident, eviction: &Eviction) {
    let Eviction { signal, threshold, kind, .. } = eviction;
    let of = name(&eviction.workload);
    let was = match (eviction.available_bytes, eviction.threshold_bytes) {
        (Some(available), Some(limit)) => {
            let was = signed_bytes(available);
            let limit_words = signed_bytes(limit);
            // Minimum reclaim keeps a threshold met until so much more is there.
            if available < limit {
                let below = signed_bytes(limit.saturating_sub(available));
                format!("the node's {signal} was {was}, {below} below the threshold of {limit_words}")
            } else {
                format!("the node's {signal} was {was}, not yet far enough above the threshold of {limit_words}")
            }
        }
        _ => format!("the node's {signal} was below its threshold"),
    };
    let of = capital(&of);
    page.paragraph(&match kind.as_str() {
        LIMIT => format!("{of} was above a limit of its own ({signal}): {threshold}."),
        _ => capital(&format!("{was} ({kind}: {threshold}). {of} was the first in the ranking that could go.")),
    });
    let processes = eviction.processes.map(|number| format!(" ({})", count(number as u64, "process", "processes")));
    let how = if eviction.action == "term" { "was asked to stop (SIGTERM)" } else { "was killed" };
    let outlived = incident.steps.iter().any(|step| step.step == "killed");
    let then = if outlived { ", was killed when its grace period was over" } else { "" };
    let sent = format!("{how}{}{then}", processes.unwrap_or_default());
    let took = incident.steps.last().map(|step| format!(" after {}", time(step.ms))).unwrap_or_default();
    page.paragraph(&match eviction.outcome {
        Outcome::Observed => {
            "Nothing was done: the agent runs in observe mode, and only says what it would have done.".to_owned()
        }
        Outcome::Underway => format!("It {sent}; this record was made then, and none that tells the end followed."),
        Outcome::Failed => format!(
            "It {sent} and did not go{took}: {}. For a while it is no candidate.",
            eviction.failure.as_deref().unwrap_or("the reason is not known")
        ),
        Outcome::Gone => match eviction.freed_bytes {
            Some(freed) if freed >= 0 => {
                format!("It {sent} and was gone{took}; {} more were available then.", bytes(freed.unsigned_abs()))
            }
            Some(freed) => format!(
                "It {sent} and was gone{took}; others had taken {} more than it gave back.",
                bytes(freed.unsigned_abs())
            ),
            None => format!("It {sent} and was gone{took}."),
        },
    });
}

/// Who went.
pub fn parties(page: &mut Page, eviction: &Eviction) {
    page.section("WHO");
    let label = if eviction.outcome == Outcome::Observed { "would go" } else { "evicted" };
    let used = eviction.working_set_bytes.map(|used| format!(", used {}", bytes(used))).unwrap_or_default();
    page.item(label, &format!("{}, {}{used}", name(&eviction.workload), eviction.qos_class));
    if name(&eviction.workload) != eviction.workload {
        page.item("", &eviction.workload);
    }
    if let Some(reclaim) = &eviction.reclaim {
        let freed = reclaim.freed_bytes.map_or_else(
            || "how far its usage fell is not known".to_owned(),
            |freed| format!("its usage fell by {}", bytes(freed)),
        );
        let before =
            reclaim.available_before_bytes.map(|before| format!(", {} before", bytes(before))).unwrap_or_default();
        let left = reclaim
            .available_after_bytes
            .map(|left| format!("; {} were available then{before}", bytes(left)))
            .unwrap_or_default();
        page.item(
            "reclaimed",
            &format!(
                "before the kill: {} asked of {}; {freed} in {}{left} ({})",
                bytes(reclaim.requested_bytes),
                name(&reclaim.workload),
                time(reclaim.took_ms),
                reclaim.outcome.replace('_', " ")
            ),
        );
    }
}

/// Places shown of a ranking.
const SHOWN: usize = 10;

/// Why this one: everybody in order with every key.
pub fn ranking(page: &mut Page, incident: &Incident, victim: Option<&str>) {
    if incident.ranking.is_empty() {
        return;
    }
    let is_victim = |place: &Place| victim == Some(place.workload.as_str());
    let title = if incident.eviction.is_some() { "WHY THIS ONE" } else { "WHO WOULD BE EVICTED FIRST" };
    let by: Option<Vec<&str>> = incident
        .ranking
        .iter()
        .find(|place| place.place.is_some())
        .map(|place| place.keys.iter().map(|key| key.name.as_str()).collect());
    page.section(title);
    if let Some(keys) = by {
        page.item("by", &format!("{}, then the name", keys.join(", ")));
    }
    let ranked: Vec<&Place> = incident.ranking.iter().filter(|place| place.place.is_some()).collect();
    for place in
        ranked.iter().enumerate().filter(|(index, place)| *index < SHOWN || is_victim(place)).map(|(_, place)| place)
    {
        let mark = if is_victim(place) { "  <-" } else { "" };
        page.item(&format!("{}.", place.place.unwrap_or(0)), &format!("{}{mark}", name(&place.workload)));
        let values: Vec<&str> = place.keys.iter().map(|key| key.value.as_str()).collect();
        let at_most = if place.at_most { " at most" } else { "" };
        page.item("", &format!("{}{at_most}", values.join(", ")));
    }
    let rest = ranked.len().saturating_sub(SHOWN) + incident.ranking_omitted;
    if rest > 0 {
        page.item("", &format!("… and {}", count(rest as u64, "more workload", "more workloads")));
    }
    for place in incident.ranking.iter().filter(|place| place.place.is_none()).take(3) {
        let used = place.keys.first().map(|key| format!(", {}", key.value)).unwrap_or_default();
        page.item(
            "never",
            &format!("{}: {}{used}", name(&place.workload), place.protection.as_deref().unwrap_or("protected")),
        );
    }
}
