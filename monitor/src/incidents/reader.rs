//! The journal's reader. It may run beside a writer.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::frame;
use super::journal::{Location, Segment, list};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub json: Vec<u8>,
    pub location: Location,
}

/// Damage found by one poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// Damaged places, which were skipped.
    pub damaged: u64,
    /// The last record is being written, or a crash cut it off.
    pub unfinished: bool,
}

/// Reads a journal from its beginning; later polls read the records added since.
#[derive(Debug)]
pub struct Reader {
    directory: PathBuf,
    positions: HashMap<Segment, u64>,
}

impl Reader {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), positions: HashMap::new() }
    }

    /// Passes each new record to `each`, in the order of writing.
    pub fn poll(&mut self, mut each: impl FnMut(Entry)) -> io::Result<Found> {
        let mut found = Found::default();
        // If the directory is removed and created again, it holds another journal.
        let segments = list(&self.directory).inspect_err(|_| self.positions.clear())?;
        self.positions.retain(|segment, _| segments.iter().any(|(listed, _)| listed == segment));
        let last = segments.last().map(|(segment, _)| *segment);
        for (segment, length) in segments {
            let position = self.positions.entry(segment).or_insert(0);
            // A starting writer cuts off an unfinished record, which shortens the file.
            *position = (*position).min(length);
            if *position == length {
                continue;
            }
            let bytes = match read_from(&segment.path(&self.directory), *position) {
                Ok(bytes) => bytes,
                // The writer has removed the file meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let begin = *position;
            let scanned = frame::scan(&bytes, |offset, payload| {
                let length = (payload.len() + frame::OVERHEAD) as u64;
                let location = Location { segment, offset: begin + offset as u64, length };
                each(Entry { json: payload.to_vec(), location });
            });
            *position += scanned.end as u64;
            found.damaged += scanned.damaged;
            if scanned.unfinished > 0 {
                // The writer appends to the last file only: an unfinished record in another file is damage.
                if Some(segment) == last {
                    found.unfinished = true;
                } else {
                    found.damaged += 1;
                    *position += scanned.unfinished as u64;
                }
            }
        }
        Ok(found)
    }
}

fn read_from(path: &Path, position: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(position))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
