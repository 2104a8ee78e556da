//! The steps of an incident with their times.

use super::super::model::{Incident, Step};
use super::text_page::Page;
use super::words::time;

const SHOWN: usize = 24;

pub fn timeline(page: &mut Page, incident: &Incident) {
    if incident.steps.is_empty() {
        return;
    }
    page.section("TIMELINE");
    let mut before: Option<f64> = None;
    for step in incident.steps.iter().take(SHOWN) {
        let later = before.map(|before| format!("+{}", time((step.ms - before).max(0.0)))).unwrap_or_default();
        before = Some(step.ms);
        page.line(&format!("  {:>12}  {:>10}  {}", time(step.ms), later, words(step, incident)));
    }
    if let Some(rest) = incident.steps.len().checked_sub(SHOWN).filter(|rest| *rest > 0) {
        page.line(&format!("  {:>12}  {:>10}  … and {rest} more", "", ""));
    }
}

fn words(step: &Step, incident: &Incident) -> String {
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
        other => super::text_page::clean(&other.replace('_', " ")),
    }
}
