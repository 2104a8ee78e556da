use prometheus::{Encoder as _, TextEncoder};

use super::*;

struct Fixture {
    registry: Registry,
    series: WorkloadSeries,
    start: Instant,
}

impl Fixture {
    fn new(workloads: usize) -> Self {
        let registry = Registry::new();
        let limits = SeriesLimits { workloads, keep: Duration::from_secs(60) };
        let series = WorkloadSeries::new(&registry, limits).unwrap();
        Self { registry, series, start: Instant::now() }
    }

    fn observe(&mut self, seconds: u64, cgroups: &[CgroupReport]) {
        self.series.observe(cgroups, self.start + Duration::from_secs(seconds));
    }

    /// Returns the samples of one metric, without the prefix.
    fn samples(&self, name: &str) -> Vec<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).unwrap();
        let prefix = format!("node_pressure_monitor_{name}{{");
        String::from_utf8(text)
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
            .collect()
    }
}

fn counters(stalls: u64) -> ReclaimCounters {
    let mut counters = ReclaimCounters { stalls, stalled_ns: stalls * 500_000_000, ..ReclaimCounters::ZERO };
    counters.histogram[19] = stalls;
    counters
}

fn cgroup(id: u64, workload: &str, stalls: u64, oom_kills: u64) -> CgroupReport {
    CgroupReport {
        cgroup: CgroupId(id),
        workload: workload.to_owned(),
        counters: Some(CgroupCounters { direct: counters(stalls), memcg: ReclaimCounters::ZERO, oom_kills }),
        inodes: vec![(DeviceId(254 << 20), InodeCounters { created: stalls * 10, removed: stalls, evicted: 0 })],
    }
}

#[test]
fn increments_of_a_workloads_cgroups_add_up() {
    let mut fixture = Fixture::new(10);
    fixture.observe(0, &[cgroup(1, "a", 2, 0), cgroup(2, "a", 3, 1)]);
    fixture.observe(1, &[cgroup(1, "a", 4, 0), cgroup(2, "a", 3, 1)]);
    assert_eq!(fixture.samples("reclaim_stall_seconds_count"), [r#"kind="direct",workload="a"} 7"#]);
    assert_eq!(fixture.samples("reclaim_stall_seconds_sum"), [r#"kind="direct",workload="a"} 3.5"#]);
    assert_eq!(fixture.samples("inodes_created_total"), [r#"device="254:0",workload="a"} 70"#]);
    assert_eq!(fixture.samples("inodes_removed_total"), [r#"device="254:0",workload="a"} 7"#]);
    assert_eq!(fixture.samples("oom_kills_total"), [r#"workload="a"} 1"#]);
}

/// Storing the sum over the workload's cgroups instead of increments would let the counter fall from 5 to 2.
#[test]
fn a_removed_container_does_not_decrease_counters() {
    let mut fixture = Fixture::new(10);
    fixture.observe(0, &[cgroup(1, "a", 2, 0), cgroup(2, "a", 3, 0)]);
    fixture.observe(1, &[cgroup(1, "a", 2, 0)]);
    assert_eq!(fixture.samples("reclaim_stall_seconds_count"), [r#"kind="direct",workload="a"} 5"#]);
    // A new container of the pod starts at zero.
    fixture.observe(2, &[cgroup(1, "a", 2, 0), cgroup(3, "a", 1, 0)]);
    assert_eq!(fixture.samples("reclaim_stall_seconds_count"), [r#"kind="direct",workload="a"} 6"#]);
    // A decreased value means that the cgroup restarted at zero.
    fixture.observe(3, &[cgroup(1, "a", 1, 0)]);
    assert_eq!(fixture.samples("reclaim_stall_seconds_count"), [r#"kind="direct",workload="a"} 7"#]);
}

#[test]
fn series_of_workloads_that_are_gone_expire() {
    let mut fixture = Fixture::new(10);
    fixture.observe(0, &[cgroup(1, "a", 2, 1), cgroup(2, "b", 2, 0)]);
    // The series remains, so that Prometheus can scrape its increments.
    fixture.observe(60, &[cgroup(2, "b", 2, 0)]);
    assert_eq!(fixture.samples("oom_kills_total").len(), 2);
    fixture.observe(61, &[cgroup(2, "b", 2, 0)]);
    for name in [
        "reclaim_stall_seconds_count",
        "reclaim_stall_seconds_sum",
        "inodes_created_total",
        "inodes_removed_total",
        "oom_kills_total",
    ] {
        let samples = fixture.samples(name);
        assert_eq!(samples.len(), 1, "{name}: {samples:?}");
        assert!(samples[0].contains(r#"workload="b""#), "{name}: {samples:?}");
    }
    assert_eq!(fixture.series.last.len(), 1);
    assert_eq!(fixture.series.tracked.len(), 1);
}

#[test]
fn beyond_the_limit_workloads_are_counted_together() {
    let mut fixture = Fixture::new(1);
    fixture.observe(0, &[cgroup(1, "a", 1, 0), cgroup(2, "b", 2, 0), cgroup(3, "c", 4, 0)]);
    fixture.observe(1, &[cgroup(1, "a", 1, 0), cgroup(2, "b", 3, 0), cgroup(3, "c", 4, 0)]);
    assert_eq!(
        fixture.samples("reclaim_stall_seconds_count"),
        [r#"kind="direct",workload="(other)"} 7"#, r#"kind="direct",workload="a"} 1"#]
    );
    // A slot is free: b gets its own series. Its earlier increments stay under `(other)`.
    fixture.observe(100, &[cgroup(2, "b", 3, 0)]);
    fixture.observe(101, &[cgroup(2, "b", 5, 0)]);
    assert_eq!(
        fixture.samples("reclaim_stall_seconds_count"),
        [r#"kind="direct",workload="(other)"} 7"#, r#"kind="direct",workload="b"} 2"#]
    );
}
