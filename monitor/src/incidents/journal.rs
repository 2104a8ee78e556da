//! The journal's writer: append-only files of bounded size. A record counts as stored after its `fsync`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::frame;
use crate::units::Bytes;

/// Files are numbered in the order of writing: `incidents-00000042.journal`.
const PREFIX: &str = "incidents-";
const SUFFIX: &str = ".journal";
/// The number of files in a full journal. A full journal loses its oldest file.
const SEGMENTS: u64 = 8;
/// Readers read a file whole.
const LARGEST_SEGMENT: u64 = 4 << 20;

/// One file of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(pub u64);

impl Segment {
    pub fn path(self, directory: &Path) -> PathBuf {
        directory.join(self.name())
    }

    fn of(name: &str) -> Option<Self> {
        let segment = Self(name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()?);
        (segment.name() == name).then_some(segment)
    }

    fn name(self) -> String {
        format!("{PREFIX}{:08}{SUFFIX}", self.0)
    }
}

/// Lists the files of the journal in `directory` with their sizes, oldest first. Other names are ignored.
pub fn list(directory: &Path) -> io::Result<Vec<(Segment, u64)>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Some(segment) = entry.file_name().to_str().and_then(Segment::of) else { continue };
        match entry.metadata() {
            Ok(metadata) if metadata.is_file() => segments.push((segment, metadata.len())),
            Ok(_) => {}
            // The writer has removed the file meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    segments.sort_unstable();
    Ok(segments)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    pub segment: Segment,
    /// From which byte on.
    pub offset: u64,
    /// With header and line break.
    pub length: u64,
}

#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    /// Open for its lock.
    directory_handle: File,
    max_size: Bytes,
    /// All files but the last, with their sizes, oldest first.
    full: Vec<(Segment, u64)>,
    segment: Segment,
    file: File,
    length: u64,
    /// Bytes of `file` that are on disk.
    synced: u64,
    buffer: Vec<u8>,
}

impl Journal {
    /// Opens or creates the journal in `directory`. Cuts off a record that a crash left unfinished, and returns its length. An error is
    /// the reason and the fix.
    pub fn open(directory: &Path, max_size: Bytes) -> Result<(Self, u64), String> {
        let unusable = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| format!("{path}: {error}; set incidents.directory to a writable directory")
        };
        // Records name commands and workloads: other users must not read them.
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unusable(directory))?;
        let directory_handle = File::open(directory).map_err(unusable(directory))?;
        match rustix::fs::flock(&directory_handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(format!(
                    "{}: another node-pressure-monitor writes this journal; give each agent its own incidents.directory",
                    directory.display()
                ));
            }
            Err(errno) => return Err(unusable(directory)(errno.into())),
        }
        let mut full = list(directory).map_err(unusable(directory))?;
        let (segment, _) = full.pop().unwrap_or((Segment(1), 0));
        let path = segment.path(directory);
        let file = open_segment(&path).map_err(unusable(&path))?;
        let (length, cut_off) = recover(&path, &file).map_err(unusable(&path))?;
        // A new file survives a crash only if its directory entry is on disk.
        directory_handle.sync_all().map_err(unusable(directory))?;
        let directory = directory.to_owned();
        let (synced, buffer) = (length, Vec::new());
        Ok((Self { directory, directory_handle, max_size, full, segment, file, length, synced, buffer }, cut_off))
    }

    /// Appends one record, which is on disk after [`Self::sync`]. Removes a part of it that was written before an error.
    pub fn append(&mut self, payload: &[u8]) -> io::Result<Location> {
        self.buffer.clear();
        frame::encode(payload, &mut self.buffer)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a record has a line break"))?;
        let length = self.buffer.len() as u64;
        if self.length > 0 && self.length + length > self.segment_size() {
            self.rotate()?;
        }
        let offset = self.length;
        if let Err(error) = self.file.write_all_at(&self.buffer, offset) {
            // If the truncation fails, too, the next record overwrites the part written.
            let _left_there = self.file.set_len(offset);
            return Err(error);
        }
        self.length += length;
        self.make_room();
        Ok(Location { segment: self.segment, offset, length })
    }

    /// Waits until all appended records are on disk. After an error, the records since the last sync are removed, and the caller appends
    /// them again.
    pub fn sync(&mut self) -> io::Result<()> {
        let synced = self.file.sync_data();
        if synced.is_err() {
            // The kernel may have dropped any of the pages. It reports that once, and still serves them from its cache (fsync(2)).
            let _left_there = self.file.set_len(self.synced);
            self.length = self.synced;
        }
        self.synced = self.length;
        synced
    }

    /// Whether an appended record is still in the journal.
    pub fn holds(&self, location: Location) -> bool {
        location.segment < self.segment || location.segment == self.segment && location.offset < self.length
    }

    /// Whether the open file still has its path: the directory may have been removed.
    pub fn is_in_place(&self) -> bool {
        let there = fs::metadata(self.segment.path(&self.directory));
        let same = |(there, own): (fs::Metadata, fs::Metadata)| (there.dev(), there.ino()) == (own.dev(), own.ino());
        there.ok().zip(self.file.metadata().ok()).is_some_and(same)
    }

    pub fn size(&self) -> u64 {
        self.length + self.full.iter().map(|(_, length)| length).sum::<u64>()
    }

    pub fn oldest(&self) -> Segment {
        self.full.first().map_or(self.segment, |(segment, _)| *segment)
    }

    fn segment_size(&self) -> u64 {
        (self.max_size.0 / SEGMENTS).min(LARGEST_SEGMENT)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        let next = self.segment.0.checked_add(1).map(Segment);
        let next = next.ok_or_else(|| io::Error::other("the journal's file numbers are used up"))?;
        let file = open_segment(&next.path(&self.directory))?;
        // A stray file of that name may have contents that do not continue this journal.
        file.set_len(0)?;
        self.directory_handle.sync_all()?;
        self.full.push((self.segment, self.length));
        (self.segment, self.file, self.length, self.synced) = (next, file, 0, 0);
        Ok(())
    }

    fn make_room(&mut self) {
        while self.size() > self.max_size.0 && !self.full.is_empty() {
            let (oldest, _) = self.full.remove(0);
            // A file that cannot be removed is not counted either: retrying would not help.
            let _gone = fs::remove_file(oldest.path(&self.directory));
        }
    }
}

fn open_segment(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Cuts off an unfinished record. Returns the offset for the next record, and how much was cut off; readers skip damage before it.
fn recover(path: &Path, file: &File) -> io::Result<(u64, u64)> {
    let bytes = fs::read(path)?;
    let scanned = frame::scan(&bytes, |_, _| {});
    let (end, cut_off) = (scanned.end as u64, scanned.unfinished as u64);
    if cut_off > 0 {
        file.set_len(end)?;
        file.sync_data()?;
    }
    Ok((end, cut_off))
}

/// Reads one record; `None` if the journal has dropped it.
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

/// Writes a journal file with these payloads, for tests and fixtures.
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
