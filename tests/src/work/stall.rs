//! Workloads that cause reclaim.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Stall;
use super::memory::Memory;
use crate::units::MIB;

pub fn stall(stall: &Stall) -> Result<()> {
    match (&stall.file, &stall.knob) {
        (Some(file), None) => read_for_ever(file, stall.mib),
        (None, Some(knob)) => ask_for_ever(knob, stall.mib),
        _ => bail!("one of --file and --knob"),
    }
}

/// Reads a file larger than the memory limit, forever. Every page that it reads evicts another.
fn read_for_ever(path: &Path, mib: u64) -> Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    // Unwritten extents read as zeroes, so reclaim limits the speed, not the disk.
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, mib * MIB)
        .with_context(|| format!("fallocate {}", path.display()))?;
    // One byte of each page is read, because only the page's allocation matters.
    let mut byte = [0_u8; 1];
    loop {
        for at in (0..mib * MIB).step_by(4096) {
            file.read_at(&mut byte, at).with_context(|| format!("read {}", path.display()))?;
        }
    }
}

/// Asks the kernel to reclaim anonymous memory without swap, which is impossible. The kernel tries sixteen times a write, and each
/// try is a whole memory-cgroup reclaim in this task's context.
fn ask_for_ever(knob: &Path, mib: u64) -> Result<()> {
    let memory = Memory::reserve(mib * MIB)?;
    memory.touch_all();
    let mut file = OpenOptions::new().write(true).open(knob).with_context(|| format!("open {}", knob.display()))?;
    loop {
        // EAGAIN is the expected answer.
        let _ = file.write(b"1M");
    }
}
