use std::time::Duration;

use super::*;
use crate::config::Policy;
use crate::kernel::{
    CgroupCounters, DeviceId, EventKind, InodeCounters, KswapdCounters, OomConstraint, ProbeState, ProbeStatistics,
    ProbeStatus, ReclaimCounters,
};
use crate::report::{
    CgroupReport, ClassReport, DiskUsageReport, ExhaustionReport, FiguresReport, FilesystemReport, KeptReport,
    MemoryReport, PodInfo, ThresholdReport,
};
use crate::units::{Bytes, CgroupId, Signal};

fn text(metrics: &Metrics) -> String {
    String::from_utf8(render(&metrics.gather()).unwrap()).unwrap()
}

const STALLS: EventAccount =
    EventAccount { kind: EventKind::Stall, generated: 10, delivered: 7, lost: 2, malformed: 1, suppressed: 4 };

fn probe(name: &str, state: ProbeState) -> ProbeStatus {
    ProbeStatus { name: name.to_owned(), purpose: "", state }
}

fn report() -> NodeReport {
    NodeReport {
        memory: Some(MemoryReport {
            capacity: Bytes(1000),
            corrected: Bytes(300),
            kubelet: Bytes(400),
            working_set: Bytes(600),
            ..MemoryReport::default()
        }),
        thresholds: vec![ThresholdReport {
            threshold: Policy::default_hard_threshold(),
            bytes: Some(Bytes::from_mib(100)),
            met: true,
            unarmed: None,
            reported_only: None,
            evicts: None,
        }],
        conditions: vec![("MemoryPressure".into(), true)],
        classes: vec![ClassReport {
            members: Vec::new(),
            qos_class: "BestEffort",
            count: 3,
            working_set: Bytes(5),
            largest: Vec::new(),
        }],
        probes: vec![
            probe("oom:mark_victim", ProbeState::Attached),
            probe("ext4:ext4_free_inode", ProbeState::Missing("not in this kernel".to_owned())),
        ],
        sources: vec![("memory.available", "ebpf")],
        oom_score_adj_drift: 2,
        kswapd: KswapdCounters { reclaimed_pages: 12, scanned_pages: 34, ..KswapdCounters::ZERO },
        probe_statistics: Some(vec![ProbeStatistics {
            name: "oom:mark_victim".to_owned(),
            hits: 5,
            nanos: 2_500_000_000,
            missed: 1,
        }]),
        accounts: Accounts { events: vec![STALLS], unknown: 6, ..Accounts::default() },
        ..NodeReport::default()
    }
}

