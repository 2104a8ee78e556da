use super::*;
use crate::config::{Mode, MonitorConfig, Policy, Threshold, ThresholdValue};
use crate::eviction::decider::{
    AgentRules, Answer, Decider, Measure, Next, Note, Pace, Place, RecordedCandidate, Rules, Snapshot, Standing,
};
use crate::eviction::rank::Facts;
use crate::eviction::{Observation, SignalValue};
use crate::units::{Bytes, CgroupId, Moment, Signal};
use crate::workloads::{Outlook, Preference, QosClass};

const MEMORY: Signal = Signal::MemoryAvailable;

struct Scene {
    policy: Policy,
    agent: AgentRules,
    decider: Decider<RecordedCandidate>,
}

impl Scene {
    /// A threshold of a thousand bytes.
    fn new(grace: u64) -> Self {
        let config = MonitorConfig::default();
        let value = ThresholdValue::bytes(Bytes(1000));
        let threshold =
            Threshold { signal: MEMORY, value, grace_period: Duration::from_secs(grace), min_reclaim: None };
        let policy = Policy { thresholds: vec![threshold], ..config.policy };
        let mut limits = config.evictions;
        // The scenes begin under pressure.
        limits.act_on_present_pressure = true;
        let agent =
            AgentRules { mode: Mode::Enforce, limits, methods: config.kubernetes.evictions, defers_soft: false };
        Self { policy, agent, decider: Decider::default() }
    }

    fn step(&mut self, snapshot: &Snapshot, answer: Answer<RecordedCandidate>) -> Next {
        self.decider.step(Rules { policy: &self.policy, pace: Pace::Agent(self.agent) }, snapshot, answer)
    }
}

fn snapshot(list: PodList, milliseconds: i128, available: i64) -> Snapshot {
    let value = SignalValue { signal: MEMORY, available, capacity: 1 << 40, at: None };
    let observation = Observation { signals: vec![value] };
    Snapshot { now: Moment(milliseconds * 1_000_000), observation, pod_list: list, ..Snapshot::default() }
}

const ASKED: Monotonic = Monotonic(10_000_000_000);
const DUE: PodList = PodList::Due { since: ASKED };

#[test]
fn a_hard_threshold_waits_two_seconds_for_the_list() {
    for (list, milliseconds, available, waits) in [
        (DUE, 10_001, 900, true),
        (DUE, 11_999, 900, true),
        (DUE, 12_000, 900, false),
        // A server that was away for an hour.
        (DUE, 3_600_000, 900, false),
        // Half of the threshold is left.
        (DUE, 10_001, 501, true),
        (DUE, 10_001, 500, false),
        (PodList::Seen, 10_001, 900, false),
        (PodList::None, 10_001, 900, false),
    ] {
        let mut scene = Scene::new(0);
        let next = scene.step(&snapshot(list, milliseconds, available), Answer::Begin);
        let noted = scene.decider.notes().any(|note| matches!(note, Note::AwaitsPods { .. }));
        let asks = matches!(next, Next::Measure(Measure::Candidates { .. }));
        assert_eq!((asks, noted), (!waits, waits), "{list:?} {milliseconds} {available}");
        if waits {
            // The loop must not sleep longer than the wait.
            let retry = scene.decider.retry().unwrap();
            assert!(
                retry <= ASKED.after(LONGEST_WAIT) && retry.since(snapshot(list, milliseconds, 0).clock()) <= LOOKED_AT
            );
        }
    }
}

#[test]
fn a_soft_threshold_keeps_its_own_rules() {
    let mut scene = Scene::new(1);
    scene.step(&snapshot(DUE, 10_001, 900), Answer::Begin);
    scene.step(&snapshot(DUE, 11_500, 900), Answer::Begin);
    assert!(!scene.decider.notes().any(|note| matches!(note, Note::AwaitsPods { .. })));
}

fn candidate(name: &str, usage: i64, is_unlisted: bool) -> RecordedCandidate {
    let (qos, usage) = (QosClass::BestEffort, Some(Amount::from_units(usage)));
    let (request, subtracted) = (Some(Amount::ZERO), Amount::ZERO);
    let facts = Facts { preference: Preference::None, qos, priority: 0, usage, request, subtracted };
    let cgroup = CgroupId(u64::from(name.as_bytes()[0]));
    let (facts, exact) = (serde_json::to_value(facts).unwrap(), true);
    // As a trace has it, so that a later field of a candidate has its default.
    let candidate = serde_json::json!({"name": name, "id": name, "cgroup": cgroup, "facts": facts, "exact": exact, "is_unlisted": is_unlisted});
    serde_json::from_value(candidate).unwrap()
}

/// Returns the victims in their order: each time the first candidate turns out to be critical.
fn order(candidates: &[RecordedCandidate]) -> Vec<String> {
    let mut scene = Scene::new(0);
    let snapshot = snapshot(DUE, 20_000, 900);
    let (mut next, mut order) = (scene.step(&snapshot, Answer::Begin), Vec::new());
    loop {
        let answer = match next {
            Next::Measure(Measure::Candidates { .. }) => Answer::Candidates(candidates.to_vec()),
            Next::Measure(Measure::Exact { place }) => {
                Answer::Exact(scene.decider.ranking().get(place).map(|ranked| ranked.candidate.clone()))
            }
            Next::Measure(Measure::Signals) => Answer::Sampled,
            Next::Measure(Measure::Standing { place: Place::Ranked(place) }) => {
                let name = scene.decider.ranking()[place].candidate.name.clone();
                if !order.contains(&name) {
                    order.push(name);
                }
                Answer::Standing(Standing { is_critical: true, ..Standing::default() })
            }
            _ => return order,
        };
        next = scene.step(&snapshot, answer);
    }
}

#[test]
fn a_pod_that_is_not_known_goes_last_until_the_list_was_seen() {
    let candidates = |is_unlisted| {
        vec![candidate("unknown", 9_000, is_unlisted), candidate("a", 4_000, false), candidate("b", 5_000, false)]
    };
    assert_eq!(order(&candidates(true)), ["b", "a", "unknown"]);
    assert_eq!(order(&candidates(false)), ["unknown", "b", "a"]);
}

#[test]
fn a_pod_that_is_not_known_goes_only_where_no_other_helps() {
    let row =
        |place, gain, growth| Row { place, gain, excess: gain, outlook: Outlook { growth, ..Outlook::default() } };
    let need = Need { missing: 100.0, fall: Some(10.0), minimum: Duration::from_secs(10), ..Need::default() };
    // Places 2 and 3 are not known. Each row has its gain and its growth.
    for (rows, expected) in [
        (vec![row(0, 500.0, 0), row(2, 9_000.0, 10)], Some(0)),
        (vec![row(0, 20.0, 0), row(1, 300.0, 9), row(2, 9_000.0, 0)], Some(1)),
        (vec![row(0, 20.0, 0), row(2, 9_000.0, 10)], Some(2)),
        (vec![row(2, 500.0, 0), row(3, 9_000.0, 10)], Some(2)),
    ] {
        let picked = listed_first(need, rows.clone(), |place| place >= 2).pick();
        assert_eq!(picked, expected, "{rows:?}");
    }
}
