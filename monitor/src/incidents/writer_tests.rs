use std::fs;
use std::time::Instant;

use super::super::incident_index::Body;
use super::super::model::{Eviction, Head, Incident, Kind, OomKill, Pressure, SignalHistory, Victim};
use super::super::reader::Reader;
use super::super::writer_thread::AMENDED;
use super::*;

const SIZE: Bytes = Bytes(1 << 20);

fn draft(id: &str, summary: &str, padding: usize) -> Draft {
    let incident = Incident {
        id: id.to_owned(),
        kind: Kind::Eviction,
        monotonic_ns: 2_000_000_000,
        summary: format!("{summary}{}", "x".repeat(padding)),
        ..Incident::default()
    };
    let samples =
        [(1_999_000_000, 7), (2_000_500_000, 9)].map(|(at, value)| Sample { at: crate::units::Monotonic(at), value });
    let signal = SignalHistory { unit: "bytes".to_owned(), ..SignalHistory::default() };
    Draft { incident, signal: Some(("memory.available", signal)), samples: samples.to_vec() }
}

fn read(directory: &Path) -> Vec<Incident> {
    let mut incidents = Vec::new();
    Reader::new(directory).poll(|entry| incidents.push(serde_json::from_slice(&entry.json).unwrap())).unwrap();
    incidents
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends the thread after its last write. The agent does not wait as long for a slow disk.
fn end(mut writer: Writer) {
    writer.queue = None;
    writer.ended.recv_timeout(Duration::from_secs(20)).expect("the thread ends");
}

#[test]
fn an_eviction_that_an_earlier_agent_recorded_is_amended() {
    let directory = tempfile::tempdir().unwrap();
    let eviction = |uid: &str| Some(Eviction { pod_uid: Some(uid.to_owned()), ..Eviction::default() });
    let (writer, _) = Writer::start(directory.path(), SIZE).unwrap();
    for (id, uid) in [("first", "u"), ("second", "u"), ("other", "v")] {
        let mut draft = draft(id, "underway", 0);
        draft.incident.eviction = eviction(uid);
        writer.submit(draft).unwrap();
    }
    end(writer);
    let before = read(directory.path());
    let (writer, _) = Writer::start(directory.path(), SIZE).unwrap();
    writer.amend("unknown", "nothing".to_owned()).unwrap();
    writer.amend("u", "It was restarted.".to_owned()).unwrap();
    end(writer);
    let mut expected = before[1].clone();
    expected.eviction.as_mut().unwrap().afterwards = Some("It was restarted.".to_owned());
    assert_eq!(read(directory.path())[before.len()..], [expected]);
}

#[test]
fn an_eviction_is_amended_only_among_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::start(directory.path(), SIZE).unwrap();
    for number in 0..=AMENDED {
        let mut draft = draft(&number.to_string(), "underway", 0);
        draft.incident.eviction = Some(Eviction { pod_uid: Some(number.to_string()), ..Eviction::default() });
        writer.submit(draft).unwrap();
        // The thread may drop what it cannot write as fast.
        wait_for("it is known", || writer.index().heads(100).len() == number + 1);
    }
    writer.amend("0", "It is too old.".to_owned()).unwrap();
    writer.amend("1", "It was restarted.".to_owned()).unwrap();
    end(writer);
    let amended = read(directory.path()).into_iter().filter_map(|it| Some((it.id, it.eviction?.afterwards?)));
    assert_eq!(amended.collect::<Vec<_>>(), [("1".to_owned(), "It was restarted.".to_owned())]);
}