#[test]
fn everything_is_rendered_under_its_name() {
    let metrics = Metrics::new("1.2.3", SeriesLimits::default()).unwrap();
    metrics.observe(&report(), Instant::now());
    metrics.wakeup("deadline");
    metrics.eviction(Signal::MemoryAvailable, EvictionOutcome::Observed);
    metrics.oom_kills(Some(OomConstraint::Memcg), 1);
    metrics.oom_kills(None, 1);
    metrics.reclaimed(ReclaimOutcome::Sufficed, Bytes(25), Duration::from_millis(1500));
    metrics.scores(3, 2);
    metrics.unaccounted(4, 5);
    // The arguments are totals: repeating them adds no increment.
    metrics.unaccounted(4, 5);
    metrics.oom_kills_of("a.service", 1);
    metrics.observe(&report(), Instant::now());
    let text = text(&metrics);
    for sample in [
        r#"memory_available_bytes{semantics="corrected"} 300"#,
        r#"memory_available_bytes{semantics="kubelet"} 400"#,
        "memory_capacity_bytes 1000",
        r#"proactive_reclaims_total{outcome="sufficed"} 1"#,
        r#"proactive_reclaims_total{outcome="timed_out"} 0"#,
        "proactive_reclaim_freed_bytes_total 25",
        "proactive_reclaim_seconds_total 1.5",
        "oom_score_adj_drifted_total 3",
        "oom_score_adj_repaired_total 2",
        "oom_kills_unattributed_total 4",
        "kernel_log_records_lost_total 5",
        r#"oom_kills_total{workload="a.service"} 1"#,
        "memory_working_set_bytes 600",
        r#"threshold_bytes{kind="hard",signal="memory.available"} 104857600"#,
        r#"threshold_met{kind="hard",signal="memory.available"} 1"#,
        r#"condition{condition="MemoryPressure"} 1"#,
        r#"workloads{qos_class="BestEffort"} 3"#,
        r#"probe_attached{probe="oom:mark_victim"} 1"#,
        r#"probe_attached{probe="ext4:ext4_free_inode"} 0"#,
        r#"signal_source{signal="memory.available",source="ebpf"} 1"#,
        "oom_score_adj_drift 2",
        "kswapd_pages_reclaimed_total 12",
        "kswapd_pages_scanned_total 34",
        r#"probe_hits_total{probe="oom:mark_victim"} 5"#,
        r#"probe_seconds_total{probe="oom:mark_victim"} 2.5"#,
        r#"probe_missed_total{probe="oom:mark_victim"} 1"#,
        r#"oom_kills_by_constraint_total{constraint="memcg"} 1"#,
        r#"oom_kills_by_constraint_total{constraint="none"} 0"#,
        r#"oom_kills_by_constraint_total{constraint="unknown"} 1"#,
        r#"events_generated_total{event="stall"} 10"#,
        r#"events_delivered_total{event="stall"} 7"#,
        r#"events_lost_total{event="stall"} 2"#,
        r#"events_malformed_total{event="stall"} 1"#,
        r#"events_suppressed_total{event="stall"} 4"#,
        r#"events_malformed_total{event="unknown"} 6"#,
        r#"events_generated_total{event="unknown"} 0"#,
        r#"wakeups_total{cause="deadline"} 1"#,
        r#"evictions_total{outcome="observed",signal="memory.available"} 1"#,
        r#"evictions_total{outcome="killed",signal="memory.available"} 0"#,
    ] {
        let line = format!("\nnode_pressure_monitor_{sample}\n");
        assert!(text.contains(&line), "{sample} is missing from\n{text}");
    }
    assert!(text.contains(r#"build_info{commit=""#) && text.contains(r#",version="1.2.3"} 1"#), "{text}");
    // Every metric has a help text, and the prefix if it is not of the process.
    let helps = text.lines().filter(|line| line.starts_with("# HELP")).count();
    let types = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!(helps, types);
    let strange =
        |line: &&str| !["#", "node_pressure_monitor_", "process_"].iter().any(|start| line.starts_with(start));
    assert_eq!(text.lines().find(strange), None);
}

#[test]
fn unreadable_values_are_absent_not_zero() {
    let metrics = Metrics::new("1", SeriesLimits::default()).unwrap();
    metrics.observe(&report(), Instant::now());
    let mut blind = report();
    blind.memory = None;
    blind.thresholds[0].bytes = None;
    blind.sources[0].1 = "polling";
    metrics.observe(&blind, Instant::now());
    let text = text(&metrics);
    for name in ["memory_available_bytes", "memory_capacity_bytes", "memory_working_set_bytes", "threshold_bytes"] {
        assert!(!text.contains(&format!("\nnode_pressure_monitor_{name}")), "{name}\n{text}");
    }
    assert!(text.contains(r#"signal_source{signal="memory.available",source="polling"} 1"#));
    assert!(!text.contains(r#"source="ebpf""#), "{text}");
}

#[test]
fn event_counters_follow_the_kernels() {
    let metrics = Metrics::new("1", SeriesLimits::default()).unwrap();
    let start = Instant::now();
    for (second, generated) in [(0, 10), (1, 25), (2, 25)] {
        let mut report = report();
        report.accounts.events[0].generated = generated;
        metrics.observe(&report, start + Duration::from_secs(second));
    }
    let text = text(&metrics);
    assert!(text.contains(r#"events_generated_total{event="stall"} 25"#), "{text}");
    assert!(text.contains(r#"events_delivered_total{event="stall"} 7"#), "{text}");
}

#[test]
fn infinity_is_written_as_the_format_has_it() {
    let exhaustion =
        ExhaustionReport { signal: "memory.available", seconds: f64::INFINITY, thresholds: vec![("hard", 2.5)] };
    let figures = FiguresReport { exhaustion: vec![exhaustion], ..FiguresReport::default() };
    let metrics = Metrics::new("1", SeriesLimits::default()).unwrap();
    metrics.observe(&NodeReport { figures, ..NodeReport::default() }, Instant::now());
    let text = text(&metrics);
    assert!(text.contains("exhaustion_seconds{signal=\"memory.available\"} +Inf\n"), "{text}");
    assert!(!text.contains(" inf"), "{text}");
}

/// A node with far more of everything than a node has.
fn flood(count: u64) -> NodeReport {
    let name = |number: u64| format!("workload-{number}");
    let all = || 0..count;
    let pod =
        |number| PodInfo { workload: name(number), namespace: name(number), name: name(number), ..PodInfo::default() };
    let cgroup = |number| CgroupReport {
        cgroup: CgroupId(number),
        workload: name(number),
        counters: Some(CgroupCounters {
            direct: ReclaimCounters { stalls: 1, ..ReclaimCounters::ZERO },
            memcg: ReclaimCounters { stalls: 1, ..ReclaimCounters::ZERO },
            oom_kills: 1,
        }),
        inodes: (0..20).map(|minor| (DeviceId(8 << 20 | minor), InodeCounters::default())).collect(),
    };
    let filesystem = |number| FilesystemReport {
        device: format!("8:{number}"),
        mount_point: format!("/mnt/{number}"),
        kind: "ext4".to_owned(),
        inodes: Some((10, 5)),
        growth: Some(1.0),
        seconds: Some(1.0),
        makers: Vec::new(),
    };
    let kept = |number| KeptReport {
        workload: name(number),
        source: "walk",
        bytes: Bytes(number),
        inodes: 1,
        age: Duration::ZERO,
    };
    NodeReport {
        conditions: all().map(|number| (name(number).into(), true)).collect(),
        probes: all().map(|number| probe(&name(number), ProbeState::Attached)).collect(),
        missing_capabilities: all().map(name).collect(),
        counters: all().map(cgroup).collect(),
        pods: all().map(pod).collect(),
        workload_memory: all().map(|number| (name(number), Bytes(number))).collect(),
        figures: FiguresReport {
            filesystems: all().map(filesystem).collect(),
            disk_usage: DiskUsageReport { kept: all().map(kept).collect(), ..DiskUsageReport::default() },
            ..FiguresReport::default()
        },
        ..report()
    }
}

#[test]
fn no_node_makes_more_series_than_the_bound() {
    let metrics = Metrics::new("1", SeriesLimits::default()).unwrap();
    metrics.observe(&flood(3000), Instant::now());
    for number in 0..3000 {
        metrics.oom_kills_of(&format!("other-{number}"), 1);
        metrics.wakeup(&format!("cause-{number}"));
    }
    metrics.observe(&flood(3000), Instant::now());
    let gathered = metrics.gather();
    let families = metrics.families();
    let mut full = 0;
    for family in &gathered {
        let bound = families.iter().find(|it| it.name == family.name()).unwrap();
        let text = String::from_utf8(render(std::slice::from_ref(family)).unwrap()).unwrap();
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(series <= bound.most_series(), "{}: {series} series, and not {}", family.name(), bound.most_series());
        full += usize::from(series > 1 && series == bound.most_series());
    }
    assert!(full >= 8, "only {full} families were filled");
    metrics.gather();
    assert!(text(&metrics).lines().any(|line| {
        line.strip_prefix("node_pressure_monitor_series_left_out ")
            .is_some_and(|count| count.parse::<u64>().unwrap() > 1000)
    }));
}
