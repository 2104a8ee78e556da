//! The tables of `tests/RESULTS.md`, and their summary at its head.

mod summary;
mod table;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cmd;
#[cfg(test)]
pub use table::EXAMPLE;
pub use table::{Table, edited};

/// The file with the tables, below the root of the workspace.
const FILE: &str = "tests/RESULTS.md";

/// A table of the file, by the line above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Scenarios by clusters.
    Clusters,
    /// Evictions in clusters by the times of their steps.
    Times,
    /// Machines without a cluster by scenarios.
    Machines,
    /// API servers by what ran beside them during the contract tests.
    Contract,
    /// The summary of the others.
    Compatibility,
}

impl Kind {
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Clusters => "<!-- clusters -->",
            Self::Times => "<!-- times -->",
            Self::Machines => "<!-- machines -->",
            Self::Contract => "<!-- contract -->",
            Self::Compatibility => "<!-- compatibility -->",
        }
    }
}

/// Changes a table of results, and renews the summary.
pub fn write(root: &Path, kind: Kind, edit: impl FnOnce(&mut Table)) -> Result<()> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let text = edited(&text, kind, edit)
        .and_then(|text| summary::written(&text))
        .with_context(|| format!("in {}", path.display()))?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("the outcomes are in {}", path.display());
    Ok(())
}

/// Returns the date of a result: `2026-11-26`.
pub fn today() -> Result<String> {
    let date = cmd::output(Command::new("date").args(["--utc", "+%Y-%m-%d"]))?;
    Ok(date.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_that_of_the_results() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FILE);
        let results = fs::read_to_string(&path).unwrap();
        let written = summary::written(&results).unwrap();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, written).unwrap();
            return;
        }
        assert!(written == results, "the summary is not up to date; run: UPDATE_DOCS=1 cargo test -p xtask summary");
    }
}
