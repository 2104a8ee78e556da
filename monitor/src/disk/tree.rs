//! Walking a directory tree a little at a time: what everything below it holds.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{FileType, RawDir, SeekFrom, Statx, StatxAttributes, fstatvfs, seek, statx};
use rustix::io::Errno;

use super::host::{STATX_FLAGS, STATX_MASK, open_directory, open_unmounted, readable, status};
use super::usage::Held;
use crate::kernel::DeviceId;
use crate::units::Bytes;

/// Directories held open at a time, one a level, and one more for all that lies deeper.
const MOST_OPEN: usize = 32;
/// Levels below those, of which is remembered where they are to be gone on with: half a MiB.
const MOST_DEEP: usize = 32 * 1024;
/// A tree can grow faster than it is walked. It can have as many names as its filesystem has inodes, or somewhat more where files have
/// several, or where inodes are not counted.
const MOST_NAMES_OF_INODE: u64 = 4;
const MOST_NAMES: u64 = 1 << 20;
const MOST_NAMES_UNCOUNTED: u64 = 1 << 28;
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

/// A walk that can be left and gone on with. It holds some thirty files open and a few MiB, however large or deep the tree is; what it
/// cannot look at makes it incomplete, never wrong.
#[derive(Debug)]
pub struct TreeWalk {
    device: DeviceId,
    open: Vec<Level>,
    /// Below the last open level.
    deep: Vec<Deep>,
    /// The last of these.
    bottom: Option<OwnedFd>,
    tally: Tally,
    most: u64,
    is_complete: bool,
    left_out: Option<&'static str>,
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

/// A directory that is not held open: it is come back to by `..` from the one below, if that is where it was.
#[derive(Debug, Clone, Copy)]
struct Deep {
    inode: u64,
    /// Where its next name is.
    next: u64,
}

impl TreeWalk {
    /// Begins at a directory or file that was opened to be looked at.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn begin(top: &OwnedFd) -> Result<Self, Errno> {
        let status = status(top)?;
        let used = fstatvfs(top).ok().filter(|it| it.f_files > 0).map(|it| it.f_files.saturating_sub(it.f_ffree));
        let most = used.map(|used| used.saturating_mul(MOST_NAMES_OF_INODE).saturating_add(MOST_NAMES));
        let mut walk = Self {
            device: device(&status),
            open: Vec::new(),
            deep: Vec::new(),
            bottom: None,
            tally: Tally::default(),
            most: most.unwrap_or(MOST_NAMES_UNCOUNTED),
            is_complete: true,
            left_out: None,
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

    /// Why something was left out that could have been looked at.
    pub const fn left_out(&self) -> Option<&'static str> {
        self.left_out
    }

    fn leave_out(&mut self, reason: &'static str) {
        self.is_complete = false;
        self.left_out = Some(reason);
    }

    /// Goes on for as many names as `buffer` has room for.
    pub fn step(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Progress {
        if self.tally.entries > self.most {
            self.leave_out("a directory tree grows faster than it can be walked: what came last is not counted");
            self.open.clear();
            self.deep.clear();
            self.bottom = None;
        }
        if self.bottom.is_some() {
            self.step_deep(buffer);
            return Progress::More;
        }
        let Some(level) = self.open.last_mut() else { return Progress::Done };
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
            match self.tally.file(directory, name, entry.file_type()) {
                Ok(true) => {}
                Ok(false) => directories.push(name.to_owned()),
                Err(_) => self.is_complete = false,
            }
            if names.is_buffer_empty() {
                break;
            }
        }
    }

    fn descend(&mut self, name: &CStr) {
        let Some(level) = self.open.last() else { return };
        match self.tally.directory(&level.directory, name, self.device) {
            Ok(Some((directory, _))) if self.open.len() < MOST_OPEN => self.open.push(Level::new(directory)),
            Ok(Some((directory, inode))) => {
                self.deep.push(Deep { inode, next: 0 });
                self.bottom = Some(directory);
            }
            Ok(None) => {}
            Err(_) => self.is_complete = false,
        }
    }

