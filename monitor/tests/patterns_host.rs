//! Runs the agent in observe mode on a node made of files, with patterns in its configuration.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use serde_json::json;

#[path = "support/agent.rs"]
mod agent;
#[path = "support/node_of_files.rs"]
#[expect(dead_code, reason = "other tests change the node")]
mod node_of_files;

use node_of_files::{GIB, MIB, Node, Pod};

/// What a pattern matches is in the log, on both pages, and followed by a reload: one that matches nothing protects nothing.
#[test]
fn what_each_pattern_matches_is_logged_and_on_the_pages() {
    let pods = ["db", "db-replica", "web"].map(|name| Pod::new(name, "Burstable", 100 * MIB, 50 * MIB));
    let node = Node::new(pods.into(), 4 * GIB, None);
    let mut agent = node.start("200Mi", "protected: [\"*-poddb*.slice\", nothing-here.service]\n");
    let logged = agent.wait("\"event\":\"pattern\"", 0);
    assert!(logged.contains("-poddb.slice") && logged.contains("-poddb-replica.slice"), "{logged}");
    agent.wait("\"event\":\"pattern_matches_nothing\"", 0);
    let page = agent.get("/summary");
    assert!(page.contains("protected: \"nothing-here.service\" matches nothing"), "{page}");
    let answer = agent.get("/api/v1/state");
    let state: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let patterns = &state["agent"]["configuration"]["patterns"];
    assert_eq!((&patterns[0]["matches"], &patterns[1]["matches"]), (&json!(2), &json!(0)), "{patterns}");
    let (file, from) = (agent.path("monitor.yaml"), agent.text("err").len());
    let text = std::fs::read_to_string(&file).unwrap().replace("nothing-here", "nothing-there");
    std::fs::write(&file, text).unwrap();
    let pid = rustix::process::Pid::from_child(&agent.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let warned = agent.wait("\"event\":\"pattern_matches_nothing\"", from);
    assert!(warned.contains("nothing-there.service"), "{warned}");
}
