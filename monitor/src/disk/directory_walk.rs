//! Walks a directory tree in small steps, and sums the space and inodes of its files.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{FileType, RawDir, RawDirEntry, SeekFrom, Statx, StatxAttributes, fstatvfs, seek, statx};
use rustix::io::Errno;

use super::host_files::{STATX_FLAGS, STATX_MASK, open_directory, open_unmounted, readable, status};
use super::measured_usage::Held;
use crate::kernel::DeviceId;
use crate::node::mountinfo::Inodes;
use crate::units::Bytes;

/// Limit of open directories. There is one per level, and one for all deeper levels.
const MAX_OPEN: usize = 32;
/// Limit of deeper levels. Only a position is kept for each: half a MiB in total.
const MAX_DEEP: usize = 32 * 1024;
/// Limits the walk of a tree that grows faster than it is walked. A tree has at most as many names as its filesystem has inodes,
/// or somewhat more if files have several names or inodes are not counted.
const MAX_NAMES_OF_INODE: u64 = 4;
const MAX_NAMES: u64 = 1 << 20;
const MAX_NAMES_UNCOUNTED: u64 = 1 << 28;
/// Limit of remembered files with several names, each of which is counted once: half a MiB in total.
const MAX_LINKED: usize = 32 * 1024;
/// The unit of `st_blocks`, whatever the filesystem's block size.
const BLOCK: u64 = 512;
/// Size of the buffer for names. It holds about 250 names, so that a step stays short.
pub const NAMES: usize = 8 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    More,
    Done,
}

/// A walk that can be suspended and resumed. It keeps about thirty open files and a few MiB, whatever the size or depth of the
/// tree. A part that cannot be read makes the result incomplete, never wrong.
#[derive(Debug)]
pub struct TreeWalk {
    device: DeviceId,
    open: Vec<Level>,
    /// The levels below the last open one.
    deep: Vec<DeepLevel>,
    /// The directory of the last deep level.
    bottom: Option<OwnedFd>,
    tally: Tally,
    most: u64,
    is_complete: bool,
    omission: Option<&'static str>,
}

#[derive(Debug)]
struct Level {
    directory: OwnedFd,
    /// The subdirectories among the names that were read last.
    directories: Vec<CString>,
    is_read: bool,
}

impl Level {
    const fn new(directory: OwnedFd) -> Self {
        Self { directory, directories: Vec::new(), is_read: false }
    }
}

/// A level whose directory is not kept open. The walk returns to it by `..` from the level below, and checks its inode.
#[derive(Debug, Clone, Copy)]
struct DeepLevel {
    inode: u64,
    /// The position of the next name to read.
    next: u64,
}

impl TreeWalk {
    /// Starts at a directory or file opened with `O_PATH`.
    pub fn begin(top: &OwnedFd) -> Result<Self, Errno> {
        let status = status(top)?;
        let used = fstatvfs(top).ok().and_then(|answer| Inodes::of(&answer)).map(Inodes::used);
        let most = used.map(|used| used.saturating_mul(MAX_NAMES_OF_INODE).saturating_add(MAX_NAMES));
        let mut walk = Self {
            device: device(&status),
            open: Vec::new(),
            deep: Vec::new(),
            bottom: None,
            tally: Tally::default(),
            most: most.unwrap_or(MAX_NAMES_UNCOUNTED),
            is_complete: true,
            omission: None,
        };
        walk.tally.count(&status);
        if kind(&status) == FileType::Directory {
            walk.open.push(Level::new(readable(top)?));
        }
        Ok(walk)
    }

    /// Returns the filesystem of the walk. The walk never enters another one.
    pub const fn device(&self) -> DeviceId {
        self.device
    }

    pub fn held(&self) -> Held {
        self.tally.held()
    }

