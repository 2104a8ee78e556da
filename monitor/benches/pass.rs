//! Measures one whole pass over growing numbers of pods with three containers each: a threshold is met, all pods are ranked, and the
//! message is written. Also measures a pass without pressure. `cargo xtask bench pass` prints how the time grows, and compares it with the
//! promise. It also counts the allocations of the agent's decision, from the sample that crosses a threshold to the choice of the victim.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use node_pressure_monitor::config::{EvictionLimits, Mode, MonitorConfig, Policy, Threshold, ThresholdValue};
use node_pressure_monitor::eviction::decider::{
    AgentRules, Answer, Choice, Decider, Measure, Next, Pace, Place, Recording, Rules, Snapshot, Standing,
};
use node_pressure_monitor::eviction::synchronization::{Input, synchronize};
use node_pressure_monitor::eviction::{Layout, Observation, SignalValue};
use node_pressure_monitor::units::{Bytes, CgroupId, Moment, Signal};
use node_pressure_monitor::workloads::{Kind, Outlook, Pod, Preference, QosClass, Summary, Workload, WorkloadUsage};

#[path = "support/cpu_time.rs"]
mod cpu_time;
#[path = "support/node.rs"]
mod node;
#[path = "../../tests/src/reference.rs"]
#[expect(dead_code, reason = "the guest uses the rest")]
mod reference;

use cpu_time::CpuTime;
use reference::NATIVE_SORTING;

/// The resource that is low, and whether the pods state their class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Memory,
    MemoryComputedQos,
    Disk,
    NothingLow,
}

impl Case {
    /// Returns the case's name. Memory, for which there is a promise, has the short name.
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "pass",
            Self::MemoryComputedQos => "pass-computed-qos",
            Self::Disk => "pass-disk",
            Self::NothingLow => "pass-nothing-low",
        }
    }

    fn pods(self, count: usize) -> Vec<Pod> {
        let mut pods = node::pods(count);
        if self == Self::MemoryComputedQos {
            for pod in &mut pods {
                pod["status"]["qosClass"].take();
            }
        }
        pods.into_iter().filter_map(|pod| serde_json::from_value(pod).ok()).collect()
    }

    fn summary(self, count: usize) -> Summary {
        let mut summary = node::summary(count, "2026-01-01T00:00:10Z");
        let of_node = &mut summary["node"];
        if matches!(self, Self::Disk | Self::NothingLow) {
            of_node["memory"]["availableBytes"] = (8_u64 << 30).into();
        }
        if self == Self::Disk {
            of_node["fs"]["availableBytes"] = 0.into();
        }
        serde_json::from_value(summary).unwrap_or_default()
    }
}

/// Returns a policy with the defaults for memory, and with a threshold for disk.
fn policy() -> Policy {
    let mut policy = Policy::default();
    let (signal, value) = (Signal::NodeFsAvailable, ThresholdValue::bytes(Bytes::from_gib(10)));
    policy.thresholds.push(Threshold { signal, value, grace_period: Duration::ZERO, min_reclaim: None });
    policy.hard_count = policy.thresholds.len();
    policy
}

fn passes(criterion: &mut Criterion<CpuTime>) {
    if let Ok(slowness) = NATIVE_SORTING.slowness() {
        println!("allowance {:.3}", slowness.allowance());
    }
    let policy = policy();
    for case in [Case::Memory, Case::MemoryComputedQos, Case::Disk, Case::NothingLow] {
        let mut group = criterion.benchmark_group(case.name());
        for count in [10, 100, 1_000, 10_000] {
            let (pods, summary) = (case.pods(count), case.summary(count));
            let layout = Layout::Single;
            let input = Input { now: Moment(0), layout, summary: &summary, after_collection: None, pods: &pods };
            let decision = synchronize(&mut Decider::default(), &policy, &input);
            if case != Case::NothingLow {
                assert_eq!(decision.ranking.len(), count, "the pass that is measured is a whole one");
                assert!(decision.eviction.is_some_and(|eviction| eviction.message.contains("Threshold quantity")));
            }
            group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
                bencher.iter(|| synchronize(&mut Decider::default(), &policy, black_box(&input)));
            });
        }
        group.finish();
    }
}

/// The maximum of allocations of the agent's decision: lists of a few thresholds, and four for any number of candidates.
const MOST_ALLOCATIONS: u64 = 30;

fn rules(policy: &Policy) -> Rules<'_> {
    let config = MonitorConfig::default();
    let limits = EvictionLimits { act_on_present_pressure: true, ..config.evictions };
    let methods = config.kubernetes.evictions;
    let agent = AgentRules { mode: Mode::Enforce, limits, methods, defers_soft: true };
    Rules { policy, pace: Pace::Agent(agent) }
}

fn sampled(available: i64) -> Snapshot {
    let value = SignalValue { signal: Signal::MemoryAvailable, available, capacity: 8 << 30, at: None };
    Snapshot { observation: Observation { signals: vec![value] }, ..Snapshot::default() }
}

/// Runs the agent's decision over workloads: steps from the sample that crosses the threshold to the eviction, recorded as in the agent.
fn decide(
    mut decider: Decider<WorkloadUsage>,
    rules: Rules<'_>,
    low: &Snapshot,
    candidates: Vec<WorkloadUsage>,
) -> Option<Choice> {
    let mut recording = Recording::begin(&decider);
    let mut candidates = Some(candidates);
    let mut answer = Answer::Begin;
    loop {
        answer = match recording.step(&mut decider, rules, low, answer) {
            Next::Measure(Measure::Candidates { .. }) => Answer::Candidates(candidates.take()?),
            Next::Measure(Measure::Signals) => Answer::Sampled,
            Next::Measure(Measure::Standing { .. }) => Answer::Standing(Standing::default()),
            Next::Evict(choice) => return Some(choice),
            _ => return None,
        };
    }
}

fn usage(index: u64) -> WorkloadUsage {
    let workload = Workload {
        name: format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{index}.slice"),
        id: CgroupId(index),
        kind: Kind::Service,
        qos: QosClass::BestEffort,
        request: Bytes::ZERO,
        preference: Preference::None,
        among_own: None,
        protection: None,
        only_as_leaker: false,
        is_unlisted: false,
        pod: None,
    };
    WorkloadUsage {
        workload: workload.into(),
        working_set: Bytes::from_mib(index),
        exact: true,
        other: None,
        outlook: Outlook::default(),
    }
}

fn allocations(_: &mut Criterion<CpuTime>) {
    let policy = policy();
    let (rules, low) = (rules(&policy), sampled(1));
    let counted = [10, 100, 1_000, 10_000].map(|count| {
        let candidates = (0..count).map(usage).collect();
        let (mut decider, mut choice) = (Decider::default(), None);
        // The previous turn, in which no signal was low.
        decider.step(rules, &sampled(8 << 30), Answer::Begin);
        let allocations = allocation_counter::measure(|| choice = decide(decider, rules, &low, candidates)).count_total;
        assert_eq!(
            choice.map(|choice| choice.place),
            Some(Place::Ranked(0)),
            "the decision that is counted is a whole one"
        );
        println!("allocations decision/{count} {allocations}");
        allocations
    });
    assert!(counted.iter().all(|count| *count <= MOST_ALLOCATIONS), "{counted:?}, {MOST_ALLOCATIONS} are promised");
}

fn settings() -> Criterion<CpuTime> {
    let criterion = Criterion::default().with_measurement(CpuTime).sample_size(30);
    criterion.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2))
}

criterion_group!(name = benches; config = settings(); targets = allocations, passes);
criterion_main!(benches);
