//! A panic leaves the terminal as it was: its message can be read, and typed letters are seen.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use node_pressure_top::{Event, Model, terminal};

#[expect(dead_code, reason = "other tests draw the scenes and press keys")]
mod scenes;

/// Set in the process that panics. It is this test program, started again in a pseudo terminal.
const PANICS: &str = "NODE_PRESSURE_TOP_PANICS";
const NAME: &str = "a_panic_restores_the_terminal";

#[expect(clippy::panic, reason = "the subject of the test")]
fn open_an_incident_and_panic() {
    let (events, received) = channel();
    events.send(Event::Document(Box::new(scenes::document("near")))).unwrap();
    let ended = terminal::run(Model::default(), &received, |request| panic!("no answer to {request:?}"));
    ended.unwrap();
}

#[test]
fn a_panic_restores_the_terminal() {
    if std::env::var_os(PANICS).is_some() {
        return open_an_incident_and_panic();
    }
    let program = std::env::current_exe().unwrap();
    let program = program.display();
    let shell = format!("stty rows 50 cols 160; {program} --exact {NAME} --nocapture; stty -a; echo THE END");
    // A view that waits for ever fails the test.
    let spawned = Command::new("timeout")
        .args(["60", "script", "-qfec", &shell, "/dev/null"])
        .env(PANICS, "1")
        .env("RUST_BACKTRACE", "0")
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        let _unheard = writeln!(std::io::stderr(), "SKIPPED {NAME}: no program `script`");
        return;
    };
    let (mut keys, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut emulator = vt100::Parser::new(50, 160, 0);
    let mut has_pressed = false;
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = output.read(&mut buffer) {
        emulator.process(&buffer[..read]);
        let text = emulator.screen().contents();
        if !has_pressed && emulator.screen().alternate_screen() && text.contains("batch/report") {
            keys.write_all(b"\r").unwrap();
            has_pressed = true;
        }
        if text.contains("THE END") {
            break;
        }
    }
    drop(keys);
    child.wait().unwrap();
    let screen = emulator.screen();
    let text = screen.contents();
    assert!(has_pressed && !screen.alternate_screen() && !screen.hide_cursor(), "{text}");
    assert!(text.contains("no answer to Incident"), "{text}");
    assert!(text.contains(" icanon") && text.contains(" echo "), "{text}");
}
