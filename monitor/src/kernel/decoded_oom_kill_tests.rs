use monitor_ebpf::{CgroupPath as RawPath, EventKind, OomKill as RawKill, OomKillRecord};

use super::{CgroupPath, Comm, OomConstraint, OomKill};
use crate::kernel::decode::tests::{bytes_of, header, name};
use crate::kernel::decode::{Record, decode};
use crate::units::{Bytes, CgroupId, Pid};

fn path(levels: &[(u64, &str)]) -> RawPath {
    let mut path = RawPath::EMPTY;
    let mut at = 0;
    for (index, (id, name)) in levels.iter().enumerate() {
        path.ids[index] = *id;
        path.text[at..at + name.len()].copy_from_slice(name.as_bytes());
        at += name.len() + 1;
    }
    path.levels = u32::try_from(levels.len()).expect("few");
    path.text_bytes = u32::try_from(at).expect("small");
    path
}

fn record(flags: u32, path: RawPath) -> OomKillRecord {
    let kill = RawKill {
        header: header(EventKind::OomKill, flags),
        marked_at_ns: 70,
        invoked_at_ns: 60,
        started_at_ns: 50,
        victim_cgroup: 11,
        trigger_cgroup: 12,
        limit_cgroup: 13,
        total_vm_kib: 1,
        anon_rss_kib: 2,
        file_rss_kib: 3,
        shmem_rss_kib: 4,
        pgtables_kib: 5,
        victim_tid: 101,
        victim_pid: 100,
        trigger_pid: 200,
        trigger_tid: 201,
        uid: 1000,
        oom_score_adj: -5,
        constraint: 3,
        order: 2,
        victim_comm: name("victim"),
        trigger_comm: name("allocator"),
    };
    OomKillRecord { kill, path }
}

fn decoded(record: &OomKillRecord) -> OomKill {
    match decode(bytes_of(record)) {
        Ok(Record::OomKill(kill)) => kill,
        other => panic!("not an OomKill: {other:?}"),
    }
}

const LEVELS: [(u64, &str); 3] = [(33, "leaf.scope"), (22, "pod.slice"), (11, "kubepods.slice")];

#[test]
fn every_field_is_read() {
    let full = decoded(&record(u32::MAX, path(&LEVELS)));
    assert_eq!((full.at_ns, full.marked_at_ns), (77, 70));
    assert_eq!((full.invoked_at_ns, full.started_at_ns), (Some(60), Some(50)));
    assert_eq!((full.victim_pid, full.victim_cgroup), (Pid(100), Some(CgroupId(11))));
    assert_eq!((full.constraint, full.order), (Some(OomConstraint::Memcg), Some(2)));
    assert_eq!(full.limit_cgroup, Some(CgroupId(13)));
    assert_eq!((full.total_vm, full.anon_rss), (Some(Bytes(1024)), Some(Bytes(2048))));
    assert_eq!(
        (full.file_rss, full.shmem_rss, full.pgtables),
        (Some(Bytes(3072)), Some(Bytes(4096)), Some(Bytes(5120)))
    );
    assert_eq!((full.uid, full.oom_score_adj), (Some(1000), Some(-5)));
    assert_eq!((full.victim_comm, full.trigger_comm), (Some(Comm(name("victim"))), Comm(name("allocator"))));
    assert_eq!((full.trigger_pid, full.trigger_tid, full.trigger_cgroup), (Pid(200), Pid(201), CgroupId(12)));
}

#[test]
fn what_the_kernel_does_not_report_is_none() {
    let bare = decoded(&record(0, RawPath::EMPTY));
    assert_eq!((bare.victim_cgroup, bare.uid, bare.oom_score_adj, bare.victim_comm), (None, None, None, None));
    assert_eq!(
        (bare.total_vm, bare.anon_rss, bare.file_rss, bare.shmem_rss, bare.pgtables),
        (None, None, None, None, None)
    );
    assert_eq!((bare.invoked_at_ns, bare.started_at_ns, bare.constraint, bare.order), (None, None, None, None));
    assert_eq!((bare.limit_cgroup, bare.victim_path), (None, None));
}

#[test]
fn a_path_is_listed_from_the_root_down() {
    let whole = decoded(&record(0, path(&LEVELS))).victim_path.expect("a path");
    let levels: Vec<_> = whole.levels().map(|(id, name)| (id, name.into_owned())).collect();
    let levels: Vec<_> = levels.iter().map(|(id, name)| (*id, name.as_str())).collect();
    assert_eq!(levels, [(CgroupId(11), "kubepods.slice"), (CgroupId(22), "pod.slice"), (CgroupId(33), "leaf.scope")]);
    assert_eq!(whole.to_string(), "/kubepods.slice/pod.slice/leaf.scope");
    assert_eq!(whole, CgroupPath::new(&levels, false));
    let cut = decoded(&record(0, RawPath { truncated: 1, ..path(&LEVELS[..2]) })).victim_path.expect("a path");
    assert!(cut.is_truncated());
    assert_eq!(cut.to_string(), "…/pod.slice/leaf.scope");
}

#[test]
fn a_path_that_does_not_fit_loses_its_upper_levels() {
    let long = "x".repeat(120);
    let levels = [(CgroupId(1), "top"), (CgroupId(2), &long), (CgroupId(3), &long), (CgroupId(4), "leaf")];
    let path = CgroupPath::new(&levels, false);
    assert_eq!(path.levels().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let longer = "x".repeat(200);
    let levels = [(CgroupId(1), "top"), (CgroupId(2), &longer), (CgroupId(3), &longer), (CgroupId(4), "leaf")];
    let path = CgroupPath::new(&levels, false);
    assert_eq!((path.levels().map(|(id, _)| id.0).collect::<Vec<_>>(), path.is_truncated()), (vec![3, 4], true));
}

#[test]
fn damaged_records_are_malformed() {
    let whole = record(u32::MAX, path(&LEVELS));
    let bytes = bytes_of(&whole);
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    let damaged = [
        RawPath { levels: 9, ..path(&LEVELS) },
        RawPath { text_bytes: 257, ..path(&LEVELS) },
        RawPath { text_bytes: 12, ..path(&LEVELS) },
        RawPath { text: [0; 256], ..path(&LEVELS) },
    ];
    for path in damaged {
        let error = decode(bytes_of(&record(0, path))).expect_err("damaged");
        assert_eq!(error.kind, Some(EventKind::OomKill), "{path:?}");
    }
    assert_eq!(decoded(&record(RawKill::HAS_CONSTRAINT, RawPath::EMPTY)).constraint, Some(OomConstraint::Memcg));
    let mut unknown = record(RawKill::HAS_CONSTRAINT, RawPath::EMPTY);
    unknown.kill.constraint = 4;
    assert_eq!(decoded(&unknown).constraint, None);
}
