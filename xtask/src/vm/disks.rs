//! The guest's disks: fresh for every boot, sparse files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cmd;
use crate::paths::find_program;

const MIB: u64 = 1024 * 1024;

/// /dev/vda ext4, /dev/vdb a small ext4 whose inodes soon come to an end, /dev/vdc xfs where mkfs.xfs is at hand.
pub fn make(dir: &Path) -> Result<Vec<PathBuf>> {
    let ext4 = find_program("mkfs.ext4").context("mkfs.ext4 is not there: run `cargo xtask setup`")?;
    // Everything is initialized now: a kernel thread that does it later would stir the guest's inode counts and caches.
    let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    let mut disks = vec![
        disk(dir, "ext4.img", 320, Command::new(&ext4).args(options))?,
        disk(dir, "small.img", 32, Command::new(&ext4).args(options).args(["-N", "2048"]))?,
    ];
    if let Some(xfs) = find_program("mkfs.xfs") {
        // mkfs.xfs makes nothing below 300 MiB.
        disks.push(disk(dir, "xfs.img", 320, Command::new(xfs).args(["-q", "-f"]))?);
    }
    Ok(disks)
}

fn disk(dir: &Path, name: &str, mib: u64, mkfs: &mut Command) -> Result<PathBuf> {
    let path = dir.join(name);
    File::create(&path)
        .and_then(|file| file.set_len(mib * MIB))
        .with_context(|| format!("making the disk image {}", path.display()))?;
    cmd::output(mkfs.arg(&path))?;
    Ok(path)
}