#[test]
fn submitted_records_are_indexed_and_on_disk_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, missing) = Writer::start(directory.path(), SIZE).unwrap();
    assert_eq!(missing, None);
    let buffers: Vec<_> = std::iter::from_fn(|| writer.spare()).collect();
    assert_eq!(buffers.len(), SPARES);
    for number in 0..50 {
        writer.submit(draft(&number.to_string(), "underway", 0)).unwrap();
    }
    writer.submit(draft("7", "gone", 0)).unwrap();
    let index = writer.index();
    wait_for("all are on disk", || {
        let stored = |head: Head| matches!(index.find(&head.id), Some(Body::Stored(_)));
        index.heads(100).len() == 50 && index.heads(100).into_iter().all(stored)
    });
    assert_eq!(index.heads(100)[7].summary, "gone");
    let report = writer.report();
    assert_eq!((report.write_failures, report.dropped, report.truncations), (0, 0, 0));
    assert_eq!(report.bytes, fs::metadata(directory.path().join("incidents-00000001.journal")).unwrap().len());
    writer.submit(draft("last", "", 0)).unwrap();
    end(writer);
    let incidents = read(directory.path());
    assert!(incidents.len() >= 51, "{}", incidents.len());
    assert_eq!(incidents.last().unwrap().id, "last");
    // Milliseconds before the incident; negative after it.
    assert_eq!(incidents[0].signals["memory.available"].samples, [(1.0, 7), (-0.5, 9)]);
    // The next run indexes them.
    let (writer, _) = Writer::start(directory.path(), SIZE).unwrap();
    let index = writer.index();
    wait_for("incidents of the run before are listed", || index.heads(100).len() == 51);
    assert_eq!(index.heads(100)[7].summary, "gone");
    let body = index.find("last").unwrap();
    assert_eq!(serde_json::from_slice::<Incident>(&index.read(&body).unwrap().unwrap()).unwrap().id, "last");
}

/// Returns an OOM kill in a workload, with a record of about 10 KiB.
fn kill(id: &str, workload: &str) -> Draft {
    let victim = Victim { workload: Some(workload.to_owned()), ..Victim::default() };
    let mut draft = draft(id, "killed", 0);
    draft.incident.kind = Kind::OomKill;
    draft.incident.oom_kill = Some(OomKill { victims: vec![victim], ..OomKill::default() });
    let node = "n".repeat(10 << 10);
    draft.incident.pressure.push(Pressure { scope: node, ..Pressure::default() });
    draft
}

#[test]
fn a_loop_of_one_workload_leaves_the_incidents_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let submit = |writer: &Writer, draft: &dyn Fn() -> Draft| {
        // A full queue is not under test here.
        while writer.submit(draft()).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let (writer, _) = Writer::start(directory.path(), SIZE).unwrap();
    (0..20).for_each(|id| submit(&writer, &|| kill(&format!("before-{id}"), &format!("calm-{id}.service"))));
    // Written one by one, these are ten times the size of the journal.
    (0..1000).for_each(|id| submit(&writer, &|| kill(&format!("loop-{id}"), "loop.service")));
    end(writer);
    let count = |incidents: &[Incident], of: &str| incidents.iter().filter(|it| it.id.starts_with(of)).count();
    let last = |incidents: &[Incident]| incidents.iter().rev().find(|it| it.repeated > 0).cloned().unwrap();
    let incidents = read(directory.path());
    assert_eq!(count(&incidents, "before-"), 20);
    let whole = incidents.iter().filter(|it| !it.pressure.is_empty() && it.id.starts_with("loop-")).count();
    assert!((20..=25).contains(&whole), "{whole} records of 10 KiB in a quarter of 1 MiB");
    assert_eq!(whole as u64 + last(&incidents).repeated + 1, 1000, "the rest is counted");
    assert!(last(&incidents).summary.ends_with(&format!("and {} more like this", last(&incidents).repeated)));

    // The next agent reads how much of the journal the workload has.
    let (writer, _) = Writer::start(directory.path(), SIZE).unwrap();
    (0..1000).for_each(|id| submit(&writer, &|| kill(&format!("again-{id}"), "loop.service")));
    submit(&writer, &|| kill("after", "calm.service"));
    assert!(writer.report().dropped == 0 || writer.report().counted > 0);
    end(writer);
    let incidents = read(directory.path());
    assert_eq!((count(&incidents, "before-"), count(&incidents, "after")), (20, 1));
    assert_eq!(last(&incidents).repeated, 999);
}

