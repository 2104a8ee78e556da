//! The post-mortem of an eviction: what happened, the victim, and the ranking.

use crate::units::Signal;

use super::super::model::{Eviction, Incident, Outcome, Place, SwapWait};
use super::text_page::Page;
use super::words::{bytes, capital, count, counted, named, owner_and_uid, signed_bytes, time};

/// The kind of an eviction for a limit of the pod, without a threshold of the node.
const LIMIT: &str = "limit";

pub fn summary(eviction: &Eviction) -> String {
    let of = victim(eviction);
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

/// Names the victim's pod if it is known, else its workload.
pub fn victim(eviction: &Eviction) -> String {
    eviction.pod.as_ref().map_or_else(|| named(&eviction.workload, eviction.name.as_ref()), |pod| format!("pod {pod}"))
}

/// An amount in the signal's unit.
#[derive(Clone, Copy)]
struct Figure {
    number: i64,
    is_bytes: bool,
}

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

/// The victim's usage of the signal's resource; memory by default.
fn used(eviction: &Eviction) -> Option<String> {
    let Some(used) = eviction.used else { return eviction.working_set_bytes.map(bytes) };
    Some(Figure { number: used, is_bytes: eviction.available_bytes.is_some() }.words(eviction))
}

pub fn story(page: &mut Page, incident: &Incident, eviction: &Eviction) {
    let Eviction { signal, threshold, kind, .. } = eviction;
    let of = victim(eviction);
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
        LIMIT => format!("{of} exceeded its own limit ({signal}): {threshold}."),
        _ => {
            let ranked = incident.ranking.iter().filter(|place| place.place.is_some());
            let candidates = ranked.clone().count() + incident.ranking_omitted;
            let is_first = ranked.min_by_key(|it| it.place).is_some_and(|first| first.workload == eviction.workload);
            let place = match candidates {
                2.. if is_first => format!("ranked first of {candidates} candidates"),
                _ => "was the first candidate in the ranking that could be evicted".to_owned(),
            };
            capital(&format!("{was} ({kind}: {threshold}). {of} {place}."))
        }
    });
    if let Some(SwapWait { waited_ms, limit }) = &eviction.swap_wait {
        page.paragraph(&format!(
            "The eviction had waited {} while the kernel swapped out as fast as memory fell. It waited no longer, because {limit}.",
            time(*waited_ms)
        ));
    }
    if let Some(benefit) = &eviction.benefit {
        let passed = eviction.passed_over.as_ref().map(|names| format!(" Passed over: {names}.")).unwrap_or_default();
        page.paragraph(&format!("{of} {benefit}.{passed}"));
    }
    let processes = eviction.processes.map(|number| format!(" ({})", count(number as u64, "process", "processes")));
    let how = match eviction.action.as_str() {
        "term" => "The agent sent the victim SIGTERM",
        "ask" => "The agent asked the API server to evict the victim",
        _ => "The agent killed the victim",
    };
    let outlived = incident.steps.iter().any(|step| step.step == "killed");
    let then = if outlived { " and killed the victim after its grace period" } else { "" };
    let sent = format!("{how}{}{then}.", processes.unwrap_or_default());
    let took = incident.steps.last().map(|step| format!(" after {}", time(step.ms))).unwrap_or_default();
    page.paragraph(&match eviction.outcome {
        Outcome::Observed => "The agent runs in observe mode: this is a dry run, and nothing was evicted.".to_owned(),
        Outcome::Underway => format!("{sent} The record was written then; no record of the outcome followed."),
        Outcome::Failed => format!(
            "{sent} The victim had not exited{took}: {}. For a while it is no candidate.",
            eviction.failure.as_deref().unwrap_or("the reason is unknown")
        ),
        Outcome::Gone => match figure(eviction.freed_bytes, eviction.freed) {
            Some(freed) if freed.number >= 0 => {
                format!(
                    "{sent} The victim had exited{took}. Then {} more were available{}.",
                    freed.words(eviction),
                    result(eviction, freed.number)
                )
            }
            Some(freed) => format!(
                "{sent} The victim had exited{took}. Other workloads took {} more than it freed.",
                Figure { number: freed.number.saturating_neg(), ..freed }.words(eviction)
            ),
            None => format!("{sent} The victim had exited{took}."),
        },
    });
    if let Some(afterwards) = &eviction.afterwards {
        page.paragraph(afterwards);
    }
}

/// Returns the sum of what was available and what was freed, compared with the threshold.
fn result(eviction: &Eviction, freed: i64) -> String {
    let available = figure(eviction.available_bytes, eviction.available);
    let limit = figure(eviction.threshold_bytes, eviction.threshold_value);
    let Some((available, limit)) = available.zip(limit) else { return String::new() };
    let sum = Figure { number: available.number.saturating_add(freed), ..available };
    let is_enough = sum.number >= limit.number;
    let compared = if is_enough { "no longer below" } else { "still below" };
    format!(": {} in all, {compared} the threshold of {}", sum.words(eviction), limit.words(eviction))
}

