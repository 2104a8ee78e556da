//! The queries of `config/METRICS.md` that join the agent's metrics with those of others, in a real Prometheus. The agent and
//! node_exporter are real. kube-state-metrics and cAdvisor are files with their documented metrics.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use node_pressure_monitor::node::CgroupVersion;
use serde_json::Value;

#[path = "support/agent.rs"]
#[expect(dead_code, reason = "other tests follow the log")]
mod agent;
#[path = "support/holder.rs"]
mod holder;
#[path = "support/sleepers.rs"]
#[expect(dead_code, reason = "other tests look at processes")]
mod sleepers;

use agent::{Agent, PATIENCE, free_address};
use holder::holder;
use sleepers::Cgroups;

/// Writes more page cache than the pod may have, again and again: each time the kernel reclaims on behalf of the writer.
const WRITER: &str = "until grep -q npm-test-joins /proc/self/cgroup; do sleep 0.05; done; \
                      while head -c 67108864 /dev/zero > \"$0\"; do sleep 0.2; done";
/// The limit of the pod's memory in bytes. It has room for what the holder holds.
const LIMIT: &str = "33554432";
const UID: &str = "5d7a2f0e-1c65-4a2b-9d3f-00000000a015";
const NODE: &str = "worker-1";
const ATTACHED: &str = "node_pressure_monitor_probe_attached{probe=~\".*memcg_reclaim_end\"} == 1";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the blocks of METRICS.md with a query each.
fn queries() -> Vec<String> {
    let text = fs::read_to_string(root().join("config/METRICS.md")).unwrap();
    let blocks = text.split("\n```promql\n").skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap().to_owned()).collect()
}

/// Lets a process of the pod reclaim memory at the pod's limit, for the query about stalls.
fn make_stalls(cgroups: &mut Cgroups, pod: &str, file: &Path) {
    let limit = match cgroups.hierarchy.version {
        CgroupVersion::V1 => "memory.limit_in_bytes",
        CgroupVersion::V2 => "memory.max",
    };
    fs::write(cgroups.hierarchy.memory.join(pod).join(limit), LIMIT).unwrap();
    let name = pod.rsplit('/').next().unwrap();
    cgroups.workload_of(name, 1, &["sh", "-c", WRITER, file.to_str().unwrap()]);
}

/// A program that ends with the test.
struct Running(Child);

impl Running {
    fn start(program: &str, arguments: &[String]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _already_gone = self.0.wait();
    }
}

/// Serves a text at every path, until the test ends.
fn serve(text: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _partly = connection.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
            let _unread = write!(connection, "{head}Content-Length: {}\r\n\r\n{text}", text.len());
        }
    });
    address
}

/// Returns the exposition of a program that does not run here.
fn exposition(name: &str) -> String {
    let path = root().join("tests/fixtures/exposition").join(format!("{name}.prom"));
    fs::read_to_string(path).unwrap().replace("NODE", NODE).replace("UID", UID)
}

