//! The content of a notification.

use serde::Serialize;

use crate::config::notification_options::NoticeKind;
use crate::incidents::{Head, Incident, Kind};

/// An incident at its beginning, without the evidence that only a replay needs. `incidents` has the whole record.
#[derive(Debug)]
pub(super) struct Notice {
    incident: Incident,
    /// Incidents since the last notification that had none.
    suppressed: u64,
}

/// The document for a webhook.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'n> {
    /// The part of a document that chat servers show.
    text: String,
    kind: &'static str,
    suppressed: u64,
    incident: &'n Incident,
}

pub(super) fn kind_of(incident: &Incident) -> NoticeKind {
    match incident.kind {
        Kind::OomKill => NoticeKind::OomKill,
        Kind::Eviction if Head::from(incident).is_dry_run() => NoticeKind::DryRun,
        Kind::Eviction => NoticeKind::Eviction,
    }
}

impl Notice {
    pub(super) fn new(incident: &Incident, suppressed: u64) -> Self {
        let mut incident = incident.clone();
        if let Some(eviction) = &mut incident.eviction {
            (eviction.trace, eviction.policy) = (Vec::new(), None);
        }
        Self { incident, suppressed }
    }

    /// Returns the incident as JSON.
    pub(super) fn json(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(&self.incident).map_err(|error| error.to_string())
    }

    /// Returns the document for a webhook as JSON.
    pub(super) fn document(&self) -> Result<Vec<u8>, String> {
        let Self { incident, suppressed } = self;
        let node = if incident.node.is_empty() { String::new() } else { format!("{}: ", incident.node) };
        let text = format!("{node}{}", incident.summary);
        let document = Document { text, kind: kind_of(incident).as_str(), suppressed: *suppressed, incident };
        serde_json::to_vec(&document).map_err(|error| error.to_string())
    }

    /// Returns the variables for a program. A variable without a value is left out.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let Self { incident, suppressed } = self;
        let (eviction, kill) = (incident.eviction.as_ref(), incident.oom_kill.as_ref());
        let victim = kill.and_then(|kill| kill.victims.first());
        let head = Head::from(incident);
        let workload = eviction.map(|eviction| eviction.workload.clone());
        let values: [(_, Option<String>); 12] = [
            ("NPM_KIND", Some(kind_of(incident).as_str().to_owned())),
            ("NPM_INCIDENT", Some(incident.id.clone())),
            ("NPM_TIME", Some(incident.time.to_string())),
            ("NPM_NODE", Some(incident.node.clone())),
            ("NPM_SUMMARY", Some(incident.summary.clone())),
            ("NPM_SUPPRESSED", Some(suppressed.to_string())),
            ("NPM_WORKLOAD", workload.or_else(|| victim?.workload.clone())),
            ("NPM_POD", head.pod.clone()),
            ("NPM_NAMESPACE", head.namespace().map(str::to_owned)),
            ("NPM_SIGNAL", eviction.map(|eviction| eviction.signal.clone())),
            ("NPM_PID", victim.map(|victim| victim.pid.to_string())),
            ("NPM_NAME", victim.and_then(|victim| victim.comm.clone())),
        ];
        let given =
            values.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?)));
        // A variable cannot hold a zero byte.
        given.map(|(name, value)| (name, value.replace('\0', " "))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incidents::model::{Eviction, OomKill, RawJson, Victim};

    fn eviction() -> Incident {
        let eviction = Eviction {
            signal: "memory.available".to_owned(),
            workload: "web.service".to_owned(),
            pod: Some("shop/web-1".to_owned()),
            trace: vec![RawJson::of(&1).unwrap()],
            ..Eviction::default()
        };
        Incident {
            id: "20261125-1".to_owned(),
            kind: Kind::Eviction,
            node: "n1".to_owned(),
            summary: "web was evicted".to_owned(),
            mode: "enforce".to_owned(),
            eviction: Some(eviction),
            ..Incident::default()
        }
    }

    #[test]
    fn a_document_has_a_text_for_people_and_the_incident() {
        let document: serde_json::Value =
            serde_json::from_slice(&Notice::new(&eviction(), 3).document().unwrap()).unwrap();
        assert_eq!((&document["text"], &document["kind"]), (&"n1: web was evicted".into(), &"eviction".into()));
        assert_eq!((&document["suppressed"], &document["incident"]["id"]), (&3.into(), &"20261125-1".into()));
        assert!(document["incident"]["eviction"].get("trace").is_none(), "{document}");
    }

    #[test]
    fn variables_name_the_victim() {
        let pairs = |incident: &Incident| {
            let variables = Notice::new(incident, 0).variables();
            variables
                .into_iter()
                .filter(|(name, _)| *name != "NPM_TIME")
                .map(|(n, v)| format!("{n}={v}"))
                .collect::<Vec<_>>()
        };
        let expected = [
            "NPM_KIND=eviction",
            "NPM_INCIDENT=20261125-1",
            "NPM_NODE=n1",
            "NPM_SUMMARY=web was evicted",
            "NPM_SUPPRESSED=0",
            "NPM_WORKLOAD=web.service",
            "NPM_POD=shop/web-1",
            "NPM_NAMESPACE=shop",
            "NPM_SIGNAL=memory.available",
        ];
        assert_eq!(pairs(&eviction()), expected);
        let victim =
            Victim { pid: 7, comm: Some("a\0b".to_owned()), workload: Some("b.scope".to_owned()), ..Victim::default() };
        let kill = OomKill { victims: vec![victim], ..OomKill::default() };
        let killed = Incident { oom_kill: Some(kill), ..Incident::default() };
        let expected = ["NPM_KIND=oomKill", "NPM_SUPPRESSED=0", "NPM_WORKLOAD=b.scope", "NPM_PID=7", "NPM_NAME=a b"];
        assert_eq!(pairs(&killed), expected);
        let observed = Incident { mode: "observe".to_owned(), ..eviction() };
        assert_eq!(kind_of(&observed), NoticeKind::DryRun);
    }
}
