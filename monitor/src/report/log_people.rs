//! Log lines for people at a terminal: the time, what happened, to whom, why, and what to do.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::config::config_error::Printable;
use crate::units::Bytes;

const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";
/// Longer texts are cut: a line is read at a glance, and `incidents` has the rest.
const LONGEST_PART: usize = 300;

/// Records that repeat while a state lasts. For people each is printed once, until the state may have ended.
const LASTING: [&str; 12] = [
    "candidates_exhausted",
    "evictions_spent",
    "eviction_deferred",
    "eviction_put_off",
    "eviction_waits",
    "leak_not_evictable",
    "left_to_kubelet",
    "pods_awaited",
    "refaults_only",
    "swap_falls_short",
    "swap_keeps_up",
    "threshold_unarmed",
];
/// States that are remembered. Beyond it the oldest are forgotten, and printed again.
const MOST_STATES: usize = 256;

/// Renders each JSON log line for people.
#[derive(Debug)]
pub(super) struct PeopleWriter<W> {
    terminal: W,
    colours: bool,
    /// The states that were printed.
    printed: VecDeque<State>,
}

#[derive(Debug, PartialEq, Eq)]
struct State {
    event: String,
    signal: Option<String>,
    whom: Option<String>,
    why: Vec<String>,
}

impl<W> PeopleWriter<W> {
    pub(super) fn new(terminal: W, colours: bool) -> Self {
        Self { terminal, colours, printed: VecDeque::new() }
    }

    /// Returns whether the record is news for people.
    fn is_news(&mut self, record: &Record<'_>) -> bool {
        let (event, signal) = (record.text("event"), record.text("signal"));
        let is_dry_run = event == Some("eviction") && record.text("mode") == Some("observe");
        match event {
            // The record of the eviction or of the OOM kill has the incident's id too.
            Some("incident") => return false,
            Some("configuration_applied") => self.printed.clear(),
            Some("recovered" | "eviction") if !is_dry_run => {
                self.printed.retain(|state| state.signal.as_deref().is_some_and(|of| Some(of) != signal));
            }
            _ => {}
        }
        let Some(event) = event.filter(|event| is_dry_run || LASTING.contains(event)) else { return true };
        let why = record.why().into_iter().map(str::to_owned).collect();
        let state = State { event: event.to_owned(), signal: signal.map(str::to_owned), whom: record.whom(), why };
        if self.printed.contains(&state) {
            return false;
        }
        if self.printed.len() >= MOST_STATES {
            self.printed.pop_front();
        }
        self.printed.push_back(state);
        true
    }
}

impl<W: Write> Write for PeopleWriter<W> {
    /// Takes one whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match serde_json::from_slice::<Map<String, Value>>(line) {
            Ok(record) => {
                let record = Record(&record);
                if self.is_news(&record) {
                    self.terminal.write_all(rendered(&record, self.colours).as_bytes())?;
                }
            }
            Err(_) => self.terminal.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.terminal.flush()
    }
}

struct Record<'r>(&'r Map<String, Value>);

