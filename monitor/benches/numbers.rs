//! Measures the parsing of quantities.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use node_pressure_monitor::units::Quantity;

#[path = "support/cpu_time.rs"]
mod cpu_time;

use cpu_time::CpuTime;

fn quantities(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("quantity");
    for (name, text) in
        [("whole", "100Mi"), ("fraction", "1.5Gi"), ("exponent", "1e9"), ("long", "12345678901234567890123456")]
    {
        assert!(Quantity::parse(text).is_ok(), "{text}");
        group.bench_function(name, |bencher| bencher.iter(|| Quantity::parse(black_box(text))));
    }
    group.bench_function("printed", |bencher| {
        let quantity = Quantity::parse("1.5Gi").unwrap_or_default();
        bencher.iter(|| black_box(&quantity).canonical());
    });
    group.finish();
}

fn settings() -> Criterion<CpuTime> {
    let criterion = Criterion::default().with_measurement(CpuTime).sample_size(30);
    criterion.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(1))
}

criterion_group!(name = benches; config = settings(); targets = quantities);
criterion_main!(benches);
