//! Keeps the log of this process, set up as the agent sets it up: `tracing` takes over the records of the `log` facade.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use tracing_subscriber::filter::LevelFilter;

static CAPTURED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Captured;

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn start() -> Result<()> {
    let log = tracing_subscriber::fmt().with_ansi(false).with_max_level(LevelFilter::DEBUG).with_writer(|| Captured);
    log.try_init().ok().context("the log of this process is set up already")
}

pub fn text() -> String {
    String::from_utf8_lossy(&CAPTURED.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}
