//! Which incidents a list has: the query of `/incidents`, and the options of `incidents`.

use jiff::{SignedDuration, Timestamp};

use super::{Head, Kind};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IncidentFilter {
    /// Incidents at this time or later.
    pub since: Option<Timestamp>,
    /// Incidents before this time.
    pub until: Option<Timestamp>,
    pub kind: Option<Kind>,
    pub namespace: Option<String>,
    /// `name` or `namespace/name`.
    pub pod: Option<String>,
}

impl IncidentFilter {
    /// Returns the query of `/incidents` that asks for the same.
    pub fn query(&self, limit: usize) -> String {
        let Self { since, until, kind, namespace, pod } = self;
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &limit.to_string());
        for (name, value) in [
            ("since", since.map(|at| at.to_string())),
            ("until", until.map(|at| at.to_string())),
            ("kind", kind.map(|kind| kind.as_str().to_owned())),
            ("namespace", namespace.clone()),
            ("pod", pod.clone()),
        ] {
            query.extend_pairs(value.map(|value| (name, value)));
        }
        query.finish()
    }

    pub fn matches(&self, head: &Head) -> bool {
        let is_of_pod = |wanted: &String| {
            head.pod.as_deref().is_some_and(|pod| {
                pod == wanted.as_str() || pod.split_once('/').is_some_and(|(_, name)| name == wanted.as_str())
            })
        };
        self.since.is_none_or(|since| head.time >= since)
            && self.until.is_none_or(|until| head.time < until)
            && self.kind.is_none_or(|kind| head.kind == kind)
            && self.namespace.as_deref().is_none_or(|namespace| head.namespace() == Some(namespace))
            && self.pod.as_ref().is_none_or(is_of_pod)
    }
}

/// Parses a kind as people write it: `oom-kill`, `OomKill`, `eviction`.
///
/// # Errors
/// When the text is no kind.
pub fn parse_kind(text: &str) -> Result<Kind, String> {
    let plain = text.replace(['-', '_', ' '], "");
    let found = Kind::ALL.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(&plain));
    found.ok_or_else(|| "write oom-kill or eviction".to_owned())
}

/// Parses a time (RFC 3339), or a time span before `now`, for example `24h`.
///
/// # Errors
/// When the text is neither.
pub fn parse_time(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let before = text.parse::<SignedDuration>().ok().filter(|span| !span.is_negative());
    let time = before.and_then(|span| now.checked_sub(span).ok());
    time.ok_or_else(|| "write a time span such as 24h, or a time such as 2026-01-02T03:04:05Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pod: Option<&str>) -> Head {
        Head {
            id: String::new(),
            kind: Kind::Eviction,
            time: "2026-01-02T03:04:05Z".parse().unwrap(),
            summary: String::new(),
            mode: String::new(),
            pod: pod.map(str::to_owned),
            outcome: None,
            repeated: 0,
        }
    }

    #[test]
    fn every_field_narrows_the_list() {
        let all = IncidentFilter::default();
        let at = |text: &str| Some(text.parse().unwrap());
        let named = |text: &str| Some(text.to_owned());
        for (filter, expected) in [
            (all.clone(), true),
            (IncidentFilter { since: at("2026-01-02T03:04:05Z"), ..all.clone() }, true),
            (IncidentFilter { since: at("2026-01-02T03:04:06Z"), ..all.clone() }, false),
            (IncidentFilter { until: at("2026-01-02T03:04:05Z"), ..all.clone() }, false),
            (IncidentFilter { until: at("2026-01-02T03:04:06Z"), ..all.clone() }, true),
            (IncidentFilter { kind: Some(Kind::Eviction), ..all.clone() }, true),
            (IncidentFilter { kind: Some(Kind::OomKill), ..all.clone() }, false),
            (IncidentFilter { namespace: named("batch"), ..all.clone() }, true),
            (IncidentFilter { namespace: named("bat"), ..all.clone() }, false),
            (IncidentFilter { pod: named("report"), ..all.clone() }, true),
            (IncidentFilter { pod: named("batch/report"), ..all.clone() }, true),
            (IncidentFilter { pod: named("web/report"), ..all.clone() }, false),
        ] {
            assert_eq!(filter.matches(&head(Some("batch/report"))), expected, "{filter:?}");
        }
        let of_pod = IncidentFilter { pod: named("report"), ..all.clone() };
        assert!(all.matches(&head(None)) && !of_pod.matches(&head(None)));
    }

    #[test]
    fn times_and_kinds_are_written_as_people_write_them() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        for (text, expected) in [
            ("24h", Some("2026-01-01T03:04:05Z")),
            ("1h 30m", Some("2026-01-02T01:34:05Z")),
            ("2026-01-01T00:00:00+01:00", Some("2025-12-31T23:00:00Z")),
            ("yesterday", None),
            ("-1h", None),
            ("", None),
        ] {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(parse_time(text, now).ok(), expected, "{text}");
        }
        for (text, expected) in [
            ("oom-kill", Some(Kind::OomKill)),
            ("OomKill", Some(Kind::OomKill)),
            ("eviction", Some(Kind::Eviction)),
            ("evictions", None),
        ] {
            assert_eq!(parse_kind(text).ok(), expected, "{text}");
        }
    }
}
