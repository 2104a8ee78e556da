//! Keeps file pages active: maps a file and touches it repeatedly, so that both kinds of LRU treat its pages as active.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Cache;
use crate::units::MIB;

const PAGE: usize = 4096;

pub fn cache(cache: &Cache) -> Result<()> {
    let path = &cache.file;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    let bytes = cache.mib * MIB;
    let length = usize::try_from(bytes).context("size")?;
    // Reads of unwritten extents fill the page cache with zeroes without disk I/O.
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
        .with_context(|| format!("fallocate {}", path.display()))?;
    // SAFETY: a new shared mapping of an open file that no process truncates; it is never unmapped.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error()).with_context(|| format!("mmap {}", path.display()));
    }
    let start: *const u8 = start.cast();
    // The next scenario needs the disk space.
    fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    // MGLRU puts faulted pages into its youngest generation. The older LRU activates pages at a second read(2).
    touch(start, length);
    let mut buffer = vec![0_u8; 64 * 1024];
    for _ in 0..2 {
        file.rewind().context("rewind")?;
        while file.read(&mut buffer).context("read")? > 0 {}
    }
    fs::write(&cache.ready, "").with_context(|| format!("write {}", cache.ready.display()))?;
    if cache.once {
        super::memory::sleep_for_ever();
    }
    loop {
        touch(start, length);
        sleep(Duration::from_millis(200));
    }
}

fn touch(start: *const u8, length: usize) {
    for at in (0..length).step_by(PAGE) {
        // SAFETY: at is below the mapping's length, and the file is as long. Volatile: the read is the purpose.
        unsafe { start.add(at).read_volatile() };
    }
}
