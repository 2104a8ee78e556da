use std::fs;

use super::super::model::Kind;
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
        [(1_999_000_000, 7), (2_000_500_000, 9)].map(|(at, value)| Sample { at: crate::node::Monotonic(at), value });
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

#[test]
fn what_is_handed_over_is_on_disk_at_the_end_and_listed_before() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, missing) = Writer::start(directory.path(), SIZE).unwrap();
    assert_eq!(missing, None);
    let buffers: Vec<_> = std::iter::from_fn(|| writer.spare()).collect();
    assert_eq!(buffers.len(), SPARES);
    for number in 0..50 {
        assert!(writer.submit(draft(&number.to_string(), "underway", 0)));
    }
    assert!(writer.submit(draft("7", "gone", 0)));
    let shelf = writer.shelf();
    wait_for("all are on disk", || {
        let stored = |head: Head| matches!(shelf.find(&head.id), Some(Body::Stored(_)));
        shelf.heads(100).len() == 50 && shelf.heads(100).into_iter().all(stored)
    });
    assert_eq!(shelf.heads(100)[7].summary, "gone");
    let report = writer.report();
    assert_eq!((report.write_failures, report.dropped, report.truncations), (0, 0, 0));
    assert_eq!(report.bytes, fs::metadata(directory.path().join("incidents-00000001.journal")).unwrap().len());
    assert!(writer.submit(draft("last", "", 0)));
    drop(writer);
    let incidents = read(directory.path());
    assert!(incidents.len() >= 51, "{}", incidents.len());
    assert_eq!(incidents.last().unwrap().id, "last");
    // Milliseconds before the incident; what came after it is below zero.
    assert_eq!(incidents[0].signals["memory.available"].samples, [(1.0, 7), (-0.5, 9)]);
    // The next run knows them.
    let (writer, _) = Writer::start(directory.path(), SIZE).unwrap();
    let shelf = writer.shelf();
    wait_for("incidents of the run before are listed", || shelf.heads(100).len() == 51);
    assert_eq!(shelf.heads(100)[7].summary, "gone");
    let body = shelf.find("last").unwrap();
    assert_eq!(serde_json::from_slice::<Incident>(&shelf.read(&body).unwrap().unwrap()).unwrap().id, "last");
}

#[test]
fn without_a_directory_the_last_ones_stay_in_memory_until_there_is_one() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("journal");
    fs::write(&directory, "in the way").unwrap();
    let (writer, missing) = Writer::start(&directory, SIZE).unwrap();
    let missing = missing.unwrap();
    assert!(missing.starts_with("incident journal: ") && missing.contains("incidents.directory"), "{missing}");
    for number in 0..100 {
        // The thread is given the time: here it is not the queue that is tested.
        while !writer.submit(draft(&number.to_string(), "", 0)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let shelf = writer.shelf();
    wait_for("the last ones are kept", || shelf.heads(1000).len() == KEPT && shelf.heads(1)[0].id == "99");
    assert!(matches!(shelf.find("99"), Some(Body::Memory(_))));
    assert!(writer.report().dropped >= 100 - KEPT as u64 && writer.report().write_failures > 0);
    fs::remove_file(&directory).unwrap();
    assert!(writer.submit(draft("100", "", 0)));
    wait_for("now they can be written", || matches!(shelf.find("100"), Some(Body::Stored(_))));
    drop(writer);
    assert_eq!(read(&directory).len(), KEPT + 1);
}

#[test]
fn what_waits_is_bounded_in_bytes_too() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("journal");
    fs::write(&directory, "in the way").unwrap();
    let (writer, _) = Writer::start(&directory, SIZE).unwrap();
    for number in 0..10 {
        assert!(writer.submit(draft(&number.to_string(), "", 1 << 20)));
    }
    let shelf = writer.shelf();
    wait_for("four MiB are kept", || {
        shelf.heads(1).first().is_some_and(|head| head.id == "9") && shelf.heads(100).len() <= 4
    });
}
