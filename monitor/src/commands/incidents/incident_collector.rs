//! The incidents of a journal, each as its last record tells it.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use crate::incidents::Incident;
use crate::incidents::reader::Reader;

/// What a reading found.
#[derive(Debug, Default)]
pub struct Collected {
    /// In the order in which they happened.
    pub incidents: Vec<Incident>,
    /// Places at which the journal is damaged.
    pub damaged: u64,
    /// Its last record is not finished.
    pub unfinished: bool,
    /// Records that are no incident as this version knows them.
    pub unknown: u64,
}

/// Reads a journal, and then what is added to it.
#[derive(Debug)]
pub struct Collector {
    reader: Reader,
}

impl Collector {
    /// Of the journal in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self { reader: Reader::new(directory) }
    }

    /// What was not read before.
    ///
    /// # Errors
    /// When it cannot be read.
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
        // An OOM kill is written when its last victim has gone: another may have begun and ended meanwhile.
        collected.incidents.sort_by_key(|incident| incident.time);
        Ok(collected)
    }
}
