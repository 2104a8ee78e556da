use super::*;
use crate::node::process_facts::started;

/// A procfs in files.
struct Processes(tempfile::TempDir);

impl Processes {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn lock(&self) -> PathBuf {
        self.0.path().join("agent.lock")
    }

    fn record(&self) -> ScoreRecord {
        ScoreRecord::beside(&self.lock())
    }

    fn set(&self, pid: i32, began: u64, value: i16) {
        let directory = self.0.path().join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} (a ) b) S {}{began} 0 0\n", "0 ".repeat(18));
        fs::write(directory.join("stat"), stat).unwrap();
        // A real file would keep the rest of a longer value.
        fs::write(directory.join("oom_score_adj"), format!("{value}\n")).unwrap();
    }

    fn value(&self, pid: i32) -> i16 {
        let text = fs::read_to_string(self.0.path().join(format!("{pid}/oom_score_adj"))).unwrap();
        text.lines().next().unwrap().parse().unwrap()
    }

    /// Gives the process a value as the agent does.
    fn write(&self, record: &mut ScoreRecord, pid: i32, value: i16) {
        let process = (Pid(pid), started(self.root(), Pid(pid)).unwrap());
        record.note(process, CgroupId(1), (self.value(pid), value), self.root()).unwrap();
        self.set(pid, process.1, value);
    }
}

#[test]
fn the_next_agent_restores_what_the_agent_has_changed() {
    let processes = Processes::new();
    for pid in 11..=16 {
        processes.set(pid, 500, 100);
    }
    let mut record = processes.record();
    (11..=15).for_each(|pid| processes.write(&mut record, pid, 900));
    // Its class changes: the value from before the agent counts.
    processes.write(&mut record, 12, 950);
    // Another program sets a value, and the agent replaces that.
    processes.set(13, 500, 300);
    processes.write(&mut record, 13, 900);
    // Another program sets a value after the agent.
    processes.set(14, 500, 200);
    // The process ends, and another one gets its pid.
    processes.set(15, 777, 900);
    drop(record);
    let mut record = processes.record();
    assert_eq!(record.len(), 5);
    let expected = Restored { restored: 3, changed: 1, named: vec![(Pid(14), 200)], ended: 1, ..Restored::default() };
    assert_eq!(record.restore(processes.root()), expected);
    assert_eq!([11, 12, 13, 14, 15, 16].map(|pid| processes.value(pid)), [100, 100, 300, 200, 900, 100]);
    assert!(processes.record().is_empty(), "nothing is restored twice");
}

#[test]
fn a_torn_line_and_another_boot_name_no_process() {
    let processes = Processes::new();
    processes.set(11, 500, 0);
    processes.set(12, 500, 0);
    let mut record = processes.record();
    processes.write(&mut record, 11, 900);
    let path = record.path.clone();
    drop(record);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}12 500 0")).unwrap();
    let mut record = processes.record();
    assert_eq!(record.len(), 1);
    // The line after a torn one must be readable.
    processes.write(&mut record, 12, 900);
    assert_eq!(processes.record().len(), 2);
    fs::write(&path, text.replacen(|_| true, "x", 1)).unwrap();
    assert!(processes.record().is_empty(), "another boot has other processes");
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(processes.record().is_empty());
}

#[test]
fn the_record_stays_small() {
    let processes = Processes::new();
    let mut record = processes.record();
    for began in 0..u64::try_from(3 * STALE_LINES).unwrap() {
        // None of these processes exists, as in a storm of short ones.
        record.note((Pid(99), began), CgroupId(1), (0, 1000), processes.root()).unwrap();
    }
    assert!(record.len() <= CHECKED, "{}", record.len());
    let lines = fs::read_to_string(&record.path).unwrap().lines().count();
    assert!(lines <= STALE_LINES + 8, "{lines}");
    assert!(record.of_workload.values().sum::<usize>() == record.len(), "ended processes give their share back");
}

