//! Checks the steps that the decider takes for given snapshots and times. The tests use no clock and no files.

use std::time::Duration;

use super::*;
use crate::config::kubernetes_options::{EvictionMethod, EvictionMethods};
use crate::config::{EvictionLimits, Mode, Policy, Threshold, ThresholdValue};
use crate::eviction::SignalValue;
use crate::eviction::collection::CollectionEnd;
use crate::eviction::evicted::Cause;
use crate::eviction::proactive_reclaim::{Answer as ReclaimAnswer, Holding};
use crate::eviction::rank::Facts;
use crate::units::{Amount, Bytes, CgroupId, Moment};
use crate::workloads::{Outlook, Preference, QosClass};

const MS: i128 = 1_000_000;
const MEMORY: Signal = Signal::MemoryAvailable;
const DISK: Signal = Signal::NodeFsAvailable;
const PIDS: Signal = Signal::PidAvailable;

/// A driver for tests: the decider, its rules, and plain figures that answer what the decider asks.
struct Scene {
    policy: Policy,
    agent: AgentRules,
    decider: Decider<RecordedCandidate>,
    snapshot: Snapshot,
    /// The name, QoS class and usage of each candidate.
    candidates: Vec<(&'static str, QosClass, i64)>,
    /// The bytes per second by which a candidate grows.
    growth: fn(&str) -> i64,
    is_daemon: fn(&str) -> bool,
    is_service: fn(&str) -> bool,
    is_terminating: fn(&str) -> bool,
    standing: fn(&str) -> Standing,
    attempt: fn(&str) -> Attempt,
    runtime: RuntimeFacts,
    are_disks_measured: bool,
    exceeded: Vec<LimitExceeded>,
    holding: Option<Holding>,
    /// The bytes that the kernel has freed when an attempt at proactive reclaim ends.
    freed: Bytes,
    is_reclaim_refused: bool,
    /// The workloads that the second sample finds dying, and the first did not.
    second_dying: Vec<DyingMemory>,
    /// The second sample. `None` repeats the first.
    second: Option<Vec<(Signal, i64)>>,
}

fn threshold(signal: Signal, at: u64, grace: u64) -> Threshold {
    let value = ThresholdValue::bytes(Bytes(at));
    Threshold { signal, value, grace_period: Duration::from_secs(grace), min_reclaim: None }
}

fn observed(values: &[(Signal, i64)]) -> Observation {
    let value = |(signal, available): &(Signal, i64)| SignalValue {
        signal: *signal,
        available: *available,
        capacity: 1_000,
        at: None,
    };
    Observation { signals: values.iter().map(value).collect() }
}

impl Scene {
    fn with(thresholds: Vec<Threshold>, values: &[(Signal, i64)]) -> Self {
        let policy = Policy { hard_count: thresholds.len(), thresholds, ..Policy::default() };
        let limits = EvictionLimits {
            cool_down: Duration::from_secs(2),
            max_per_minute: 3,
            kill_timeout: Duration::from_secs(5),
            minimum_gain: Duration::from_secs(10),
            reclaim_deadline: Duration::from_millis(500),
            // The scenes begin under pressure.
            act_on_present_pressure: true,
        };
        let methods = EvictionMethods { hard: EvictionMethod::Delete, soft: EvictionMethod::Evict };
        Self {
            policy,
            agent: AgentRules { mode: Mode::Enforce, limits, methods, defers_soft: true },
            decider: Decider::default(),
            snapshot: Snapshot { observation: observed(values), ..Snapshot::default() },
            candidates: vec![("small", QosClass::BestEffort, 100), ("large", QosClass::BestEffort, 400)],
            growth: |_| 0,
            is_daemon: |_| false,
            is_service: |_| false,
            is_terminating: |_| false,
            standing: |_| Standing::default(),
            attempt: |_| Attempt::Started,
            runtime: RuntimeFacts::None,
            are_disks_measured: true,
            exceeded: Vec::new(),
            holding: None,
            freed: Bytes::ZERO,
            is_reclaim_refused: false,
            second_dying: Vec::new(),
            second: None,
        }
    }

    fn memory(available: i64) -> Self {
        Self::with(vec![threshold(MEMORY, 100, 0)], &[(MEMORY, available)])
    }

    fn at(&mut self, milliseconds: i128) -> &mut Self {
        self.snapshot.now = Moment(milliseconds * MS);
        self
    }

    fn see(&mut self, values: &[(Signal, i64)]) -> &mut Self {
        self.snapshot.observation = observed(values);
        self
    }

    fn all(&self) -> Vec<RecordedCandidate> {
        let candidate = |(number, (name, qos, usage)): (u64, &(&str, QosClass, i64))| RecordedCandidate {
            name: (*name).to_owned(),
            id: number.to_string(),
            cgroup: CgroupId(number),
            facts: Facts {
                preference: Preference::None,
                qos: *qos,
                priority: 0,
                usage: Some(Amount::from_units(*usage)),
                request: Some(Amount::ZERO),
                subtracted: Amount::ZERO,
            },
            exact: true,
            outlook: Outlook {
                growth: (self.growth)(name),
                is_growth_measured: true,
                only_as_leaker: (self.is_daemon)(name) || (self.is_service)(name),
                is_daemon: (self.is_daemon)(name),
                is_terminating: (self.is_terminating)(name),
                ..Outlook::default()
            },
            is_unlisted: false,
            standing: None,
        };
        (1..).zip(&self.candidates).map(candidate).collect()
    }

