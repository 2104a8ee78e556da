//! Makes the digest of this node that its heartbeat carries.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::{ConfigState, LoopState};
use crate::cluster::NodeDigest;
use crate::cluster::node_digest::{ConfigDigest, Counts, DayDigest, NearestThreshold};
use crate::eviction::exhaustion::foreseeable_seconds;
use crate::incidents::{Head, IncidentIndex, Kind};
use crate::units::float;

pub fn node_digest(
    state: &LoopState<'_>,
    configuration: &ConfigState,
    incidents: &IncidentIndex,
    now: Timestamp,
) -> NodeDigest {
    let mut last_incident = None;
    let date = day_of(now);
    let mut day = DayDigest { date: Some(date), ..DayDigest::default() };
    incidents.visit_newest_first(|head| {
        last_incident.get_or_insert_with(|| (head.time, head.summary.clone()));
        let is_of_day = day_of(head.time) == date;
        if is_of_day {
            count(&mut day, head);
        }
        is_of_day
    });
    NodeDigest {
        mode: state.config.mode.as_str(),
        pool: state.config.pool.clone(),
        config: ConfigDigest {
            hash: configuration.fingerprint.map(|fingerprint| fingerprint.0),
            since: Timestamp::try_from(configuration.since).ok(),
            is_refused: !configuration.is_accepted(),
        },
        maintenance: state.sensors.platform.cluster.view().node.maintenance.clone(),
        nearest: nearest(state),
        day,
        last_incident,
    }
}

fn day_of(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

fn count(day: &mut DayDigest, head: &Head) {
    if head.is_dry_run() {
        return;
    }
    let add = |counts: &mut Counts| {
        let count = match head.kind {
            Kind::OomKill => &mut counts.oom_kills,
            Kind::Eviction => &mut counts.evictions,
        };
        *count = count.saturating_add(head.repeated.saturating_add(1));
    };
    add(&mut day.all);
    if let Some(namespace) = head.namespace() {
        add(day.namespaces.entry(namespace.to_owned()).or_default());
    }
}

/// Returns the armed threshold that is crossed first at the present rates. While no signal falls, it is the one whose signal is the smallest
/// multiple of it.
fn nearest(state: &LoopState<'_>) -> Option<NearestThreshold> {
    let (armed, quirks) = (state.decision.armed(), state.config.policy.quirks);
    let observation = state.sensors.observation(state.config.policy.semantics)?;
    let distances = armed.iter().filter_map(|armed| {
        let threshold = &armed.threshold;
        let value = observation.get(threshold.signal)?;
        let at = threshold.value.resolve(value.capacity, quirks).units();
        let distance = value.available.saturating_sub(at);
        let seconds = state.sensors.per_second(threshold.signal).and_then(|rate| foreseeable_seconds(distance, rate));
        let near =
            NearestThreshold { threshold: threshold.to_string(), available: value.available, value: at, seconds };
        let multiple = float(value.available.max(0).unsigned_abs()) / float(at.unsigned_abs());
        (at > 0).then(|| (near.seconds.unwrap_or(f64::INFINITY), multiple, near))
    });
    let nearest = distances.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    nearest.map(|(_, _, near)| near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_counts_what_was_evicted_by_namespace() {
        let head = |kind, mode: &str, pod: Option<&str>, repeated| Head {
            id: String::new(),
            kind,
            time: Timestamp::UNIX_EPOCH,
            summary: String::new(),
            mode: mode.to_owned(),
            pod: pod.map(str::to_owned),
            outcome: None,
            repeated,
        };
        let mut day = DayDigest::default();
        for head in [
            head(Kind::Eviction, "enforce", Some("batch/report"), 0),
            head(Kind::Eviction, "observe", Some("batch/report"), 0),
            head(Kind::OomKill, "observe", Some("batch/other"), 811),
            head(Kind::OomKill, "enforce", None, 0),
        ] {
            count(&mut day, &head);
        }
        assert_eq!(day.all, Counts { evictions: 1, oom_kills: 813 });
        assert_eq!(day.namespaces.len(), 1);
        assert_eq!(day.namespaces["batch"], Counts { evictions: 1, oom_kills: 812 });
    }
}
