//! The agent and its file of this node's pods: read, changed, broken, repaired.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

struct Agent {
    child: Child,
    log: PathBuf,
}

impl Agent {
    /// Starts an agent in observe mode, with its files in `directory`.
    fn start(directory: &Path) -> Self {
        let place = directory.display();
        let config = format!(
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nlockFile: {place}/lock\n\
             incidents: {{directory: {place}/incidents}}\nmetrics: {{listen: \"127.0.0.1:0\"}}\npods: {place}/pods.json\n"
        );
        fs::write(directory.join("monitor.yaml"), config).unwrap();
        let log = directory.join("log");
        let child = Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor"))
            .args(["run", "--log-format", "json", "--config"])
            .arg(directory.join("monitor.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// Returns the log records of an event so far.
    fn records(&self, event: &str) -> Vec<Value> {
        let log = fs::read_to_string(&self.log).unwrap();
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.filter(|record| record["event"] == event).collect()
    }

    fn wait_for(&self, what: &str, is_it: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_it(self) {
            let log = || fs::read_to_string(&self.log).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(40), "{what} did not come; the log is\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
    }
}

#[test]
fn a_changed_pods_file_is_read_and_a_broken_one_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let write = |text: &str| {
        fs::write(directory.path().join("next"), text).unwrap();
        fs::rename(directory.path().join("next"), directory.path().join("pods.json")).unwrap();
    };
    let agent = Agent::start(directory.path());
    let degraded = |agent: &Agent| {
        let of_pods = |record: &Value| record["capability"] == "pods";
        agent.records("degraded").into_iter().filter(of_pods).collect::<Vec<_>>()
    };
    agent.wait_for("the missing file", |agent| degraded(agent).len() == 1);
    let reason = degraded(&agent)[0]["reason"].to_string();
    assert!(reason.contains("pods.json") && reason.contains("kubectl get pods"), "{reason}");
    write(r#"{"kind": "List", "items": [{"metadata": {"name": "a", "uid": "u"}}]}"#);
    agent.wait_for("the pods", |agent| agent.records("pods").len() == 1);
    assert_eq!(agent.records("pods")[0]["pods"], 1);
    write("{");
    agent.wait_for("the broken file", |agent| degraded(agent).len() == 2);
    assert_eq!(degraded(&agent)[1]["known"], 1, "the pods known before stay");
}
