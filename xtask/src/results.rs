//! The tables of `tests/RESULTS.md`.

mod table;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cmd;
pub use table::{Table, edited};

/// The file with the tables, below the root of the workspace.
const FILE: &str = "tests/RESULTS.md";

/// A table of the file, by the line above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Scenarios by clusters.
    Clusters,
    /// Machines without a cluster by scenarios.
    Machines,
    /// API servers by what ran beside them during the contract tests.
    Contract,
}

impl Kind {
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Clusters => "<!-- clusters -->",
            Self::Machines => "<!-- machines -->",
            Self::Contract => "<!-- contract -->",
        }
    }
}

/// Changes a table of results.
pub fn write(root: &Path, kind: Kind, edit: impl FnOnce(&mut Table)) -> Result<()> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let text = edited(&text, kind, edit).with_context(|| format!("in {}", path.display()))?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("the outcomes are in {}", path.display());
    Ok(())
}

/// Returns the date of a result: `2026-11-26`.
pub fn today() -> Result<String> {
    let date = cmd::output(Command::new("date").args(["--utc", "+%Y-%m-%d"]))?;
    Ok(date.trim().to_owned())
}
