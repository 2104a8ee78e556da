//! Kernel settings that a scenario changes, restored when dropped.

use std::fs;

use anyhow::{Context, Result};

/// A number under `/proc/sys` that is put back when it is dropped.
#[derive(Debug)]
pub struct Knob {
    path: String,
    /// What stood there.
    pub before: u64,
}

impl Knob {
    /// One under `/proc/sys/vm`.
    pub fn open(name: &str) -> Result<Self> {
        Self::at(format!("/proc/sys/vm/{name}"))
    }

    pub fn at(path: String) -> Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let before = text.trim().parse().with_context(|| format!("{path}: {text:?}"))?;
        Ok(Self { path, before })
    }

    /// Turns it.
    pub fn set(&self, value: u64) -> Result<()> {
        fs::write(&self.path, value.to_string()).with_context(|| format!("write {}", self.path))
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        // What stays set shows in the next scenario's figures.
        let _ = self.set(self.before);
    }
}