    fn name(&self, place: Place) -> String {
        match place {
            Place::Ranked(place) => self.decider.ranking()[place].candidate.name.clone(),
            Place::Limit(place) => format!("limit {place}"),
        }
    }

    fn cgroup(&self, place: Place) -> CgroupId {
        match place {
            Place::Ranked(place) => self.decider.ranking()[place].candidate.cgroup,
            Place::Limit(place) => self.exceeded[place].id,
        }
    }

    /// Runs one turn and returns what the decider did.
    fn turn(&mut self) -> Vec<String> {
        let (mut done, mut answer) = (Vec::new(), Answer::Begin);
        let mut snapshot = self.snapshot.clone();
        for _ in 0..100 {
            let policy = self.policy.clone();
            let rules = Rules { policy: &policy, pace: Pace::Agent(self.agent) };
            answer = match self.decider.step(rules, &snapshot, answer) {
                Next::Wait { .. } => {
                    self.snapshot.ended.clear();
                    self.snapshot.collected = None;
                    done.extend(self.decider.notes().map(|note| note_name(note).to_owned()));
                    return done;
                }
                Next::Measure(Measure::Signals) => {
                    snapshot.dying.extend(&self.second_dying);
                    if let Some(second) = &self.second {
                        snapshot.observation = observed(second);
                    }
                    Answer::Sampled
                }
                Next::Measure(Measure::Candidates { .. }) => Answer::Candidates(self.all()),
                Next::Measure(Measure::Exact { .. }) => Answer::Exact(None),
                Next::Measure(Measure::Standing { place }) => {
                    let name = self.name(place);
                    Answer::Standing((self.standing)(&name))
                }
                Next::Measure(Measure::Holding { .. }) => Answer::Holding(self.holding),
                Next::Measure(Measure::Disks { .. }) => Answer::DisksMeasured(self.are_disks_measured),
                Next::Measure(Measure::Limits) => Answer::Limits(self.exceeded.clone()),
                Next::Measure(Measure::Runtime) => Answer::Runtime(self.runtime),
                Next::CollectGarbage { .. } => {
                    done.push("collect".to_owned());
                    Answer::CollectionStarted(true)
                }
                Next::Reclaim { place, .. } => {
                    done.push(format!("reclaim from {}", self.name(Place::Ranked(place))));
                    Answer::ReclaimStarted(!self.is_reclaim_refused)
                }
                Next::EndReclaim { outcome, .. } => {
                    done.push(format!("reclaim {}", outcome.as_str()));
                    snapshot.reclaim = ReclaimFacts::Idle;
                    Answer::Reclaimed(self.freed)
                }
                Next::Evict(choice) => {
                    let name = self.name(choice.place);
                    let verb = if choice.is_dry_run { "would evict" } else { "evict" };
                    done.push(format!("{verb} {name} for {}", choice.cause.as_str()));
                    let attempt = (self.attempt)(&name);
                    if attempt == Attempt::Started && !choice.is_dry_run {
                        let id = self.cgroup(choice.place);
                        snapshot.under_way.push(UnderWay { id, stage: EvictionStage::Dying, is_urgent: false });
                    }
                    Answer::Attempt(attempt)
                }
            };
        }
        panic!("the turn has no end: {done:?}");
    }
}

fn note_name(note: Note) -> &'static str {
    match note {
        Note::AwaitsPods { .. } => "awaits pods",
        Note::Deferred { .. } => "deferred",
        Note::Unarmed { .. } => "unarmed",
        Note::Armed { .. } => "armed",
        Note::BudgetSpent { .. } => "budget spent",
        Note::Expected { .. } => "expected",
        Note::PutOff { .. } => "put off",
        Note::MemoryExpected { .. } => "memory expected",
        Note::ProtectedLeak { .. } => "protected leak",
        Note::RefaultsOnly { .. } => "refaults only",
        Note::Exhausted { .. } => "exhausted",
        Note::ReclaimFutile { .. } => "reclaim futile",
        Note::ReclaimDryRun { .. } => "reclaim dry run",
    }
}

fn dying(id: u64) -> DyingMemory {
    DyingMemory {
        id: CgroupId(id),
        expected: Bytes(400),
        left: Bytes(400),
        killed: Monotonic(0),
        grace_ends: None,
        growth: 0,
        is_own: true,
        is_whole: true,
        is_populated: true,
    }
}

fn gone(id: u64, signal: Signal) -> EndedEviction {
    EndedEviction { id: CgroupId(id), cause: Cause::Signal(signal), end: EvictionEnd::Gone }
}

