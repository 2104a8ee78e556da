use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use monitor_ebpf::{FieldOffsets, MAX_FIELDS, field, field::mark_victim};

use super::{PROBES, Probe, Target};
use crate::kernel::tracepoint_format::TracepointFormat;

fn probe(event: &str) -> &'static Probe {
    PROBES.iter().find(|probe| probe.event == event).expect("in the table")
}

#[test]
fn a_pid_only_mark_victim_has_only_a_pid() {
    let format = TracepointFormat::parse("field:int pid;\toffset:8;\tsize:4;\tsigned:1;").expect("parses");
    let offsets = probe("mark_victim").offsets(&format).expect("pid is enough").offsets;
    for (slot, offset) in offsets.into_iter().enumerate() {
        assert_eq!(offset, if slot == mark_victim::PID { 8 } else { FieldOffsets::ABSENT }, "slot {slot}");
    }
}

#[test]
fn a_resized_field_is_absent_if_optional_else_an_error() {
    let text = "field:int pid;\toffset:8;\tsize:4;\tsigned:1;\nfield:uid_t uid;\toffset:12;\tsize:2;\tsigned:0;";
    let format = TracepointFormat::parse(text).expect("parses");
    let offsets = probe("mark_victim").offsets(&format).expect("pid is enough");
    assert_eq!(offsets.offsets[mark_victim::UID], FieldOffsets::ABSENT);
    let format = TracepointFormat::parse("field:long pid;\toffset:8;\tsize:8;\tsigned:1;").expect("parses");
    assert_eq!(probe("mark_victim").offsets(&format), Err("field pid has 8 bytes instead of 4".to_owned()));
}

#[test]
fn the_table_is_consistent() {
    let events: Vec<_> = PROBES.iter().map(|probe| probe.event).collect();
    assert_eq!(events.iter().collect::<BTreeSet<_>>().len(), PROBES.len(), "each once");
    let place = |event: &str| events.iter().position(|&other| other == event).expect("in the table");
    for (first, then) in [
        ("mm_vmscan_direct_reclaim_end", "mm_vmscan_direct_reclaim_begin"),
        ("mm_vmscan_memcg_reclaim_end", "mm_vmscan_memcg_reclaim_begin"),
        ("signal_generate", "mark_victim"),
        ("sched_process_exit", "mark_victim"),
        ("oom_kill_process", "mark_victim"),
        ("xfs_iunlink", "xfs_inode_set_need_inactive"),
    ] {
        assert!(place(first) < place(then), "{first} before {then}");
    }
    for probe in PROBES {
        let slots: BTreeSet<_> = probe.fields.iter().map(|field| field.slot).collect();
        assert_eq!(slots.len(), probe.fields.len(), "{}: one slot a field", probe.event);
        assert!(slots.iter().all(|&slot| slot < MAX_FIELDS), "{}", probe.event);
        assert_eq!(probe.layout.is_none(), probe.fields.is_empty(), "{}", probe.event);
    }
}

/// Every captured or derived layout: kernel, probe, text.
fn fixtures() -> Vec<(String, &'static Probe, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/tracefs");
    let kernels = fs::read_dir(&root).expect("fixtures").flatten().filter(|entry| entry.path().is_dir());
    let mut found = Vec::new();
    for kernel in kernels {
        for probe in PROBES.iter().filter(|probe| probe.target == Target::Tracepoint) {
            let path = kernel.path().join(probe.category).join(format!("{}.format", probe.event));
            if let Ok(text) = fs::read_to_string(path) {
                found.push((kernel.file_name().to_string_lossy().into_owned(), probe, text));
            }
        }
    }
    found
}

fn offsets(probe: &Probe, text: &str) -> Result<[u16; MAX_FIELDS], String> {
    TracepointFormat::parse(text).and_then(|format| probe.offsets(&format)).map(|offsets| offsets.offsets)
}

/// The offset and size of a name in the file, found without the parser.
fn stated(text: &str, name: &str) -> Option<(u16, u16)> {
    let line = text.lines().find(|line| line.contains(&format!(" {name};")) || line.contains(&format!(" {name}[")))?;
    let value = |key: &str| line.split(key).nth(1)?.split(';').next()?.parse().ok();
    Some((value("offset:")?, value("size:")?))
}

