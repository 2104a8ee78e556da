//! The post-mortem of an incident: what happened and why, the victims, the node's figures, the ranking, a timeline, and advice. Pure: a
//! record in, text out.

mod advice;
mod eviction_text;
mod node_text;
mod oom_text;
pub mod text_page;
mod words;

use super::model::{Eviction, Incident, OomKill};
use text_page::Page;

pub fn summary_of_oom_kill(kill: &OomKill) -> String {
    oom_text::summary(kill).replace(words::NO_BREAK, " ")
}

pub fn summary_of_eviction(eviction: &Eviction) -> String {
    eviction_text::summary(eviction).replace(words::NO_BREAK, " ")
}

pub fn render(incident: &Incident) -> String {
    let mut page = Page::default();
    let node = if incident.node.is_empty() { String::new() } else { format!(" on {}", incident.node) };
    page.heading(&incident.id, &format!("{}{node}", incident.kind.words()));
    page.line(&incident.time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string());
    page.line("");
    if incident.repeated > 0 {
        page.paragraph(&format!(
            "This is the newest of {} incidents that are only counted: this workload or its namespace has its share of the journal.",
            incident.repeated + 1
        ));
        page.line("");
    }
    let mut victim = None;
    if let Some(kill) = &incident.oom_kill {
        oom_text::story(&mut page, incident, kill);
        oom_text::parties(&mut page, kill);
        victim = kill.victims.first().and_then(|victim| victim.workload.as_deref());
    }
    if let Some(eviction) = &incident.eviction {
        eviction_text::story(&mut page, incident, eviction);
        eviction_text::parties(&mut page, incident, eviction);
        victim = Some(&eviction.workload);
    }
    node_text::minute(&mut page, incident);
    node_text::consumers(&mut page, incident);
    eviction_text::ranking(&mut page, incident, victim);
    node_text::timeline(&mut page, incident);
    advice::advice(&mut page, incident);
    page.finish()
}

#[cfg(test)]
mod gallery;
#[cfg(test)]
#[path = "../text_tests.rs"]
mod tests;