#[test]
fn memory_before_disk_and_hard_before_soft() {
    let thresholds = vec![threshold(DISK, 100, 0), threshold(MEMORY, 200, 10), threshold(MEMORY, 100, 0)];
    let mut scene = Scene::with(thresholds, &[(DISK, 50), (MEMORY, 50)]);
    assert_eq!(scene.at(0).turn(), ["evict large for memory.available"]);
    // The soft threshold is past its grace period and the hard one recovered.
    let mut scene =
        Scene::with(vec![threshold(MEMORY, 200, 10), threshold(PIDS, 100, 0)], &[(MEMORY, 150), (PIDS, 50)]);
    assert_eq!(scene.at(0).turn(), ["evict large for pid.available"], "the soft threshold is inside its grace period");
    scene.snapshot.ended = vec![gone(2, PIDS)];
    scene.see(&[(MEMORY, 150), (PIDS, 500)]);
    assert_eq!(
        scene.at(12_000).turn(),
        ["evict large for memory.available"],
        "no cause waits for the cool-down of another"
    );
}

#[test]
fn the_second_sample_must_confirm_the_threshold() {
    let mut scene = Scene::memory(50);
    scene.second = Some(vec![(MEMORY, 100)]);
    assert!(scene.turn().is_empty(), "equal is not below");
    scene.second = Some(vec![(MEMORY, 99)]);
    assert_eq!(scene.turn(), ["evict large for memory.available"]);
}

#[test]
fn garbage_is_collected_before_an_eviction() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 50)]);
    scene.runtime = RuntimeFacts::Up;
    assert_eq!(scene.at(0).turn(), ["collect"]);
    assert!(scene.at(1_000).turn().is_empty(), "the collection is under way");
    scene.snapshot.collected = Some(CollectionEnd::Exhausted);
    assert_eq!(scene.at(2_000).turn(), ["evict large for nodefs.available"], "nothing was left to collect");
    assert!(scene.at(3_000).turn().is_empty(), "the cool-down of disks is not over");
}

#[test]
fn disks_are_measured_anew_before_an_eviction() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 50)]);
    scene.are_disks_measured = false;
    for (at, expected) in [(0, 0), (1_000, 0), (4_999, 0), (5_000, 1)] {
        assert_eq!(scene.at(at).turn().len(), expected, "at {at} ms");
    }
}

#[test]
fn an_eviction_waits_for_expected_space_of_evicted_pods() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 60)]);
    scene.snapshot.expected = vec![(DISK, Amount::from_units(50))];
    assert_eq!(scene.at(0).turn(), ["expected"]);
    scene.see(&[(DISK, 29)]);
    assert_eq!(scene.at(100).turn(), ["evict large for nodefs.available"], "less than half of the space is left");
}

#[test]
fn a_cool_down_follows_an_effect_not_an_attempt() {
    let mut scene = Scene::memory(50);
    assert_eq!(scene.at(0).turn(), ["evict large for memory.available"]);
    scene.snapshot.dying = vec![dying(2)];
    assert!(scene.at(100).turn().is_empty(), "the memory of the victim is being freed");
    scene.snapshot.dying.clear();
    scene.snapshot.ended = vec![gone(2, MEMORY)];
    assert!(scene.at(200).turn().is_empty(), "the cool-down begins when the victim has ended");
    assert!(scene.at(2_199).turn().is_empty());
    assert_eq!(scene.at(2_200).turn().len(), 1);
    let mut failed = Scene::memory(50);
    failed.attempt = |name| if name == "large" { Attempt::Failed } else { Attempt::Started };
    assert_eq!(failed.at(0).turn().len(), 2, "after a failed attempt the next candidate is tried");
}

#[test]
fn the_budget_of_a_minute_bounds_evictions() {
    let mut scene = Scene::with(vec![threshold(PIDS, 100, 0), threshold(MEMORY, 100, 0)], &[(PIDS, 50), (MEMORY, 500)]);
    for second in [0, 3, 6] {
        assert_eq!(scene.at(second * 1_000).turn().len(), 1, "{second} s");
        scene.snapshot.ended = vec![gone(2, PIDS)];
        assert!(scene.at(second * 1_000 + 500).turn().is_empty(), "the cool-down follows the effect");
    }
    assert_eq!(scene.at(9_000).turn(), ["budget spent"]);
    scene.see(&[(PIDS, 50), (MEMORY, 50)]);
    assert_eq!(scene.at(9_001).turn(), ["evict large for memory.available"], "memory has a budget of its own");
    scene.see(&[(PIDS, 50), (MEMORY, 500)]);
    // The first eviction began at 0 s.
    assert_eq!(scene.at(59_999).turn(), ["budget spent"]);
    assert_eq!(scene.at(60_000).turn(), ["evict large for pid.available"]);
}

