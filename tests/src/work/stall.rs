//! Reclaim, much of it: a file larger than the memory limit, read for ever.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

use super::Stall;
use crate::units::MIB;

pub fn stall(stall: &Stall) -> Result<()> {
    let path = &stall.file;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    // Unwritten extents read as zeroes, so this is bound by reclaim and not by the disk.
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, stall.mib * MIB)
        .with_context(|| format!("fallocate {}", path.display()))?;
    // One byte a page: it is the page's allocation that matters, not copying it out.
    let mut byte = [0_u8; 1];
    loop {
        for at in (0..stall.mib * MIB).step_by(4096) {
            file.read_at(&mut byte, at).with_context(|| format!("read {}", path.display()))?;
        }
    }
}
