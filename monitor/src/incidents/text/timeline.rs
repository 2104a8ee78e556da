//! What was done, and how long each step took.

use super::super::model::{Incident, Step};
use super::text_page::Page;
use super::words::time;

/// Steps that are told one by one.
const SHOWN: usize = 24;

/// The steps in their order.
pub fn timeline(page: &mut Page, incident: &Incident) {
    if incident.steps.is_empty() {
        return;
    }
    page.section("WHAT HAPPENED WHEN");
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
        "marked" => format!("it chose {pid}"),
        "exited" => format!("{pid} had exited"),
        "woken" => "the agent woke up".to_owned(),
        "sampled" => match left {
            Some((threshold, available)) if available < threshold => format!("it saw {cause} below its threshold"),
            _ => format!("it read {cause}"),
        },
        "ordered" => "the workloads were ranked".to_owned(),
        "decided" => "a fresh look still called for it".to_owned(),
        "acted" => match incident.eviction.as_ref().map(|eviction| eviction.action.as_str()) {
            Some("term") => "SIGTERM was sent to all its processes".to_owned(),
            Some("ask") => "the API server was asked to evict it".to_owned(),
            Some("would_kill") => "observe mode: nothing was sent".to_owned(),
            _ => "SIGKILL was sent to all its processes".to_owned(),
        },
        "killed" => "SIGKILL was sent: the grace period was over".to_owned(),
        "reclaimed" => "reclaiming ended".to_owned(),
        "gone" => "no process of it was left".to_owned(),
        "failed" => "it was given up".to_owned(),
        other => super::text_page::clean(&other.replace('_', " ")),
    }
}
