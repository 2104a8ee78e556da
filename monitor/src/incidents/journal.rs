//! The writing side of the journal: append-only files of bounded size, each record on disk before it is said to be.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::frame;
use super::segments::{Segment, list};
use crate::units::Bytes;

/// The journal is so many files: when it is full the oldest of them goes.
const SEGMENTS: u64 = 8;
/// Files are read whole.
const LARGEST_SEGMENT: u64 = 4 << 20;

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another agent writes there.
    #[error("{path}: another node-pressure-monitor writes there; give this one its own incidents.directory", path = path.display())]
    Taken {
        /// The directory.
        path: PathBuf,
    },
    /// The directory cannot be used.
    #[error("{path}: {source}; name a writable place with incidents.directory", path = path.display())]
    Unusable {
        /// What was to be made or written.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// In which file.
    pub segment: Segment,
    /// From which byte on.
    pub offset: u64,
    /// Bytes with everything around it.
    pub length: u64,
}

/// What was found when a journal was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Bytes cut off: what a crash in mid-write left of the last record.
    pub cut_off: u64,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    /// Locked as long as it is open.
    directory_handle: File,
    max_size: Bytes,
    /// All but the last, oldest first.
    full: Vec<(Segment, u64)>,
    segment: Segment,
    file: File,
    length: u64,
    /// As much of it is on disk.
    synced: u64,
    /// Framing happens here.
    buffer: Vec<u8>,
}

impl Journal {
    /// Opens the journal in `directory`, making it if need be, and cuts off what a crash left unfinished.
    ///
    /// # Errors
    /// When the directory cannot be made, read or written, or another process has it open.
    pub fn open(directory: &Path, max_size: Bytes) -> Result<(Self, Recovery), JournalError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            |source| JournalError::Unusable { path, source }
        };
        // Command names and workloads are nobody else's business.
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unusable(directory))?;
        let directory_handle = File::open(directory).map_err(unusable(directory))?;
        match rustix::fs::flock(&directory_handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(JournalError::Taken { path: directory.to_owned() }),
            Err(errno) => return Err(unusable(directory)(errno.into())),
        }
        let mut full = list(directory).map_err(unusable(directory))?;
        let (segment, _) = full.pop().unwrap_or((Segment(1), 0));
        let path = segment.path(directory);
        let file = open_segment(&path).map_err(unusable(&path))?;
        let (length, recovery) = recover(&path, &file).map_err(unusable(&path))?;
        // A file that was just made is on disk only when its name is.
        directory_handle.sync_all().map_err(unusable(directory))?;
        let directory = directory.to_owned();
        let (synced, buffer) = (length, Vec::new());
        Ok((Self { directory, directory_handle, max_size, full, segment, file, length, synced, buffer }, recovery))
    }

    /// Appends one record; it is on disk after [`Self::sync`]. What could not be written whole is taken back.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, payload: &[u8]) -> io::Result<Location> {
        self.buffer.clear();
        frame::encode(payload, &mut self.buffer)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a record that is no single line"))?;
        let length = self.buffer.len() as u64;
        if self.length > 0 && self.length + length > self.segment_size() {
            self.rotate()?;
        }
        let offset = self.length;
        if let Err(error) = self.file.write_all_at(&self.buffer, offset) {
            // Half a record would only be in the way. Where even that fails the next one overwrites it.
            let _left_there = self.file.set_len(offset);
            return Err(error);
        }
        self.length += length;
        self.make_room();
        Ok(Location { segment: self.segment, offset, length })
    }

    /// Returns when everything appended is on disk.
    ///
    /// # Errors
    /// When that is not known: then all since the last time is taken back, to be appended anew.
    pub fn sync(&mut self) -> io::Result<()> {
        let synced = self.file.sync_data();
        if synced.is_err() {
            // The kernel may have dropped any of it, tells so only once, and reads it from its cache all the same (fsync(2)).
            let _left_there = self.file.set_len(self.synced);
            self.length = self.synced;
        }
        self.synced = self.length;
        synced
    }

    /// Whether a record that was appended has not been taken back since.
    #[must_use]
    pub fn holds(&self, location: Location) -> bool {
        location.segment < self.segment || location.segment == self.segment && location.offset < self.length
    }

    /// Whether its file still is where others look for it: somebody may have cleared the directory away.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let there = fs::metadata(self.segment.path(&self.directory));
        let same = |(there, own): (fs::Metadata, fs::Metadata)| (there.dev(), there.ino()) == (own.dev(), own.ino());
        there.ok().zip(self.file.metadata().ok()).is_some_and(same)
    }

    /// Bytes on disk.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.length + self.full.iter().map(|(_, length)| length).sum::<u64>()
    }

    /// The oldest file that is still there.
    #[must_use]
    pub fn oldest(&self) -> Segment {
        self.full.first().map_or(self.segment, |(segment, _)| *segment)
    }

    fn segment_size(&self) -> u64 {
        (self.max_size.0 / SEGMENTS).min(LARGEST_SEGMENT)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        let next = self.segment.0.checked_add(1).map(Segment);
        let next = next.ok_or_else(|| io::Error::other("no number is left for a further file"))?;
        let file = open_segment(&next.path(&self.directory))?;
        // A file of that name from who knows when: whatever it holds, it does not belong behind ours.
        file.set_len(0)?;
        self.directory_handle.sync_all()?;
        self.full.push((self.segment, self.length));
        (self.segment, self.file, self.length, self.synced) = (next, file, 0, 0);
        Ok(())
    }

    fn make_room(&mut self) {
        while self.size() > self.max_size.0 && !self.full.is_empty() {
            let (oldest, _) = self.full.remove(0);
            // Somebody else removed it, or nobody can: either way it is not counted any more.
            let _gone = fs::remove_file(oldest.path(&self.directory));
        }
    }
}

fn open_segment(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Where the next record goes: behind the last whole one. What is damaged in between stays for readers to skip.
fn recover(path: &Path, file: &File) -> io::Result<(u64, Recovery)> {
    let bytes = fs::read(path)?;
    let scanned = frame::scan(&bytes, |_, _| {});
    let (end, cut_off) = (scanned.end as u64, scanned.unfinished as u64);
    if cut_off > 0 {
        file.set_len(end)?;
        file.sync_data()?;
    }
    Ok((end, Recovery { cut_off }))
}

/// Reads one record back; `None` when it is not there any more.
///
/// # Errors
/// When its file cannot be read.
pub fn read_back(directory: &Path, location: Location) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(location.segment.path(directory)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; usize::try_from(location.length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, location.offset)?;
    let mut payload = None;
    frame::scan(&bytes, |_, found| payload = Some(found.to_vec()));
    Ok(payload)
}

/// For tests and fixtures: a journal's bytes of these payloads.
///
/// # Errors
/// When the file cannot be written, or a payload is no single line.
pub fn write_fixture(path: &Path, payloads: &[Vec<u8>]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for payload in payloads {
        frame::encode(payload, &mut bytes).ok_or(io::ErrorKind::InvalidInput)?;
    }
    File::create(path)?.write_all(&bytes)
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
