use super::*;

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
        record.note(process, (self.value(pid), value), self.root()).unwrap();
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
    let expected = Restored { restored: 3, changed: 1, ended: 1, ..Restored::default() };
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
    fs::write(&path, text.replacen(|_| true, "0", 1)).unwrap();
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
        record.note((Pid(99), began), (0, 1000), processes.root()).unwrap();
    }
    assert!(record.len() <= CHECKED, "{}", record.len());
    let lines = fs::read_to_string(&record.path).unwrap().lines().count();
    assert!(lines <= STALE_LINES + 8, "{lines}");
}

#[test]
fn a_full_record_and_a_failed_write_are_errors() {
    let processes = Processes::new();
    processes.set(11, 1, 0);
    let mut record = processes.record();
    for began in 0..u64::try_from(MOST).unwrap() {
        record.keep((Pid(11), began), Values { before: 0, written: 1 });
    }
    let full = record.note((Pid(11), u64::MAX), (0, 1), processes.root());
    assert!(full.unwrap_err().contains("already"));
    let mut record = ScoreRecord::beside(Path::new("/nonexistent/agent.lock"));
    let error = record.note((Pid(11), 1), (0, 1), processes.root()).unwrap_err();
    assert!(error.contains("/nonexistent/agent.lock.oom-scores"), "{error}");
}
