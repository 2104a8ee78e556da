//! `cargo xtask advisories`: looks for crates of the lock files of which RustSec knows a vulnerability.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use crate::cmd;
use crate::paths::Workspace;
use crate::setup::{self, Part};
use crate::vm::SKIPPED;

/// Look for crates with a known vulnerability, in each lock file. Exits with 1 if there is one, and with 77 if the database of advisories
/// cannot be had.
///
/// ADVISORY_DB names a directory with a clone of RustSec's database. Without it the database is cloned.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ADVISORY_DB=$HOME/advisory-db cargo xtask advisories")]
pub struct Options {}

/// The environment variable that names the database.
pub const VARIABLE: &str = "ADVISORY_DB";
const ORIGIN: &str = "https://github.com/RustSec/advisory-db";
const LOCK_FILES: [&str; 2] = ["Cargo.lock", "monitor/fuzz/Cargo.lock"];

pub fn run(_: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let database = match named() {
        Some(database) => database,
        None => match cloned(workspace) {
            Ok(database) => database,
            Err(error) => {
                println!("skipped: advisories: {error:#}; or clone it elsewhere, and set {VARIABLE} to its directory");
                return Ok(ExitCode::from(SKIPPED));
            }
        },
    };
    check(workspace, &database)?;
    println!("no crate of {} has a known vulnerability", LOCK_FILES.join(" and "));
    Ok(ExitCode::SUCCESS)
}

/// Returns the database that the variable names.
pub fn named() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|directory| !directory.is_empty()).map(PathBuf::from)
}

/// Fails if a crate has a known vulnerability. Unmaintained and withdrawn crates are printed.
pub fn check(workspace: &Workspace, database: &Path) -> Result<()> {
    ensure!(
        database.join("crates").is_dir(),
        "{} is no clone of {ORIGIN}: it has no directory crates",
        database.display()
    );
    setup::ensure(workspace, &[Part::CargoAudit])?;
    let mut failed = Vec::new();
    for lock in LOCK_FILES {
        let mut audit = cmd::cargo();
        audit
            .args(["audit", "--no-fetch", "--stale", "--db"])
            .arg(database)
            .arg("--file")
            .arg(workspace.root.join(lock));
        if cmd::run(audit.current_dir(std::env::temp_dir())).is_err() {
            failed.push(lock);
        }
    }
    ensure!(failed.is_empty(), "advisories for crates of {}: see above", failed.join(" and "));
    Ok(())
}

/// Returns today's database, in the cache.
fn cloned(workspace: &Workspace) -> Result<PathBuf> {
    let directory = workspace.cache().join("advisory-db");
    let mut git = Command::new("git");
    if directory.join("crates").is_dir() {
        println!("fetching the advisories of {ORIGIN}");
        git.arg("-C").arg(&directory).args(["pull", "--quiet", "--ff-only"]);
    } else {
        println!("cloning {ORIGIN} to {}", directory.display());
        git.args(["clone", "--quiet", "--depth", "1", ORIGIN]).arg(&directory);
    }
    cmd::output(&mut git)?;
    Ok(directory)
}
