//! Workloads that make and remove exact numbers of inodes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, FileType, Mode, mknodat, unlinkat};

use super::{Append, Churn, Fill, Turnover};

pub fn churn(churn: &Churn) -> Result<()> {
    let dir = &churn.dir;
    for index in churn.first..churn.first + churn.files {
        let path = dir.join(format!("f{index}"));
        File::create(&path).with_context(|| format!("create {}", path.display()))?;
    }
    for index in 0..churn.dirs {
        let path = dir.join(format!("d{index}"));
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
    }
    for index in 0..churn.symlinks {
        let path = dir.join(format!("l{index}"));
        symlink("nowhere", &path).with_context(|| format!("create {}", path.display()))?;
    }
    for index in churn.first..churn.first + churn.remove {
        let path = dir.join(format!("f{index}"));
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

pub fn turnover(turnover: &Turnover) -> Result<()> {
    let dir = File::open(&turnover.dir).with_context(|| format!("open {}", turnover.dir.display()))?;
    let name = |index: u32| format!("t{index}");
    let remove =
        |index: u32| unlinkat(&dir, name(index), AtFlags::empty()).with_context(|| format!("remove {}", name(index)));
    for index in 0..turnover.files {
        // One system call instead of open(2) and close(2), since only inodes matter.
        mknodat(&dir, name(index), FileType::RegularFile, Mode::RUSR, 0)
            .with_context(|| format!("create {}", name(index)))?;
        if index >= turnover.window {
            remove(index - turnover.window)?;
        }
    }
    (turnover.files.saturating_sub(turnover.window)..turnover.files).try_for_each(remove)
}

/// Makes files at a fixed rate. Due times count from the start, so that a late wake-up is compensated.
pub fn fill(fill: &Fill) -> Result<()> {
    let begun = Instant::now();
    for index in 0_u32.. {
        let path = fill.dir.join(format!("f{index}"));
        match File::create(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("create {}", path.display())),
        }
        let due = Duration::from_secs(1) * index / fill.per_second.max(1);
        sleep(due.saturating_sub(begun.elapsed()));
    }
    Ok(())
}

pub fn append(append: &Append) -> Result<()> {
    let path = &append.file;
    let mut file = OpenOptions::new().append(true).open(path).with_context(|| format!("open {}", path.display()))?;
    file.write_all(b"changed").with_context(|| format!("write {}", path.display()))
}
