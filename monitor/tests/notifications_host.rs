//! The agent tells a program and a server of an incident. Each test provokes a dry run: its threshold exceeds any machine's available memory.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

#[path = "support/agent.rs"]
mod agent;
#[path = "support/holder.rs"]
mod holder;
#[macro_use]
#[path = "support/sleepers.rs"]
#[expect(dead_code, reason = "other tests evict")]
mod sleepers;

use agent::{Agent, PATIENCE};
use holder::holder;
use sleepers::Cgroups;

/// A threshold that is met at once. Services are candidates on a Kubernetes node too. The kubelet's rules evict a workload that is too small to
/// end such a shortage.
const MET: &str = "semantics: kubelet\nevictionHard: {memory.available: 99%}\n\
                   evictions: {candidates: everything, actOnPresentPressure: true}\n";
const DESKTOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/notifications/desktop.sh");

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes a workload that could be evicted.
fn candidate(test: &str) -> Option<Cgroups> {
    let mut cgroups = Cgroups::make(test)?;
    holder(&mut cgroups, "web.service");
    Some(cgroups)
}

/// Waits until a counter is above zero. Each workload that could be evicted has an incident of its own.
fn counted(agent: &Agent, series: &str) {
    eventually(series, || {
        let metrics = agent.get("/metrics");
        let count = metrics.lines().find_map(|line| line.split_once(series)?.1.parse::<u64>().ok());
        count.filter(|count| *count > 0)
    });
}

fn program(directory: &Path, text: &str) -> String {
    let path = directory.join("program");
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Starts an agent that may run the programs of this directory.
fn start(commands: &Path, config: &str) -> Agent {
    Agent::start_by(config, "json", |arguments| {
        let mut command = Command::new(agent::PROGRAM);
        command.args(arguments).arg("--notification-commands").arg(commands);
        command
    })
}

/// Starts an agent whose configuration is in this directory.
fn start_beside(directory: &Path, config: &str) -> Agent {
    Agent::start_by(config, "json", |arguments| {
        let file = directory.join("monitor.yaml");
        let given = arguments.iter().skip_while(|it| **it != "--config").nth(1).unwrap();
        fs::copy(given, &file).unwrap();
        let file = file.display().to_string();
        let replaced = arguments.iter().map(|it| if it == given { file.as_str() } else { it });
        let mut command = Command::new(agent::PROGRAM);
        command.args(replaced);
        command
    })
}

#[test]
fn a_program_that_the_configuration_alone_names_is_not_run() {
    let Some(_candidate) = candidate("unpermitted") else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = program(directory.path(), "echo ran > \"$1/ran\"\n");
    let config = format!("{MET}notifications: {{command: [{program}, {}]}}\n", directory.path().display());
    let mut agent = Agent::start(&config, "json");
    let refused = agent.wait("\"capability\":\"notifications\"", 0);
    assert!(refused.contains("not in /etc/node-pressure-monitor/commands.d"), "{refused}");
    counted(&agent, "notifications_total{outcome=\"failed\",way=\"command\"} ");
    assert!(!directory.path().join("ran").exists());
}

#[test]
fn a_file_outside_the_configurations_directory_is_not_sent() {
    let Some(_candidate) = candidate("foreign-token") else { return };
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, "of-root-alone").unwrap();
    let (port, requests) = server(None, "204 No Content");
    let options = format!("url: \"http://127.0.0.1:{port}\", bearerTokenFile: {}", secret.display());
    let agent = Agent::start(&webhook(&options), "json");
    counted(&agent, "notifications_total{outcome=\"failed\",way=\"webhook\"} ");
    assert!(requests.try_recv().is_err());
    assert!(agent.get("/readyz").contains("not in "), "{}", agent.get("/readyz"));
}

