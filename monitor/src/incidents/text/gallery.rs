//! Incidents of the kinds that have a text of their own, for tests.

use node_pressure_state::Identity;

use super::super::model::{
    Consumer, Eviction, Incident, InodeGrowth, Key, Kind, Limit, Memory, OomKill, Outcome, Place, Pressure, Reclaim,
    SignalHistory, Stalls, Step, Trigger, Victim,
};
use super::{summary_of_eviction, summary_of_oom_kill};

pub(super) const MIB: u64 = 1 << 20;
const SHOP: &str =
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c3d4e_5f60_4718_8293_a4b5c6d7e8f9.slice";
pub(super) const BATCH: &str =
    "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod9f8e7d6c_5b4a_4392_8180_716253443526.slice";
const WEB: &str = "3f9a2b1c0d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8";
const SIDECAR: &str = "77aa2b1c0d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8";

fn container(pod: &str, id: &str) -> String {
    format!("{pod}/cri-containerd-{id}.scope")
}

fn victim(pid: i32, comm: &str, anon_mib: u64) -> Victim {
    Victim {
        pid,
        comm: Some(comm.to_owned()),
        uid: Some(1000),
        workload: Some(SHOP.to_owned()),
        name: None,
        container: Some(WEB.to_owned()),
        container_name: None,
        pod: None,
        cgroup: Some(container(SHOP, WEB)),
        cgroup_id: Some(5182),
        anon_bytes: Some(anon_mib * MIB),
        file_bytes: Some(4 * MIB),
        shmem_bytes: Some(64 << 10),
        pgtables_bytes: Some(1200 << 10),
        total_vm_bytes: Some(2200 * MIB),
        oom_score_adj: Some(985),
        age_ms: Some(3_725_000.0),
        dying_ms: Some(5.9),
    }
}

fn trigger(pid: i32, tid: i32, comm: &str, pod: &str, id: &str) -> Trigger {
    Trigger {
        pid: Some(pid),
        tid: Some(tid),
        comm: Some(comm.to_owned()),
        workload: Some(pod.to_owned()),
        name: None,
        container: Some(id.to_owned()),
        cgroup: Some(container(pod, id)),
        cgroup_id: Some(5183),
    }
}

fn limit(cgroup: &str, mib: u64) -> Limit {
    Limit {
        cgroup: Some(cgroup.to_owned()),
        cgroup_id: Some(5180),
        workload: Some(cgroup.to_owned()),
        name: None,
        limit_bytes: Some(mib * MIB),
        usage_bytes: Some(6 * MIB),
    }
}

fn place(place: usize, workload: &str, class: &str, exceeds: &str, above: &str) -> Place {
    let keys = [
        ("preference", "no preference"),
        ("qosClass", class),
        ("exceedsRequests", exceeds),
        ("priority", "priority 0"),
        ("usageAboveRequest", above),
    ];
    Place {
        place: Some(place),
        workload: workload.to_owned(),
        at_most: place > 1,
        keys: keys.map(|(name, value)| Key { name: name.to_owned(), value: value.to_owned() }).to_vec(),
        ..Place::default()
    }
}

/// A falling signal: one sample a second, then one every 5 ms.
pub(super) fn falling(to_mib: u64) -> SignalHistory {
    let slow = (0..59_u32).map(|second| (60_000.0 - f64::from(second) * 1000.0, (900 - u64::from(second) * 9) * MIB));
    let fast =
        (0..200_u32).map(|step| (1000.0 - f64::from(step) * 5.0, (369 - u64::from(step) * (369 - to_mib) / 200) * MIB));
    SignalHistory {
        unit: "bytes".to_owned(),
        capacity: Some(2000 * MIB),
        threshold: Some(100 * MIB),
        samples: slow.chain(fast).chain([(0.0, to_mib * MIB)]).collect(),
        thinned: 0,
    }
}

fn base(id: &str, kind: Kind, available_mib: u64) -> Incident {
    let consumer = |workload: &str, class: &str, mib: u64, request: u64| Consumer {
        workload: workload.to_owned(),
        name: None,
        qos_class: class.to_owned(),
        working_set_bytes: mib * MIB,
        request_bytes: request * MIB,
    };
    Incident {
        id: id.to_owned(),
        kind,
        time: "2026-01-02T03:04:05.678901Z".parse().unwrap(),
        monotonic_ns: 1_000_000_000_000,
        node: "worker-1".to_owned(),
        mode: "enforce".to_owned(),
        memory: Some(Memory {
            total_bytes: Some(2000 * MIB),
            available_bytes: Some(available_mib * MIB),
            free_bytes: Some(60 * MIB),
            anon_bytes: Some(1500 * MIB),
            active_file_bytes: Some(20 * MIB),
            inactive_file_bytes: Some(30 * MIB),
            swap_total_bytes: Some(0),
            swap_free_bytes: Some(0),
            ..Memory::default()
        }),
        top_consumers: vec![
            consumer(BATCH, "BestEffort", 900, 0),
            consumer(SHOP, "Burstable", 506, 256),
            consumer("system.slice/containerd.service", "BestEffort", 71, 0),
        ],
        stalls_seconds: Some(57.0),
        evidence_after_ms: Some(25.3),
        ..Incident::default()
    }
}

