//! Checks the steps that the decider takes for given snapshots and times. The tests use no clock and no files.

mod benefit_tests;
mod reclaim_tests;
mod replay_tests;
mod swap_tests;
mod wait_tests;

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
    /// Whether the second sample is below the kubelet's threshold.
    is_kubelets_turn_at_second: bool,
    /// The space that pods which have ended meanwhile are about to free.
    second_expected: Vec<(Signal, Amount)>,
    /// The second sample. `None` repeats the first.
    second: Option<Vec<(Signal, i64)>>,
    /// The largest candidate of the last turn in which no candidate was left.
    stays: Option<Stays>,
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
            wait_for_swap: true,
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
            second_expected: Vec::new(),
            is_kubelets_turn_at_second: false,
            second: None,
            stays: None,
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
                    for note in self.decider.notes() {
                        if let Note::Exhausted { largest, .. } = note {
                            self.stays = largest;
                        }
                        done.push(note_name(note).to_owned());
                    }
                    return done;
                }
                Next::Measure(Measure::Signals) => {
                    snapshot.dying.extend(&self.second_dying);
                    snapshot.expected.extend(&self.second_expected);
                    snapshot.is_kubelets_turn |= self.is_kubelets_turn_at_second;
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
        Note::LeftToKubelet { .. } => "left to the kubelet",
        Note::PutOff { .. } => "put off",
        Note::MemoryExpected { .. } => "memory expected",
        Note::SwapKeepsUp { .. } => "swap keeps up",
        Note::SwapFallsShort { .. } => "swap falls short",
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
fn an_answer_to_another_question_ends_the_turn() {
    let mut scene = Scene::memory(50);
    let rules = Rules { policy: &scene.policy, pace: Pace::Agent(scene.agent) };
    let first = scene.decider.step(rules, &scene.snapshot, Answer::Begin);
    assert!(matches!(first, Next::Measure(Measure::Candidates { .. })), "{first:?}");
    let next = scene.decider.step(rules, &scene.snapshot, Answer::Attempt(Attempt::Started));
    assert!(matches!(next, Next::Wait { .. }), "{next:?}");
}