    pub const fn entries(&self) -> u64 {
        self.tally.entries
    }

    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the reason why a readable part of the tree was omitted.
    pub const fn omission(&self) -> Option<&'static str> {
        self.omission
    }

    fn omit(&mut self, reason: &'static str) {
        self.is_complete = false;
        self.omission = Some(reason);
    }

    /// Reads as many names as fit in `buffer`.
    pub fn step(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Progress {
        if self.tally.entries > self.most {
            self.omit("a directory tree grows faster than it can be walked: the files created last are not counted");
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
        let end = for_each_name(directory, buffer, |entry| {
            match self.tally.file(directory, entry.file_name(), entry.file_type()) {
                Ok(true) => {}
                Ok(false) => directories.push(entry.file_name().to_owned()),
                Err(_) => self.is_complete = false,
            }
            ControlFlow::Continue(())
        });
        *is_read = end != Ok(false);
        self.is_complete &= end.is_ok();
    }

    fn descend(&mut self, name: &CStr) {
        let Some(level) = self.open.last() else { return };
        match self.tally.directory(&level.directory, name, self.device) {
            Ok(Some((directory, _))) if self.open.len() < MAX_OPEN => self.open.push(Level::new(directory)),
            Ok(Some((directory, inode))) => {
                self.deep.push(DeepLevel { inode, next: 0 });
                self.bottom = Some(directory);
            }
            Ok(None) => {}
            Err(_) => self.is_complete = false,
        }
    }

    /// Reads the deepest directory up to its next subdirectory or its end. Keeps no names, because a user may create very many.
    fn step_deep(&mut self, buffer: &mut [MaybeUninit<u8>]) {
        let (Some(bottom), Some(place)) = (self.bottom.take(), self.deep.last().copied()) else { return };
        let (mut next, mut below) = (place.next, None);
        let visit = |entry: &RawDirEntry<'_>| {
            next = entry.next_entry_cookie();
            let found = match self.tally.file(&bottom, entry.file_name(), entry.file_type()) {
                Ok(false) => self.tally.directory(&bottom, entry.file_name(), self.device),
                Ok(true) => Ok(None),
                Err(errno) => Err(errno),
            };
            self.is_complete &= found.is_ok();
            below = found.ok().flatten();
            if below.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let end = seek(&bottom, SeekFrom::Start(place.next)).and_then(|_| for_each_name(&bottom, buffer, visit));
        self.is_complete &= end.is_ok();
        let is_read = end != Ok(false);
        if let Some(place) = self.deep.last_mut() {
            place.next = next;
        }
        match below {
            Some((directory, inode)) if self.deep.len() < MAX_DEEP => {
                self.deep.push(DeepLevel { inode, next: 0 });
                self.bottom = Some(directory);
            }
            Some(_) => {
                self.omit(
                    "directories are nested more than 32,000 levels deep: files in the deepest ones are not counted",
                );
                self.bottom = Some(bottom);
            }
            None if is_read => self.ascend(&bottom),
            None => self.bottom = Some(bottom),
        }
    }

    fn ascend(&mut self, bottom: &OwnedFd) {
        self.deep.pop();
        // The level above the deep levels is still open.
        let Some(above) = self.deep.last() else { return };
        let is_it = |status: &Statx| status.stx_ino == above.inode && device(status) == self.device;
        let opened = open_directory(bottom, c"..").and_then(|directory| Ok((status(&directory)?, directory)));
        match opened {
            Ok((status, directory)) if is_it(&status) => self.bottom = Some(directory),
            Ok(_) | Err(_) => {
                self.deep.clear();
                self.omit("a directory was moved while it was walked: some of the files beside it are not counted");
            }
        }
    }
}

/// Passes the names that fit in `buffer` to `visit` until it breaks. Returns whether the end of the directory was reached. Fails
/// if the directory was removed, or if the disk is broken.
fn for_each_name(
    directory: &OwnedFd,
    buffer: &mut [MaybeUninit<u8>],
    mut visit: impl FnMut(&RawDirEntry<'_>) -> ControlFlow<()>,
) -> Result<bool, Errno> {
    let mut names = RawDir::new(directory.as_fd(), buffer);
    loop {
        match names.next() {
            Some(Ok(entry)) if visit(&entry).is_break() => return Ok(false),
            Some(Ok(_)) => {}
            Some(Err(Errno::INTR)) => continue,
            Some(Err(errno)) => return Err(errno),
            None => return Ok(true),
        }
        if names.is_buffer_empty() {
            return Ok(false);
        }
    }
}

fn status_of(directory: &OwnedFd, name: &CStr) -> Result<Statx, Errno> {
    statx(directory, name, STATX_FLAGS, STATX_MASK)
}

fn kind(status: &Statx) -> FileType {
    FileType::from_raw_mode(status.stx_mode.into())
}

/// Returns whether the file is the root of a mount (Linux 5.8), which can be a bind mount with the same device.
fn is_mounted_over(status: &Statx) -> bool {
    status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// Returns the filesystem of a file, with the number that the kernel's own counters use.
pub fn device(status: &Statx) -> DeviceId {
    DeviceId(status.stx_dev_major << 20 | status.stx_dev_minor & 0xf_ffff)
}

pub fn held(status: &Statx) -> Held {
    Held { bytes: Bytes(status.stx_blocks.saturating_mul(BLOCK)), inodes: 1 }
}

#[derive(Debug, Default)]
struct Tally {
    held: Held,
    entries: u64,
    /// Inodes with several names that are already counted.
    linked: HashSet<u64>,
    /// The sum of the shares of inodes beyond the limit, in billionths. Each name counts for its share of the inode.
    shares: u64,
}

impl Tally {
    /// Counts a directory entry. Returns false for a directory, which is counted when it is opened.
    fn file(&mut self, directory: &OwnedFd, name: &CStr, told: FileType) -> Result<bool, Errno> {
        if name == c"." || name == c".." {
            return Ok(true);
        }
        if told == FileType::Directory {
            return Ok(false);
        }
        match status_of(directory, name) {
            // Some filesystems do not report the type in the entry.
            Ok(status) if kind(&status) == FileType::Directory => return Ok(false),
            Ok(status) if is_mounted_over(&status) => {}
            Ok(status) => self.count(&status),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        Ok(true)
    }

    /// Opens and counts a subdirectory; returns it with its inode number. Returns `None` for another filesystem, another mount, or an entry
    /// that was replaced or removed.
    fn directory(&mut self, above: &OwnedFd, name: &CStr, on: DeviceId) -> Result<Option<(OwnedFd, u64)>, Errno> {
        let opened = match open_unmounted(above, name) {
            Err(Errno::NOSYS) => {
                let status = status_of(above, name);
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
                // The directory exists, but cannot be read.
                if let Ok(status) = status_of(above, name) {
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
            if self.linked.len() < MAX_LINKED {
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
#[path = "directory_walk_tests.rs"]
mod tests;