#[test]
fn a_program_learns_of_an_incident_and_is_apart_from_the_agent() {
    let Some(_candidate) = candidate("command") else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let text = "cd \"$1\"; env > env; cat > stdin; cat /proc/$$/stat > stat; cat /proc/$$/oom_score_adj > score\n\
                cat /proc/$$/limits > limits; ls -l /proc/$$/fd > files; cat /proc/$$/status > status\n\
                ls /proc/1/root/ > root 2>&1 && echo reached > root; echo whole > end\n";
    let program = program(directory.path(), text);
    let config = format!("{MET}notifications: {{command: [{program}, {}]}}\n", directory.path().display());
    let agent = start(directory.path(), &config);
    eventually("the program has not run", || fs::read_to_string(path("end")).ok().filter(|text| text == "whole\n"));
    let read = |name: &str| fs::read_to_string(path(name)).unwrap();
    let incident: Value = serde_json::from_str(&read("stdin")).unwrap();
    let id = incident["id"].as_str().unwrap();
    assert_eq!((&incident["kind"], &incident["mode"]), (&"Eviction".into(), &"observe".into()));
    let variables = read("env");
    for line in ["NPM_KIND=dryRun\n", &format!("NPM_INCIDENT={id}\n"), "NPM_SIGNAL=memory.available\n", "PATH="] {
        assert!(variables.contains(line), "{line} is missing in {variables}");
    }
    assert!(!variables.contains("CARGO"), "the agent's environment: {variables}");

    // Fields 5 (process group), 6 (session) and 19 (nice) of proc_pid_stat(5); the first two here are after the name.
    let stat = read("stat");
    let (pid, rest) = stat.split_once(" (").unwrap();
    let fields: Vec<&str> = rest.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!((fields[2], fields[3], fields[16]), (pid, pid, "0"), "{stat}");
    assert!(!read("score").starts_with('-'), "{}", read("score"));
    let limits = read("limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert!(files.split_ascii_whitespace().nth(3).unwrap().parse::<u64>().unwrap() <= 1024, "{files}");
    let files = read("files");
    // Beside the incident, stderr and what the shell opens itself there is nothing: no map of a probe, no socket.
    assert!(files.contains("memfd:incident") && !files.contains("bpf") && !files.contains("socket:"), "{files}");

    let status = read("status");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000\n")), "{set}: {status}");
    }
    assert!(status.contains("NoNewPrivs:\t1\n") && read("root") != "reached\n", "{status}");

    counted(&agent, "notifications_total{outcome=\"sent\",way=\"command\"} ");
}

/// Returns a time in which a program starts and writes a few lines, at the machine's present speed: fifty times what one takes now.
fn seconds_for_a_program() -> u64 {
    let begun = Instant::now();
    assert!(Command::new("sh").args(["-c", "sleep 0 & wait"]).status().unwrap().success());
    (begun.elapsed() * 50).as_secs().clamp(1, 30)
}

#[test]
fn a_program_that_hangs_is_ended_with_its_children() {
    let Some(_candidate) = candidate("hangs") else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = program(
        directory.path(),
        "echo it hangs >&2; (trap '' TERM; exec sleep 300) & echo $! > \"$1/child\"; sleep 300\n",
    );
    let seconds = seconds_for_a_program();
    let options = format!("command: [{program}, {}], timeout: {seconds}s", directory.path().display());
    let mut agent = start(directory.path(), &format!("{MET}notifications: {{{options}}}\n"));
    let failure = agent.wait("\"capability\":\"notifications\"", 0);
    assert!(
        failure.contains(&format!("ended after {seconds} s, the timeout")) && !failure.contains("it hangs"),
        "{failure}"
    );
    agent.wait("\"answer\":\"it hangs\"", 0);
    let child = fs::read_to_string(directory.path().join("child")).unwrap();
    let stat = PathBuf::from(format!("/proc/{}/stat", child.trim()));
    eventually("the child lives", || {
        fs::read_to_string(&stat).map_or(Some(()), |stat| stat.contains(") Z ").then_some(()))
    });
    counted(&agent, "notifications_total{outcome=\"failed\",way=\"command\"} ");
    assert!(agent.get("/readyz").contains("degraded: notifications: command: "));
}

/// Reads a request, and answers it.
fn serve(mut stream: impl Read + Write, status: &str) -> std::io::Result<String> {
    let mut reader = BufReader::new(&mut stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
        if line == "\r\n" || line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")?;
    stream.flush()?;
    Ok(head + &String::from_utf8_lossy(&body))
}

/// A server that answers each request with this status. With a configuration, by TLS.
fn server(tls: Option<Arc<ServerConfig>>, status: &'static str) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let served = match &tls {
                None => serve(stream, status),
                Some(tls) => serve(StreamOwned::new(ServerConnection::new(Arc::clone(tls)).unwrap(), stream), status),
            };
            if let Ok(request) = served {
                let _test_ended = sender.send(request);
            }
        }
    });
    (port, requests)
}

