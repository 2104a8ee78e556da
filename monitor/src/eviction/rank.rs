//! The order in which workloads are evicted, and why.

use std::cmp::Ordering;
use std::fmt;

use crate::config::{Bytes, CgroupId, Ranking};
use crate::workloads::{Preference, QosClass, WorkloadUsage};

/// What one key makes of one workload. The order and the explanation both come from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyValue {
    /// `user.oomd_avoid` goes last.
    Preference(Preference),
    /// The lower class goes first.
    QosClass(QosClass),
    /// Who uses more than was requested goes first.
    ExceedsRequest(bool),
    /// Who is further above the request goes first; below it counts as a negative distance.
    UsageAboveRequest(i128),
}

impl KeyValue {
    fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Preference(a), Self::Preference(b)) => a.cmp(&b),
            (Self::QosClass(a), Self::QosClass(b)) => a.cmp(&b),
            (Self::ExceedsRequest(a), Self::ExceedsRequest(b)) => b.cmp(&a),
            (Self::UsageAboveRequest(a), Self::UsageAboveRequest(b)) => b.cmp(&a),
            // Both come from the same list of keys.
            _ => Ordering::Equal,
        }
    }
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preference(Preference::None) => f.write_str("no preference"),
            Self::Preference(_) => f.write_str("marked user.oomd_avoid"),
            Self::QosClass(class) => f.write_str(class.as_str()),
            Self::ExceedsRequest(true) => f.write_str("exceeds its request"),
            Self::ExceedsRequest(false) => f.write_str("within its request"),
            Self::UsageAboveRequest(distance) => {
                let bytes = Bytes(u64::try_from(distance.unsigned_abs()).unwrap_or(u64::MAX));
                write!(f, "{bytes} {} it", if *distance < 0 { "below" } else { "above" })
            }
        }
    }
}

/// A workload in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// The workload and its memory.
    pub usage: WorkloadUsage,
    /// Every key that decided its place, most important first.
    pub keys: Vec<KeyValue>,
}

impl Ranked {
    /// Why it stands where it stands.
    #[must_use]
    pub fn explanation(&self) -> String {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        format!("{} uses {}: {}", self.usage.workload.name, self.usage.working_set, keys.join(", "))
    }
}

/// Orders the candidates, first to be evicted first. Protected workloads are no candidates. Total: the name decides last, and
/// no two workloads have the same.
#[must_use]
pub fn rank(ranking: Ranking, usages: Vec<WorkloadUsage>) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> = usages
        .into_iter()
        .filter(|usage| usage.workload.protection.is_none())
        .map(|usage| Ranked { keys: keys(ranking, &usage), usage })
        .collect();
    ranked.sort_by(compare);
    ranked
}

/// So many candidates are measured exactly one after the other before it is quicker to measure all.
const MEASURED_ONE_BY_ONE: usize = 8;

/// Orders candidates of which only an upper bound of the working set is known, measuring exactly as few as it takes to be sure
/// of the first; `None` when that would be too many. The others stand where their bound puts them, which may be too far in
/// front. A workload that `measure` does not find is left out.
#[must_use]
pub fn rank_first(
    ranking: Ranking,
    at_most: Vec<WorkloadUsage>,
    mut measure: impl FnMut(CgroupId) -> Option<WorkloadUsage>,
) -> Option<Vec<Ranked>> {
    let mut ranked = rank(ranking, at_most);
    for _ in 0..MEASURED_ONE_BY_ONE {
        match ranked.first_mut() {
            Some(first) if !first.usage.exact => match measure(first.usage.workload.id) {
                Some(exact) => *first = Ranked { keys: keys(ranking, &exact), usage: exact },
                None => drop(ranked.remove(0)),
            },
            _ => return Some(ranked),
        }
        ranked.sort_by(compare);
    }
    None
}

fn keys(ranking: Ranking, usage: &WorkloadUsage) -> Vec<KeyValue> {
    let workload = &usage.workload;
    let above = i128::from(usage.working_set.0) - i128::from(workload.request.0);
    match ranking {
        Ranking::Qos => vec![
            KeyValue::Preference(workload.preference),
            KeyValue::QosClass(workload.qos),
            KeyValue::ExceedsRequest(above > 0),
            KeyValue::UsageAboveRequest(above),
        ],
    }
}

