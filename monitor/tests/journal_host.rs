//! The agent writes to a real systemd-journald, which runs in a mount namespace of its own, and journalctl finds the entries.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

#[path = "support/agent.rs"]
#[expect(dead_code, reason = "this test starts the agent itself")]
mod agent;

use agent::{PROGRAM, free_address};

const JOURNALD: &str = "/lib/systemd/systemd-journald";

/// Runs journald and the agent. The parameters are journald, the agent, and the agent's arguments. The output is that of journalctl, with
/// a line of dashes after each query.
const SCRIPT: &str = r#"
mount -t tmpfs none /run && mkdir -p /run/systemd/journal /run/log/journal || exit 9
journald=$1; shift
"$journald" 2>/dev/null & daemon=$!
trap 'kill $daemon' EXIT
tries=0
until [ -S /run/systemd/journal/stdout ]; do
    tries=$((tries + 1)); [ $tries -lt 200 ] || exit 8
    sleep 0.05
done
# As systemd starts a unit: it sets JOURNAL_STREAM too.
systemd-cat --identifier=started-by-a-unit sh -c 'JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec "$@"' sh "$@" & agent=$!
tries=0
until journalctl -q --no-pager EVENT=ready | grep -q . &&
    journalctl -q --no-pager EVENT=eviction + EVENT=candidates_exhausted | grep -q .; do
    tries=$((tries + 1)); [ $tries -lt 600 ] || break
    sleep 0.1
done
for query in EVENT=ready EVENT=eviction '-p warning'; do
    journalctl -q --no-pager --output json $query
    echo ---
done
kill $agent; wait $agent
journalctl -q --no-pager --output cat EVENT=shutdown
"#;

#[test]
fn journalctl_finds_records_by_priority_and_field() {
    if !Path::new(JOURNALD).exists() {
        let _unheard = writeln!(std::io::stderr(), "SKIPPED journalctl_finds_records: there is no {JOURNALD}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    // The kubelet's rules evict a workload that is too small to end such a shortage.
    let config = "semantics: kubelet\nevictionHard: {memory.available: 99%}\nevictions: {actOnPresentPressure: true}\n";
    fs::write(path("monitor.yaml"), agent::whole(&directory.path().join("incidents"), config)).unwrap();
    let (file, lock, listen) = (path("monitor.yaml"), path("lock"), free_address().to_string());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "sh", JOURNALD, PROGRAM, "run", "--config", &file]);
    command.args(["--lock-file", &lock, "--listen", &listen, "--mode", "observe"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    if output.status.code() == Some(9) {
        let _unheard = writeln!(std::io::stderr(), "SKIPPED journalctl_finds_records: mounts are not allowed");
        return;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let parts: Vec<&str> = text.split("---\n").collect();
    let entries = |part: &str| part.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();

    let ready = entries(parts[0]);
    let field = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(ready.len(), 1, "{text}");
    assert_eq!(field(&ready[0], "MESSAGE"), "the agent listens and samples");
    // Natively: a line on the stream would have the name and the transport of systemd-cat's.
    assert_eq!(field(&ready[0], "_TRANSPORT"), "journal", "{}", ready[0]);
    assert_eq!(field(&ready[0], "SYSLOG_IDENTIFIER"), "node-pressure-monitor");
    assert_eq!(field(&ready[0], "PRIORITY"), "6");

    let warnings = entries(parts[2]);
    assert!(!warnings.is_empty() && warnings.iter().all(|entry| field(entry, "PRIORITY").as_str() <= "4"), "{text}");
    assert!(warnings.iter().any(|entry| field(entry, "EVENT") == "threshold_met"), "{text}");
    let evictions = entries(parts[1]);
    for eviction in &evictions {
        assert_eq!(field(eviction, "SIGNAL"), "memory.available");
        assert!(
            field(eviction, "INCIDENT").contains("-eviction-") && !field(eviction, "WORKLOAD").is_empty(),
            "{eviction}"
        );
    }
    let is_there = |event: &str| warnings.iter().any(|entry| field(entry, "EVENT") == event);
    assert!(!evictions.is_empty() || is_there("candidates_exhausted"), "{text}");
    assert!(parts[3].contains("the agent has stopped"), "the last lines are written: {text}");
}
