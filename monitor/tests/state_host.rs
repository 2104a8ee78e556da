//! The state of a running agent: its document, its stream, and the limit of its watchers.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use node_pressure_state::{API_VERSION, State};
use serde_json::Value;

#[path = "support/agent.rs"]
mod agent;

use agent::Agent;

const CONFIGURATION: &str = "evictionHard: {memory.available: 1Mi, pid.available: \"5\"}\n";

fn ask(address: SocketAddr, path: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    BufReader::new(stream)
}

/// Reads the status line and the headers.
fn status(answer: &mut BufReader<TcpStream>) -> String {
    let mut status = String::new();
    answer.read_line(&mut status).unwrap();
    loop {
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            return status;
        }
    }
}

/// Reads the next document of a stream.
fn next(stream: &mut BufReader<TcpStream>) -> State {
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream has ended");
        if let Some(json) = line.strip_prefix("data: ") {
            return serde_json::from_str(json.trim()).unwrap();
        }
    }
}

#[test]
fn the_state_is_served_and_streamed() {
    let agent = Agent::start(CONFIGURATION, "json");
    let address = agent.address;

    let answer = agent.get("/api/v1/state");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{head}");
    let state: State = serde_json::from_str(body).unwrap();
    assert_eq!((&*state.api_version, &*state.agent.mode), (API_VERSION, "observe"), "{body}");
    let signal = state.signal("memory.available").unwrap();
    assert!(signal.available > Some(0) && signal.thresholds[0].distance > Some(0), "{signal:?}");
    assert_eq!(signal.thresholds[0].threshold, "memory.available<1Mi");
    assert!(state.signal("pid.available").is_some_and(|signal| signal.unit == "pids"), "{body}");
    assert!(!state.workloads.is_empty() && state.ranking("memory.available").is_some(), "{body}");
    assert!(!state.verdict.sentence.is_empty() && !state.probes.is_empty(), "{body}");
    assert!(state.agent.configuration.file.as_ref().is_some_and(|file| file.ends_with(".yaml")), "{body}");
    assert!(state.workloads.iter().any(|workload| workload.pids > Some(0)), "{body}");
    // The document has nothing that the types do not have: unknown fields would be lost on the way.
    assert_eq!(serde_json::to_value(&state).unwrap(), serde_json::from_str::<Value>(body).unwrap());

    let mut watchers: Vec<_> = (0..4).map(|_| ask(address, "/api/v1/watch")).collect();
    for watcher in &mut watchers {
        assert!(status(watcher).contains(" 200 "));
    }
    assert!(
        status(&mut ask(address, "/api/v1/watch")).contains(" 429 "),
        "one address has more than half of the places"
    );
    // A stream outlives the time limit of a connection.
    let begun = Instant::now();
    let mut times = Vec::new();
    while begun.elapsed() < Duration::from_secs(12) {
        let state = next(&mut watchers[0]);
        assert!(state.age_seconds < 5.0, "{}", state.age_seconds);
        times.push(state.time);
    }
    times.dedup();
    assert!((3..=14).contains(&times.len()), "renewed at most once a second: {times:?}");
    assert!(!next(&mut watchers[0]).signal("memory.available").unwrap().history.samples.is_empty());
    // The place of a client that has gone is free again.
    drop(watchers.pop());
    let begun = Instant::now();
    while !status(&mut ask(address, "/api/v1/watch")).contains(" 200 ") {
        assert!(begun.elapsed() < Duration::from_secs(20), "the place of a client that has gone is taken");
        std::thread::sleep(Duration::from_millis(200));
    }
}