#[test]
fn each_layout_gives_exactly_the_offsets_of_its_file() {
    let fixtures = fixtures();
    assert!(fixtures.len() >= 80, "{} layouts", fixtures.len());
    for (kernel, probe, text) in &fixtures {
        let offsets = offsets(probe, text).unwrap_or_else(|error| panic!("{kernel} {}: {error}", probe.event));
        for wanted in probe.fields {
            let expected = stated(text, wanted.name).filter(|(_, size)| *size == wanted.size);
            let expected = expected.map_or(FieldOffsets::ABSENT, |(offset, _)| offset);
            assert_eq!(offsets[wanted.slot], expected, "{kernel} {}.{}", probe.event, wanted.name);
        }
        for (slot, offset) in offsets.into_iter().enumerate() {
            let is_wanted = probe.fields.iter().any(|field| field.slot == slot);
            assert!(is_wanted || offset == FieldOffsets::ABSENT, "{kernel} {} slot {slot}", probe.event);
        }
    }
}

#[test]
fn a_missing_or_resized_field_is_absent_or_an_error() {
    for (kernel, probe, text) in fixtures() {
        for wanted in probe.fields {
            let Some((offset, size)) = stated(&text, wanted.name) else { continue };
            let described = format!("offset:{offset};\tsize:{size};");
            let resized = text.replace(&described, &format!("offset:{offset};\tsize:{};", size + 1));
            let renamed = text
                .replace(&format!(" {};", wanted.name), " other;")
                .replace(&format!(" {}[", wanted.name), " other[");
            for damaged in [resized, renamed] {
                match offsets(probe, &damaged) {
                    Ok(offsets) => assert_eq!(offsets[wanted.slot], FieldOffsets::ABSENT, "{kernel} {damaged}"),
                    Err(_) => assert!(wanted.required, "{kernel} {}.{} is optional", probe.event, wanted.name),
                }
            }
        }
    }
}

#[test]
fn known_layouts_have_their_known_offsets() {
    const NONE: u16 = FieldOffsets::ABSENT;
    let table: [(&str, &str, usize, u16); 20] = [
        ("6.18", "mark_victim", mark_victim::PID, 8),
        ("6.18", "mark_victim", mark_victim::COMM, 12),
        ("6.18", "mark_victim", mark_victim::ANON_RSS, 24),
        ("6.18", "mark_victim", mark_victim::UID, 48),
        ("6.18", "mark_victim", mark_victim::OOM_SCORE_ADJ, 64),
        ("6.18", "mm_vmscan_memcg_reclaim_end", field::reclaim_end::NR_RECLAIMED, 8),
        ("6.18", "mm_vmscan_throttled", field::throttled::USEC_DELAYED, 16),
        ("6.18", "ext4_free_inode", field::inode::DEV, 8),
        ("6.12-debian", "mark_victim", mark_victim::PGTABLES, 56),
        ("6.12-debian", "mm_vmscan_lru_shrink_inactive", field::shrink_inactive::NID, 8),
        ("6.1-debian", "mark_victim", mark_victim::TOTAL_VM, 16),
        ("6.1-debian", "xfs_create", field::inode::DEV, 8),
        ("5.10-debian", "signal_generate", field::signal_generate::SIG, 8),
        ("5.10-debian", "oom_score_adj_update", field::oom_score_adj_update::OOM_SCORE_ADJ, 28),
        ("5.4-derived", "mark_victim", mark_victim::PID, 8),
        ("5.4-derived", "mark_victim", mark_victim::COMM, NONE),
        ("5.14-rhel9-derived", "mark_victim", mark_victim::PID, 12),
        ("5.14-rhel9-derived", "mark_victim", mark_victim::UID, NONE),
        ("5.14-rhel9-derived", "oom_score_adj_update", field::oom_score_adj_update::COMM, 16),
        ("5.14-rhel9-derived", "mm_vmscan_memcg_reclaim_end", field::reclaim_end::NR_RECLAIMED, 16),
    ];
    let fixtures = fixtures();
    for (kernel, event, slot, offset) in table {
        let (_, probe, text) = fixtures
            .iter()
            .find(|(found, probe, _)| found == kernel && probe.event == event)
            .unwrap_or_else(|| panic!("no {event} of {kernel}"));
        assert_eq!(offsets(probe, text).expect("fits")[slot], offset, "{kernel} {event} slot {slot}");
    }
    // New in 5.16.
    assert!(!fixtures.iter().any(|(kernel, probe, _)| kernel == "5.10-debian" && probe.event == "mm_vmscan_throttled"));
}
