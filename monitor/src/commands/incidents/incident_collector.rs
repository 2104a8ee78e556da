//! The incidents of a journal, each from its last record.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use crate::incidents::Incident;
use crate::incidents::reader::Reader;

#[derive(Debug, Default)]
pub struct Collected {
    /// Oldest first.
    pub incidents: Vec<Incident>,
    /// Damaged places in the journal.
    pub damaged: u64,
    /// The journal ends in an unfinished record.
    pub unfinished: bool,
    /// Records that this version cannot read.
    pub unknown: u64,
}

/// Reads a journal; later polls read the records added since.
#[derive(Debug)]
pub struct Collector {
    reader: Reader,
}

impl Collector {
    pub fn new(directory: &Path) -> Self {
        Self { reader: Reader::new(directory) }
    }

    /// Reads the incidents added since the last poll.
    pub fn poll(&mut self) -> io::Result<Collected> {
        let mut collected = Collected::default();
        let mut places: HashMap<String, usize> = HashMap::new();
        let Collected { incidents, unknown, .. } = &mut collected;
        let found = self.reader.poll(|entry| match serde_json::from_slice::<Incident>(&entry.json) {
            Err(_) => *unknown += 1,
            Ok(incident) => match places.get(&incident.id).and_then(|place| incidents.get_mut(*place)) {
                Some(earlier) => *earlier = incident,
                None => {
                    places.insert(incident.id.clone(), incidents.len());
                    incidents.push(incident);
                }
            },
        })?;
        (collected.damaged, collected.unfinished) = (found.damaged, found.unfinished);
        // The record of an OOM kill follows its last victim's exit: a later incident may have been written before.
        collected.incidents.sort_by_key(|incident| incident.time);
        Ok(collected)
    }
}
