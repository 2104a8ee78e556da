use prometheus::{Encoder as _, TextEncoder};

use super::*;

fn text(registry: &Registry) -> String {
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn counters(stalls: &[u64]) -> ReclaimCounters {
    let mut counters = ReclaimCounters::ZERO;
    for &ns in stalls {
        counters.stalls += 1;
        counters.stalled_ns += ns;
        counters.histogram[monitor_ebpf::histogram_bucket(ns)] += 1;
    }
    counters
}

#[test]
fn buckets_are_cumulative_and_end_where_the_kernels_do() {
    let registry = Registry::new();
    let series = ReclaimSeries::new(&registry).unwrap();
    // Just below and at an edge of 1024 << 10 ns, and one beyond the last.
    let current = counters(&[500, (1024 << 10) - 1, 1024 << 10, 60_000_000_000]);
    series.add("a", "direct", &mut ReclaimCounters { ..ReclaimCounters::ZERO }, &current);
    let text = text(&registry);
    for line in [
        r#"bucket{kind="direct",workload="a",le="0.000065536"} 1"#,
        r#"bucket{kind="direct",workload="a",le="0.001048576"} 2"#,
        r#"bucket{kind="direct",workload="a",le="0.002097152"} 3"#,
        r#"bucket{kind="direct",workload="a",le="4.294967296"} 3"#,
        r#"bucket{kind="direct",workload="a",le="+Inf"} 4"#,
        r#"count{kind="direct",workload="a"} 4"#,
    ] {
        assert!(text.contains(&format!("node_pressure_monitor_reclaim_stall_seconds_{line}\n")), "{line}\n{text}");
    }
    assert!(text.contains("# TYPE node_pressure_monitor_reclaim_stall_seconds histogram"), "{text}");
}

#[test]
fn all_series_of_a_workload_are_removed() {
    let registry = Registry::new();
    let series = ReclaimSeries::new(&registry).unwrap();
    let mut current = counters(&[500]);
    (current.reclaimed_pages, current.scanned_pages) = (32, 64);
    (current.throttles, current.throttled_ns) = (2, 1_500_000_000);
    for workload in ["a", "b"] {
        series.add(workload, "memcg", &mut ReclaimCounters { ..ReclaimCounters::ZERO }, &current);
    }
    let before = text(&registry);
    for line in [
        r#"pages_reclaimed_total{kind="memcg",workload="a"} 32"#,
        r#"pages_scanned_total{kind="memcg",workload="a"} 64"#,
        r#"throttled_total{workload="a"} 2"#,
        r#"throttled_seconds_total{workload="a"} 1.5"#,
    ] {
        assert!(before.contains(&format!("node_pressure_monitor_reclaim_{line}\n")), "{line}\n{before}");
    }
    series.remove("a", ["memcg", "direct"]);
    let after = text(&registry);
    assert!(!after.contains(r#"workload="a""#), "{after}");
    assert_eq!(after.matches(r#"workload="b""#).count() * 2, before.matches("workload=").count());
}
