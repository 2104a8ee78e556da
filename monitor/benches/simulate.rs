//! Measures `simulate` over a trace of 100,000 lines with 100 pods, from text to text. It also measures the JSON parsing alone: the same
//! bytes into the same types. The trace is generated while it is read, since it would not fit into memory.

use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read};
use std::time::Instant;

use node_pressure_monitor::commands::output::TableOrJson;
use node_pressure_monitor::commands::simulate::{Progress, simulate};
use node_pressure_monitor::config::Policy;
use node_pressure_monitor::workloads::Summary;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

#[path = "support/node.rs"]
mod node;

const LINES: usize = 100_000;
const PODS: usize = 100;
/// The number of different lines. They are repeated with later times.
const DIFFERENT: usize = 60;

/// A trace that repeats its lines with later times.
struct Trace {
    lines: Vec<(String, String)>,
    told: usize,
    count: usize,
    current: Vec<u8>,
    at: usize,
}

impl Trace {
    fn new(count: usize) -> Self {
        let pods = node::pods(PODS);
        let line = |second: usize| {
            let time = format!("2026-01-01T00:00:{second:02}Z");
            let line =
                json!({"node": {"capacity": {"memory": "10Gi"}}, "summary": node::summary(PODS, &time), "pods": pods});
            let text = line.to_string();
            (text.get(1..).unwrap_or_default().to_owned(), time)
        };
        Self { lines: (0..DIFFERENT).map(line).collect(), told: 0, count, current: Vec::new(), at: 0 }
    }

    fn megabytes(&self) -> f64 {
        let bytes: usize = self.lines.iter().map(|(rest, time)| rest.len() + time.len() + 12).sum();
        as_f64(bytes) * as_f64(self.count) / as_f64(DIFFERENT) / 1e6
    }
}

impl Read for Trace {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.current.len() {
            if self.told == self.count {
                return Ok(0);
            }
            let (rest, _) = &self.lines[self.told % DIFFERENT];
            let minute = self.told / DIFFERENT;
            let (day, hour, minute) = (minute / 1440 + 1, minute / 60 % 24, minute % 60);
            let second = self.told % DIFFERENT;
            self.current =
                format!("{{\"time\":\"2026-01-{day:02}T{hour:02}:{minute:02}:{second:02}Z\",{rest}\n").into_bytes();
            self.at = 0;
            self.told += 1;
        }
        let length = buffer.len().min(self.current.len() - self.at);
        buffer[..length].copy_from_slice(&self.current[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

/// The part of a line that is parsed every time. Pods that have not changed are skipped, as in `simulate`.
#[derive(Deserialize)]
struct Line<'a> {
    summary: Summary,
    #[serde(borrow)]
    pods: Option<&'a RawValue>,
}

#[expect(clippy::cast_precision_loss, reason = "exact below nine quadrillion")]
fn as_f64(number: usize) -> f64 {
    number as f64
}

fn main() {
    // `cargo test --benches` only checks that the bench starts.
    let lines = if std::env::args().any(|argument| argument == "--bench") { LINES } else { DIFFERENT };
    let trace = Trace::new(lines);
    let megabytes = trace.megabytes();

    let start = Instant::now();
    let answered = simulate(&Policy::default(), "trace", trace, io::sink(), TableOrJson::Json, Progress::silent(None));
    let whole = start.elapsed().as_secs_f64();
    assert_eq!(answered.ok(), u64::try_from(lines).ok(), "every line is answered");

    let start = Instant::now();
    let mut reader = BufReader::with_capacity(256 << 10, Trace::new(lines));
    let mut text = String::new();
    let mut read = 0;
    while reader.read_line(&mut text).is_ok_and(|length| length > 0) {
        let line: Option<Line<'_>> = serde_json::from_str(&text).ok();
        read += line.as_ref().map_or(0, |line| usize::from(line.summary.pods.len() == PODS && line.pods.is_some()));
        black_box(&line);
        text.clear();
    }
    let reading = start.elapsed().as_secs_f64();
    assert_eq!(read, lines, "every line is read");

    let per_second = |seconds: f64| as_f64(lines) / seconds;
    println!(
        "simulate {lines} lines with {PODS} pods ({megabytes:.0} MB): {whole:.2} s, {:.0} lines/s",
        per_second(whole)
    );
    println!(
        "simulate reading that JSON alone: {reading:.2} s, {:.0} lines/s, {:.0} %",
        per_second(reading),
        reading / whole * 100.0
    );
}