pub(super) fn memcg() -> Incident {
    let mut incident = base("20260102-030405-oom-4711", Kind::OomKill, 1200);
    incident.signals.insert(
        "memory.available".to_owned(),
        SignalHistory {
            unit: "bytes".to_owned(),
            threshold: Some(100 * MIB),
            samples: vec![(70_000.0, 1500 * MIB), (30_000.0, 1300 * MIB), (8_000.0, 1200 * MIB)],
            ..SignalHistory::default()
        },
    );
    incident.stalls =
        vec![Stalls { workload: SHOP.to_owned(), name: None, kind: "memcg".to_owned(), count: 412, seconds: 3.1 }];
    incident.oom_kill = Some(OomKill {
        constraint: Some("memcg".to_owned()),
        source: "ebpf".to_owned(),
        order: Some(0),
        limit: Some(limit(SHOP, 512)),
        trigger: Some(trigger(4711, 4733, "java-worker-7", SHOP, WEB)),
        victims: vec![victim(4711, "java", 501)],
        ..OomKill::default()
    });
    incident.steps = vec![
        Step::at("invoked", 0.0),
        Step { pid: Some(4711), ..Step::at("marked", 0.21) },
        Step { pid: Some(4711), ..Step::at("exited", 6.1) },
    ];
    incident
}

pub(super) fn group() -> Incident {
    let mut incident = memcg();
    incident.id = "20260102-030405-oom-4720".to_owned();
    incident.stalls = Vec::new();
    let victims = vec![victim(4720, "postgres", 301), victim(4721, "postgres", 101), victim(4722, "postgres", 90)];
    if let Some(kill) = &mut incident.oom_kill {
        kill.victims = victims;
        kill.victims[0].age_ms = Some(41.0);
        kill.group = true;
        kill.trigger = Some(trigger(4800, 4800, "pg_dump", SHOP, SIDECAR));
    }
    incident.steps.truncate(1);
    for (step, pid, ms) in [
        ("marked", 4720, 0.2),
        ("marked", 4721, 0.2),
        ("marked", 4722, 0.3),
        ("exited", 4721, 3.3),
        ("exited", 4722, 4.1),
        ("exited", 4720, 8.0),
    ] {
        incident.steps.push(Step { pid: Some(pid), ..Step::at(step, ms) });
    }
    incident
}

pub(super) fn global() -> Incident {
    let mut incident = base("20260102-030405-oom-4711", Kind::OomKill, 530);
    incident.signals.insert("memory.available".to_owned(), falling(3));
    incident.mode = "observe".to_owned();
    incident.pressure = vec![Pressure {
        scope: "system".to_owned(),
        resource: "memory".to_owned(),
        kind: "full".to_owned(),
        avg10: 31.5,
        avg60: 8.25,
        avg300: 1.0,
    }];
    incident.stalls = vec![
        Stalls { workload: BATCH.to_owned(), name: None, kind: "direct".to_owned(), count: 5120, seconds: 9.7 },
        Stalls { workload: SHOP.to_owned(), name: None, kind: "direct".to_owned(), count: 12, seconds: 0.2 },
    ];
    incident.inode_growth = vec![InodeGrowth {
        workload: BATCH.to_owned(),
        name: None,
        device: "254:1".to_owned(),
        created: 120_000,
        removed: 20,
    }];
    incident.ranking = vec![
        place(1, BATCH, "BestEffort", "exceeds its request", "900.0 MiB above it"),
        place(2, SHOP, "Burstable", "exceeds its request", "250.0 MiB above it"),
    ];
    let mut first = victim(4711, "java", 501);
    first.dying_ms = Some(12.0);
    incident.oom_kill = Some(OomKill {
        constraint: Some("none".to_owned()),
        source: "ebpf".to_owned(),
        order: Some(2),
        trigger: Some(trigger(9001, 9001, "report", BATCH, SIDECAR)),
        victims: vec![first],
        ..OomKill::default()
    });
    incident.steps = memcg().steps;
    incident
}

