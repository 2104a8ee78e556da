//! The frame of a bench that `cargo xtask bench` starts.

use std::str::FromStr;

use anyhow::{Context as _, Result};

/// Runs the bench, and exits with 1 if it fails. `cargo test --benches` only checks that the bench starts.
pub fn run(measure: impl Future<Output = Result<()>>) {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Err(error) = runtime.context("a runtime").and_then(|runtime| runtime.block_on(measure)) {
        eprintln!("FAILED: {error:#}");
        std::process::exit(1);
    }
}

/// Returns the number in a variable of the environment, or the usual one.
///
/// # Errors
/// When the variable holds no number.
pub fn variable<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(name: &str, usual: T) -> Result<T> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text} is no number")),
        Err(_) => Ok(usual),
    }
}
