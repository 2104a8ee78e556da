//! The end of evicted pods at the API server. The incident of an eviction is amended with it, also after the eviction has ended.

use std::collections::VecDeque;

use crate::cluster::Verdict;
use crate::incidents::Incident;

/// Ended evictions whose requests to the API server may be unfinished. The oldest beyond this number is not amended.
/// Their number is that of the evictions in the ledger.
const KEPT: usize = 64;

/// Incidents of evictions that have ended on the node.
#[derive(Debug, Default)]
pub(super) struct Afterwards {
    ended: VecDeque<Incident>,
}

impl Afterwards {
    pub(super) fn keep(&mut self, incident: Incident) {
        if uid(&incident).is_none() {
            return;
        }
        if self.ended.len() >= KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(incident);
    }

    /// Adds the verdict to the incident of this pod's last eviction. Returns the incident if it has ended, to be recorded again; one that
    /// is under way is recorded at its end.
    pub(super) fn settle<'i>(
        &mut self,
        pod_uid: &str,
        verdict: &Verdict,
        mut underway: impl Iterator<Item = &'i mut Incident>,
    ) -> Option<Incident> {
        let words = words(verdict)?;
        let is_it = |incident: &Incident| uid(incident) == Some(pod_uid);
        if let Some(incident) = underway.find(|incident| is_it(incident)) {
            amend(incident, &words);
            return None;
        }
        let incident = self.ended.iter_mut().rev().find(|incident| is_it(incident))?;
        amend(incident, &words);
        Some(incident.clone())
    }
}

fn uid(incident: &Incident) -> Option<&str> {
    incident.eviction.as_ref()?.pod_uid.as_deref()
}

fn amend(incident: &mut Incident, words: &str) {
    if let Some(eviction) = &mut incident.eviction {
        eviction.afterwards = Some(words.to_owned());
    }
}

/// Returns what a reader of the incident has to know; nothing if the pod ended as usual.
fn words(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Restarted => Some(
            "Before the kubelet learned of the eviction it had restarted the pod. The pod runs, and is not evicted again for this shortage."
                .to_owned(),
        ),
        Verdict::GivenUp(reason) => {
            Some(format!("The pod could not be removed at the API server ({reason}), so the kubelet starts it again."))
        }
        Verdict::Refused(reason) => Some(format!("The API server refused to remove the pod: {reason}.")),
        Verdict::Delayed(reason) => Some(format!("The eviction was reported late to the API server: {reason}.")),
        Verdict::NoAnswer(reason) => Some(format!("The API server did not answer in time: {reason}.")),
        Verdict::Done(Some(note)) => Some(format!("The pod was evicted with a deviation: {note}.")),
        Verdict::Accepted | Verdict::Gone | Verdict::Done(None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incidents::model::Eviction;

    fn incident(id: &str, uid: &str) -> Incident {
        let eviction = Eviction { pod_uid: Some(uid.to_owned()), ..Eviction::default() };
        Incident { id: id.to_owned(), eviction: Some(eviction), ..Incident::default() }
    }

    fn afterwards_of(incident: &Incident) -> Option<&str> {
        incident.eviction.as_ref()?.afterwards.as_deref()
    }

    #[test]
    fn the_last_incident_of_the_pod_says_what_became_of_it() {
        let mut afterwards = Afterwards::default();
        for (id, uid) in [("old", "u"), ("new", "u"), ("other", "v")] {
            afterwards.keep(incident(id, uid));
        }
        let mut settle = |uid: &str, verdict: Verdict| afterwards.settle(uid, &verdict, std::iter::empty());
        assert_eq!(settle("u", Verdict::Accepted), None);
        assert_eq!(settle("w", Verdict::Restarted), None);
        let restarted = settle("u", Verdict::Restarted).unwrap();
        assert_eq!(restarted.id, "new");
        assert!(afterwards_of(&restarted).is_some_and(|text| text.contains("had restarted the pod")));
    }

    #[test]
    fn an_eviction_under_way_is_amended_in_place() {
        let mut afterwards = Afterwards::default();
        let mut underway = [incident("i", "u")];
        assert_eq!(afterwards.settle("u", &Verdict::Delayed("down".to_owned()), underway.iter_mut()), None);
        assert_eq!(afterwards_of(&underway[0]), Some("The eviction was reported late to the API server: down."));
    }

    #[test]
    fn the_newest_are_kept() {
        let mut afterwards = Afterwards::default();
        for number in 0..=KEPT {
            afterwards.keep(incident("i", &number.to_string()));
        }
        let mut settle = |uid: &str| afterwards.settle(uid, &Verdict::Restarted, std::iter::empty());
        assert!(settle("0").is_none() && settle("1").is_some());
    }
}