#[test]
fn evictions_that_buy_little_end_with_a_report() {
    let mut scene = Scene::memory(50);
    scene.agent.limits.max_per_minute = 10;
    for (second, available) in [(0, 60), (3, 57)] {
        let done = scene.see(&[(MEMORY, available)]).at(second * 1_000).turn();
        assert_eq!(done, ["evict large for memory.available"], "{second} s");
    }
    let reported = ["protected leak", "exhausted"];
    let done = scene.see(&[(MEMORY, 54)]).at(6_000).turn();
    assert_eq!(done, reported, "two evictions bought three seconds each");
    scene.growth = |name| if name == "small" { 50 } else { 0 };
    assert_eq!(
        scene.see(&[(MEMORY, 53)]).at(7_000).turn(),
        ["evict small for memory.available"],
        "a leaker is evicted"
    );
    scene.growth = |_| 0;
    assert_eq!(scene.see(&[(MEMORY, 51)]).at(9_000).turn(), reported);
    scene.see(&[(MEMORY, 24)]);
    assert_eq!(scene.at(9_500).turn(), ["evict large for memory.available"], "below a quarter of the threshold, once");
    assert_eq!(scene.see(&[(MEMORY, 23)]).at(10_000).turn(), reported);
    scene.see(&[(MEMORY, 500)]);
    scene.at(11_000).turn();
    scene.see(&[(MEMORY, 50)]);
    assert_eq!(scene.at(312_000).turn(), ["evict large for memory.available"], "another shortage");
}

#[test]
fn the_pick_for_memory_says_nothing_of_other_signals() {
    let mut scene = Scene::with(vec![threshold(PIDS, 100, 0), threshold(MEMORY, 100, 0)], &[(PIDS, 500), (MEMORY, 50)]);
    scene.agent.limits.max_per_minute = 10;
    for (second, available) in [(0, 60), (3, 57)] {
        scene.see(&[(PIDS, 500), (MEMORY, available)]).at(second * 1_000).turn();
    }
    let done = scene.see(&[(PIDS, 500), (MEMORY, 54)]).at(6_000).turn();
    assert_eq!(done, ["protected leak", "exhausted"], "only leakers may be evicted for memory");
    scene.attempt = |_| Attempt::Failed;
    let done = scene.see(&[(PIDS, 50), (MEMORY, 500)]).at(7_000).turn();
    assert_eq!(done, ["evict large for pid.available", "evict small for pid.available", "exhausted"]);
    assert_eq!(scene.decider.worth_at(0), None);
}

#[test]
fn dwarfs_are_passed_over_for_a_leaker() {
    let mut scene = Scene::memory(50);
    let dwarf = |name| (name, QosClass::BestEffort, 3);
    scene.candidates = vec![dwarf("a"), dwarf("b"), dwarf("c"), ("leaker", QosClass::Burstable, 700)];
    scene.growth = |name| if name == "leaker" { 80 } else { 0 };
    scene.see(&[(MEMORY, 130)]).at(0).turn();
    scene.see(&[(MEMORY, 50)]);
    assert_eq!(scene.at(1_000).turn(), ["evict leaker for memory.available"]);
    scene.policy.semantics = crate::config::Semantics::Kubelet;
    let mut kubelet = Scene { decider: Decider::default(), ..scene };
    assert_eq!(kubelet.at(1_000).turn(), ["evict a for memory.available"], "a kubelet evicts by rank alone");
}

#[test]
fn an_eviction_waits_for_the_victims_of_others() {
    let mut scene = Scene::memory(90);
    scene.see(&[(MEMORY, 110)]).at(0).turn();
    let others = DyingMemory {
        expected: Bytes::from_mib(400),
        left: Bytes::from_mib(400),
        killed: Monotonic(1_000_000_000),
        is_own: false,
        is_populated: false,
        ..dying(2)
    };
    scene.see(&[(MEMORY, 90)]).second_dying = vec![others];
    assert!(scene.at(1_000).turn().is_empty(), "the second sample shows it");
    scene.second_dying.clear();
    scene.snapshot.dying = vec![others];
    assert!(scene.at(1_000).turn().is_empty());
    assert_eq!(scene.at(1_900).turn(), ["memory expected"]);
    let evicted = scene.at(4_100).turn();
    assert_eq!(
        evicted,
        ["evict small for memory.available"],
        "nothing has come; the one that was killed is no candidate"
    );
}

#[test]
fn a_grace_that_ends_soon_is_cut_only_when_the_node_cannot_wait() {
    for (name, at, available, expected) in [
        ("inside its grace period", 2_400, 90, &["memory expected"][..]),
        ("the kubelet kills it", 5_400, 90, &["memory expected"]),
        ("the kubelet does not kill it", 5_500, 90, &["evict small for memory.available"]),
        ("half of the threshold is near", 1_100, 60, &["evict small for memory.available"]),
    ] {
        let mut scene = Scene::memory(110);
        scene.is_terminating = |name| name == "small";
        scene.candidates = vec![("small", QosClass::BestEffort, 5_000), ("large", QosClass::BestEffort, 6_000)];
        scene.at(0).turn();
        let bytes = Bytes::from_mib(100);
        scene.snapshot.dying = vec![DyingMemory {
            expected: bytes,
            left: bytes,
            killed: Monotonic(1_000_000_000),
            grace_ends: Some(Monotonic(2_500_000_000)),
            is_own: false,
            is_whole: false,
            is_populated: false,
            ..dying(1)
        }];
        assert!(scene.see(&[(MEMORY, 90)]).at(1_000).turn().is_empty(), "{name}");
        assert_eq!(scene.see(&[(MEMORY, available)]).at(at).turn(), expected, "{name}");
    }
}

