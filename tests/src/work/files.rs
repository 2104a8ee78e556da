//! Inodes, in exact numbers.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use anyhow::{Context, Result};

use super::Churn;

pub fn churn(churn: &Churn) -> Result<()> {
    let dir = &churn.dir;
    for index in 0..churn.files {
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
    for index in 0..churn.remove {
        let path = dir.join(format!("f{index}"));
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}
