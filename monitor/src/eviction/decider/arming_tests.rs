use super::super::{Decider, Kept, Note, OwnedRules, Pace, Rules};
use super::*;
use crate::config::{EvictionLimits, Mode, MonitorConfig, Semantics, ThresholdValue};
use crate::eviction::Layout;
use crate::eviction::decider::{AgentRules, Answer, Measure, Next, RecordedCandidate};
use crate::units::{Bytes, Moment, Quantity, Signal};

const MEMORY: Signal = Signal::MemoryAvailable;
const INODES: Signal = Signal::NodeFsInodesFree;

fn threshold(signal: Signal, text: &str) -> Threshold {
    let value = crate::config::threshold::parse_threshold_value(signal, text, Quirks::of(Semantics::Corrected))
        .unwrap()
        .unwrap();
    Threshold { signal, value, grace_period: Duration::ZERO, min_reclaim: None }
}

/// A turn's facts: seconds, what is available, the capacity, the stalled time in milliseconds, and when the OOM killer acted.
type Turn = (u64, i64, i64, Option<u64>, Option<u64>);

/// Runs turns of an agent, and returns for each whether the threshold evicts.
struct Scene {
    policy: Policy,
    agent: AgentRules,
    decider: Decider<RecordedCandidate>,
    notes: Vec<Note>,
}

impl Scene {
    fn of(threshold: Threshold) -> Self {
        let config = MonitorConfig::default();
        let (limits, methods) = (config.evictions, config.kubernetes.evictions);
        assert!(!limits.act_on_present_pressure, "the rule is on by default");
        let policy = Policy { thresholds: vec![threshold], ..config.policy };
        let agent = AgentRules { mode: Mode::Enforce, limits, methods, defers_soft: false };
        Self { policy, agent, decider: Decider::default(), notes: Vec::new() }
    }

    fn evicts(&mut self, signal: Signal, (seconds, available, capacity, stalled, oom): Turn) -> bool {
        let value = SignalValue { signal, available, capacity, at: None };
        let snapshot = Snapshot {
            now: Moment(i128::from(seconds) * 1_000_000_000),
            observation: Observation { signals: vec![value] },
            memory_stalled: stalled.map(Duration::from_millis),
            oom_killed: oom.map(|at| Monotonic(at * 1_000_000_000)),
            ..Snapshot::default()
        };
        let rules = Rules { policy: &self.policy, pace: Pace::Agent(self.agent) };
        let next = self.decider.step(rules, &snapshot, Answer::Begin);
        self.notes.extend(self.decider.notes());
        // An unarmed threshold is not even measured for.
        matches!(next, Next::Measure(Measure::Candidates { .. } | Measure::Runtime))
    }

    fn reload(&mut self, threshold: Threshold) {
        self.policy.thresholds = vec![threshold];
        let rules = Rules { policy: &self.policy, pace: Pace::Agent(self.agent) };
        self.decider.arm(rules, Layout::Single);
        self.decider.reconsider();
    }

    /// Ends the agent and starts another one in the same boot.
    fn restart(&mut self) {
        let text = serde_json::to_string(&Kept::of(self.decider.memory())).unwrap();
        let kept: Kept = serde_json::from_str(&text).unwrap();
        self.decider = Decider::remembering(kept.into_memory());
    }
}

const G: i64 = 1 << 30;

#[test]
fn a_threshold_met_at_its_arrival_waits_for_a_sign() {
    let cases: &[(&str, &[Turn], &[bool])] = &[
        ("unmet at arrival", &[(0, 8 * G, 24 * G, None, None), (1, G, 24 * G, None, None)], &[false, true]),
        ("met and steady", &[(0, G, 24 * G, None, None), (60, G, 24 * G, None, None)], &[false, false]),
        (
            "unmet once",
            &[(0, G, 24 * G, None, None), (1, 3 * G, 24 * G, None, None), (2, G, 24 * G, None, None)],
            &[false, false, true],
        ),
        ("just above three quarters", &[(0, 1000, 9000, None, None), (1, 750, 9000, None, None)], &[false, false]),
        ("below three quarters", &[(0, 1000, 9000, None, None), (1, 749, 9000, None, None)], &[false, true]),
        ("nothing left at arrival", &[(0, 0, 24 * G, None, None)], &[true]),
        (
            "stalls of 9 %",
            &[(0, G, 24 * G, Some(0), None), (1, G, 24 * G, Some(90), None), (2, G, 24 * G, Some(180), None)],
            &[false, false, false],
        ),
        ("stalls of 11 %", &[(0, G, 24 * G, Some(0), None), (1, G, 24 * G, Some(110), None)], &[false, true]),
        ("stalls of long ago", &[(0, G, 24 * G, Some(0), None), (9, G, 24 * G, Some(5000), None)], &[false, false]),
        (
            "no PSI for a moment",
            &[(0, G, 24 * G, Some(0), None), (1, G, 24 * G, None, None), (2, G, 24 * G, Some(900), None)],
            &[false, false, false],
        ),
        (
            "the OOM killer acted before",
            &[(5, G, 24 * G, None, Some(4)), (6, G, 24 * G, None, Some(4))],
            &[false, false],
        ),
        ("the OOM killer acts", &[(5, G, 24 * G, None, None), (7, G, 24 * G, None, Some(6))], &[false, true]),
    ];
    for (name, turns, expected) in cases {
        let small = turns[0].2 == 9000;
        let mut scene = Scene::of(threshold(MEMORY, if small { "2k" } else { "2Gi" }));
        let found: Vec<bool> = turns.iter().map(|turn| scene.evicts(MEMORY, *turn)).collect();
        assert_eq!(found, *expected, "{name}");
    }
}