#[test]
fn a_pod_of_a_daemon_set_is_evicted_only_as_a_leaker() {
    for (growth, soft, expected) in [(0, 0, "small"), (90, 0, "large"), (90, 1, "small")] {
        let mut scene = Scene::with(vec![threshold(MEMORY, 100, soft)], &[(MEMORY, 100)]);
        scene.is_daemon = |name| name == "large";
        scene.growth = if growth > 0 { |name| if name == "large" { 90 } else { 0 } } else { |_| 0 };
        scene.at(0).turn();
        scene.see(&[(MEMORY, 90)]).at(1_000);
        let mut done = scene.turn();
        if soft > 0 {
            done = scene.at(2_000).turn();
        }
        assert_eq!(done, [format!("evict {expected} for memory.available")], "{growth} {soft}");
    }
    let mut disk = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 50)]);
    disk.is_daemon = |name| name == "large";
    assert_eq!(disk.at(0).turn(), ["evict small for nodefs.available"]);
}

#[test]
fn a_service_is_evicted_only_if_it_is_what_uses_the_resource_up() {
    let mut scene = Scene::with(vec![threshold(PIDS, 100, 0)], &[(PIDS, 50)]);
    scene.is_service = |name| name == "large";
    assert_eq!(scene.at(0).turn(), ["evict large for pid.available"], "it has most of the processes");
    scene = Scene {
        decider: Decider::default(),
        candidates: vec![
            ("large", QosClass::BestEffort, 400),
            ("small", QosClass::BestEffort, 399),
            ("pod", QosClass::BestEffort, 300),
        ],
        ..scene
    };
    assert_eq!(scene.at(0).turn(), ["evict small for pid.available"]);
    let mut kubelet = Scene::memory(50);
    kubelet.is_service = |name| name == "large";
    kubelet.growth = |_| 90;
    kubelet.policy.semantics = crate::config::Semantics::Kubelet;
    assert_eq!(kubelet.at(0).turn(), ["evict small for memory.available"], "no leaker is known");
}

#[test]
fn a_hard_threshold_does_not_wait_behind_a_grace_period() {
    for (stage, is_urgent, signal, hard, soft) in [
        (EvictionStage::Leaving, false, MEMORY, 1, 0),
        (EvictionStage::Dying, false, MEMORY, 0, 0),
        (EvictionStage::Removing, true, MEMORY, 1, 0),
        (EvictionStage::Leaving, true, DISK, 0, 0),
        (EvictionStage::Leaving, false, DISK, 1, 0),
        (EvictionStage::Removing, false, DISK, 0, 0),
    ] {
        for (grace, expected) in [(0, hard), (1, soft)] {
            let mut scene = Scene::with(vec![threshold(signal, 100, grace)], &[(signal, 50)]);
            scene.at(0).turn();
            let mut scene = Scene { decider: scene.decider, ..Scene::with(scene.policy.thresholds, &[(signal, 50)]) };
            scene.decider.reconsider();
            scene.snapshot.under_way = vec![UnderWay { id: CgroupId(9), stage, is_urgent }];
            if stage == EvictionStage::Dying {
                scene.snapshot.dying = vec![DyingMemory { killed: Monotonic(19_900_000_000), ..dying(9) }];
            }
            let done = scene.at(20_000).turn();
            assert_eq!(done.len(), expected, "{stage:?} {is_urgent} {signal} {grace}: {done:?}");
        }
    }
}

#[test]
fn critical_and_failed_candidates_are_passed_over() {
    let mut scene = Scene::memory(50);
    scene.standing = |name| Standing { is_critical: name == "large", ..Standing::default() };
    assert_eq!(scene.at(0).turn(), ["evict small for memory.available"]);
    let mut scene = Scene::memory(50);
    scene.attempt = |_| Attempt::Failed;
    let all = ["evict large for memory.available", "evict small for memory.available", "exhausted"];
    assert_eq!(scene.at(0).turn(), all);
    assert!(scene.at(249).turn().is_empty(), "candidates are not ranked again at once");
    assert_eq!(scene.at(250).turn(), ["exhausted"], "both candidates are excluded");
    assert_eq!(scene.at(30_000).turn(), all);
}

#[test]
fn maintenance_defers_soft_thresholds_alone() {
    let mut scene =
        Scene::with(vec![threshold(MEMORY, 200, 1), threshold(PIDS, 100, 0)], &[(MEMORY, 150), (PIDS, 500)]);
    scene.snapshot.in_maintenance = true;
    assert!(scene.at(0).turn().is_empty());
    assert_eq!(scene.at(1_000).turn(), ["deferred"]);
    scene.see(&[(MEMORY, 150), (PIDS, 50)]);
    assert_eq!(scene.at(1_100).turn(), ["evict large for pid.available", "deferred"]);
}