impl<'r> Record<'r> {
    fn text(&self, name: &str) -> Option<&'r str> {
        self.0.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Value::as_f64)
    }

    fn bytes(&self, name: &str) -> Option<Bytes> {
        self.0.get(name).and_then(Value::as_u64).map(Bytes)
    }

    /// Returns the event as a sentence. For a missing capability it is the name and the reason.
    fn what(&self) -> String {
        let message = self.text("message").unwrap_or("?");
        match (self.text("event"), self.text("capability"), self.text("mode")) {
            (Some("degraded"), Some(capability), _) => match self.text("reason") {
                Some(reason) => format!("{capability}: {reason}; {message}"),
                None => format!("{capability}: {message}"),
            },
            (Some("restored"), Some(capability), _) => format!("{message}: {capability}"),
            (Some("started"), _, Some(mode)) => format!("{message} in {mode} mode"),
            _ => message.to_owned(),
        }
    }

    /// The workload that it happened to.
    fn whom(&self) -> Option<String> {
        let workload = self.text("workload").or_else(|| self.text("victim_workload"));
        match (self.text("pod"), self.text("container_name")) {
            (Some(pod), Some(container)) => Some(format!("pod {pod}, container {container}")),
            (Some(pod), None) => Some(format!("pod {pod}")),
            (None, _) => workload.or_else(|| self.text("victim_comm")).map(str::to_owned),
        }
    }

    fn figures(&self) -> Vec<String> {
        let mut figures = Vec::new();
        let mut put = |text: Option<String>| figures.extend(text);
        if self.text("event") != Some("threshold_met") && self.text("event") != Some("recovered") {
            put(self.text("signal").map(str::to_owned));
            let threshold = self.bytes("threshold_bytes").map(|bytes| format!(" of {bytes}")).unwrap_or_default();
            put(self.bytes("available_bytes").map(|bytes| format!("{bytes} left{threshold}")));
        }
        put(self.bytes("working_set_bytes").map(|bytes| format!("it uses {bytes}")));
        put(self.bytes("anon_rss_bytes").map(|bytes| format!("it used {bytes}")));
        put(self.bytes("frees_bytes").map(|bytes| format!("{bytes} freed")));
        put(self.bytes("freed_bytes").map(|bytes| format!("{bytes} freed")));
        put(self.number("took_ms").or_else(|| self.number("duration_ms")).map(|ms| format!("{ms:.0} ms")));
        if let (Some(found), Some(expected)) = (self.number("found"), self.number("expected")) {
            put(Some(format!("{found} instead of {expected}")));
        }
        put(self.number("suppressed").filter(|count| *count > 0.0).map(|count| format!("{count} more before")));
        figures
    }

    /// Why it happened, where the message does not say it.
    fn why(&self) -> Vec<&'r str> {
        let is_said = self.text("event") == Some("degraded");
        let names = ["reason", "why", "note", "largest", "fields", "changed", "advice", "mend"];
        names.iter().filter(|_| !is_said).filter_map(|name| self.text(name)).collect()
    }

    /// Returns the remedy, or another hint for the reader.
    fn next(&self) -> Option<String> {
        let details = || {
            let id = self.text("incident")?;
            Some(format!("Details: node-pressure-monitor incidents {id}"))
        };
        match self.text("event")? {
            "eviction" if self.text("mode") == Some("observe") => {
                let details = details().map(|details| format!(". {details}")).unwrap_or_default();
                Some(format!("To evict, write `mode: enforce` into the configuration{details}"))
            }
            "oom_kill" | "eviction" => details(),
            "degraded" => Some("How to fix it: node-pressure-monitor doctor".to_owned()),
            "candidates_exhausted" => Some("Why each workload stays: node-pressure-monitor rank".to_owned()),
            "configuration_refused" => Some("Correct the file; the agent reads it again when it changes".to_owned()),
            _ => None,
        }
    }
}

