//! Log lines for systemd-journald by its native protocol (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL>), with priorities and fields.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::fstat;
use serde_json::{Map, Value};

/// The socket of systemd-journald.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The variable with the device and inode of the stream that leads to the journal (systemd.exec(5)).
const STREAM_VARIABLE: &str = "JOURNAL_STREAM";
const IDENTIFIER: &str = "node-pressure-monitor";
/// journald normally takes a line at once. While it restarts, it takes none.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longer names of fields are refused (`journal_field_valid`).
const LONGEST_NAME: usize = 64;

/// Returns whether this file leads to the journal.
pub(super) fn leads_to_journal(file: impl AsFd) -> bool {
    let variable = std::env::var(STREAM_VARIABLE).unwrap_or_default();
    fstat(file).is_ok_and(|stat| names_stream(&variable, stat.st_dev, stat.st_ino))
}

/// Returns whether the variable's value names this device and inode.
fn names_stream(variable: &str, device: u64, inode: u64) -> bool {
    let parsed = variable.split_once(':').map(|(device, inode)| (device.parse(), inode.parse()));
    parsed == Some((Ok(device), Ok(inode)))
}

/// Sends each JSON log line as one journal entry. A line that cannot be sent goes to `fallback` with its priority in front, which journald
/// understands too (sd-daemon(3)).
#[derive(Debug)]
pub(super) struct JournalWriter<W> {
    socket: Option<UnixDatagram>,
    path: PathBuf,
    fallback: W,
}

impl<W: Write> JournalWriter<W> {
    pub(super) fn new(fallback: W) -> Self {
        Self::at(SOCKET.into(), fallback)
    }

    fn at(path: PathBuf, fallback: W) -> Self {
        let socket = UnixDatagram::unbound().ok();
        let socket = socket.filter(|socket| socket.set_write_timeout(Some(TIMEOUT)).is_ok());
        Self { socket, path, fallback }
    }

    fn send(&self, entry: &[u8]) -> io::Result<()> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        // Sent by path each time: journald makes its socket anew when it restarts.
        socket.send_to(entry, &self.path).map(|_| ())
    }
}

impl<W: Write> Write for JournalWriter<W> {
    /// Takes one whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Ok(record) = serde_json::from_slice::<Map<String, Value>>(line) else {
            self.fallback.write_all(line)?;
            return Ok(line.len());
        };
        if self.send(&entry(&record)).is_err() {
            let mut marked = format!("<{}>", priority(&record)).into_bytes();
            marked.extend_from_slice(line);
            self.fallback.write_all(&marked)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.fallback.flush()
    }
}

/// Returns the entry of a log line. Each of its fields becomes a field of the entry, by its name in capital letters.
fn entry(record: &Map<String, Value>) -> Vec<u8> {
    let mut entry = Vec::with_capacity(512);
    let message = record.get("message").and_then(Value::as_str).unwrap_or_default();
    put(&mut entry, "MESSAGE", message);
    put(&mut entry, "PRIORITY", priority(record));
    put(&mut entry, "SYSLOG_IDENTIFIER", IDENTIFIER);
    for (name, value) in record {
        let is_known = matches!(name.as_str(), "message" | "level");
        let Some(name) = field_name(name).filter(|_| !is_known) else { continue };
        match value {
            Value::Null => {}
            Value::String(text) => put(&mut entry, &name, text),
            other => put(&mut entry, &name, &other.to_string()),
        }
    }
    // The record of an incident has its id as `id`, every other one as `incident`.
    if let (Some("incident"), Some(id)) = (text(record, "event"), text(record, "id")) {
        put(&mut entry, "INCIDENT", id);
    }
    entry
}

fn text<'r>(record: &'r Map<String, Value>, name: &str) -> Option<&'r str> {
    record.get(name).and_then(Value::as_str)
}

/// Returns the syslog level of a line.
fn priority(record: &Map<String, Value>) -> &'static str {
    match text(record, "level") {
        Some("ERROR") => "3",
        Some("WARN") => "4",
        Some("INFO") => "6",
        _ => "7",
    }
}

/// Returns the journal's name of a field. A name that journald would refuse has none. A name with a leading `_` belongs to journald.
fn field_name(name: &str) -> Option<String> {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    let is_valid = name.starts_with(|first: char| first.is_ascii_uppercase()) && name.len() <= LONGEST_NAME;
    // The names that this writer sets itself.
    let is_free = !matches!(name.as_str(), "MESSAGE" | "PRIORITY" | "SYSLOG_IDENTIFIER");
    (is_valid && is_free).then_some(name)
}

/// Adds a field. A value with a line break is preceded by its length.
fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"timestamp":"2026-11-25T01:02:03Z","level":"WARN","message":"evicting","event":"eviction","pod":"web/a","processes":2,"owner":null,"_trusted":"x","note":"two\nlines"}"#;

    #[test]
    fn a_line_arrives_with_priority_and_fields() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        let mut writer = JournalWriter::at(path, Vec::new());
        writer.write_all(LINE.as_bytes()).unwrap();
        let mut entry = [0; 4096];
        let length = journald.recv(&mut entry).unwrap();
        let mut expected = b"MESSAGE=evicting\nPRIORITY=4\nSYSLOG_IDENTIFIER=node-pressure-monitor\n".to_vec();
        assert_eq!(entry[..expected.len()], expected);
        let mut rest = entry[expected.len()..length].to_vec();
        for field in [
            &b"EVENT=eviction\n"[..],
            b"POD=web/a\n",
            b"PROCESSES=2\n",
            b"TIMESTAMP=2026-11-25T01:02:03Z\n",
            b"NOTE\n\x09\0\0\0\0\0\0\0two\nlines\n",
        ] {
            let place = rest.windows(field.len()).position(|window| window == field);
            rest.drain(place.unwrap()..place.unwrap() + field.len());
            expected.extend_from_slice(field);
        }
        assert_eq!((rest, expected.len()), (Vec::new(), length), "no other field");
        assert!(writer.fallback.is_empty());
    }

    #[test]
    fn an_incident_can_be_found_by_its_id() {
        let record = serde_json::from_str(r#"{"level":"INFO","event":"incident","id":"20261125-1"}"#).unwrap();
        let text = String::from_utf8(entry(&record)).unwrap();
        assert!(text.contains("\nINCIDENT=20261125-1\n") && text.contains("PRIORITY=6\n"), "{text}");
    }

    #[test]
    fn without_journald_the_line_goes_to_stderr_with_its_priority() {
        let mut writer = JournalWriter::at("/nowhere/socket".into(), Vec::new());
        writer.write_all(LINE.as_bytes()).unwrap();
        writer.write_all(b"not JSON\n").unwrap();
        assert_eq!(String::from_utf8(writer.fallback).unwrap(), format!("<4>{LINE}not JSON\n"));
    }

    #[test]
    fn only_the_stream_that_is_named_leads_to_the_journal() {
        for (variable, expected) in
            [("8:12", true), ("8:13", false), ("12:8", false), ("8", false), ("", false), ("a:b", false)]
        {
            assert_eq!(names_stream(variable, 8, 12), expected, "{variable}");
        }
    }

    #[test]
    fn names_follow_the_rules_of_the_journal() {
        let long = "a".repeat(65);
        for (name, expected) in [
            ("event", Some("EVENT")),
            ("available_bytes", Some("AVAILABLE_BYTES")),
            ("log.target", Some("LOG_TARGET")),
            ("_pid", None),
            ("1st", None),
            ("priority", None),
            ("", None),
            (long.as_str(), None),
        ] {
            assert_eq!(field_name(name).as_deref(), expected, "{name}");
        }
    }
}
