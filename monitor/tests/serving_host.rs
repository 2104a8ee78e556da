//! The running agent on this machine: how it applies a new configuration.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[path = "support/agent.rs"]
mod agent;

use agent::{Agent, PATIENCE, PROGRAM};

impl Agent {
    /// Writes another configuration. Returns the length of the log before it.
    fn configure(&self, config: &str) -> usize {
        let from = self.text("err").len();
        fs::write(self.path("monitor.yaml"), agent::whole(&self.path("incidents"), config)).unwrap();
        from
    }

    /// Waits until the metrics are as wanted: on a slow machine a request takes the loop's last publication.
    fn metrics(&self, wanted: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        loop {
            let metrics = self.get("/metrics");
            if wanted(&metrics) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{metrics}");
        }
    }

    /// Sends a signal. Returns the length of the log before it.
    fn signal(&self, signal: &str) -> usize {
        let from = self.text("err").len();
        Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        from
    }
}

#[test]
fn a_valid_configuration_is_applied_and_an_invalid_one_refused() {
    let mut agent = Agent::start("", "json");
    let threshold =
        |kind: &str| format!("node_pressure_monitor_threshold_met{{kind=\"{kind}\",signal=\"memory.available\"}}");
    let metrics = agent.get("/metrics");
    assert!(metrics.contains(&threshold("hard")) && !metrics.contains(&threshold("soft")), "{metrics}");
    assert!(metrics.contains("\nnode_pressure_monitor_config_last_reload_successful 1\n"), "{metrics}");

    let soft =
        "evictionHard: {}\nevictionSoft: {memory.available: 10Mi}\nevictionSoftGracePeriod: {memory.available: 1m}\n";
    let from = agent.configure(&format!("mode: enforce\n{soft}kernel: {{ringBuffer: 64Ki}}\n"));
    let applied = agent.wait("configuration_applied", from);
    // The flag has priority over the file.
    assert!(applied.contains("\"mode\":\"observe\"") && applied.contains("\"changed\":\"thresholds\""), "{applied}");
    let stays = agent.wait("until the agent restarts", from);
    assert!(stays.contains("\"fields\":\"kernel\""), "{stays}");
    agent.metrics(|metrics| {
        let restart = "\nnode_pressure_monitor_config_restart_needed 1\n";
        !metrics.contains(&threshold("hard")) && metrics.contains(&threshold("soft")) && metrics.contains(restart)
    });
    let ready = agent.get("/readyz");
    assert!(
        ready.contains("degraded: configuration: in force, but for what needs a restart of the agent: kernel"),
        "{ready}"
    );

    let from = agent.configure("evictionHrad: {memory.available: 1Gi}\n");
    let refused = agent.wait("configuration_refused", from);
    assert!(refused.contains("monitor.yaml:4: evictionHrad: unknown field"), "{refused}");
    let metrics = agent.get("/metrics");
    assert!(metrics.contains(&threshold("soft")), "the previous configuration stays: {metrics}");
    assert!(metrics.contains("\nnode_pressure_monitor_config_last_reload_successful 0\n"), "{metrics}");
    assert!(metrics.contains("\nnode_pressure_monitor_config_reloads_total{outcome=\"refused\"} 1\n"), "{metrics}");
    let ready = agent.get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("the configuration before stays in force"), "{ready}");

    // SIGHUP makes the agent read the file at once.
    let from = agent.signal("-HUP");
    agent.wait("configuration_refused", from);
    let from = agent.configure("");
    agent.signal("-HUP");
    agent.wait("configuration_applied", from);
    agent.metrics(|metrics| metrics.contains(&threshold("hard")) && !metrics.contains(&threshold("soft")));
    assert!(!agent.get("/readyz").contains("configuration:"));
    agent.signal("-TERM");
    assert!(agent.child.wait().unwrap().success());
}

#[test]
fn rank_reads_the_served_summary() {
    let agent = Agent::start("evictionHard: {nodefs.available: 1Mi, pid.available: 10}\n", "json");
    // On a busy machine the agent is ready before the first statistics are.
    let begun = Instant::now();
    let mut answer = agent.get("/stats/summary");
    while answer.starts_with("HTTP/1.1 503") && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
        answer = agent.get("/stats/summary");
    }
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
    // The second request shows the rate of CPU time.
    let ask = || agent.get("/stats/summary?only_cpu_and_memory=true");
    let begun = Instant::now();
    let mut answer = ask();
    while !answer.contains("\"usageNanoCores\":") {
        assert!(begun.elapsed() < PATIENCE, "{answer}");
        std::thread::sleep(Duration::from_millis(100));
        answer = ask();
    }
    assert!(!answer.contains("\"fs\":"), "{answer}");
}

/// Returns how often the loop woke for `cause`. A flood may displace the connection, so a request is repeated until it is answered.
fn wakeups(agent: &Agent, cause: &str) -> u64 {
    let series = format!("node_pressure_monitor_wakeups_total{{cause=\"{cause}\"}} ");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = try_get(agent, "/metrics").unwrap_or_default();
        if text.starts_with("HTTP/1.1 200") && text.ends_with('\n') {
            return text.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |count| count.parse().unwrap());
        }
        assert!(Instant::now() < deadline, "no answer: {text}");
    }
}

fn try_get(agent: &Agent, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(agent.address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map(|_| text)
}

#[test]
fn a_flood_of_requests_does_not_hold_up_the_loop() {
    const FOR: Duration = Duration::from_secs(3);
    let agent = Agent::start("sampling: {ceiling: 50ms}\n", "json");
    let counted = || {
        let (begun, before) = (Instant::now(), ["deadline", "scrape"].map(|cause| wakeups(&agent, cause)));
        std::thread::sleep(FOR);
        let after = ["deadline", "scrape"].map(|cause| wakeups(&agent, cause));
        let seconds = begun.elapsed().as_secs_f64();
        [0, 1].map(|cause| f64::from(u32::try_from(after[cause] - before[cause]).unwrap()) / seconds)
    };
    let [calm, _] = counted();
    let is_over = AtomicBool::new(false);
    let [flooded, scrapes] = std::thread::scope(|scope| {
        for path in ["/metrics", "/stats/summary", "/summary", "/incidents"] {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _displaced = try_get(&agent, path);
                }
            });
        }
        // A third of the clients sends half a request, a third sends nothing, and a third never reads the answer.
        let held: Vec<TcpStream> = (0..100)
            .map(|number| {
                let mut stream = TcpStream::connect(agent.address).unwrap();
                let request = ["GET /metrics HTTP/1.1\r\nX: ", "", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"]
                    [number % 3];
                let _displaced = stream.write_all(request.as_bytes());
                stream
            })
            .collect();
        let found = counted();
        is_over.store(true, Ordering::Relaxed);
        drop(held);
        found
    });
    println!(
        "turns per second: {calm:.1} calm, {flooded:.1} in the flood, which made the loop publish {scrapes:.1} times"
    );
    assert!(calm > 5.0, "{calm}");
    assert!(flooded > calm / 2.0, "{flooded} turns per second, {calm} without a flood");
    assert!(scrapes <= 11.0, "the loop published {scrapes} times a second");
}
