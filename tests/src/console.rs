//! Prints the lines that the host reads. Each line is one `write(2)`, so that the kernel's own messages cannot cut it.

use std::fmt::Display;
use std::io::Write;

/// How a scenario ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every assertion held, and there was at least one.
    Pass,
    /// An assertion did not hold, or could not be checked.
    Fail,
    /// This boot cannot run the scenario.
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
    // Texts from logs may contain control characters or line ends.
    let mut clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.push('\n');
    let mut out = std::io::stdout().lock();
    // If the console fails, no other way to report it remains.
    let _ = out.write_all(clean.as_bytes());
    let _ = out.flush();
}

/// Ends the line that the firmware may have left unfinished.
pub fn fresh_line() {
    line("");
}

/// Prints `@@ scenario NAME start`.
pub fn start(name: &str) {
    line(&format!("@@ scenario {name} start"));
}

/// Prints `@@ note NAME text`.
pub fn note(name: &str, text: impl Display) {
    line(&format!("@@ note {name} {text}"));
}

/// Prints `@@ screen NAME |text`: one line as a person sees it, which is kept with the results.
pub fn screen(name: &str, text: &str) {
    line(&format!("@@ screen {name} |{text}"));
}

/// Prints `@@ page NAME |text`: one line of a text for readers. The bar preserves the indentation.
pub fn page(name: &str, text: &str) {
    line(&format!("@@ page {name} |{text}"));
}

/// Prints `@@ figure NAME key=value unit`.
pub fn figure(name: &str, key: &str, value: f64, unit: &str) {
    // Three decimals are enough for milliseconds and percent. Whole numbers are printed without decimals.
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    line(&format!("@@ figure {name} {key}={text} {unit}"));
}

/// Prints `@@ timeline NAME ms=12.3 what`.
pub fn timeline(name: &str, ms: f64, what: &str) {
    line(&format!("@@ timeline {name} ms={ms:.1} {what}"));
}

/// Prints `@@ versions NAME text`: what runs in the guest beside the kernel.
pub fn versions(name: &str, text: &str) {
    line(&format!("@@ versions {name} {text}"));
}

/// Prints `@@ outcome NAME pass|fail|skip reason`.
pub fn outcome(name: &str, verdict: Verdict, reason: &str) {
    line(&format!("@@ outcome {name} {} {reason}", verdict.as_str()));
}

/// Prints `@@ end passed=N failed=N skipped=N`.
pub fn end(passed: u32, failed: u32, skipped: u32) {
    line(&format!("@@ end passed={passed} failed={failed} skipped={skipped}"));
}
