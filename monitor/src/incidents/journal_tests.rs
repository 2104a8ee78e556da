use super::super::reader::{Found, Reader};
use super::*;

const SIZE: Bytes = Bytes(8 << 10);

fn payload(number: usize, padding: usize) -> Vec<u8> {
    format!(r#"{{"id":"{number}","x":"{}"}}"#, "x".repeat(padding)).into_bytes()
}

fn read(directory: &Path) -> (Vec<Vec<u8>>, Found) {
    let mut records = Vec::new();
    let found = Reader::new(directory).poll(|entry| records.push(entry.json)).unwrap();
    (records, found)
}

fn write(directory: &Path, payloads: &[Vec<u8>]) {
    let (mut journal, _) = Journal::open(directory, SIZE).unwrap();
    for payload in payloads {
        journal.append(payload).unwrap();
    }
    journal.sync().unwrap();
}

#[test]
fn written_records_are_polled_and_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    let (mut journal, cut_off) = Journal::open(&path, SIZE).unwrap();
    assert_eq!(cut_off, 0);
    let location = journal.append(&payload(1, 0)).unwrap();
    let second = journal.append(&payload(2, 0)).unwrap();
    assert_eq!(read(&path).0, [payload(1, 0), payload(2, 0)]);
    assert_eq!(read_back(&path, location).unwrap(), Some(payload(1, 0)));
    assert_eq!(read_back(&path, second).unwrap(), Some(payload(2, 0)));
    let mut locations = Vec::new();
    Reader::new(&path).poll(|entry| locations.push(entry.location)).unwrap();
    assert_eq!(locations, [location, second]);
    assert!(Journal::open(&path, SIZE).unwrap_err().contains("another node-pressure-monitor writes this journal"));
    drop(journal);
    write(&path, &[payload(3, 0)]);
    assert_eq!(read(&path).0.len(), 3);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_full_journal_drops_its_oldest_records() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(directory.path(), SIZE).unwrap();
    for number in 0..200 {
        journal.append(&payload(number, 200)).unwrap();
        assert!(journal.size() <= SIZE.0);
        let on_disk: u64 = list(directory.path()).unwrap().iter().map(|(_, length)| length).sum();
        assert_eq!(on_disk, journal.size());
    }
    let (records, found) = read(directory.path());
    assert_eq!(found, Found::default());
    assert!(records.len() >= 20, "{}", records.len());
    assert!(
        records.iter().eq((200 - records.len()..200).map(|number| payload(number, 200)).collect::<Vec<_>>().iter())
    );
    assert_eq!(journal.oldest(), list(directory.path()).unwrap()[0].0);
    // A record larger than a file gets a file of its own.
    journal.append(&payload(200, 3000)).unwrap();
    journal.append(&payload(201, 0)).unwrap();
    let (records, _) = read(directory.path());
    assert!(records.ends_with(&[payload(200, 3000), payload(201, 0)]));
}

#[test]
fn a_cut_at_any_byte_is_recovered_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let payloads = [payload(1, 3), payload(2, 0), payload(3, 9)];
    write(directory.path(), &payloads);
    let path = Segment(1).path(directory.path());
    let bytes = fs::read(&path).unwrap();
    let whole = |length: usize| {
        let mut records = 0;
        frame::scan(&bytes[..length], |_, _| records += 1);
        records
    };
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let before = read(directory.path());
        assert_eq!(before.0, payloads[..whole(length)], "{length}");
        let (mut journal, cut_off) = Journal::open(directory.path(), SIZE).unwrap();
        assert_eq!(cut_off > 0, before.1.unfinished, "{length}");
        journal.append(&payload(4, 0)).unwrap();
        drop(journal);
        let (records, found) = read(directory.path());
        assert_eq!(found, Found::default(), "{length}");
        assert_eq!(records.len(), whole(length) + 1, "{length}");
        assert_eq!(records.last(), Some(&payload(4, 0)), "{length}");
    }
}

#[test]
fn a_flipped_byte_costs_one_record() {
    let directory = tempfile::tempdir().unwrap();
    let payloads = [payload(1, 3), payload(2, 0), payload(3, 9)];
    write(directory.path(), &payloads);
    let path = Segment(1).path(directory.path());
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[at] ^= 0xFF;
        fs::write(&path, &broken).unwrap();
        write(directory.path(), &[payload(4, 0)]);
        let (records, _) = read(directory.path());
        assert!(records.len() >= 3 && records.last() == Some(&payload(4, 0)), "{at}: {}", records.len());
        assert!(records[..records.len() - 1].iter().all(|record| payloads.contains(record)), "{at}");
    }
}

#[test]
fn a_reader_polls_across_files_and_crashes() {
    let directory = tempfile::tempdir().unwrap();
    let mut reader = Reader::new(directory.path());
    let mut poll = || {
        let mut records = Vec::new();
        let found = reader.poll(|entry| records.push(entry.json)).unwrap();
        (records, found)
    };
    let mut number = 0;
    for _ in 0..30 {
        let (mut journal, _) = Journal::open(directory.path(), SIZE).unwrap();
        for _ in 0..5 {
            number += 1;
            journal.append(&payload(number, 200)).unwrap();
            assert_eq!(poll(), (vec![payload(number, 200)], Found::default()));
        }
        let path = journal.segment.path(directory.path());
        drop(journal);
        // A crash in mid-write.
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"000000ff 0123").unwrap();
        assert_eq!(poll(), (vec![], Found { damaged: 0, unfinished: true }));
    }
}

#[test]
fn a_recreated_journal_is_read_from_its_beginning() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("journal");
    write(&directory, &[payload(1, 0)]);
    let mut reader = Reader::new(&directory);
    assert_eq!(reader.poll(|_| ()).unwrap(), Found::default());
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(reader.poll(|_| ()).unwrap_err().kind(), io::ErrorKind::NotFound);
    let payloads = [payload(2, 5), payload(3, 0)];
    write(&directory, &payloads);
    let mut records = Vec::new();
    assert_eq!(reader.poll(|entry| records.push(entry.json)).unwrap(), Found::default());
    assert_eq!(records, payloads);
}

#[test]
fn an_unusable_directory_is_refused_with_the_fix() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Journal::open(&file.join("x"), SIZE).unwrap_err().to_string();
    assert!(error.ends_with("set incidents.directory to a writable directory"), "{error}");
}

#[test]
fn only_journal_files_are_listed_by_number() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "incidents-00000010.journal",
        "incidents-00000009.journal",
        "incidents-8.journal",
        "incidents-+0000007.journal",
        "incidents-x.journal",
        "notes",
        "incidents-1.old",
    ] {
        fs::write(directory.path().join(name), "12345").unwrap();
    }
    fs::create_dir(directory.path().join("incidents-00000011.journal")).unwrap();
    assert_eq!(list(directory.path()).unwrap(), [(Segment(9), 5), (Segment(10), 5)]);
    assert_eq!(Segment(10).path(directory.path()), directory.path().join("incidents-00000010.journal"));
}