fn compare(a: &Ranked, b: &Ranked) -> Ordering {
    let by_keys = a.keys.iter().zip(&b.keys).map(|(a, b)| a.compare(*b)).find(|order| order.is_ne());
    by_keys.unwrap_or(Ordering::Equal).then_with(|| a.usage.workload.name.cmp(&b.usage.workload.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{Kind, Protection, Workload};

    fn usage(name: &str, qos: QosClass, request: u64, working_set: u64) -> WorkloadUsage {
        let workload = Workload {
            name: name.to_owned(),
            id: CgroupId(1),
            kind: Kind::Service,
            qos,
            request: Bytes(request),
            preference: Preference::None,
            protection: None,
        };
        WorkloadUsage { workload, working_set: Bytes(working_set), exact: true }
    }

    fn order(usages: Vec<WorkloadUsage>) -> Vec<String> {
        rank(Ranking::Qos, usages).into_iter().map(|ranked| ranked.usage.workload.name).collect()
    }

    #[test]
    fn class_then_request_then_distance_then_name() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        let expected = [
            "besteffort-large",
            "besteffort-small",
            "besteffort-small-later-name",
            "burstable-far-above-request",
            "burstable-just-above-request",
            "burstable-below-request-but-large",
            "guaranteed-huge",
        ];
        let mut usages = vec![
            usage("guaranteed-huge", Guaranteed, 900, 900),
            usage("burstable-below-request-but-large", Burstable, 800, 700),
            usage("burstable-just-above-request", Burstable, 100, 101),
            usage("burstable-far-above-request", Burstable, 10, 50),
            usage("besteffort-small-later-name", BestEffort, 0, 5),
            usage("besteffort-small", BestEffort, 0, 5),
            usage("besteffort-large", BestEffort, 0, 6),
        ];
        assert_eq!(order(usages.clone()), expected);
        usages.reverse();
        assert_eq!(order(usages), expected, "the order of the input must not show");
    }

    #[test]
    fn avoid_goes_last_and_protected_not_at_all() {
        let mut avoided = usage("avoided", QosClass::BestEffort, 0, 1000);
        avoided.workload.preference = Preference::Avoid;
        let mut agent = usage("agent", QosClass::BestEffort, 0, 1000);
        agent.workload.protection = Some(Protection::Agent);
        assert_eq!(
            order(vec![avoided, agent, usage("guaranteed", QosClass::Guaranteed, 10, 10)]),
            ["guaranteed", "avoided"]
        );
    }

    #[test]
    fn the_first_by_bounds_is_the_first_by_exact_figures() {
        // A small generator of its own: the same cases every time.
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut compared, mut measured) = (0, 0);
        for _ in 0..500 {
            let exact: Vec<WorkloadUsage> = (0..1 + random(12))
                .map(|number| {
                    let mut usage = usage(
                        &number.to_string(),
                        if random(2) == 0 { QosClass::BestEffort } else { QosClass::Burstable },
                        random(50),
                        random(100),
                    );
                    usage.workload.id = CgroupId(number);
                    usage
                })
                .collect();
            let bound = |usage: &WorkloadUsage, cache: u64| WorkloadUsage {
                working_set: usage.working_set.saturating_add(Bytes(cache)),
                exact: false,
                ..usage.clone()
            };
            let at_most = exact.iter().map(|usage| bound(usage, random(60))).collect();
            let look_up = |id: CgroupId| {
                measured += 1;
                exact.iter().find(|usage| usage.workload.id == id).cloned()
            };
            let Some(ranked) = rank_first(Ranking::Qos, at_most, look_up) else { continue };
            assert_eq!(ranked.first(), rank(Ranking::Qos, exact.clone()).first());
            compared += 1;
        }
        assert!(compared > 450, "{compared}");
        assert!(measured < 4 * compared, "{measured} reads for {compared} decisions");
    }

    #[test]
    fn a_workload_that_went_away_is_left_out() {
        let gone = WorkloadUsage { exact: false, ..usage("gone", QosClass::BestEffort, 0, 9) };
        let ranked = rank_first(Ranking::Qos, vec![gone], |_| None);
        assert_eq!(ranked, Some(Vec::new()));
    }

    #[test]
    fn the_explanation_names_every_key() {
        let ranked = rank(Ranking::Qos, vec![usage("hog.service", QosClass::Burstable, 1 << 20, 3 << 20)]);
        let text = ranked[0].explanation();
        for part in ["hog.service uses 3.0 MiB", "Burstable", "exceeds its request", "2.0 MiB above it"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
