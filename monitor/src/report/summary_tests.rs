use std::time::Duration;

use super::*;
use crate::config::{Percentage, Policy, ThresholdValue};
use crate::config::{PressureKind, PressureResource, PressureScope};
use crate::eviction::SignalValue;
use crate::kernel::ProbeStatus;
use crate::report::{
    DiskUsageReport, ExhaustionReport, FiguresReport, FilesystemReport, PressureReport, RoleReport, SwapReport,
};
use crate::units::Signal;
use crate::workloads::PatternReach;

fn node() -> NodeReport {
    let mib = Bytes::from_mib;
    NodeReport {
        memory: Some(MemoryReport {
            capacity: mib(986),
            mem_total: mib(986),
            mem_available: mib(620),
            additions: Vec::new(),
            corrections: vec![("refaulting file pages", Bytes(mib(16).0 + (9 << 19)))],
            corrected: Bytes(mib(604).0 - (9 << 19)),
            usage: mib(520),
            inactive_file: mib(104),
            working_set: mib(416),
            kubelet: mib(570),
        }),
        thresholds: vec![
            ThresholdReport {
                threshold: Policy::default_hard_threshold(),
                bytes: Some(mib(100)),
                met: false,
                unarmed: None,
                reported_only: None,
                evicts: None,
            },
            ThresholdReport {
                threshold: Threshold {
                    signal: Signal::MemoryAvailable,
                    value: ThresholdValue::bytes(mib(700)),
                    grace_period: Duration::from_secs(90),
                    min_reclaim: None,
                },
                bytes: Some(mib(700)),
                met: true,
                unarmed: None,
                reported_only: None,
                evicts: None,
            },
            ThresholdReport {
                threshold: Threshold {
                    signal: Signal::NodeFsAvailable,
                    value: ThresholdValue::Percentage(Percentage { fraction: 0.1, percent: 10.0 }),
                    grace_period: Duration::ZERO,
                    min_reclaim: None,
                },
                bytes: None,
                met: false,
                unarmed: None,
                reported_only: None,
                evicts: None,
            },
        ],
        classes: vec![
            ClassReport {
                members: Vec::new(),
                qos_class: "BestEffort",
                count: 20,
                working_set: mib(300),
                largest: vec![
                    ("system.slice/nginx.service".to_owned(), mib(120)),
                    (
                        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0b9c5d51_3a37_4d52_9d5e_2f9d4b0f8a11.slice".to_owned(),
                        Bytes(9 << 19),
                    ),
                ],
            },
            ClassReport {
                members: Vec::new(),
                qos_class: "Burstable",
                count: 0,
                working_set: Bytes::ZERO,
                largest: Vec::new(),
            },
            ClassReport {
                members: Vec::new(),
                qos_class: "Guaranteed",
                count: 2,
                working_set: mib(64),
                largest: vec![("db.slice/db.service".to_owned(), mib(60))],
            },
        ],
        protected: vec!["init.scope".to_owned(), "system.slice/ssh.service".to_owned()],
        probes: vec![
            ProbeStatus {
                name: "oom:mark_victim".to_owned(),
                purpose: "",
                state: ProbeState::Attached,
            },
            ProbeStatus {
                name: "vmscan:mm_vmscan_kswapd_wake".to_owned(),
                purpose: "",
                state: ProbeState::Attached,
            },
            ProbeStatus {
                name: "xfs:xfs_create".to_owned(),
                purpose: "",
                state: ProbeState::Missing(
                    "this kernel has no such tracepoint (xfs is a module and not loaded); inodes made on xfs are not counted"
                        .to_owned(),
                ),
            },
        ],
        sources: vec![
            ("memory.available", "psi"),
            ("oom_kills", "ebpf"),
        ],
        figures: figures(),
        ..NodeReport::default()
    }
}

fn figures() -> FiguresReport {
    let filesystem = |device: &str, mount_point: &str, kind: &str, inodes| FilesystemReport {
        device: device.to_owned(),
        mount_point: mount_point.to_owned(),
        kind: kind.to_owned(),
        inodes,
        growth: inodes.map(|_| 0.0),
        seconds: inodes.map(|_| f64::INFINITY),
        makers: Vec::new(),
    };
    let pressure = |scope, resource, kind, share| PressureReport {
        scope,
        resource,
        kind,
        averages: [share, 0.0, 0.0],
        total: Duration::ZERO,
    };
    use PressureScope::{Kubepods, System};
    FiguresReport {
        disk_usage: DiskUsageReport::default(),
        daemons: None,
        corrections: vec![
            ("hugepages", Bytes::from_mib(64)),
            ("watermarks", Bytes(9 << 19)),
            ("refaulting_file", Bytes(20)),
        ],
        swap: None,
        pressure: vec![
            pressure(System, PressureResource::Memory, PressureKind::Some, 0.125),
            pressure(System, PressureResource::Memory, PressureKind::Full, 0.0),
            pressure(System, PressureResource::Cpu, PressureKind::Some, 0.5),
            pressure(Kubepods, PressureResource::Io, PressureKind::Some, 0.01),
        ],
        exhaustion: vec![ExhaustionReport {
            signal: "memory.available",
            seconds: 131.0,
            thresholds: vec![("hard", 9.96), ("soft", 0.0)],
        }],
        filesystems: vec![
            filesystem("0:40", "/home", "btrfs", None),
            filesystem("254:0", "/", "ext4", Some((3_932_160, 3_100_000))),
            FilesystemReport {
                growth: Some(250.25),
                seconds: Some(4800.0),
                makers: vec![("batch/report".to_owned(), 240.0)],
                ..filesystem("8:17", "/data", "xfs", Some((2_000_000, 1_201_200)))
            },
        ],
        signals: Vec::new(),
        roles: Vec::new(),
    }
}

