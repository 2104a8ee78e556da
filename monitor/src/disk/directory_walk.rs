//! Walks a directory tree in small steps, and sums the space and inodes of its files.

use std::collections::HashSet;
use std::ffi::CStr;
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

/// Limit of open levels. The deeper levels share one open directory.
const MAX_OPEN: usize = 32;
/// Limit of subdirectories that are open before they are read, over all levels.
const MAX_WAITING: usize = 32;
/// Limit of deeper levels. Only a position is kept for each: less than one MiB in total.
const MAX_DEEP: usize = 32 * 1024;
/// How often a directory is read again for entries that were renamed between the read of their name and their own. An owner who
/// renames without pause wins each look with even odds.
const MAX_LOOKS: u8 = 8;
/// Limit of entries to look for again, over all levels.
const MAX_VANISHED: usize = 1024;
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

/// A walk that can be suspended and resumed. It keeps about sixty open files and a few MiB, whatever the size or depth of the
/// tree. A part that cannot be read makes the result incomplete, never wrong.
#[derive(Debug)]
pub struct TreeWalk {
    open: Vec<Level>,
    /// The levels below the last open one.
    deep: Vec<Listing>,
    /// The directory of the last deep level.
    bottom: Option<OwnedFd>,
    tally: Tally,
    most: u64,
    omission: Option<&'static str>,
}

#[derive(Debug)]
struct Level {
    directory: OwnedFd,
    listing: Listing,
    /// The subdirectories that were read last and are not walked yet.
    waiting: Vec<Subdirectory>,
}

impl Level {
    fn new(Subdirectory { directory, inode }: Subdirectory) -> Self {
        Self { directory, listing: Listing::of(inode), waiting: Vec::new() }
    }
}

/// How far a directory is read. The walk returns to a deep one by `..` from the level below, and checks its inode.
#[derive(Debug, Clone, Copy)]
struct Listing {
    inode: u64,
    /// The position of the next name to read.
    next: u64,
    is_read: bool,
    /// How often the directory is being read again.
    looks: u8,
    /// Whether this look found an entry that the look before missed.
    is_worth_a_look: bool,
}

impl Listing {
    const fn of(inode: u64) -> Self {
        Self { inode, next: 0, is_read: false, looks: 0, is_worth_a_look: true }
    }
}

/// A counted subdirectory. It is open, so its owner cannot hide it by a new name.
#[derive(Debug)]
struct Subdirectory {
    directory: OwnedFd,
    inode: u64,
}

impl TreeWalk {
    /// Starts at a directory or file opened with `O_PATH`.
    pub fn begin(top: &OwnedFd) -> Result<Self, Errno> {
        let status = status(top)?;
        let used = fstatvfs(top).ok().and_then(|answer| Inodes::of(&answer)).map(Inodes::used);
        let most = used.map(|used| used.saturating_mul(MAX_NAMES_OF_INODE).saturating_add(MAX_NAMES));
        let mut walk = Self {
            open: Vec::new(),
            deep: Vec::new(),
            bottom: None,
            tally: Tally::on(device(&status)),
            most: most.unwrap_or(MAX_NAMES_UNCOUNTED),
            omission: None,
        };
        walk.tally.count(&status);
        if kind(&status) == FileType::Directory {
            walk.open.push(Level::new(Subdirectory { directory: readable(top)?, inode: status.stx_ino }));
        }
        Ok(walk)
    }

    /// Returns the filesystem of the walk. The walk never enters another one.
    pub const fn device(&self) -> DeviceId {
        self.tally.device
    }

    pub fn held(&self) -> Held {
        self.tally.held()
    }

    pub const fn entries(&self) -> u64 {
        self.tally.entries
    }

    pub const fn is_complete(&self) -> bool {
        self.tally.is_complete
    }