struct Prometheus {
    address: SocketAddr,
    _running: Running,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    fn start(targets: &[(&str, SocketAddr)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut text = "global: {scrape_interval: 1s}\nscrape_configs:\n".to_owned();
        for (job, address) in targets {
            text += &format!(
                "- job_name: {job}\n  honor_labels: true\n  static_configs: [{{targets: [\"{address}\"], labels: {{node: {NODE}}}}}]\n"
            );
        }
        let file = directory.path().join("prometheus.yml");
        fs::write(&file, text).unwrap();
        let address = free_address();
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", directory.path().join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        Self { address, _running: Running::start("prometheus", &arguments), _directory: directory }
    }

    /// Returns the series of a query, or why there are none.
    fn ask(&self, query: &str) -> Result<Vec<Value>, String> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut stream = TcpStream::connect(self.address).map_err(|error| error.to_string())?;
        write!(stream, "GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: prometheus\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
        let answer: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
        match answer["data"]["result"].as_array() {
            Some(series) => Ok(series.clone()),
            None => Err(answer.to_string()),
        }
    }

    /// Waits until the query returns a series with a value.
    fn wait(&self, query: &str) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.ask(query);
            if let Ok(series) = &found
                && series.iter().any(|series| series["value"][1] != "NaN")
            {
                return series.clone();
            }
            assert!(Instant::now() < deadline, "no value of: {query}\n{found:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn write_pods(file: &Path, pods: &[Value]) {
    fs::write(file, serde_json::json!({"kind": "PodList", "items": pods}).to_string()).unwrap();
}

fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

#[test]
fn the_documented_joins_return_series_in_a_prometheus() {
    for program in ["prometheus", "prometheus-node-exporter"] {
        if !is_there(program) {
            // Only a direct write reaches the summary of the suite: the output of a passing test is not shown.
            let line = format!("\nSKIPPED joins in a Prometheus: {program} is missing: run `cargo xtask setup`\n");
            std::io::stdout().write_all(line.as_bytes()).unwrap();
            return;
        }
    }
    let Some(mut cgroups) = Cgroups::make("joins") else { return };
    let pod = holder(&mut cgroups, &format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_")));
    let directory = tempfile::tempdir().unwrap();
    make_stalls(&mut cgroups, &pod, &directory.path().join("written"));
    let pods = directory.path().join("pods.json");
    let of_pod = serde_json::json!({
        "metadata": {"name": "web-0", "namespace": "shop", "uid": UID,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}]},
        "spec": {"nodeName": NODE, "containers": [
            {"name": "main", "resources": {"requests": {"cpu": "250m", "memory": "1"}}},
            {"name": "proxy", "resources": {"requests": {"memory": "1"}}}]},
        "status": {"phase": "Running"},
    });
    write_pods(&pods, &[of_pod]);
    let own = format!("pods: {}\nmetrics: {{workloadMemory: true}}\n", pods.display());
    let agent = Agent::start(&own, "json");
    let exporter = free_address();
    let _exporter = Running::start("prometheus-node-exporter", &[format!("--web.listen-address={exporter}")]);
    let prometheus = Prometheus::start(&[
        ("node-pressure-monitor", agent.address),
        ("node-exporter", exporter),
        ("kube-state-metrics", serve(exposition("kube-state-metrics"))),
        ("cadvisor", serve(exposition("cadvisor"))),
    ]);
    for job in ["node-pressure-monitor", "node-exporter", "kube-state-metrics", "cadvisor"] {
        prometheus.wait(&format!("up{{job=\"{job}\"}} == 1"));
    }
    let named = prometheus.wait("node_pressure_monitor_workload_memory_working_set_bytes{pod=\"web-0\"} > 4e6");
    assert!(pod.ends_with(named[0]["metric"]["workload"].as_str().unwrap()), "{named:?} {pod}");
    // Joins on labels that no series has in common are empty, and not an error.
    assert_eq!(prometheus.ask("up * on (instance) node_memory_MemAvailable_bytes{node=\"other\"}"), Ok(Vec::new()));
    let queries = queries();
    assert!(queries.len() >= 10, "{} queries", queries.len());
    // Only the agent's eBPF programs count stalls.
    let counts_stalls = prometheus.ask(ATTACHED).is_ok_and(|series| !series.is_empty());
    for query in &queries {
        if query.contains("reclaim_stall_seconds") && !counts_stalls {
            let line = format!("\nSKIPPED a join in a Prometheus: the agent's programs are not attached: {query}\n");
            std::io::stdout().write_all(line.as_bytes()).unwrap();
            assert!(prometheus.ask(query).is_ok(), "{query}");
            continue;
        }
        let series = prometheus.wait(query);
        println!("{query}\n  {} series, the first: {}", series.len(), series[0]);
    }
    let cpu = prometheus.wait(queries.iter().find(|query| query.contains("requested_cpu")).unwrap());
    assert_eq!(cpu[0]["value"][1], "6.25", "250m of 4 CPUs");
    if counts_stalls {
        drop(cgroups);
        write_pods(&pods, &[]);
        // The agent answers, and no longer has the pod.
        prometheus.wait(
            "up{job=\"node-pressure-monitor\"} == 1 unless on (instance) node_pressure_monitor_workload_info{pod=\"web-0\"}",
        );
        let stalls = queries.iter().find(|query| query.contains("reclaim_stall_seconds")).unwrap();
        let series = prometheus.wait(stalls);
        assert_eq!(series[0]["metric"]["pod"], "web-0", "the last minutes of a pod that is gone: {series:?}");
    }
}
