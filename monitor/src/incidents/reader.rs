//! The reading side of the journal: beside a writer that is at work, after it, or without one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::frame;
use super::journal::Location;
use super::segments::{Segment, list};

/// One record as it lies in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its JSON.
    pub json: Vec<u8>,
    /// Where it lies.
    pub location: Location,
}

/// What a reading came upon besides records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// Places at which something is damaged, and skipped.
    pub damaged: u64,
    /// The last record is not finished: it is being written, or a crash cut it off.
    pub unfinished: bool,
}

/// Reads a journal from its beginning, and then what is added to it.
#[derive(Debug)]
pub struct Reader {
    directory: PathBuf,
    positions: HashMap<Segment, u64>,
}

impl Reader {
    /// Of the journal in `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), positions: HashMap::new() }
    }

    /// Passes on every record that was not passed on before, in the order in which they were written.
    ///
    /// # Errors
    /// When the directory or a file cannot be read.
    pub fn poll(&mut self, mut each: impl FnMut(Entry)) -> io::Result<Found> {
        let mut found = Found::default();
        // Where there is no directory any more, one that is made again is another journal.
        let segments = list(&self.directory).inspect_err(|_| self.positions.clear())?;
        self.positions.retain(|segment, _| segments.iter().any(|(listed, _)| listed == segment));
        let last = segments.last().map(|(segment, _)| *segment);
        for (segment, length) in segments {
            let position = self.positions.entry(segment).or_insert(0);
            // A writer that starts cuts off what a crash left unfinished.
            *position = (*position).min(length);
            if *position == length {
                continue;
            }
            let bytes = match read_from(&segment.path(&self.directory), *position) {
                Ok(bytes) => bytes,
                // The writer has let go of it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let begin = *position;
            let scanned = frame::scan(&bytes, |offset, payload| {
                // Payload, its line break, and the two numbers before it.
                let length = (payload.len() + frame::OVERHEAD) as u64;
                let location = Location { segment, offset: begin + offset as u64, length };
                each(Entry { json: payload.to_vec(), location });
            });
            *position += scanned.end as u64;
            found.damaged += scanned.damaged;
            if scanned.unfinished > 0 {
                // Only the last file is written to: elsewhere what is unfinished stays so.
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
