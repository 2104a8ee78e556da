//! The lines that the host reads. One line, one `write(2)`, so that the kernel's own messages cannot cut it.

use std::fmt::Display;
use std::io::Write;

/// How a scenario ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything asserted was true, and something was asserted.
    Pass,
    /// Something asserted was not true, or could not be looked at.
    Fail,
    /// Not possible on this boot.
    Skip,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

fn line(text: &str) {
    // What comes from logs may hold control characters or line ends of its own.
    let mut clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.push('\n');
    let mut out = std::io::stdout().lock();
    // A failing console leaves no way to report it.
    let _ = out.write_all(clean.as_bytes());
    let _ = out.flush();
}

/// Ends whatever the firmware left standing on the line.
pub fn fresh_line() {
    line("");
}

/// `@@ scenario NAME start`.
pub fn start(name: &str) {
    line(&format!("@@ scenario {name} start"));
}

/// `@@ note NAME text`.
pub fn note(name: &str, text: impl Display) {
    line(&format!("@@ note {name} {text}"));
}

/// `@@ page NAME |text`: one line of something for people to read as it is; the bar keeps its indentation.
pub fn page(name: &str, text: &str) {
    line(&format!("@@ page {name} |{text}"));
}

/// `@@ figure NAME key=value unit`.
pub fn figure(name: &str, key: &str, value: f64, unit: &str) {
    // Three decimals are enough for milliseconds and percent, and whole numbers stay whole.
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    line(&format!("@@ figure {name} {key}={text} {unit}"));
}

/// `@@ timeline NAME ms=12.3 what`.
pub fn timeline(name: &str, ms: f64, what: &str) {
    line(&format!("@@ timeline {name} ms={ms:.1} {what}"));
}

/// `@@ outcome NAME pass|fail|skip reason`.
pub fn outcome(name: &str, verdict: Verdict, reason: &str) {
    line(&format!("@@ outcome {name} {} {reason}", verdict.as_str()));
}

/// `@@ end passed=N failed=N skipped=N`.
pub fn end(passed: u32, failed: u32, skipped: u32) {
    line(&format!("@@ end passed={passed} failed={failed} skipped={skipped}"));
}
