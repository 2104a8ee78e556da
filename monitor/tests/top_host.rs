//! `top` beside a running agent and without one: one screen as text, and the live view in a pseudo terminal.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

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
fn a_link_needs_an_agent_that_answers() {
    let open = |url: &str| {
        let out = Command::new(PROGRAM).args(["open", "--url", url]).stdin(Stdio::null()).output().unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let nobody = format!("http://{}", agent::free_address());
    let (code, link, why) = open(&nobody);
    assert!(code == Some(1) && link.is_empty() && why.contains("Connection refused"), "{code:?} {link} {why}");
    let agent = Agent::start(CONFIGURATION, "json");
    let url = format!("http://{}", agent.address);
    let (code, link, why) = open(&url);
    assert_eq!((code, link), (Some(0), format!("{url}/\n")), "{why}");
}

/// The live view in a pseudo terminal, which an emulator shows.
struct Live {
    /// The program `script`, which has the pseudo terminal.
    script: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    terminal: vt100::Parser,
}

impl Live {
    /// Returns `None`, and says so, where there is no program `script`.
    fn start(arguments: &str, temporary: Option<&Path>) -> Option<Self> {
        let mut command = Command::new("script");
        command.args(["-qfec", &format!("stty rows 24 cols 100; exec {PROGRAM} top {arguments}"), "/dev/null"]);
        command.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(temporary) = temporary {
            command.env("TMPDIR", temporary);
        }
        let Ok(mut script) = command.spawn() else {
            let _unheard = writeln!(std::io::stderr(), "SKIPPED the live view: no program `script`");
            return None;
        };
        let (keys, mut stdout) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Some(Self { script, keys, output, terminal: vt100::Parser::new(24, 100, 0) })
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a screen.
    fn shows(&mut self, wanted: impl Fn(&vt100::Screen) -> bool) {
        let begun = Instant::now();
        while !wanted(self.terminal.screen()) {
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(100)) {
                self.terminal.process(&bytes);
            }
            assert!(begun.elapsed() < PATIENCE, "{}", self.terminal.screen().contents());
        }
    }

    fn shows_text(&mut self, text: &str) {
        self.shows(|screen| screen.alternate_screen() && screen.contents().contains(text));
    }

    /// Changes the size of the terminal, as a user does who enlarges a window.
    fn resize(&mut self, rows: u16, columns: u16) {
        let script = self.script.id().to_string();
        let is_child =
            |stat: &str| stat.rsplit(") ").next().is_some_and(|rest| rest.split(' ').nth(1) == Some(&script));
        let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let mut children =
            processes.filter(|path| std::fs::read_to_string(path.join("stat")).is_ok_and(|it| is_child(&it)));
        let terminal = std::fs::read_link(children.next().unwrap().join("fd/0")).unwrap();
        let mut stty = Command::new("stty");
        stty.arg("-F").arg(terminal).args(["rows", &rows.to_string(), "cols", &columns.to_string()]);
        assert!(stty.status().unwrap().success());
        self.terminal.screen_mut().set_size(rows, columns);
    }

    /// Waits until the view has ended and the terminal is as before.
    fn ends(mut self) -> ExitStatus {
        self.shows(|screen| !screen.alternate_screen() && !screen.hide_cursor());
        drop(self.keys);
        self.script.wait().unwrap()
    }
}

#[test]
fn the_live_view_shows_the_agent_and_ends_by_a_key() {
    let agent = Agent::start(CONFIGURATION, "json");
    let Some(mut live) = Live::start(&format!("--url http://{}", agent.address), None) else { return };
    live.shows(|screen| {
        let text = screen.contents();
        screen.alternate_screen() && text.contains(&node()) && text.contains("pid.available")
    });
    live.press("?");
    live.shows_text("filter by");
    live.press("?");
    live.resize(50, 160);
    live.shows_text("pressure (PSI)");
    live.resize(8, 30);
    live.shows(|screen| {
        let text = screen.contents();
        text.contains("memory.available") && !text.contains("pressure (PSI)") && !text.contains("pid.available")
    });
    live.press("q");
    assert!(live.ends().success());
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files of the agent that `top` starts.
fn own_directory(temporary: &Path) -> Option<PathBuf> {
    std::fs::read_dir(temporary).unwrap().next().map(|entry| entry.unwrap().path())
}

/// The times of the files that an agent with the default configuration would create or change.
fn traces() -> Vec<Option<SystemTime>> {
    let default = ["/run/node-pressure-monitor/lock", "/var/lib/node-pressure-monitor/incidents"];
    default.iter().map(|path| std::fs::metadata(path).and_then(|it| it.modified()).ok()).collect()
}

const MEASURES: &str = "measured by top itself";

#[test]
fn without_an_agent_one_screen_is_measured() {
    let temporary = tempfile::tempdir().unwrap();
    let before = traces();
    let mut command = Command::new(PROGRAM);
    command.args(["top", "--no-agent", "--once", "--width", "160", "--height", "50"]);
    let out = command.env("TMPDIR", temporary.path()).output().unwrap();
    let screen = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for shown in [&*node(), MEASURES, "memory.available", "ranking", "pressure (PSI)", "evictions a minute left"] {
        assert!(screen.contains(shown), "{shown:?} is not in:\n{screen}");
    }
    assert!(!screen.contains("not root"), "{screen}");
    assert_eq!(own_directory(temporary.path()), None);
    assert_eq!(traces(), before);
}

#[test]
fn a_configuration_whose_agent_does_not_run_gives_the_thresholds() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("monitor.yaml");
    let address = agent::free_address();
    let text = format!(
        "mode: enforce\nevictionHard: {{memory.available: 3Mi}}\nlockFile: {}\nmetrics: {{listen: \"{address}\"}}\n",
        temporary.path().join("lock").display()
    );
    std::fs::write(&file, agent::configuration(&text)).unwrap();
    let top = || {
        let mut command = Command::new(PROGRAM);
        command.args(["top", "--once", "--width", "160", "--config"]).arg(&file).env("TMPDIR", temporary.path());
        command.output().unwrap()
    };
    let screen = String::from_utf8(top().stdout).unwrap();
    assert!(screen.contains(MEASURES) && screen.contains("<3Mi"), "{screen}");
    // An agent that holds the lock runs: its figures are asked for.
    let lock = std::fs::File::create(temporary.path().join("lock")).unwrap();
    lock.lock().unwrap();
    let out = top();
    let why = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.code() == Some(1) && why.contains(&address.to_string()), "{why}");
    assert!(why.contains("its lock file is held") && why.contains("--no-agent"), "{why}");
}

