//! The end of evicted pods at the API server. The agent amends the incident of an eviction with it, also after the eviction has ended.

use crate::cluster::Verdict;
use crate::incidents::Incident;

/// Adds the verdict to the incident of this pod's eviction if that is under way; it is recorded at its end. Returns the words otherwise: the
/// recorded incident is to be amended with them.
pub(super) fn settle<'i>(
    pod_uid: &str,
    verdict: &Verdict,
    underway: impl Iterator<Item = &'i mut Incident>,
) -> Option<String> {
    let words = words(verdict)?;
    let mut evictions = underway.filter_map(|incident| incident.eviction.as_mut());
    match evictions.find(|eviction| eviction.pod_uid.as_deref() == Some(pod_uid)) {
        Some(eviction) => {
            eviction.afterwards = Some(words);
            None
        }
        None => Some(words),
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
        Verdict::Begun(begun) => Some(format!("Another controller moves the pod away: {}.", begun.reason)),
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

    fn incident(uid: &str) -> Incident {
        let eviction = Eviction { pod_uid: Some(uid.to_owned()), ..Eviction::default() };
        Incident { eviction: Some(eviction), ..Incident::default() }
    }

    #[test]
    fn an_eviction_under_way_is_amended_in_place() {
        let mut underway = [incident("other"), incident("u"), Incident::default()];
        assert_eq!(settle("u", &Verdict::Delayed("down".to_owned()), underway.iter_mut()), None);
        let afterwards = |incident: &Incident| incident.eviction.as_ref()?.afterwards.clone();
        let expected = Some("The eviction was reported late to the API server: down.".to_owned());
        assert_eq!(underway.each_ref().map(afterwards), [None, expected, None]);
    }

    #[test]
    fn a_recorded_eviction_is_amended_with_what_is_not_usual() {
        let settle = |verdict: Verdict| settle("u", &verdict, std::iter::empty());
        assert_eq!(settle(Verdict::Accepted), None);
        assert!(settle(Verdict::Restarted).is_some_and(|text| text.contains("had restarted the pod")));
    }
}
