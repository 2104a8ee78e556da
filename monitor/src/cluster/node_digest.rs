//! The annotations of a node's Lease, which tell about the node to a view of the fleet.

use std::collections::BTreeMap;

use super::api_time;

/// Of the annotations' names.
pub(super) const PREFIX: &str = "node-pressure-monitor/";
/// The namespaces that are named: those with most evictions and OOM kills.
const NAMESPACES: usize = 8;
/// Characters of the last incident's line, and of the reason of the maintenance.
const LINE: usize = 200;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeDigest {
    /// `enforce` or `observe`.
    pub mode: &'static str,
    pub pool: Option<std::sync::Arc<str>>,
    pub config: ConfigDigest,
    /// Why the node is in maintenance; none: it is not, or that is not known.
    pub maintenance: Option<String>,
    /// The armed threshold that the node is nearest to.
    pub nearest: Option<NearestThreshold>,
    pub day: DayDigest,
    /// Time and summary of the last incident.
    pub last_incident: Option<(jiff::Timestamp, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigDigest {
    /// Of the file in force, equal on all nodes with the same file; none: the defaults are in force.
    pub hash: Option<u64>,
    pub since: Option<jiff::Timestamp>,
    pub is_refused: bool,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct NearestThreshold {
    pub threshold: String,
    /// In the signal's unit.
    pub available: i64,
    pub value: i64,
    /// Seconds until the threshold is crossed at the present rate; zero if it is met. None: the signal does not fall, or its rate is unknown.
    pub seconds: Option<f64>,
}

/// The evictions and OOM kills of a day (UTC).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DayDigest {
    pub date: Option<jiff::civil::Date>,
    pub all: Counts,
    pub namespaces: BTreeMap<String, Counts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    pub evictions: u64,
    pub oom_kills: u64,
}

impl NodeDigest {
    /// Returns the annotations. A value of null removes an annotation that an earlier digest had.
    pub(super) fn annotations(&self) -> serde_json::Map<String, serde_json::Value> {
        let Self { mode, pool, config, maintenance, nearest, day, last_incident } = self;
        let maintenance = maintenance.as_ref().map(|reason| reason.chars().take(LINE).collect::<String>());
        let nearest = nearest.as_ref().and_then(|nearest| serde_json::to_string(nearest).ok());
        let last_incident = last_incident.as_ref().map(|(time, summary)| {
            format!("{} {summary}", api_time::format(*time)).chars().take(LINE).collect::<String>()
        });
        let entries = [
            ("version", Some(env!("CARGO_PKG_VERSION").to_owned())),
            ("mode", Some((*mode).to_owned()).filter(|mode| !mode.is_empty())),
            ("pool", pool.as_deref().map(str::to_owned)),
            ("config-hash", config.hash.map(|hash| format!("{hash:016x}"))),
            ("config-since", config.since.map(api_time::format)),
            ("config-refused", config.is_refused.then(|| "true".to_owned())),
            ("maintenance", maintenance),
            ("nearest-threshold", nearest),
            ("day", day.date.map(|date| date.to_string())),
            ("evictions", Some(day.all.evictions.to_string())),
            ("oom-kills", Some(day.all.oom_kills.to_string())),
            ("namespaces", day.busiest()),
            ("last-incident", last_incident),
        ];
        let named = |(name, value)| (format!("{PREFIX}{name}"), serde_json::json!(value));
        entries.into_iter().map(named).collect()
    }
}

impl DayDigest {
    /// Returns the namespaces with most evictions and OOM kills, as JSON.
    fn busiest(&self) -> Option<String> {
        let mut sorted: Vec<_> = self.namespaces.iter().collect();
        sorted.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.evictions.saturating_add(counts.oom_kills)));
        sorted.truncate(NAMESPACES);
        let busiest: BTreeMap<_, _> = sorted.into_iter().collect();
        serde_json::to_string(&busiest).ok().filter(|_| !busiest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_namespaces_are_named() {
        let mut day = DayDigest::default();
        assert_eq!(day.busiest(), None);
        for number in 0..20 {
            let counts = Counts { evictions: number, oom_kills: 1 };
            day.namespaces.insert(format!("n{number:02}"), counts);
        }
        let busiest: BTreeMap<String, serde_json::Value> = serde_json::from_str(&day.busiest().unwrap()).unwrap();
        assert_eq!(busiest.keys().next().map(String::as_str), Some("n12"));
        assert_eq!((busiest.len(), &busiest["n19"]["oomKills"]), (NAMESPACES, &serde_json::json!(1)));
    }

    #[test]
    fn what_is_not_known_is_removed() {
        let digest =
            NodeDigest { last_incident: Some((jiff::Timestamp::UNIX_EPOCH, "x".repeat(500))), ..NodeDigest::default() };
        let annotations = digest.annotations();
        let value = |name: &str| &annotations[&format!("node-pressure-monitor/{name}")];
        assert!(value("mode").is_null() && value("config-hash").is_null() && value("namespaces").is_null());
        assert!(value("maintenance").is_null(), "a node that is uncordoned loses the annotation");
        assert_eq!(value("evictions"), "0");
        assert_eq!(value("last-incident").as_str().map(str::len), Some(LINE));
    }
}