#[test]
fn a_value_that_cannot_be_meant_never_arms() {
    let dying: &[Turn] = &[
        (0, 90, 1000, Some(0), None),
        (1, 990, 1000, Some(500), Some(1)),
        (2, 60, 1000, Some(900), Some(2)),
        (3, 0, 1000, Some(1800), Some(3)),
    ];
    for (name, signal, text, expected) in [
        ("OpenShift's own example", INODES, "100Mi", false),
        ("more memory than there is", MEMORY, "900Gi", false),
        ("above half", MEMORY, "501", false),
        ("60 percent", MEMORY, "60%", false),
        ("half is plausible", MEMORY, "500", true),
    ] {
        let mut scene = Scene::of(threshold(signal, text));
        let any = dying.iter().filter(|turn| scene.evicts(signal, **turn)).count() > 0;
        assert_eq!(any, expected, "{name}");
        let note =
            scene.notes.iter().any(|note| matches!(note, Note::Unarmed { why: Unarmed::Implausible { .. }, .. }));
        assert_eq!(note, !expected, "{name}: {:?}", scene.notes);
        assert_eq!(scene.decider.assessment().conditions.len(), 1, "{name}: the condition is reported nevertheless");
        let mut waived = Scene::of(threshold(signal, text));
        waived.agent.limits.act_on_present_pressure = true;
        assert!(waived.evicts(signal, dying[0]), "{name}: waived");
        waived.agent.limits.act_on_present_pressure = false;
        assert_eq!(waived.evicts(signal, dying[2]), expected, "{name}: no longer waived");
    }
    let mut endless = threshold(MEMORY, "100");
    endless.min_reclaim = Some(ThresholdValue::Quantity(Quantity::from_units(901, false)));
    assert!(!is_plausible(&endless, 1000, Quirks::of(Semantics::Corrected)), "its minimum reclaim is never reached");
}

#[test]
fn signs_of_memory_arm_no_threshold_on_a_disk() {
    let mut scene = Scene::of(threshold(INODES, "400"));
    for turn in [(0, 90, 1000, Some(0), None), (1, 90, 1000, Some(900), Some(1)), (2, 90, 1000, Some(1800), Some(2))] {
        assert!(!scene.evicts(INODES, turn));
    }
    assert!(scene.evicts(INODES, (3, 67, 1000, None, None)));
}

#[test]
fn what_was_armed_stays_armed_over_a_restart() {
    let mut scene = Scene::of(threshold(MEMORY, "2Gi"));
    assert!(!scene.evicts(MEMORY, (0, 8 * G, 24 * G, None, None)));
    scene.restart();
    assert!(scene.evicts(MEMORY, (1, G, 24 * G, None, None)), "armed before");

    let mut scene = Scene::of(threshold(MEMORY, "2Gi"));
    assert!(!scene.evicts(MEMORY, (0, G, 24 * G, None, None)));
    scene.restart();
    assert!(!scene.evicts(MEMORY, (1, G, 24 * G, None, None)), "not armed before");
    assert_eq!(scene.notes.len(), 2, "each agent reports it once: {:?}", scene.notes);
    assert!(scene.evicts(MEMORY, (2, G * 7 / 10, 24 * G, None, None)), "the value at arrival is remembered");
}

