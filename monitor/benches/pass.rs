//! One whole pass over ever more pods with three containers each: a memory threshold is met, all of them are ranked, the message is
//! written. `cargo xtask bench pass` prints how the time grows, and holds it against the promise.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use node_pressure_monitor::config::{Moment, Policy};
use node_pressure_monitor::eviction::pass::{Input, pass};
use node_pressure_monitor::eviction::{Layout, State, arm};
use node_pressure_monitor::workloads::{Pod, Summary};

#[path = "support/cpu_time.rs"]
mod cpu_time;
#[path = "support/node.rs"]
mod node;

use cpu_time::CpuTime;

fn passes(criterion: &mut Criterion<CpuTime>) {
    let policy = Policy::default();
    let armed = arm(&policy, Layout::Single);
    let mut group = criterion.benchmark_group("pass");
    for count in [10, 100, 1_000, 10_000] {
        let pods: Vec<Pod> = node::pods(count).into_iter().filter_map(|pod| serde_json::from_value(pod).ok()).collect();
        let summary = node::summary(count, "2026-01-01T00:00:10Z");
        let summary: Summary = serde_json::from_value(summary).unwrap_or_default();
        let input =
            Input { now: Moment(0), layout: Layout::Single, summary: &summary, after_collection: None, pods: &pods };
        let (_, decision) = pass(&policy, &armed, &State::default(), &input);
        assert_eq!(decision.ranking.len(), count, "the pass that is measured is a whole one");
        assert!(decision.eviction.is_some_and(|eviction| eviction.message.contains("has larger consumption")));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| pass(&policy, &armed, &State::default(), black_box(&input)));
        });
    }
    group.finish();
}

fn settings() -> Criterion<CpuTime> {
    let criterion = Criterion::default().with_measurement(CpuTime).sample_size(30);
    criterion.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2))
}

criterion_group!(name = benches; config = settings(); targets = passes);
criterion_main!(benches);