pub fn parties(page: &mut Page, incident: &Incident, eviction: &Eviction) {
    page.section("VICTIM");
    let label = if eviction.outcome == Outcome::Observed { "dry run" } else { "evicted" };
    let used = used(eviction).map(|used| format!(", used {used}")).unwrap_or_default();
    page.item(label, &format!("{}, {}{used}", victim(eviction), eviction.qos_class));
    owner_and_uid(eviction.name.as_ref()).iter().for_each(|line| page.item("", line));
    if victim(eviction) != eviction.workload {
        page.item("", &eviction.workload);
    }
    if let Some(reclaim) = &eviction.reclaim {
        let freed = reclaim.freed_bytes.map_or_else(
            || "the change of its usage is unknown".to_owned(),
            |freed| format!("its usage fell by {}", bytes(freed)),
        );
        let before = reclaim.available_before_bytes.map(|before| format!("{} before, ", bytes(before)));
        let after = reclaim
            .available_after_bytes
            .map(|after| format!("; available on the node: {}{} after", before.unwrap_or_default(), bytes(after)));
        page.item(
            "reclaimed",
            &format!(
                "the agent requested {} from {} before the kill; {freed} in {}{} ({})",
                bytes(reclaim.requested_bytes),
                named(&reclaim.workload, reclaim.name.as_ref()),
                time(reclaim.took_ms),
                after.unwrap_or_default(),
                reclaim.outcome.replace('_', " ")
            ),
        );
    }
    if !eviction.trace.is_empty() {
        let lines = count(eviction.trace.len() as u64, "line", "lines");
        page.item("trace", &format!("{lines} for simulate: node-pressure-monitor incidents export {}", incident.id));
    }
}

const SHOWN: usize = 10;

/// Lists the ranking with every key, then protected workloads.
pub fn ranking(page: &mut Page, incident: &Incident, victim: Option<&str>) {
    if incident.ranking.is_empty() {
        return;
    }
    let is_victim = |place: &Place| victim == Some(place.workload.as_str());
    let title = if incident.eviction.is_some() { "WHY THIS WORKLOAD" } else { "ORDER OF EVICTION" };
    let by: Option<Vec<&str>> = incident
        .ranking
        .iter()
        .find(|place| place.place.is_some())
        .map(|place| place.keys.iter().map(|key| key.name.as_str()).collect());
    page.section(title);
    if let Some(keys) = by {
        page.item("keys", &format!("{}, then the name", keys.join(", ")));
    }
    let ranked: Vec<&Place> = incident.ranking.iter().filter(|place| place.place.is_some()).collect();
    if let [first, second, ..] = ranked[..]
        && is_victim(first)
        && let Some((of_first, of_second)) = first.keys.iter().zip(&second.keys).find(|(a, b)| a.value != b.value)
    {
        page.item("decided by", &format!("{}: {}; the next has: {}", of_first.name, of_first.value, of_second.value));
    }
    for place in
        ranked.iter().enumerate().filter(|(index, place)| *index < SHOWN || is_victim(place)).map(|(_, place)| place)
    {
        let mark = if is_victim(place) { "  <-" } else { "" };
        page.item(
            &format!("{}.", place.place.unwrap_or(0)),
            &format!("{}{mark}", named(&place.workload, place.name.as_ref())),
        );
        let values: Vec<&str> = place.keys.iter().map(|key| key.value.as_str()).collect();
        let at_most = if place.at_most { " (upper bound)" } else { "" };
        page.item("", &format!("{}{at_most}", values.join(", ")));
    }
    let rest = ranked.len().saturating_sub(SHOWN) + incident.ranking_omitted;
    if rest > 0 {
        page.item("", &format!("… and {}", count(rest as u64, "more workload", "more workloads")));
    }
    for place in incident.ranking.iter().filter(|place| place.place.is_none()).take(3) {
        let used = place.keys.first().map(|key| format!(", {}", key.value)).unwrap_or_default();
        page.item(
            "protected",
            &format!(
                "{}: {}{used}",
                named(&place.workload, place.name.as_ref()),
                place.protection.as_deref().unwrap_or("protected")
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incidents::text::words::NO_BREAK;

    #[test]
    fn the_summary_is_in_the_unit_of_the_signal() {
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
        let text = summary(&pids);
        assert!(text.contains(", 3500 process ids, evicted for pid.available<100; 3400 process ids freed"), "{text}");
        let text = summary(&disk);
        assert!(text.ends_with(", 3.0 GiB, evicted for nodefs.available<2Gi"), "{text}");
        let text = summary(&eviction("memory.available", "memory.available<1Gi"));
        assert!(text.contains(", 1.0 MiB, evicted for"), "{text}");
        let text = summary(&Eviction { pod: Some("shop/web".to_owned()), ..disk });
        assert!(text.starts_with("pod shop/web, 3.0 GiB"), "{text}");
    }
}