#[test]
fn a_soft_eviction_waits_for_the_api_server() {
    let mut scene = Scene::with(vec![threshold(MEMORY, 200, 1)], &[(MEMORY, 150)]);
    scene.standing =
        |_| Standing { is_pod: true, is_known: true, control_plane: ControlPlane::Down, ..Standing::default() };
    scene.at(0).turn();
    // The first candidate is put off by its upper bound, then both by exact figures.
    assert_eq!(scene.at(1_000).turn(), ["put off", "put off", "put off"]);
    assert!(scene.at(5_999).turn().is_empty());
    scene.standing = |_| Standing {
        is_pod: true,
        is_known: true,
        control_plane: ControlPlane::Up { is_read: true },
        ..Standing::default()
    };
    assert_eq!(scene.at(6_000).turn(), ["evict large for memory.available"]);
}

#[test]
fn observe_mode_names_the_victim_without_waiting() {
    let mut soft = Scene::with(vec![threshold(MEMORY, 200, 1)], &[(MEMORY, 150)]);
    soft.agent.mode = Mode::Observe;
    soft.standing = |_| Standing { is_pod: true, control_plane: ControlPlane::Down, ..Standing::default() };
    soft.at(0).turn();
    assert_eq!(soft.at(1_000).turn(), ["would evict large for memory.available"], "observe mode needs no API server");
    let mut scene = Scene::memory(50);
    scene.agent.mode = Mode::Observe;
    assert_eq!(scene.at(0).turn(), ["would evict large for memory.available"]);
    assert!(scene.at(99).turn().is_empty(), "observe mode ranks every 100 ms at most");
    assert_eq!(scene.at(100).turn(), ["would evict large for memory.available"]);
    let mut disk = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 50)]);
    (disk.agent.mode, disk.runtime) = (Mode::Observe, RuntimeFacts::Up);
    assert_eq!(
        disk.at(0).turn(),
        ["collect", "would evict large for nodefs.available"],
        "listing garbage frees nothing"
    );
}

#[test]
fn a_reload_keeps_the_evictions_under_way() {
    let mut scene = Scene::memory(50);
    assert_eq!(scene.at(0).turn().len(), 1);
    scene.snapshot.dying = vec![dying(2)];
    scene.policy.thresholds = vec![threshold(MEMORY, 80, 0)];
    let rules = Rules { policy: &scene.policy.clone(), pace: Pace::Agent(scene.agent) };
    scene.decider.arm(rules, Layout::default());
    scene.decider.reconsider();
    assert!(scene.at(10).turn().is_empty(), "the victim is still dying");
    scene.snapshot.dying.clear();
    scene.snapshot.ended = vec![gone(2, MEMORY)];
    assert!(scene.at(20).turn().is_empty(), "the eviction is charged to the budget");
    scene.agent.mode = Mode::Observe;
    assert_eq!(scene.at(3_000).turn(), ["would evict large for memory.available"]);
}

#[test]
fn proactive_reclaim_comes_first_where_it_can_suffice() {
    let mut scene = Scene::memory(50);
    scene.policy.semantics = crate::config::Semantics::Kubelet;
    scene.snapshot.reclaim = ReclaimFacts::Idle;
    let holding = Holding { above_request: Bytes(400), active_file: Bytes(300), ..Holding::default() };
    scene.holding = Some(holding);
    assert_eq!(scene.at(0).turn(), ["reclaim from large"]);
    scene.snapshot.reclaim = ReclaimFacts::Busy(ReclaimAnswer::Pending);
    assert!(scene.at(10).turn().is_empty(), "the kernel is reclaiming");
    let late = scene.at(500).turn();
    assert_eq!(late, ["reclaim timed_out", "evict large for memory.available"]);
    let mut little = Scene::memory(50);
    little.snapshot.reclaim = ReclaimFacts::Idle;
    little.holding = Some(Holding { above_request: Bytes(10), ..holding });
    assert_eq!(little.at(0).turn(), ["evict large for memory.available", "reclaim futile"]);
}

#[test]
fn proactive_reclaim_continues_while_it_frees_memory() {
    let mut scene = Scene::memory(50);
    scene.policy.semantics = crate::config::Semantics::Kubelet;
    scene.snapshot.reclaim = ReclaimFacts::Idle;
    scene.holding = Some(Holding { above_request: Bytes(400), active_file: Bytes(300), ..Holding::default() });
    assert_eq!(scene.at(0).turn(), ["reclaim from large"]);
    (scene.snapshot.reclaim, scene.freed) = (ReclaimFacts::Busy(ReclaimAnswer::Done), Bytes(100));
    assert_eq!(
        scene.at(40).turn(),
        ["reclaim insufficient", "reclaim from large"],
        "attempts follow one another until the deadline"
    );
    let late = ["reclaim timed_out", "evict large for memory.available"];
    scene.snapshot.reclaim = ReclaimFacts::Busy(ReclaimAnswer::Pending);
    assert_eq!(scene.at(500).turn(), late, "the deadline of the series is over");
}

