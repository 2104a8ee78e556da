//! Kernel settings that a scenario changes. Dropping them restores the old values.

use std::fs;

use anyhow::{Context, Result};

/// A number under `/proc/sys`. Dropping it restores the old value.
#[derive(Debug)]
pub struct Knob {
    path: String,
    /// The old value.
    pub before: u64,
}

impl Knob {
    /// Opens a number under `/proc/sys/vm`.
    pub fn open(name: &str) -> Result<Self> {
        Self::at(format!("/proc/sys/vm/{name}"))
    }

    pub fn at(path: String) -> Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let before = text.trim().parse().with_context(|| format!("{path}: {text:?}"))?;
        Ok(Self { path, before })
    }

    /// Sets the value.
    pub fn set(&self, value: u64) -> Result<()> {
        fs::write(&self.path, value.to_string()).with_context(|| format!("write {}", self.path))
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        // If the restoration fails, the figures of the next scenario show it.
        let _ = self.set(self.before);
    }
}
