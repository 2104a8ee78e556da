//! `top` beside a running agent: one screen as text, and the live view in a pseudo terminal.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[path = "support/agent.rs"]
#[expect(dead_code, reason = "other tests ask the agent themselves")]
mod agent;

use agent::{Agent, PATIENCE, PROGRAM};

const CONFIGURATION: &str = "evictionHard: {memory.available: 1Mi, pid.available: \"5\"}\n";

fn node() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn one_screen_is_printed() {
    let agent = Agent::start(CONFIGURATION, "json");
    let url = format!("http://{}", agent.address);
    let out = Command::new(PROGRAM).args(["top", "--once", "--url", &url, "--width", "160"]).output().unwrap();
    let screen = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && screen.contains(&node()) && screen.contains("memory.available"), "{screen}");
    assert!(screen.lines().count() == 24 && !screen.contains('\u{1b}'), "{screen}");
    let configured = agent.path("top.yaml");
    std::fs::write(&configured, agent::configuration(&format!("metrics: {{listen: \"{}\"}}\n", agent.address)))
        .unwrap();
    let out = Command::new(PROGRAM).args(["top", "--once", "--config"]).arg(configured).output().unwrap();
    assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains(&node()), "{out:?}");
}

#[test]
fn without_an_agent_or_a_terminal_it_says_so() {
    let address = agent::free_address();
    let top = |words: &[&str]| {
        let url = format!("http://{address}");
        let out = Command::new(PROGRAM).args(["top", "--url", &url]).args(words).stdin(Stdio::null()).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, why) = top(&["--once"]);
    assert!(code == Some(1) && why.contains("Connection refused") && why.contains(&address.to_string()), "{why}");
    let (code, why) = top(&[]);
    assert!(code == Some(2) && why.contains("--once"), "{why}");
}

#[test]
fn the_live_view_shows_the_agent_and_ends_by_a_key() {
    let agent = Agent::start(CONFIGURATION, "json");
    let shell = format!("stty rows 24 cols 100; exec {PROGRAM} top --url http://{}", agent.address);
    let spawned = Command::new("script")
        .args(["-qfec", &shell, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        let _unheard =
            writeln!(std::io::stderr(), "SKIPPED the_live_view_shows_the_agent_and_ends_by_a_key: no program `script`");
        return;
    };
    let (mut keys, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut buffer) {
            if sender.send(buffer[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut terminal = vt100::Parser::new(24, 100, 0);
    let mut shows = |wanted: &dyn Fn(&vt100::Screen) -> bool| {
        let begun = Instant::now();
        while !wanted(terminal.screen()) {
            if let Ok(bytes) = receiver.recv_timeout(Duration::from_millis(100)) {
                terminal.process(&bytes);
            }
            assert!(begun.elapsed() < PATIENCE, "{}", terminal.screen().contents());
        }
    };
    shows(&|screen| {
        let text = screen.contents();
        screen.alternate_screen() && text.contains(&node()) && text.contains("pid.available")
    });
    keys.write_all(b"?").unwrap();
    shows(&|screen| screen.contents().contains("filter by name"));
    keys.write_all(b"?q").unwrap();
    shows(&|screen| !screen.alternate_screen());
    drop(keys);
    assert!(child.wait().unwrap().success());
}