#[test]
fn proactive_reclaim_that_cannot_start_rests() {
    let mut scene = Scene::memory(50);
    scene.policy.semantics = crate::config::Semantics::Kubelet;
    (scene.snapshot.reclaim, scene.is_reclaim_refused) = (ReclaimFacts::Idle, true);
    scene.attempt = |_| Attempt::PutOff;
    scene.holding = Some(Holding { above_request: Bytes(400), active_file: Bytes(300), ..Holding::default() });
    assert_eq!(scene.at(0).turn().first().map(String::as_str), Some("reclaim from large"));
    let later = scene.at(300).turn();
    assert!(!later.iter().any(|done| done.starts_with("reclaim")), "{later:?}");
}

#[test]
fn an_eviction_of_the_same_turn_delays_one_for_a_limit() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 50)]);
    scene.snapshot.has_limits = true;
    let exceeded = |id| LimitExceeded { id: CgroupId(id), cause: Cause::PodLimit, is_stale: false };
    scene.exceeded = vec![exceeded(2)];
    assert_eq!(
        scene.at(0).turn(),
        ["evict large for nodefs.available"],
        "the pod above its limit is being evicted already"
    );
    let mut scene = Scene::memory(50);
    scene.snapshot.has_limits = true;
    scene.exceeded = vec![exceeded(9)];
    assert_eq!(
        scene.at(0).turn(),
        ["evict large for memory.available"],
        "the next eviction waits until this one has ended"
    );
}

#[test]
fn a_failed_candidate_still_counts_for_benefit() {
    let mut scene = Scene::with(vec![threshold(PIDS, 100, 0)], &[(PIDS, 50)]);
    scene.candidates = vec![("small", QosClass::BestEffort, 5), ("large", QosClass::BestEffort, 400)];
    scene.attempt = |_| Attempt::Failed;
    assert_eq!(scene.at(0).turn(), ["evict large for pid.available", "exhausted"]);
}

#[test]
fn pods_above_a_limit_are_evicted_one_at_a_time() {
    let mut scene = Scene::memory(500);
    scene.snapshot.has_limits = true;
    let exceeded = |id, is_stale| LimitExceeded { id: CgroupId(id), cause: Cause::PodLimit, is_stale };
    scene.exceeded = vec![exceeded(1, true), exceeded(2, false), exceeded(3, false)];
    assert_eq!(
        scene.at(0).turn(),
        ["evict limit 1 for ephemeralpodfs.limit"],
        "a pod with a stale figure is passed over"
    );
    assert!(scene.at(499).turn().is_empty());
    assert_eq!(scene.at(500).turn().len(), 1);
    scene.exceeded.clear();
    assert!(scene.at(1_000).turn().is_empty());
    scene.exceeded = vec![exceeded(2, false), exceeded(4, false)];
    assert!(scene.at(10_999).turn().is_empty(), "limits are checked every ten seconds");
    assert_eq!(
        scene.at(11_000).turn(),
        ["evict limit 1 for ephemeralpodfs.limit"],
        "the other one was evicted already"
    );
}

#[test]
fn an_answer_to_another_question_ends_the_turn() {
    let mut scene = Scene::memory(50);
    let rules = Rules { policy: &scene.policy, pace: Pace::Agent(scene.agent) };
    let first = scene.decider.step(rules, &scene.snapshot, Answer::Begin);
    assert!(matches!(first, Next::Measure(Measure::Candidates { .. })), "{first:?}");
    let next = scene.decider.step(rules, &scene.snapshot, Answer::Attempt(Attempt::Started));
    assert!(matches!(next, Next::Wait { .. }), "{next:?}");
}

#[test]
fn the_route_follows_from_the_method_and_the_api_server() {
    use EvictionMethod::{Delete, Evict, Off};
    let (up, unread, down) =
        (ControlPlane::Up { is_read: true }, ControlPlane::Up { is_read: false }, ControlPlane::Down);
    let requested = |insists| Some(Route::Requested { insists });
    for (method, hard, control_plane, is_known, expected) in [
        (Off, true, up, true, Some(Route::Local)),
        (Off, false, down, false, Some(Route::Local)),
        (Delete, true, up, true, Some(Route::Reported)),
        (Delete, true, down, true, Some(Route::Reported)),
        (Evict, true, down, true, Some(Route::Reported)),
        (Delete, true, down, false, Some(Route::Unlisted)),
        (Evict, false, up, true, requested(false)),
        (Delete, false, up, true, requested(true)),
        (Delete, false, down, true, Some(Route::Reported)),
        (Evict, false, down, true, None),
        (Evict, false, down, false, None),
        (Evict, false, unread, false, None),
        (Evict, false, up, false, None),
        (Evict, true, unread, false, Some(Route::Unlisted)),
        (Delete, true, unread, false, Some(Route::Unlisted)),
        (Delete, false, up, false, Some(Route::Unlisted)),
        (Delete, false, unread, false, None),
        (Delete, false, down, false, Some(Route::Unlisted)),
        (Evict, false, ControlPlane::None, true, Some(Route::Local)),
    ] {
        let methods = EvictionMethods { hard: method, soft: method };
        let standing = Standing { is_pod: true, is_known, control_plane, ..Standing::default() };
        assert_eq!(choose::route(methods, hard, standing), expected, "{method:?} {hard} {control_plane:?} {is_known}");
    }
}

