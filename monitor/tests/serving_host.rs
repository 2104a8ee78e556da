//! The agent at work on this machine: what it makes of a new configuration.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_node-pressure-monitor");

/// A running agent with its own lock file, port and place for output.
struct Agent {
    child: Child,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Agent {
    fn start(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut command = Command::new(PROGRAM);
        command
            .args(["run", "--log-format", "json", "--mode", "observe", "--listen", &address.to_string()])
            .arg("--config")
            .arg(path("monitor.yaml"))
            .arg("--lock-file")
            .arg(path("lock"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(path("err")).unwrap())
            .stdin(Stdio::null());
        // A test leaves nothing behind on this machine.
        fs::write(path("monitor.yaml"), configuration(&directory, config)).unwrap();
        let child = command.spawn().unwrap();
        let mut agent = Self { child, address, directory };
        agent.wait("listening and sampling", 0);
        agent
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("err")).unwrap_or_default()
    }

    /// Waits until the log says it, beyond what it had said before.
    fn wait(&mut self, what: &str, from: usize) -> String {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let log = self.log();
            let new = log.get(from..).unwrap_or_default();
            if let Some(line) = new.lines().find(|line| line.contains(what)) {
                return line.to_owned();
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it ended with {status}: {log}");
            }
            assert!(Instant::now() < deadline, "no {what:?} in {new}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn write(&self, config: &str) -> usize {
        let from = self.log().len();
        fs::write(self.path("monitor.yaml"), configuration(&self.directory, config)).unwrap();
        from
    }

    fn signal(&self, signal: &str) -> usize {
        let from = self.log().len();
        Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        from
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
    }
}

fn configuration(directory: &tempfile::TempDir, rest: &str) -> String {
    let incidents = directory.path().join("incidents");
    format!(
        "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nincidents: {{directory: {}}}\n{rest}",
        incidents.display()
    )
}

#[test]
fn a_new_configuration_is_in_force_and_a_bad_one_is_refused() {
    let mut agent = Agent::start("");
    let threshold =
        |kind: &str| format!("node_pressure_monitor_threshold_met{{kind=\"{kind}\",signal=\"memory.available\"}}");
    let metrics = agent.get("/metrics");
    assert!(metrics.contains(&threshold("hard")) && !metrics.contains(&threshold("soft")), "{metrics}");
    assert!(metrics.contains("\nnode_pressure_monitor_config_last_reload_successful 1\n"), "{metrics}");

    let soft =
        "evictionHard: {}\nevictionSoft: {memory.available: 10Mi}\nevictionSoftGracePeriod: {memory.available: 1m}\n";
    let from = agent.write(&format!("mode: enforce\n{soft}kernel: {{ringBuffer: 64Ki}}\n"));
    let applied = agent.wait("configuration_applied", from);
    // The flag stands above the file.
    assert!(applied.contains("\"mode\":\"observe\"") && applied.contains("\"changed\":\"thresholds\""), "{applied}");
    let stays = agent.wait("until the agent is started anew", from);
    assert!(stays.contains("\"fields\":\"kernel\""), "{stays}");
    let metrics = agent.get("/metrics");
    assert!(!metrics.contains(&threshold("hard")) && metrics.contains(&threshold("soft")), "{metrics}");
    assert!(metrics.contains("\nnode_pressure_monitor_config_restart_needed 1\n"), "{metrics}");
    let ready = agent.get("/readyz");
    assert!(
        ready.contains("degraded: configuration: in force, but for what needs a restart of the agent: kernel"),
        "{ready}"
    );

    let from = agent.write("evictionHrad: {memory.available: 1Gi}\n");
    let refused = agent.wait("configuration_refused", from);
    assert!(refused.contains("monitor.yaml:4: evictionHrad: unknown field"), "{refused}");
    let metrics = agent.get("/metrics");
    assert!(metrics.contains(&threshold("soft")), "the one before stays in force: {metrics}");
    assert!(metrics.contains("\nnode_pressure_monitor_config_last_reload_successful 0\n"), "{metrics}");
    assert!(metrics.contains("\nnode_pressure_monitor_config_reloads_total{outcome=\"refused\"} 1\n"), "{metrics}");
    let ready = agent.get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("the configuration before stays in force"), "{ready}");

    // Asked for, it is read at once.
    let from = agent.signal("-HUP");
    agent.wait("configuration_refused", from);
    let from = agent.write("");
    agent.signal("-HUP");
    agent.wait("configuration_applied", from);
    let metrics = agent.get("/metrics");
    assert!(metrics.contains(&threshold("hard")) && !metrics.contains(&threshold("soft")), "{metrics}");
    assert!(!agent.get("/readyz").contains("configuration:"));
    agent.signal("-TERM");
    assert!(agent.child.wait().unwrap().success());
}

#[test]
fn the_summary_that_is_served_is_one_that_rank_reads() {
    let agent = Agent::start("evictionHard: {nodefs.available: 1Mi, pid.available: 10}\n");
    let answer = agent.get("/stats/summary");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("200 OK") && head.contains("content-type: application/json"), "{head}");
    let json: serde_json::Value = serde_json::from_str(body).unwrap();
    for pointer in [
        "/node/nodeName",
        "/node/startTime",
        "/node/cpu/usageCoreNanoSeconds",
        "/node/memory/availableBytes",
        "/node/memory/workingSetBytes",
        "/node/fs/capacityBytes",
        "/node/fs/usedBytes",
        "/node/rlimit/maxpid",
        "/pods",
    ] {
        assert!(json.pointer(pointer).is_some(), "{pointer} is missing in {json:#}");
    }
    assert!(!body.contains("null"), "{json:#}");
    let [pods, summary] = ["pods.json", "summary.json"].map(|name| agent.path(name));
    fs::write(&pods, r#"{"kind": "List", "items": []}"#).unwrap();
    fs::write(&summary, body).unwrap();
    let mut rank = Command::new(PROGRAM);
    let output = rank.arg("rank").arg("--pods").arg(pods).arg("--summary").arg(summary).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Asked again, it tells how fast CPU time goes by.
    std::thread::sleep(Duration::from_millis(1100));
    let answer = agent.get("/stats/summary?only_cpu_and_memory=true");
    assert!(answer.contains("\"usageNanoCores\":") && !answer.contains("\"fs\":"), "{answer}");
}