#[test]
fn an_own_agent_ends_with_the_view() {
    let before = traces();
    for end in ["q", "\u{3}", "TERM", "HUP", "INT", "QUIT", "KILL"] {
        let temporary = tempfile::tempdir().unwrap();
        let Some(mut live) = Live::start("--no-agent", Some(temporary.path())) else { return };
        live.shows_text(MEASURES);
        live.shows_text("memory.available");
        let directory = own_directory(temporary.path()).unwrap();
        let own: i32 = std::fs::read_to_string(directory.join("lock")).unwrap().trim().parse().unwrap();
        let arguments = std::fs::read_to_string(format!("/proc/{own}/cmdline")).unwrap();
        let arguments: Vec<&str> = arguments.split('\0').collect();
        let after = |name: &str| arguments.iter().skip_while(|it| **it != name).nth(1).copied().unwrap_or_default();
        let (top, address) = (after("--parent"), after("--listen"));
        // Only the view has the token.
        let refused = std::net::TcpStream::connect(address).unwrap();
        (&refused).write_all(b"GET /api/v1/state HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        (&refused).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        match end {
            "q" | "\u{3}" => live.press(end),
            signal => assert!(Command::new("kill").args([&format!("-{signal}"), top]).status().unwrap().success()),
        }
        if end == "KILL" {
            let _status = live.script.wait();
        } else {
            assert!(live.ends().success(), "{end}");
        }
        let is_gone = || !Path::new(&format!("/proc/{own}")).exists();
        wait_until(&format!("the own agent has ended after {end:?}"), is_gone);
        wait_until(&format!("its files are gone after {end:?}"), || own_directory(temporary.path()).is_none());
    }
    assert_eq!(traces(), before);
}

#[test]
fn without_root_it_says_what_is_missing() {
    let temporary = tempfile::tempdir().unwrap();
    let program = temporary.path().join("top");
    std::fs::copy(PROGRAM, &program).unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(&program, all(0o755)).unwrap();
    std::fs::set_permissions(temporary.path(), all(0o777)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]).arg(program);
    let shown = ["top", "--no-agent", "--once", "--width", "160", "--height", "50"];
    let Ok(out) = command.args(shown).env("TMPDIR", temporary.path()).output() else {
        let _unheard =
            writeln!(std::io::stderr(), "SKIPPED without_root_it_says_what_is_missing: no program `setpriv`");
        return;
    };
    let screen = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(screen.contains(MEASURES) && screen.contains("not root") && screen.contains("run top as root"), "{screen}");
    assert!(screen.contains("memory.available"), "{screen}");
}
