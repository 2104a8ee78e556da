use std::fs;

use super::*;
use crate::node::Hierarchy;
use crate::workloads::fixtures;

/// Processes and cgroups in files.
struct Node(tempfile::TempDir);

impl Node {
    fn proc_root(&self) -> std::path::PathBuf {
        self.0.path().join("proc")
    }

    fn service(&self, name: &str, processes: &str, (request, limit): (&str, &str)) {
        let directory = self.0.path().join("cgroup").join(name);
        fixtures::populate(&directory, processes);
        fs::write(directory.join("memory.min"), request).unwrap();
        fs::write(directory.join("memory.max"), limit).unwrap();
    }

    fn process(&self, service: &str, pid: i32, parent: i32, value: i16) {
        let directory = self.proc_root().join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("stat"), format!("{pid} (a) S {parent} {}500 0\n", "0 ".repeat(17))).unwrap();
        fs::write(directory.join("cgroup"), format!("0::/{service}\n")).unwrap();
        self.set(pid, value);
    }

    fn set(&self, pid: i32, value: i16) {
        fs::write(self.proc_root().join(format!("{pid}/oom_score_adj")), value.to_string()).unwrap();
    }

    fn value(&self, pid: i32) -> i16 {
        let text = fs::read_to_string(self.proc_root().join(format!("{pid}/oom_score_adj"))).unwrap();
        text.trim().parse().unwrap()
    }
}

#[test]
fn a_process_that_offers_itself_keeps_its_value() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let node = Node(tempfile::tempdir().unwrap());
    node.service("db.service", "11\n12\n13\n14\n15\n", ("1048576", "1048576"));
    node.service("web.service", "21\n22\n23\n", ("536870912", "max"));
    // Nothing has set the first two. A parent has the value of its class already, and its child has raised its own.
    for (pid, parent, value) in [(11, 1, 0), (12, 11, 0), (13, 11, 300), (14, 1, -997), (15, 14, 0)] {
        node.process("db.service", pid, parent, value);
    }
    [(21, 1000), (22, 400), (23, 0)].iter().for_each(|(pid, value)| node.process("web.service", *pid, 1, *value));
    let memory = node.0.path().join("cgroup");
    let hierarchy = Hierarchy { version: CgroupVersion::V2, memory, freezer: None, hybrid: false };
    let mut tree = WorkloadTree::new(hierarchy, node.proc_root(), Vec::new());
    tree.scan().unwrap();
    let mut auditor = Auditor::default().recorded_in(ScoreRecord::beside(&node.0.path().join("lock")));
    let mut audit = |mode| {
        let (proc_root, capacity) = (node.proc_root(), Bytes(1 << 30));
        let rules = Rules { proc_root: &proc_root, capacity, scores: OomScores::KUBERNETES, mode };
        auditor.begin(&tree, Extent::All);
        let audit = auditor.step(&tree, rules, Monotonic(u64::MAX)).unwrap();
        (audit.newly_drifted, audit.drifted, audit.repaired, audit.refused)
    };
    assert_eq!(audit(AgentMode::Observe), (4, 4, 0, None), "an offer is no drift");
    assert_eq!(audit(AgentMode::Enforce), (0, 0, 4, None));
    let values = || [11, 12, 13, 14, 15, 21, 22, 23].map(|pid| node.value(pid));
    assert_eq!(values(), [-997, -997, 300, -997, 0, 1000, 500, 500]);
    // After the first setting also 0 is an offer.
    node.set(12, 0);
    node.set(22, 900);
    node.set(23, 499);
    assert_eq!(audit(AgentMode::Enforce), (1, 0, 1, None));
    assert_eq!(values(), [-997, 0, 300, -997, 0, 1000, 900, 500]);
    let restored = auditor.restore(&node.proc_root());
    assert_eq!((restored.restored, restored.changed, restored.failed), (2, 2, 0), "{restored:?}");
    // A file keeps the rest of a longer value, unlike procfs, so that only those that were left alone are looked at.
    assert_eq!([12, 13, 15, 21, 22].map(|pid| node.value(pid)), [0, 300, 0, 1000, 900]);
}