pub(super) fn hard() -> Incident {
    let mut incident = base("20260102-030405-eviction-6001", Kind::Eviction, 99);
    let mut signal = falling(99);
    signal.samples.extend([(-9.0, 210 * MIB), (-16.0, 990 * MIB)]);
    incident.signals.insert("memory.available".to_owned(), signal);
    incident.ranking = vec![
        place(1, BATCH, "BestEffort", "exceeds its request", "900.0 MiB above it"),
        place(2, SHOP, "Burstable", "exceeds its request", "250.0 MiB above it"),
        Place {
            workload: "system.slice/containerd.service".to_owned(),
            protection: Some("named as protected".to_owned()),
            keys: vec![Key { name: "usage".to_owned(), value: "uses 71.0 MiB".to_owned() }],
            ..Place::default()
        },
    ];
    incident.eviction = Some(Eviction {
        signal: "memory.available".to_owned(),
        threshold: "memory.available<100Mi".to_owned(),
        kind: "hard".to_owned(),
        mode: "enforce".to_owned(),
        workload: BATCH.to_owned(),
        cgroup_id: Some(6001),
        qos_class: "BestEffort".to_owned(),
        action: "kill".to_owned(),
        outcome: Outcome::Gone,
        processes: Some(3),
        working_set_bytes: Some(900 * MIB),
        available_bytes: Some(99 << 20),
        threshold_bytes: Some(100 << 20),
        freed_bytes: Some(891 << 20),
        ..Eviction::default()
    });
    for (step, ms) in
        [("woken", 0.0), ("sampled", 0.1), ("ordered", 2.4), ("decided", 2.5), ("acted", 4.9), ("gone", 16.2)]
    {
        incident.steps.push(Step::at(step, ms));
    }
    incident
}

pub(super) fn soft() -> Incident {
    let mut incident = hard();
    incident.id = "20260102-030405-eviction-5180".to_owned();
    incident.ranking.remove(0);
    incident.ranking[0].place = Some(1);
    let reclaim = Reclaim {
        workload: SHOP.to_owned(),
        name: None,
        requested_bytes: 60 * MIB,
        freed_bytes: Some(11 * MIB),
        available_before_bytes: Some(250 * MIB),
        available_after_bytes: Some(259 * MIB),
        took_ms: 500.0,
        outcome: "timed_out".to_owned(),
    };
    if let Some(eviction) = &mut incident.eviction {
        eviction.workload = SHOP.to_owned();
        eviction.qos_class = "Burstable".to_owned();
        eviction.threshold = "memory.available<300Mi".to_owned();
        eviction.kind = "soft".to_owned();
        eviction.action = "term".to_owned();
        eviction.working_set_bytes = Some(506 * MIB);
        eviction.available_bytes = Some(259 << 20);
        eviction.threshold_bytes = Some(300 << 20);
        eviction.freed_bytes = Some(40 << 20);
        eviction.processes = Some(1);
        eviction.reclaim = Some(reclaim);
    }
    if let Some(last) = incident.steps.last_mut() {
        last.ms = 8_016.0;
    }
    let gone = incident.steps.len() - 1;
    incident.steps.insert(gone, Step::at("killed", 8_004.9));
    incident
}

/// Names the two pods of the gallery.
fn identity(workload: &str, cgroup: Option<&str>) -> Option<Identity> {
    let (namespace, pod, owner, uid) = match workload {
        workload if workload.starts_with(SHOP) => {
            ("shop", "web-5d4f8c7b9-x2x9p", "ReplicaSet/web-5d4f8c7b9", "1b2c3d4e-5f60-4718-8293-a4b5c6d7e8f9")
        }
        workload if workload.starts_with(BATCH) => {
            ("batch", "report-7k4qd", "Job/report", "9f8e7d6c-5b4a-4392-8180-716253443526")
        }
        _ => return None,
    };
    let container = |(id, name): (&str, &str)| cgroup?.contains(id).then(|| name.to_owned());
    Some(Identity {
        namespace: Some(namespace.to_owned()),
        pod: Some(pod.to_owned()),
        container: [(WEB, "web"), (SIDECAR, "proxy")].into_iter().find_map(container),
        owner: Some(owner.to_owned()),
        uid: Some(uid.to_owned()),
    })
}

pub(super) fn gallery() -> [(&'static str, Incident); 5] {
    let mut gallery =
        [("memcg", memcg()), ("group", group()), ("global", global()), ("hard", hard()), ("soft", soft())];
    for (_, incident) in &mut gallery {
        incident.name_rows(identity);
        incident.summary = match (&incident.oom_kill, &incident.eviction) {
            (Some(kill), _) => summary_of_oom_kill(kill),
            (_, Some(eviction)) => summary_of_eviction(eviction),
            (None, None) => String::new(),
        };
    }
    gallery
}