fn webhook(options: &str) -> String {
    format!("{MET}notifications: {{webhook: {{{options}}}}}\n")
}

#[test]
fn a_server_that_refuses_is_a_degradation_until_a_reload() {
    let Some(_candidate) = candidate("refused") else { return };
    let (port, _requests) = server(None, "503 Service Unavailable");
    let mut agent = Agent::start(&webhook(&format!("url: \"http://127.0.0.1:{port}/a/secret\"")), "json");
    let failure = agent.wait("\"capability\":\"notifications\"", 0);
    let expected = format!("webhook: http://127.0.0.1:{port}: 503 Service Unavailable\"");
    assert!(failure.contains(&expected) && !failure.contains("secret"), "{failure}");
    agent.wait("\"answer\":\"no\"", 0);
    let ready = agent.get("/readyz");
    assert!(ready.contains("503 Service Unavailable\n") && !ready.contains("Unavailable: no"), "{ready}");
    let config = agent::whole(&agent.path("incidents"), MET);
    fs::write(agent.path("monitor.yaml"), config).unwrap();
    let applied = agent.wait("configuration_applied", 0);
    assert!(applied.contains("\"changed\":\"notifications\""), "{applied}");
    agent.wait("\"event\":\"restored\"", 0);
}

#[test]
fn a_server_learns_of_an_incident_by_tls() {
    let Some(_candidate) = candidate("webhook") else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(path("ca.crt"), made.cert.pem()).unwrap();
    fs::write(path("token"), "a-token-of-the-test\n").unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let tls = tls.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let tls = Arc::new(tls.with_single_cert(vec![made.cert.der().clone()], key).unwrap());
    let (port, requests) = server(Some(tls), "204 No Content");
    let (ca, token) = (path("ca.crt").display().to_string(), path("token").display().to_string());
    let url = format!("https://localhost:{port}/hook?a=b");
    let options = format!("url: \"{url}\", certificateAuthority: {ca}, bearerTokenFile: {token}");
    let agent = start_beside(directory.path(), &webhook(&options));
    let Ok(request) = requests.recv_timeout(PATIENCE) else { panic!("no request: {}", agent.text("err")) };
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{head}");
    let head = head.to_ascii_lowercase();
    let host = format!("host: localhost:{port}");
    for line in [&host, "authorization: bearer a-token-of-the-test", "content-type: application/json"] {
        assert!(head.contains(line), "{line} is missing in {head}");
    }
    let document: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&document["kind"], &document["incident"]["kind"]), (&"dryRun".into(), &"Eviction".into()));
    assert!(document["text"].as_str().unwrap().contains(document["incident"]["summary"].as_str().unwrap()));
}

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

#[test]
fn the_example_for_desktops_sends_the_signal_of_systembus_notify() {
    let mut bus = Command::new("dbus-daemon");
    bus.args(["--session", "--nofork", "--print-address"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(bus) = bus.spawn() else {
        tell!("SKIPPED the_example_for_desktops: there is no dbus-daemon");
        return;
    };
    let mut bus = Running(bus);
    let mut address = String::new();
    BufReader::new(bus.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = address.trim();
    let mut monitor = Command::new("dbus-monitor");
    monitor.args(["--address", address, "interface='net.nuetzlich.SystemNotifications'"]).stdout(Stdio::piped());
    let mut monitor = Running(monitor.spawn().unwrap());
    let mut lines = BufReader::new(monitor.0.stdout.take().unwrap()).lines();
    // The monitor's first lines are about itself.
    let _itself = lines.by_ref().find(|line| line.as_ref().unwrap().contains("NameLost"));
    let mut script = Command::new(DESKTOP);
    script.env_clear().env("PATH", "/usr/bin:/bin").env("DBUS_SYSTEM_BUS_ADDRESS", address);
    script.envs([("NPM_KIND", "eviction"), ("NPM_SUMMARY", "web \"a\" was evicted"), ("NPM_SUPPRESSED", "2")]);
    assert!(script.status().unwrap().success());
    let signal: Vec<String> =
        lines.map(Result::unwrap).skip_while(|line| !line.contains("member=Notify")).take(3).collect();
    assert!(signal[0].contains("path=/; interface=net.nuetzlich.SystemNotifications; member=Notify"), "{signal:?}");
    assert!(signal[1].contains("ran out"), "{signal:?}");
    assert!(signal[2].contains("web \"a\" was evicted (2 more before)"), "{signal:?}");
}
