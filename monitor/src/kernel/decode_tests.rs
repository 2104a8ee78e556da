use monitor_ebpf::{COMM_LEN, DirectReclaim, EventKind, Header, KswapdWake, OomMark, OomScoreAdj, ReclaimKind, Stall};

use super::{Comm, Event, Record, decode};
use crate::units::{CgroupId, Pid};

/// The record's bytes in the ring.
pub fn bytes_of<T: Copy>(record: &T) -> &[u8] {
    // SAFETY: the shared records have no padding (their sizes are asserted), so every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast(), size_of::<T>()) }
}

pub fn header(kind: EventKind, flags: u32) -> Header {
    Header { at_ns: 77, kind: kind.index(), flags }
}

pub fn name(text: &str) -> [u8; COMM_LEN] {
    let mut comm = [0; COMM_LEN];
    comm[..text.len()].copy_from_slice(text.as_bytes());
    comm
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
        invoked_at_ns: 60,
        trigger_cgroup: 3,
        victim_tid: 1,
        trigger_pid: 2,
        trigger_tid: 7,
        reserved: 0,
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
                invoked_at_ns: Some(60),
                victim_pid: Pid(1),
                trigger_pid: Pid(2),
                trigger_tid: Pid(7),
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
        assert_eq!(decode(record), Ok(Record::Event(event)));
        for length in 0..record.len() {
            assert!(decode(&record[..length]).is_err(), "{length} bytes of {event:?}");
        }
        let longer = [record, &[0]].concat();
        assert_eq!(decode(&longer).map_err(|error| error.kind), Err(Some(event.kind())));
    }
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
    assert_eq!(Comm(name("")).to_string(), "");
    assert!(Comm([0xff; COMM_LEN]).to_string().starts_with(r"\377\377"));
    assert_eq!(Comm(name("sixteen-bytes-ab")).to_string(), "sixteen-bytes-ab");
}
