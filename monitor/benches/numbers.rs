//! Reading quantities.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use node_pressure_monitor::config::Quantity;

fn quantities(criterion: &mut Criterion) {
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

criterion_group!(benches, quantities);
criterion_main!(benches);