#[test]
fn a_reload_arms_only_what_would_have_acted_already() {
    for (name, new, expected) in [
        ("lower", "1536Mi", true),
        ("the same", "2Gi", true),
        ("higher", "3Gi", false),
        ("slightly higher", "2049Mi", false),
    ] {
        let mut scene = Scene::of(threshold(MEMORY, "2Gi"));
        scene.evicts(MEMORY, (0, 8 * G, 24 * G, None, None));
        scene.reload(threshold(MEMORY, new));
        assert_eq!(scene.evicts(MEMORY, (1, G, 24 * G, None, None)), expected, "{name}");
        scene.reload(threshold(MEMORY, "2Gi"));
        assert!(scene.evicts(MEMORY, (2, G, 24 * G, None, None)), "{name}: and back");
    }
    let mut soft = threshold(MEMORY, "2Gi");
    soft.grace_period = Duration::from_secs(90);
    let mut scene = Scene::of(soft);
    scene.evicts(MEMORY, (0, 8 * G, 24 * G, None, None));
    scene.reload(threshold(MEMORY, "2Gi"));
    assert!(!scene.evicts(MEMORY, (1, G, 24 * G, None, None)), "a soft threshold that becomes a hard one is new");
}

#[test]
fn a_share_of_a_varying_capacity_stays_armed() {
    let mut scene = Scene::of(threshold(Signal::NodeFsAvailable, "10%"));
    scene.evicts(Signal::NodeFsAvailable, (0, 500, 1000, None, None));
    assert!(scene.evicts(Signal::NodeFsAvailable, (1, 90, 1200, None, None)), "a fifth more");
    let mut scene = Scene::of(threshold(Signal::NodeFsAvailable, "10%"));
    scene.evicts(Signal::NodeFsAvailable, (0, 500, 1000, None, None));
    assert!(!scene.evicts(Signal::NodeFsAvailable, (1, 90, 9000, None, None)), "another disk");
}

#[test]
fn observe_mode_refuses_the_same_and_a_kubelet_knows_no_arming() {
    let mut scene = Scene::of(threshold(MEMORY, "2Gi"));
    scene.agent.mode = Mode::Observe;
    assert!(!scene.evicts(MEMORY, (0, G, 24 * G, None, None)));
    let value = SignalValue { signal: MEMORY, available: G, capacity: 24 * G, at: None };
    let snapshot = Snapshot { observation: Observation { signals: vec![value] }, ..Snapshot::default() };
    for pace in [Pace::Kubelet, Pace::Ranking] {
        let mut decider = Decider::<RecordedCandidate>::default();
        let next = decider.step(Rules { policy: &scene.policy, pace }, &snapshot, Answer::Begin);
        assert!(matches!(next, Next::Measure(Measure::Candidates { .. })), "{pace:?}: {next:?}");
    }
}

#[test]
fn a_trace_of_an_agent_without_the_rule_replays() {
    let config = MonitorConfig::default();
    let (limits, methods) = (config.evictions, config.kubernetes.evictions);
    let agent = AgentRules { mode: Mode::Enforce, limits, methods, defers_soft: false };
    let mut rules = serde_json::to_value(Rules { policy: &config.policy, pace: Pace::Agent(agent) }).unwrap();
    rules["pace"]["Agent"]["limits"].as_object_mut().unwrap().remove("act_on_present_pressure").unwrap();
    let rules: OwnedRules = serde_json::from_value(rules).unwrap();
    let Pace::Agent(AgentRules { limits: EvictionLimits { act_on_present_pressure, .. }, .. }) = rules.pace else {
        panic!("{:?}", rules.pace)
    };
    assert!(act_on_present_pressure);
}

#[test]
fn the_list_of_armed_thresholds_is_bounded() {
    let mut arming = Arming::default();
    for number in 0..200 {
        let value = ThresholdValue::bytes(Bytes(number + 1));
        arming.arm(&Threshold { value, ..threshold(MEMORY, "1") }, 1000);
    }
    assert_eq!(arming.armed.len(), MOST);
}

#[test]
fn a_kill_at_the_limit_of_all_pods_arms_their_threshold_only() {
    for (signal, of_pods, of_node, expected) in [
        (Signal::AllocatableMemoryAvailable, Some(6), None, Some(ArmedBy::OomKill)),
        (Signal::AllocatableMemoryAvailable, None, Some(6), Some(ArmedBy::OomKill)),
        (Signal::AllocatableMemoryAvailable, Some(4), None, None),
        (MEMORY, Some(6), None, None),
    ] {
        let at = |seconds: Option<u64>| seconds.map(|at| Monotonic(at * 1_000_000_000));
        let waiting = Waiting { threshold: threshold(signal, "2Gi"), available: G, since: Monotonic(5_000_000_000) };
        let snapshot = Snapshot { pods_oom_killed: at(of_pods), oom_killed: at(of_node), ..Snapshot::default() };
        assert_eq!(waiting.exit(G, &snapshot, false), expected, "{signal} {of_pods:?} {of_node:?}");
    }
}
