//! Walking a directory tree a little at a time: what everything below it holds.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{FileType, RawDir, Statx, StatxAttributes, statx};
use rustix::io::Errno;

use super::host::{STATX_FLAGS, STATX_MASK, open_directory, readable, status};
use super::usage::Held;
use crate::config::Bytes;
use crate::kernel::DeviceId;

/// Directories held open at a time, one a level.
const MOST_OPEN: usize = 96;
/// Directories held open to be walked later because they lie too deep.
const MOST_DEFERRED: usize = 96;
/// Files with several names that are remembered, so that each is counted once: half a MiB.
const MOST_LINKED: usize = 32 * 1024;
/// Of what the kernel counts in (`st_blocks`), whatever the filesystem's own blocks are.
const BLOCK: u64 = 512;
/// Room for the names that are read at once: some 250, so that a step stays short.
pub const NAMES: usize = 8 * 1024;

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    More,
    /// That was all.
    Done,
}

/// A walk that can be left and gone on with. It holds at most some two hundred files open and a few MiB, however large or deep the tree
/// is; what it cannot look at makes it incomplete, never wrong.
#[derive(Debug)]
pub struct TreeWalk {
    device: DeviceId,
    open: Vec<Level>,
    deferred: Vec<OwnedFd>,
    tally: Tally,
    is_complete: bool,
}

#[derive(Debug)]
struct Level {
    directory: OwnedFd,
    /// Of the names read last.
    directories: Vec<CString>,
    is_read: bool,
}

impl Level {
    const fn new(directory: OwnedFd) -> Self {
        Self { directory, directories: Vec::new(), is_read: false }
    }
}

impl TreeWalk {
    /// Begins at a directory or file that was opened to be looked at.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn begin(top: &OwnedFd) -> Result<Self, Errno> {
        let status = status(top)?;
        let mut walk = Self {
            device: device(&status),
            open: Vec::new(),
            deferred: Vec::new(),
            tally: Tally::default(),
            is_complete: true,
        };
        walk.tally.count(&status);
        if kind(&status) == FileType::Directory {
            walk.open.push(Level::new(readable(top)?));
        }
        Ok(walk)
    }

    /// The filesystem that it stays on.
    pub const fn device(&self) -> DeviceId {
        self.device
    }

    /// What was found until now.
    pub fn held(&self) -> Held {
        self.tally.held()
    }

    /// How many names were looked at.
    pub const fn entries(&self) -> u64 {
        self.tally.entries
    }

    /// False when something could not be looked at.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Goes on for as many names as `buffer` has room for.
    pub fn step(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Progress {
        let Some(level) = self.open.last_mut() else {
            return match self.deferred.pop() {
                Some(directory) => {
                    self.open.push(Level::new(directory));
                    Progress::More
                }
                None => Progress::Done,
            };
        };
        if let Some(name) = level.directories.pop() {
            self.descend(&name);
        } else if level.is_read {
            self.open.pop();
        } else {
            self.read(buffer);
        }
        Progress::More
    }

    fn read(&mut self, buffer: &mut [MaybeUninit<u8>]) {
        let Some(Level { directory, directories, is_read }) = self.open.last_mut() else { return };
        let mut names = RawDir::new(directory.as_fd(), buffer);
        loop {
            let entry = match names.next() {
                Some(Ok(entry)) => entry,
                Some(Err(Errno::INTR)) => continue,
                Some(Err(_)) => {
                    // It was removed, or the disk is broken.
                    (*is_read, self.is_complete) = (true, false);
                    break;
                }
                None => {
                    *is_read = true;
                    break;
                }
            };
            let name = entry.file_name();
            match entry.file_type() {
                FileType::Directory if name == c"." || name == c".." => {}
                FileType::Directory => directories.push(name.to_owned()),
                _ => match look(directory, name) {
                    // Some filesystems do not tell beforehand.
                    Ok(status) if kind(&status) == FileType::Directory => {
                        if name != c"." && name != c".." {
                            directories.push(name.to_owned());
                        }
                    }
                    Ok(status) if is_mounted_over(&status) => {}
                    Ok(status) => self.tally.count(&status),
                    Err(Errno::NOENT) => {}
                    Err(_) => self.is_complete = false,
                },
            }
            if names.is_buffer_empty() {
                break;
            }
        }
    }

    fn descend(&mut self, name: &CStr) {
        let Some(level) = self.open.last() else { return };
        let status = match look(&level.directory, name) {
            Ok(status) => status,
            Err(Errno::NOENT) => return,
            Err(_) => {
                self.is_complete = false;
                return;
            }
        };
        // Another filesystem, or another directory of this one: neither lies here.
        if device(&status) != self.device || is_mounted_over(&status) {
            return;
        }
        self.tally.count(&status);
        match open_directory(&level.directory, name) {
            Ok(directory) if self.open.len() < MOST_OPEN => self.open.push(Level::new(directory)),
            Ok(directory) if self.deferred.len() < MOST_DEFERRED => self.deferred.push(directory),
            // Replaced by something else, or removed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Ok(_) | Err(_) => self.is_complete = false,
        }
    }
}

fn look(directory: &OwnedFd, name: &CStr) -> Result<Statx, Errno> {
    statx(directory, name, STATX_FLAGS, STATX_MASK)
}

fn kind(status: &Statx) -> FileType {
    FileType::from_raw_mode(status.stx_mode.into())
}

/// The root of a mount (Linux 5.8 says so): a bind mount has the same device.
fn is_mounted_over(status: &Statx) -> bool {
    status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// The filesystem of a file, as the kernel's own counters name it.
pub fn device(status: &Statx) -> DeviceId {
    DeviceId(status.stx_dev_major << 20 | status.stx_dev_minor & 0xf_ffff)
}

/// What one file or directory holds by itself.
pub fn held(status: &Statx) -> Held {
    Held { bytes: Bytes(status.stx_blocks.saturating_mul(BLOCK)), inodes: 1 }
}

/// What was seen of a tree.
#[derive(Debug, Default)]
struct Tally {
    held: Held,
    entries: u64,
    /// The inodes that have several names.
    linked: HashSet<u64>,
    /// Of those that were too many to remember each name counts for its share, in billionths.
    shares: u64,
}

impl Tally {
    fn count(&mut self, status: &Statx) {
        self.entries += 1;
        let links = u64::from(status.stx_nlink);
        let mut found = held(status);
        if links > 1 && kind(status) != FileType::Directory {
            if self.linked.contains(&status.stx_ino) {
                return;
            }
            if self.linked.len() < MOST_LINKED {
                self.linked.insert(status.stx_ino);
            } else {
                self.shares = self.shares.saturating_add(BILLION / links);
                found = Held { bytes: Bytes(found.bytes.0 / links), inodes: 0 };
            }
        }
        self.held += found;
    }

    fn held(&self) -> Held {
        Held { inodes: self.held.inodes.saturating_add(self.shares / BILLION), ..self.held }
    }
}

const BILLION: u64 = 1_000_000_000;

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