#[test]
fn a_full_record_and_a_failed_write_are_errors() {
    let processes = Processes::new();
    processes.set(11, 1, 0);
    let mut record = processes.record();
    for began in 0..u64::try_from(MOST).unwrap() {
        record.keep((Pid(11), began), Values { before: 0, written: 1, workload: Some(CgroupId(began)) });
    }
    let full = record.note((Pid(11), u64::MAX), CgroupId(1), (0, 1), processes.root());
    assert!(full.unwrap_err().contains("already"));
    let mut record = ScoreRecord::beside(Path::new("/nonexistent/agent.lock"));
    let error = record.note((Pid(11), 1), CgroupId(1), (0, 1), processes.root()).unwrap_err();
    assert!(error.contains("/nonexistent/agent.lock.oom-scores"), "{error}");
}

#[test]
fn a_workload_has_a_quarter_of_the_record() {
    let processes = Processes::new();
    processes.set(11, 1, 0);
    processes.set(12, 1, 0);
    let mut record = processes.record();
    let (large, other) = (CgroupId(7), CgroupId(8));
    let note = |record: &mut ScoreRecord, pid, began, workload| {
        record.note((Pid(pid), began), workload, (0, 1000), processes.root())
    };
    for began in 0..u64::try_from(MOST_OF_WORKLOAD).unwrap() {
        note(&mut record, 11, began, large).unwrap();
    }
    let refused = note(&mut record, 11, u64::MAX, large).unwrap_err();
    assert!(refused.contains("4096 processes of this workload already"), "{refused}");
    assert_eq!(note(&mut record, 11, 0, large), Ok(()), "a recorded process may get another value");
    assert_eq!(note(&mut record, 12, 1, other), Ok(()), "the others have the rest");
    drop(record);
    let mut next = processes.record();
    assert_eq!(next.len(), MOST_OF_WORKLOAD + 1);
    assert!(note(&mut next, 11, u64::MAX, large).is_err(), "also over a restart");
    fs::remove_dir_all(processes.root().join("11")).unwrap();
    for began in 0..u64::try_from(MOST_OF_WORKLOAD).unwrap() {
        note(&mut next, 12, began + 2, other).unwrap_or_default();
    }
    assert_eq!(note(&mut next, 12, u64::MAX, large), Ok(()), "ended processes give their share back");
}

#[test]
fn a_record_without_workloads_is_still_read() {
    let processes = Processes::new();
    processes.set(11, 500, 900);
    let record = processes.record();
    fs::write(&record.path, format!("{}\n11 500 100 900\n", record.boot)).unwrap();
    assert_eq!(processes.record().restore(processes.root()).restored, 1);
    assert_eq!(processes.value(11), 100);
}

/// sysinfo#1190, tobixen/thrash-protect#25: the kernel cuts a name after 15 bytes, also inside a character.
#[test]
fn a_process_of_any_name_is_restored() {
    let processes = Processes::new();
    let mut record = processes.record();
    for (pid, name) in [(11, b"process-name-t\xc3".as_slice()), (12, b"\xff\xfe) S 1"), (13, b"\xd0")] {
        processes.set(pid, 500, 100);
        let rest = format!(") S {}500 0 0\n", "0 ".repeat(18));
        let stat = [format!("{pid} (").as_bytes(), name, rest.as_bytes()].concat();
        fs::write(processes.root().join(format!("{pid}/stat")), &stat).unwrap();
        let process = (Pid(pid), started(processes.root(), Pid(pid)).unwrap());
        record.note(process, CgroupId(1), (100, 900), processes.root()).unwrap();
        fs::write(processes.root().join(format!("{pid}/oom_score_adj")), "900\n").unwrap();
    }
    let restored = processes.record().restore(processes.root());
    assert_eq!((restored.restored, restored.failed, restored.ended), (3, 0, 0), "{restored:?}");
    assert_eq!([11, 12, 13].map(|pid| processes.value(pid)), [100; 3]);
}