#[test]
fn without_a_directory_the_last_records_stay_in_memory() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("journal");
    fs::write(&directory, "in the way").unwrap();
    let (writer, missing) = Writer::start(&directory, SIZE).unwrap();
    let missing = missing.unwrap();
    assert_eq!(missing, format!("{CAPABILITY}: {}", writer.degradation().unwrap()));
    assert!(missing.starts_with("incident journal: ") && missing.contains("incidents.directory"), "{missing}");
    for number in 0..100 {
        // A full queue is not under test here.
        while writer.submit(draft(&number.to_string(), "", 0)).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let index = writer.index();
    wait_for("the last ones are kept", || index.heads(1000).len() == KEPT && index.heads(1)[0].id == "99");
    assert!(matches!(index.find("99"), Some(Body::Memory(_))));
    assert!(writer.report().dropped >= 100 - KEPT as u64 && writer.report().write_failures > 0);
    fs::remove_file(&directory).unwrap();
    writer.submit(draft("100", "", 0)).unwrap();
    wait_for("the records are written", || matches!(index.find("100"), Some(Body::Stored(_))));
    wait_for("the degradation ends", || writer.degradation().is_none());
    end(writer);
    assert_eq!(read(&directory).len(), KEPT + 1);
}

#[test]
fn unwritten_records_are_bounded_in_bytes() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("journal");
    fs::write(&directory, "in the way").unwrap();
    let (writer, _) = Writer::start(&directory, SIZE).unwrap();
    for number in 0..10 {
        writer.submit(draft(&number.to_string(), "", 1 << 20)).unwrap();
    }
    let index = writer.index();
    wait_for("four MiB are kept", || {
        index.heads(1).first().is_some_and(|head| head.id == "9") && index.heads(100).len() <= 4
    });
}

#[test]
fn a_removed_journal_is_created_again() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("journal");
    let (writer, _) = Writer::start(&directory, SIZE).unwrap();
    let index = writer.index();
    let stored = |id: &str| matches!(index.find(id), Some(Body::Stored(_)));
    writer.submit(draft("before", "", 0)).unwrap();
    wait_for("it is written", || stored("before"));
    fs::remove_dir_all(&directory).unwrap();
    writer.submit(draft("after", "", 0)).unwrap();
    wait_for("the next is written", || stored("after"));
    assert_eq!(read(&directory).into_iter().map(|incident| incident.id).collect::<Vec<_>>(), ["after"]);
    assert_eq!(index.heads(9).len(), 1, "a removed record is not listed");
}

#[test]
fn a_record_that_is_not_synced_does_not_count_as_stored() {
    let directory = tempfile::tempdir().unwrap();
    // /dev/null accepts every write and cannot be synced.
    std::os::unix::fs::symlink("/dev/null", directory.path().join("incidents-00000001.journal")).unwrap();
    let (writer, missing) = Writer::start(directory.path(), SIZE).unwrap();
    assert_eq!(missing, None);
    let index = writer.index();
    writer.submit(draft("a", "", 0)).unwrap();
    wait_for("the failure is counted", || writer.report().write_failures > 0);
    assert!(matches!(index.find("a"), Some(Body::Memory(_))));
    assert!(writer.degradation().unwrap().contains("Invalid argument"), "{:?}", writer.degradation());
    fs::remove_file(directory.path().join("incidents-00000001.journal")).unwrap();
    writer.submit(draft("b", "", 0)).unwrap();
    wait_for("both are written", || {
        index.heads(9).iter().all(|it| matches!(index.find(&it.id), Some(Body::Stored(_))))
    });
    assert_eq!(read(directory.path()).len(), 2);
    assert_eq!(writer.degradation(), None);
}
