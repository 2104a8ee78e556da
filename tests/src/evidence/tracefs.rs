//! An instance of tracefs, which records apart from all others.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

#[derive(Debug)]
pub struct Instance {
    directory: PathBuf,
}

impl Instance {
    /// Opens the instance of this name, and makes it if it does not exist. Its clock is CLOCK_MONOTONIC.
    pub fn open(name: &str, buffer_kib: u32) -> Result<Self> {
        let instance = Self { directory: PathBuf::from(INSTANCES).join(name) };
        if !instance.directory.exists() {
            let create = || format!("create {}", instance.directory.display());
            fs::create_dir(&instance.directory).with_context(create)?;
        }
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", &buffer_kib.to_string())?;
        Ok(instance)
    }

    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, text).with_context(|| format!("write {text:?} to {}", path.display()))
    }

    pub fn read(&self, file: &str) -> Result<String> {
        let path = self.directory.join(file);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }
}
