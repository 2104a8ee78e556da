//! The start of a bench without a harness.

use anyhow::Result;

/// Runs the bench, and exits with 1 if it fails. `cargo test --benches` only checks that the bench starts.
pub fn run(measure: impl FnOnce() -> Result<()>) {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if let Err(error) = measure() {
        eprintln!("FAILED: {error:#}");
        std::process::exit(1);
    }
}