    /// Goes on in the directory at the bottom, to its next directory or its end. Of names nothing is kept: somebody might make very many.
    fn step_deep(&mut self, buffer: &mut [MaybeUninit<u8>]) {
        let (Some(bottom), Some(place)) = (self.bottom.take(), self.deep.last().copied()) else { return };
        let mut next = place.next;
        let mut is_read = seek(&bottom, SeekFrom::Start(next)).is_err();
        self.is_complete &= !is_read;
        let mut names = RawDir::new(bottom.as_fd(), buffer);
        let mut below = None;
        while !is_read {
            let entry = match names.next() {
                Some(Ok(entry)) => entry,
                Some(Err(Errno::INTR)) => continue,
                Some(Err(_)) => {
                    (is_read, self.is_complete) = (true, false);
                    break;
                }
                None => {
                    is_read = true;
                    break;
                }
            };
            next = entry.next_entry_cookie();
            match self.tally.file(&bottom, entry.file_name(), entry.file_type()) {
                Ok(true) => {}
                Ok(false) => match self.tally.directory(&bottom, entry.file_name(), self.device) {
                    Ok(Some(directory)) => {
                        below = Some(directory);
                        break;
                    }
                    Ok(None) => {}
                    Err(_) => self.is_complete = false,
                },
                Err(_) => self.is_complete = false,
            }
            if names.is_buffer_empty() {
                break;
            }
        }
        if let Some(place) = self.deep.last_mut() {
            place.next = next;
        }
        match below {
            Some((directory, inode)) if self.deep.len() < MOST_DEEP => {
                self.deep.push(Deep { inode, next: 0 });
                self.bottom = Some(directory);
            }
            Some(_) => {
                self.leave_out(
                    "directories lie more than 32,000 levels deep: what is in the deepest ones is not counted",
                );
                self.bottom = Some(bottom);
            }
            None if is_read => self.ascend(&bottom),
            None => self.bottom = Some(bottom),
        }
    }

    fn ascend(&mut self, bottom: &OwnedFd) {
        self.deep.pop();
        // The level above the deep ones is still open.
        let Some(above) = self.deep.last() else { return };
        let is_it = |status: &Statx| status.stx_ino == above.inode && device(status) == self.device;
        let opened = open_directory(bottom, c"..").and_then(|directory| Ok((status(&directory)?, directory)));
        match opened {
            Ok((status, directory)) if is_it(&status) => self.bottom = Some(directory),
            Ok(_) | Err(_) => {
                self.deep.clear();
                self.leave_out("a directory was moved while it was walked: part of what is beside it is not counted");
            }
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
    /// Counts what a directory has under a name; false when that is a directory itself, which is counted when it is opened.
    fn file(&mut self, directory: &OwnedFd, name: &CStr, told: FileType) -> Result<bool, Errno> {
        if name == c"." || name == c".." {
            return Ok(true);
        }
        if told == FileType::Directory {
            return Ok(false);
        }
        match look(directory, name) {
            // Some filesystems do not tell beforehand.
            Ok(status) if kind(&status) == FileType::Directory => return Ok(false),
            Ok(status) if is_mounted_over(&status) => {}
            Ok(status) => self.count(&status),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        Ok(true)
    }

    /// Opens a directory of this filesystem and counts it, with its inode's number. Another filesystem, or another directory of this one,
    /// does not lie here; nor does what was replaced or removed.
    fn directory(&mut self, above: &OwnedFd, name: &CStr, on: DeviceId) -> Result<Option<(OwnedFd, u64)>, Errno> {
        let opened = match open_unmounted(above, name) {
            Err(Errno::NOSYS) => {
                let status = look(above, name);
                if status.is_ok_and(|status| device(&status) != on || is_mounted_over(&status)) {
                    return Ok(None);
                }
                open_directory(above, name)
            }
            opened => opened,
        };
        match opened {
            Ok(directory) => {
                let status = status(&directory)?;
                if device(&status) != on {
                    return Ok(None);
                }
                self.count(&status);
                Ok(Some((directory, status.stx_ino)))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(errno) => {
                // It is there, but cannot be read.
                if let Ok(status) = look(above, name) {
                    self.count(&status);
                }
                Err(errno)
            }
        }
    }

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
