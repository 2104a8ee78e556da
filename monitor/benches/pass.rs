//! One whole pass over ever more pods with three containers each: a memory threshold is met, all of them are ranked, the message is
//! written. `cargo xtask bench pass` prints how the time grows, and holds it against the promise.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use node_pressure_monitor::config::{Moment, Policy};
use node_pressure_monitor::eviction::pass::{Input, pass};
use node_pressure_monitor::eviction::{Layout, State, arm};
use node_pressure_monitor::workloads::{Pod, Summary};

mod support;

fn passes(criterion: &mut Criterion) {
    let policy = Policy::default();
    let armed = arm(&policy, Layout::Single);
    let mut group = criterion.benchmark_group("pass");
    for count in [10, 100, 1_000, 10_000] {
        let pods: Vec<Pod> =
            support::pods(count).into_iter().filter_map(|pod| serde_json::from_value(pod).ok()).collect();
        let summary = support::summary(count, "2026-01-01T00:00:10Z");
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

criterion_group!(benches, passes);
criterion_main!(benches);