/// Returns the line of a record, with its line break.
fn rendered(record: &Record<'_>, colours: bool) -> String {
    let time = record.text("timestamp").and_then(|time| time.get(11..19)).unwrap_or("--:--:--");
    let (colour, level) = match record.text("level") {
        Some("ERROR") => (RED, "error: "),
        Some("WARN") => (YELLOW, "warning: "),
        Some("INFO") => ("", ""),
        _ => (DIM, "debug: "),
    };
    let mut text = String::new();
    let mut printable = Printable(&mut text);
    // Writing to a String does not fail.
    let _ = write!(printable, "{}", cut(&record.what()));
    if let Some(whom) = record.whom().filter(|whom| !record.what().contains(whom.as_str())) {
        let _ = write!(printable, ": {}", cut(&whom));
    }
    let figures = record.figures();
    if !figures.is_empty() {
        let _ = write!(printable, " ({})", figures.join(", "));
    }
    for why in record.why() {
        let _ = write!(printable, "; {}", cut(why));
    }
    if let Some(next) = record.next() {
        let _ = write!(printable, ". {}", cut(&next));
    }
    if !colours {
        return format!("{time}Z {level}{text}\n");
    }
    let end = if colour.is_empty() { "" } else { PLAIN };
    format!("{DIM}{time}Z{PLAIN} {colour}{level}{end}{text}\n")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_PART) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: &str, colours: bool) -> String {
        let record = format!(r#"{{"timestamp":"2026-11-25T14:03:07.123456Z",{fields}}}"#);
        rendered(&Record(&serde_json::from_str(&record).unwrap()), colours)
    }

    #[test]
    fn a_state_that_lasts_is_printed_once() {
        let mut writer = PeopleWriter::new(Vec::new(), false);
        let mut log = |fields: &str| {
            let before = writer.terminal.len();
            writer.write_all(format!(r#"{{"level":"WARN","message":"m",{fields}}}"#).as_bytes()).unwrap();
            writer.terminal.len() > before
        };
        let exhausted = r#""event":"candidates_exhausted","signal":"memory.available","available_bytes":5"#;
        let dry_run = r#""event":"eviction","mode":"observe","signal":"memory.available","pod":"a/b""#;
        let kill = r#""event":"oom_kill","incident":"x","pod":"a/b""#;
        let recovered = r#""event":"recovered","signal":"memory.available""#;
        for (fields, expected) in [
            (exhausted, true),
            (&exhausted.replace('5', "6"), false),
            (&exhausted.replace("memory", "nodefs"), true),
            (dry_run, true),
            (dry_run, false),
            (kill, true),
            (kill, true),
            (r#""event":"incident","id":"x""#, false),
            (recovered, true),
            (exhausted, true),
            (&exhausted.replace("memory", "nodefs"), false),
            (dry_run, true),
            (&dry_run.replace("observe", "enforce"), true),
            (&dry_run.replace("observe", "enforce"), true),
            (exhausted, true),
            (r#""event":"configuration_applied""#, true),
            (&exhausted.replace("memory", "nodefs"), true),
        ] {
            assert_eq!(log(fields), expected, "{fields}");
        }
    }

    #[test]
    fn a_line_says_what_happened_to_whom_and_what_to_do() {
        for (fields, expected) in [
            (
                r#""level":"WARN","message":"evicting: SIGKILL sent","event":"eviction","pod":"web/a","container_name":"app","workload":"kubepods/x",
                   "signal":"memory.available","mode":"enforce","available_bytes":99614720,"threshold_bytes":104857600,"working_set_bytes":1073741824,
                   "incident":"20261125-140307-eviction-7","acted_mono_ns":12"#,
                "14:03:07Z warning: evicting: SIGKILL sent: pod web/a, container app (memory.available, 95.0 MiB left of 100.0 MiB, \
                 it uses 1.0 GiB). Details: node-pressure-monitor incidents 20261125-140307-eviction-7\n",
            ),
            (
                r#""level":"WARN","message":"observe mode: this workload would be evicted","event":"eviction","mode":"observe","workload":"a.service","incident":"x-1""#,
                "14:03:07Z warning: observe mode: this workload would be evicted: a.service. To evict, write `mode: enforce` into the configuration. Details: node-pressure-monitor incidents x-1\n",
            ),
            (
                r#""level":"WARN","message":"the agent waits","event":"degraded","capability":"PSI trigger","reason":"no /proc/pressure""#,
                "14:03:07Z warning: PSI trigger: no /proc/pressure; the agent waits. How to fix it: node-pressure-monitor doctor\n",
            ),
            (
                r#""level":"WARN","message":"the kernel's OOM killer ended a process of pod web/a","event":"oom_kill","incident":"x-1","pod":"web/a","suppressed":3"#,
                "14:03:07Z warning: the kernel's OOM killer ended a process of pod web/a (3 more before). Details: node-pressure-monitor incidents x-1\n",
            ),
            (
                r#""level":"INFO","message":"started","event":"started","mode":"observe","version":"1""#,
                "14:03:07Z started in observe mode\n",
            ),
            (
                r#""level":"INFO","message":"oom_score_adj differs","event":"oom_score_adj_drift","workload":"b","found":0,"expected":1000"#,
                "14:03:07Z oom_score_adj differs: b (0 instead of 1000)\n",
            ),
            (
                r#""level":"ERROR","message":"the configuration file cannot be used","event":"configuration_refused","file":"m.yaml","reason":"m.yaml:3: no""#,
                "14:03:07Z error: the configuration file cannot be used; m.yaml:3: no. Correct the file; the agent reads it again when it changes\n",
            ),
            (
                r#""level":"INFO","message":"a missing capability is restored","event":"restored","capability":"pods""#,
                "14:03:07Z a missing capability is restored: pods\n",
            ),
            (
                r#""level":"INFO","message":"the agent has stopped","event":"shutdown","suppressed":0"#,
                "14:03:07Z the agent has stopped\n",
            ),
        ] {
            assert_eq!(line(fields, false), expected);
        }
    }

    #[test]
    fn colours_mark_the_level_only() {
        let fields = r#""level":"WARN","message":"m""#;
        assert_eq!(line(fields, true), "\x1b[2m14:03:07Z\x1b[0m \x1b[33mwarning: \x1b[0mm\n");
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let text = line(r#""level":"WARN","message":"evicting","workload":"a\u001b[2Jb\nc""#, false);
        assert_eq!(text, "14:03:07Z warning: evicting: a\u{fffd}[2Jb\u{fffd}c\n");
        let long = line(&format!(r#""level":"WARN","message":"{}""#, "x".repeat(2000)), false);
        assert!(long.chars().count() < 400 && long.ends_with("…\n"), "{long}");
    }
}
