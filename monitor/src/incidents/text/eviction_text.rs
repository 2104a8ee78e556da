//! An eviction: what happened, who went, and why this one.

use crate::units::Signal;

use super::super::model::{Eviction, Incident, Outcome, Place};
use super::text_page::Page;
use super::words::{bytes, capital, count, counted, name, signed_bytes, time};

/// The kind of an eviction for a limit of the pod's own: no threshold of the node was met.
const LIMIT: &str = "limit";

/// The story in one line.
pub fn summary(eviction: &Eviction) -> String {
    let of = who(eviction);
    let used = used(eviction).map(|used| format!(", {used}")).unwrap_or_default();
    let for_what = match eviction.kind.as_str() {
        LIMIT => format!("for {}", eviction.signal),
        _ => format!("for {}", eviction.threshold),
    };
    match eviction.outcome {
        Outcome::Gone => {
            let freed = figure(eviction.freed_bytes, eviction.freed);
            let freed = freed.map(|freed| format!("; {} freed", freed.words(eviction))).unwrap_or_default();
            format!("{of}{used}, evicted {for_what}{freed}")
        }
        Outcome::Underway => format!("{of}{used}, being evicted {for_what}"),
        Outcome::Failed => format!("{of}{used}, could not be evicted {for_what}"),
        Outcome::Observed => format!("{of}{used}, would have been evicted {for_what} (observe mode)"),
    }
}

/// By the name of its pod, where that is known.
fn who(eviction: &Eviction) -> String {
    eviction.pod.as_ref().map_or_else(|| name(&eviction.workload), |pod| format!("pod {pod}"))
}

/// A figure of the signal.
#[derive(Clone, Copy)]
struct Figure {
    number: i64,
    is_bytes: bool,
}

/// Whichever of the two the record has.
fn figure(in_bytes: Option<i64>, other: Option<i64>) -> Option<Figure> {
    let of = |is_bytes| move |number| Figure { number, is_bytes };
    in_bytes.map(of(true)).or_else(|| other.map(of(false)))
}

impl Figure {
    fn words(self, eviction: &Eviction) -> String {
        if self.is_bytes {
            return signed_bytes(self.number);
        }
        counted(self.number, if eviction.signal == Signal::PidAvailable.as_str() { "process ids" } else { "inodes" })
    }
}

/// How much it used of what was short: memory, if nothing else is said.
fn used(eviction: &Eviction) -> Option<String> {
    let Some(used) = eviction.used else { return eviction.working_set_bytes.map(bytes) };
    Some(Figure { number: used, is_bytes: eviction.available_bytes.is_some() }.words(eviction))
}

/// What happened and why, in whole sentences.
pub fn story(page: &mut Page, incident: &Incident, eviction: &Eviction) {
    let Eviction { signal, threshold, kind, .. } = eviction;
    let of = who(eviction);
    let available = figure(eviction.available_bytes, eviction.available);
    let was = match (available, figure(eviction.threshold_bytes, eviction.threshold_value)) {
        (Some(available), Some(limit)) => {
            let was = available.words(eviction);
            let limit_words = limit.words(eviction);
            // Minimum reclaim keeps a threshold met until so much more is there.
            if available.number < limit.number {
                let below = Figure { number: limit.number.saturating_sub(available.number), ..limit }.words(eviction);
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
    let how = match eviction.action.as_str() {
        "term" => "was asked to stop (SIGTERM)",
        "ask" => "was to be stopped by the kubelet, for which the API server was asked",
        _ => "was killed",
    };
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
        Outcome::Gone => match figure(eviction.freed_bytes, eviction.freed) {
            Some(freed) if freed.number >= 0 => {
                format!("It {sent} and was gone{took}; {} more were available then.", freed.words(eviction))
            }
            Some(freed) => format!(
                "It {sent} and was gone{took}; others had taken {} more than it gave back.",
                Figure { number: freed.number.saturating_neg(), ..freed }.words(eviction)
            ),
            None => format!("It {sent} and was gone{took}."),
        },
    });
}

/// Who went.
pub fn parties(page: &mut Page, eviction: &Eviction) {
    page.section("WHO");
    let label = if eviction.outcome == Outcome::Observed { "would go" } else { "evicted" };
    let used = used(eviction).map(|used| format!(", used {used}")).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incidents::text::words::NO_BREAK;

    #[test]
    fn what_was_short_is_what_is_told() {
        let eviction = |signal: &str, threshold: &str| Eviction {
            signal: signal.to_owned(),
            threshold: threshold.to_owned(),
            workload: "system.slice/bomb.service".to_owned(),
            outcome: Outcome::Gone,
            working_set_bytes: Some(1 << 20),
            ..Eviction::default()
        };
        let pids = Eviction {
            used: Some(3500),
            available: Some(90),
            threshold_value: Some(100),
            freed: Some(3400),
            ..eviction("pid.available", "pid.available<100")
        };
        let disk = Eviction {
            used: Some(3 << 30),
            available_bytes: Some(1 << 30),
            threshold_bytes: Some(2 << 30),
            ..eviction("nodefs.available", "nodefs.available<2Gi")
        };
        let summary = |eviction: &Eviction| summary(eviction).replace(NO_BREAK, " ");
        let told = summary(&pids);
        assert!(told.contains(", 3500 process ids, evicted for pid.available<100; 3400 process ids freed"), "{told}");
        let told = summary(&disk);
        assert!(told.ends_with(", 3.0 GiB, evicted for nodefs.available<2Gi"), "{told}");
        let told = summary(&eviction("memory.available", "memory.available<1Gi"));
        assert!(told.contains(", 1.0 MiB, evicted for"), "{told}");
        let told = summary(&Eviction { pod: Some("shop/web".to_owned()), ..disk });
        assert!(told.starts_with("pod shop/web, 3.0 GiB"), "{told}");
    }
}
