use monitor_ebpf::{
    COMM_LEN, DirectReclaim, EventKind, Header, KswapdWake, OomKill, OomMark, OomScoreAdj, ReclaimKind, Stall,
};

use super::{Comm, Event, decode};
use crate::config::{Bytes, CgroupId, Pid};

/// The record as the ring would hold it.
fn bytes_of<T: Copy>(record: &T) -> &[u8] {
    // SAFETY: the shared records have no padding (their sizes are asserted), so every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast(), size_of::<T>()) }
}

fn header(kind: EventKind, flags: u32) -> Header {
    Header { at_ns: 77, kind: kind.index(), flags }
}

fn name(text: &str) -> [u8; COMM_LEN] {
    let mut comm = [0; COMM_LEN];
    comm[..text.len()].copy_from_slice(text.as_bytes());
    comm
}

fn oom_kill(flags: u32) -> OomKill {
    OomKill {
        header: header(EventKind::OomKill, flags),
        marked_at_ns: 70,
        victim_cgroup: 11,
        trigger_cgroup: 12,
        total_vm_kib: 1,
        anon_rss_kib: 2,
        file_rss_kib: 3,
        shmem_rss_kib: 4,
        pgtables_kib: 5,
        victim_tid: 101,
        victim_pid: 100,
        trigger_pid: 200,
        uid: 1000,
        oom_score_adj: -5,
        reserved: 0,
        victim_comm: name("victim"),
        trigger_comm: name("allocator"),
    }
}

#[test]
fn every_kind_is_read_field_by_field() {
    let stall = Stall {
        header: header(EventKind::Stall, 0),
        cgroup: 9,
        duration_ns: 8,
        reclaimed_pages: 7,
        pid: 6,
        tid: 5,
        kind: 1,
        reserved: 0,
        comm: name("python3"),
    };
    let mark = OomMark {
        header: header(EventKind::OomMark, OomMark::ALREADY_DYING),
        trigger_cgroup: 3,
        victim_tid: 1,
        trigger_pid: 2,
        trigger_comm: name("sh"),
    };
    let adj = OomScoreAdj {
        header: header(EventKind::OomScoreAdj, 0),
        pid: 4,
        oom_score_adj: -998,
        writer_pid: 5,
        reserved: 0,
        comm: name("containerd"),
    };
    let wake = KswapdWake { header: header(EventKind::KswapdWake, 0), node: 1, order: 2 };
    let direct = DirectReclaim { header: header(EventKind::DirectReclaim, 0), cgroup: 4, pid: 3, order: 9 };
    let cases: [(&[u8], Event); 5] = [
        (bytes_of(&wake), Event::KswapdWake { at_ns: 77, node: 1, order: 2 }),
        (bytes_of(&direct), Event::DirectReclaim { at_ns: 77, cgroup: CgroupId(4), pid: Pid(3), order: 9 }),
        (
            bytes_of(&stall),
            Event::Stall(super::Stall {
                at_ns: 77,
                kind: ReclaimKind::Memcg,
                cgroup: CgroupId(9),
                pid: Pid(6),
                tid: Pid(5),
                comm: Comm(name("python3")),
                duration_ns: 8,
                reclaimed_pages: 7,
            }),
        ),
        (
            bytes_of(&mark),
            Event::OomMark {
                at_ns: 77,
                victim_pid: Pid(1),
                trigger_pid: Pid(2),
                trigger_comm: Comm(name("sh")),
                trigger_cgroup: CgroupId(3),
                already_dying: true,
            },
        ),
        (
            bytes_of(&adj),
            Event::OomScoreAdj {
                at_ns: 77,
                pid: Pid(4),
                comm: Comm(name("containerd")),
                adj: -998,
                writer_pid: Pid(5),
            },
        ),
    ];
    for (record, event) in cases {
        assert_eq!(decode(record), Ok(event));
        assert_eq!(event.at_ns(), 77);
        for length in 0..record.len() {
            assert!(decode(&record[..length]).is_err(), "{length} bytes of {event:?}");
        }
        let longer = [record, &[0]].concat();
        assert_eq!(decode(&longer).map_err(|error| error.kind), Err(Some(event.kind())));
    }
}

#[test]
fn what_the_kernel_did_not_tell_is_none_and_not_zero() {
    let Ok(Event::OomKill(full)) = decode(bytes_of(&oom_kill(u32::MAX))) else {
        panic!("an OomKill");
    };
    assert_eq!((full.victim_pid, full.victim_cgroup), (Pid(100), Some(CgroupId(11))));
    assert_eq!((full.total_vm, full.anon_rss), (Some(Bytes(1024)), Some(Bytes(2048))));
    assert_eq!(
        (full.file_rss, full.shmem_rss, full.pgtables),
        (Some(Bytes(3072)), Some(Bytes(4096)), Some(Bytes(5120)))
    );
    assert_eq!((full.uid, full.oom_score_adj), (Some(1000), Some(-5)));
    assert_eq!(full.victim_comm, Some(Comm(name("victim"))));
    assert_eq!((full.trigger_pid, full.trigger_cgroup), (Pid(200), CgroupId(12)));

    let Ok(Event::OomKill(bare)) = decode(bytes_of(&oom_kill(0))) else {
        panic!("an OomKill");
    };
    assert_eq!((bare.victim_cgroup, bare.uid, bare.oom_score_adj, bare.victim_comm), (None, None, None, None));
    assert_eq!(
        (bare.total_vm, bare.anon_rss, bare.file_rss, bare.shmem_rss, bare.pgtables),
        (None, None, None, None, None)
    );
}

#[test]
fn unknown_kinds_are_malformed() {
    let mut wake = KswapdWake { header: header(EventKind::KswapdWake, 0), node: 0, order: 0 };
    wake.header.kind = 99;
    assert_eq!(decode(bytes_of(&wake)).map_err(|error| error.kind), Err(None));
}

#[test]
fn a_comm_cannot_write_to_the_terminal() {
    assert_eq!(Comm(name("a\u{1b}[2J")).to_string(), "a\u{fffd}[2J");
    assert_eq!(Comm([0xff; COMM_LEN]).to_string().chars().next(), Some(char::REPLACEMENT_CHARACTER));
    assert_eq!(Comm(name("sixteen-bytes-ab")).to_string(), "sixteen-bytes-ab");
}