fn render(mode: Mode, node: &NodeReport) -> String {
    render_summary(&StartSummary {
        version: "0.1.0",
        mode,
        semantics: Semantics::Corrected,
        cgroup: "v2 at /sys/fs/cgroup",
        listen: "127.0.0.1:9946".parse().unwrap(),
        node,
    })
}

#[test]
fn the_whole_page() {
    let expected = "\
node-pressure-monitor 0.1.0

mode        observe: nothing is touched; what would be evicted is logged and counted
memory      capacity 986.0 MiB, working set 416.0 MiB
            available, corrected   599.5 MiB  <- compared with the thresholds
              = MemAvailable 620.0 MiB - refaulting file pages 20.5 MiB
            available, kubelet     570.0 MiB
              = MemTotal 986.0 MiB - (usage 520.0 MiB - inactive_file 104.0 MiB)
            MemAvailable leaves out huge pages 64.0 MiB, the kernel's reserves 4.5 MiB
thresholds  hard memory.available<100Mi  499.5 MiB above 100.0 MiB
            soft memory.available<700Mi  MET: 100.5 MiB below 700.0 MiB, evicts after 1m30s
            hard nodefs.available<10%    not observed: can not be met
exhaustion  memory.available is gone in 2m11s at the present rate; hard threshold in 10s; soft
              threshold met
            inodes on /data (8:17): 1201200 of 2000000 left, 250.2 fewer each second, none in 1h20m;
              most by batch/report
            inodes on / (254:0): 3100000 of 3932160 left
            inodes on /home (0:40): btrfs has no fixed number of them
pressure    system   memory some 12.5% full 0.0%, cpu some 50.0%
            kubepods io some 1.0%
workloads   BestEffort   20   300.0 MiB
                              120.0 MiB  nginx.service
                                4.5 MiB  0b9c5d51-3a37-4d52-9d5e-2f9d4b0f8a11
            Guaranteed    2    64.0 MiB
                               60.0 MiB  db.service
            protected     2 init.scope, ssh.service
probes      2 of 3 attached: oom:mark_victim, vmscan:mm_vmscan_kswapd_wake
            missing xfs:xfs_create: this kernel has no such tracepoint (xfs is a module and not
              loaded); inodes made on xfs are not counted
sources     memory.available by psi, oom_kills by ebpf
cgroup      v2 at /sys/fs/cgroup
metrics     http://127.0.0.1:9946/metrics
";
    let text = render(Mode::Observe, &node());
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn daemons_above_their_reservation_are_named() {
    let mut node = node();
    let largest = vec![("system.slice/a.service".to_owned(), Bytes(9 << 20))];
    let mut daemons = crate::report::DaemonsReport { reserved: Bytes(7 << 20), above: Bytes(5 << 20), largest };
    node.figures.daemons = Some(daemons.clone());
    let text = render(Mode::Observe, &node);
    assert!(
        text.contains("reserved    system daemons exceed the 7.0 MiB that are reserved for them by 5.0 MiB"),
        "{text}"
    );
    assert!(text.contains("system.slice/a.service 9.0 MiB"), "{text}");
    daemons.above = Bytes::ZERO;
    node.figures.daemons = Some(daemons);
    assert!(render(Mode::Observe, &node).contains("system daemons are within the 7.0 MiB"));
}

#[test]
fn no_line_is_too_wide() {
    let mut node = node();
    node.protected = vec!["system.slice/a-long-name.service".to_owned(); 40];
    node.probes[0].name = "x".repeat(300);
    for line in render(Mode::Enforce, &node).lines() {
        assert!(line.chars().count() <= crate::incidents::text::text_page::WIDTH, "{line}");
    }
}

#[test]
fn missing_figures_are_reported() {
    let text = render(Mode::Enforce, &NodeReport::default());
    for line in [
        "mode        enforce: workloads are killed when a threshold is met; oom_score_adj is set",
        "memory      not readable: no threshold on memory.available can be met",
        "thresholds  none: nothing will ever be evicted",
        "workloads   none found: nothing could be evicted",
        "probes      0 of 0 attached",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn swap_is_shown() {
    let mut node = node();
    let gib = Bytes::from_gib;
    node.figures.swap = Some(SwapReport {
        total: gib(2),
        free: gib(1),
        read: gib(7),
        written: gib(8),
        read_per_second: 1_048_576.0,
        written_per_second: 0.0,
    });
    let text = render(Mode::Observe, &node);
    let expected = "
            swap of 2.0 GiB is on, 1.0 GiB of it free, 1.0 MiB/s in, 0 B/s out: what is swapped out
              counts as available, so a node that thrashes may meet no threshold
thresholds ";
    assert!(text.contains(expected), "{text}");
    node.figures.swap = Some(SwapReport::default());
    assert!(!render(Mode::Observe, &node).contains("swap of"), "none is switched on");
}

#[test]
fn a_signal_that_hardly_falls_has_no_exhaustion() {
    let mut node = node();
    node.figures.exhaustion[0].seconds = 90_000.0;
    assert!(render(Mode::Observe, &node).contains("memory.available is gone in 1 day at the present rate; hard"));
    node.figures.exhaustion[0].thresholds.clear();
    assert!(render(Mode::Observe, &node).contains("exhaustion  memory.available hardly falls\n"));
    node.figures.exhaustion[0].seconds = f64::INFINITY;
    node.figures.filesystems[2].seconds = Some(1e12);
    let text = render(Mode::Observe, &node);
    assert!(text.contains("exhaustion  memory.available does not fall\n"), "{text}");
    assert!(text.contains("(8:17): 1201200 of 2000000 left\n"), "{text}");
}

#[test]
fn a_threshold_that_can_evict_nothing_is_reported_only() {
    let mut node = node();
    node.thresholds[1].reported_only = Some("no pods on this host");
    let text = render(Mode::Observe, &node);
    assert!(text.contains(" below 700.0 MiB\n              reported only: no pods on this host\n"), "{text}");
}

#[test]
fn a_threshold_and_a_pattern_say_on_whom_they_act() {
    let mut node = node();
    node.thresholds[1].evicts = Some("3 workloads, only while they leak".to_owned());
    let reach = |pattern: &str, examples: &[&str]| PatternReach {
        field: "protected",
        pattern: pattern.to_owned(),
        matches: examples.len(),
        examples: examples.iter().map(|it| (*it).to_owned()).collect(),
        hint: None,
    };
    node.patterns = vec![reach("db*", &["a.slice/db.service", "a.slice/db2.service"]), reach("nope", &[])];
    let text = render(Mode::Observe, &node);
    let whom = " below 700.0 MiB, evicts after 1m30s\n              may evict 3 workloads, only while they leak\n";
    assert!(text.contains(whom), "{text}");
    let patterns = "patterns    protected: \"db*\" matches a.slice/db.service, a.slice/db2.service\n\
                    \u{20}           protected: \"nope\" matches nothing\n";
    assert!(text.contains(patterns), "{text}");
}

#[test]
fn disks_and_process_ids_in_their_own_units() {
    let threshold = |signal, met| ThresholdReport {
        threshold: Threshold {
            signal,
            value: ThresholdValue::bytes(Bytes(1000)),
            grace_period: Duration::ZERO,
            min_reclaim: None,
        },
        bytes: Some(Bytes(1000)),
        met,
        unarmed: None,
        reported_only: None,
        evicts: None,
    };
    let signal = |signal, available| SignalValue { signal, available, capacity: 4096, at: None };
    let role = |role, device: &str| RoleReport {
        role,
        device: device.to_owned(),
        mount_point: "/data".to_owned(),
        kind: "xfs".to_owned(),
    };
    let page = render(
        Mode::Observe,
        &NodeReport {
            thresholds: vec![
                threshold(Signal::PidAvailable, true),
                threshold(Signal::NodeFsInodesFree, false),
                threshold(Signal::ImageFsAvailable, false),
            ],
            figures: FiguresReport {
                signals: vec![
                    signal(Signal::PidAvailable, 90),
                    signal(Signal::NodeFsInodesFree, 3000),
                    signal(Signal::ImageFsAvailable, 3048),
                ],
                roles: vec![role("nodefs", "8:1"), role("imagefs", "8:2"), role("containerfs", "8:2")],
                ..FiguresReport::default()
            },
            ..NodeReport::default()
        },
    );
    for part in [
        "MET: 910 below 1000\n",
        "2000 above 1000\n",
        "2.0 KiB above 1000 B\n",
        "disks       nodefs: xfs at /data (8:1)\n            imagefs, containerfs: xfs at /data (8:2)\n",
    ] {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
}