    /// Returns the reason why a readable part of the tree was omitted.
    pub const fn omission(&self) -> Option<&'static str> {
        self.omission
    }

    fn omit(&mut self, reason: &'static str) {
        self.tally.is_complete = false;
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
        let waiting: usize = self.open.iter().map(|level| level.waiting.len()).sum();
        let Some(level) = self.open.last_mut() else { return Progress::Done };
        if let Some(below) = level.waiting.pop() {
            self.descend(below);
        } else if level.listing.is_read {
            self.open.pop();
        } else {
            let room = MAX_WAITING.saturating_sub(waiting).max(1);
            level.waiting = self.tally.read(&level.directory, &mut level.listing, buffer, room);
        }
        Progress::More
    }

    fn descend(&mut self, below: Subdirectory) {
        if self.open.len() < MAX_OPEN {
            self.open.push(Level::new(below));
        } else {
            self.deep.push(Listing::of(below.inode));
            self.bottom = Some(below.directory);
        }
    }

    /// Reads the deepest directory up to its next subdirectory or its end.
    fn step_deep(&mut self, buffer: &mut [MaybeUninit<u8>]) {
        let (Some(bottom), Some(listing)) = (self.bottom.take(), self.deep.last_mut()) else { return };
        let below = self.tally.read(&bottom, listing, buffer, 1).pop();
        let is_read = listing.is_read;
        match below {
            Some(below) if self.deep.len() < MAX_DEEP => self.descend(below),
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
        let is_it = |status: &Statx| status.stx_ino == above.inode && device(status) == self.tally.device;
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

#[derive(Debug)]
struct Tally {
    device: DeviceId,
    held: Held,
    entries: u64,
    /// Inodes with several names that are already counted.
    linked: HashSet<u64>,
    /// The sum of the shares of inodes beyond the limit, in billionths. Each name counts for its share of the inode.
    shares: u64,
    /// The entries to look for again: the inodes of the directory and of the entry.
    vanished: HashSet<(u64, u64)>,
    is_complete: bool,
}

impl Tally {
    fn on(device: DeviceId) -> Self {
        Self {
            device,
            held: Held::default(),
            entries: 0,
            linked: HashSet::new(),
            shares: 0,
            vanished: HashSet::new(),
            is_complete: true,
        }
    }

    /// Counts the entries whose names fit in `buffer`, up to the last subdirectory for which there is room. Returns the
    /// subdirectories.
    fn read(
        &mut self,
        directory: &OwnedFd,
        listing: &mut Listing,
        buffer: &mut [MaybeUninit<u8>],
        room: usize,
    ) -> Vec<Subdirectory> {
        let (mut below, begin) = (Vec::new(), SeekFrom::Start(listing.next));
        let visit = |entry: &RawDirEntry<'_>| {
            listing.next = entry.next_entry_cookie();
            below.extend(self.visit(directory, listing, entry));
            if below.len() < room { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let end = seek(directory, begin).and_then(|_| for_each_name(directory, buffer, visit));
        match end {
            Ok(false) => {}
            Ok(true) => self.end(listing),
            Err(_) => {
                self.is_complete = false;
                listing.is_read = true;
            }
        }
        below
    }

    /// Counts an entry. A later look at a directory counts only what the looks before have missed.
    fn visit(&mut self, directory: &OwnedFd, listing: &mut Listing, entry: &RawDirEntry<'_>) -> Option<Subdirectory> {
        let name = entry.file_name();
        let vanished = (listing.inode, entry.ino());
        let mut is_missed = || self.vanished.remove(&vanished) && !self.linked.contains(&entry.ino());
        if name == c"." || name == c".." || listing.looks > 0 && !is_missed() {
            return None;
        }
        let is_last = listing.looks >= MAX_LOOKS || self.vanished.len() >= MAX_VANISHED;
        match self.entry(directory, entry, is_last) {
            Ok(below) => return below,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !is_last => {
                listing.is_worth_a_look = true;
                self.vanished.insert(vanished);
            }
            Err(_) => self.is_complete = false,
        }
        None
    }

    /// Ends a look at a directory. Entries that this look has not found have another directory now, or are removed: no look would
    /// find them.
    fn end(&mut self, listing: &mut Listing) {
        let is_missing = self.vanished.iter().any(|(directory, _)| *directory == listing.inode);
        if is_missing && listing.is_worth_a_look {
            *listing = Listing { looks: listing.looks + 1, is_worth_a_look: false, ..Listing::of(listing.inode) };
            return;
        }
        listing.is_read = true;
        if is_missing {
            self.vanished.retain(|(directory, _)| *directory != listing.inode);
            self.is_complete = false;
        }
    }

    /// Opens and counts a subdirectory, or counts a file. Fails if the entry was renamed, removed or replaced meanwhile. Returns
    /// `None` for a file, and for another filesystem or mount, which is not counted.
    fn entry(
        &mut self,
        directory: &OwnedFd,
        entry: &RawDirEntry<'_>,
        is_last: bool,
    ) -> Result<Option<Subdirectory>, Errno> {
        let name = entry.file_name();
        // Some filesystems do not report the type in the entry.
        if entry.file_type() != FileType::Directory {
            let status = status_of(directory, name)?;
            if is_mounted_over(&status) {
                return Ok(None);
            }
            if kind(&status) != FileType::Directory {
                self.require_inode(&status, entry, is_last)?;
                self.count(&status);
                return Ok(None);
            }
        }
        let Some(below) = self.open_below(directory, name)? else { return Ok(None) };
        let status = status(&below)?;
        if device(&status) != self.device {
            return Ok(None);
        }
        self.require_inode(&status, entry, is_last)?;
        self.count(&status);
        Ok(Some(Subdirectory { directory: below, inode: status.stx_ino }))
    }

    /// Fails if an entry was exchanged for another one. The last look counts what it finds, because some filesystems report other
    /// inodes in a directory than in a status.
    fn require_inode(&mut self, status: &Statx, entry: &RawDirEntry<'_>, is_last: bool) -> Result<(), Errno> {
        if status.stx_ino == entry.ino() {
            return Ok(());
        }
        self.is_complete &= !is_last;
        if is_last { Ok(()) } else { Err(Errno::NOENT) }
    }

    /// Opens a subdirectory; `None` for a mount.
    fn open_below(&mut self, above: &OwnedFd, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
        let opened = match open_unmounted(above, name) {
            Err(Errno::NOSYS) => {
                let status = status_of(above, name)?;
                if device(&status) != self.device || is_mounted_over(&status) {
                    return Ok(None);
                }
                open_directory(above, name)
            }
            opened => opened,
        };
        match opened {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::XDEV) => Ok(None),
            Err(errno @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => Err(errno),
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