/// Records a turn of the scene up to its eviction. Returns its line, written and read again.
fn recorded(scene: &Scene) -> RecordedLine {
    let rules = Rules { policy: &scene.policy, pace: Pace::Agent(scene.agent) };
    let mut decider = Decider::default();
    let mut recording = Recording::begin(&decider);
    let (mut victim, mut explanation, mut above_limit) = (String::new(), String::new(), None);
    let mut answer = Answer::Begin;
    loop {
        answer = match recording.step(&mut decider, rules, &scene.snapshot, answer) {
            Next::Measure(Measure::Signals) => Answer::Sampled,
            Next::Measure(Measure::Candidates { .. }) => Answer::Candidates(scene.all()),
            Next::Measure(Measure::Standing { .. }) => Answer::Standing(Standing::default()),
            Next::Measure(Measure::Limits) => Answer::Limits(scene.exceeded.clone()),
            Next::Evict(Choice { place: Place::Ranked(place), .. }) => {
                let ranked = &decider.ranking()[place];
                victim.clone_from(&ranked.candidate.name);
                explanation = ranked.explanation(Order::of(&scene.policy, Resource::Memory));
                Answer::Attempt(Attempt::Started)
            }
            Next::Evict(Choice { place: Place::Limit(place), .. }) => {
                above_limit = Some(scene.exceeded[place].id);
                Answer::Attempt(Attempt::Started)
            }
            _ => break,
        };
    }
    let (time, turn) = ("2026-01-01T00:00:00Z".to_owned(), recording.recorded());
    let line = RecordedLine { time, turn, victim, above_limit, explanation };
    let read: RecordedLine = serde_json::from_str(&serde_json::to_string(&line).unwrap()).unwrap();
    assert_eq!(read, line);
    read
}

#[test]
fn a_recorded_turn_replays_to_the_same_victim() {
    let scene = Scene::memory(50);
    let line = recorded(&scene);
    let rules = Rules { policy: &scene.policy, pace: Pace::Agent(scene.agent) };
    let rules = serde_json::to_string(&RecordedRules::of(rules)).unwrap();
    let rules: RecordedRules<OwnedRules> = serde_json::from_str(&rules).unwrap();
    assert_eq!(rules.rules.policy, scene.policy);
    let replayed = line.replay(rules.rules.borrow());
    assert_eq!((replayed.victim.as_deref(), replayed.difference), (Some("large"), None));
    let other = RecordedLine { victim: "small".to_owned(), ..line };
    assert!(other.replay(rules.rules.borrow()).difference.is_some(), "another victim is noticed");
}

#[test]
fn a_recorded_eviction_for_a_limit_replays() {
    let mut scene = Scene::memory(500);
    scene.snapshot.has_limits = true;
    scene.exceeded = vec![LimitExceeded { id: CgroupId(2), cause: Cause::PodLimit, is_stale: false }];
    let line = recorded(&scene);
    assert_eq!(line.above_limit, Some(CgroupId(2)));
    let rules = Rules { policy: &scene.policy, pace: Pace::Agent(scene.agent) };
    assert_eq!(line.replay(rules).difference, None);
    let other = RecordedLine { above_limit: Some(CgroupId(3)), ..line };
    assert!(other.replay(rules).difference.is_some(), "another victim is noticed");
}

#[test]
fn refaults_evict_only_the_workload_that_causes_them() {
    for (correction, largest, expected) in [
        (60, None, "refaults only"),
        (60, Some((2, 29)), "refaults only"),
        (60, Some((9, 60)), "refaults only"),
        (60, Some((1, 30)), "evict small for memory.available"),
        (40, Some((1, 40)), "evict large for memory.available"),
    ] {
        for (mode, would) in [(Mode::Enforce, ""), (Mode::Observe, "would ")] {
            let mut scene = Scene::memory(50);
            scene.agent.mode = mode;
            let largest = largest.map(|(id, bytes)| (CgroupId(id), Bytes(bytes)));
            scene.snapshot.refaults = Refaults { correction: Bytes(correction), largest };
            let expected =
                if expected.starts_with("evict") { format!("{would}{expected}") } else { expected.to_owned() };
            assert_eq!(scene.at(0).turn(), [expected], "{correction} {largest:?} {mode:?}");
        }
    }
    // The threshold on memory does not delay another one.
    let mut scene = Scene::with(vec![threshold(MEMORY, 100, 0), threshold(PIDS, 100, 0)], &[(MEMORY, 50), (PIDS, 50)]);
    scene.snapshot.refaults = Refaults { correction: Bytes(60), largest: None };
    assert!(scene.at(0).turn().iter().any(|step| step.contains("evict large for pid.available")));
}
