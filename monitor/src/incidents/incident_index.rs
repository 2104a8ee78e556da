//! The list of incidents that HTTP serves, with the location of each record.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::journal::{Location, Segment, read_back};
use super::model::Head;
use crate::units::lock;

/// The index holds this many incidents; older ones are in the journal only.
const LISTED: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The record is not on disk yet, or cannot be written.
    Memory(Arc<[u8]>),
    Stored(Location),
}

/// The incidents of this node, oldest first. The writer's thread and the HTTP server share the index.
#[derive(Debug)]
pub struct IncidentIndex {
    directory: PathBuf,
    entries: Mutex<VecDeque<(Head, Body)>>,
}

impl IncidentIndex {
    /// Returns an empty index of the journal in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), entries: Mutex::default() }
    }

    /// Adds an incident, or replaces its earlier record.
    pub fn put(&self, head: Head, body: Body) {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.iter_mut().rev().find(|(known, _)| known.id == head.id) {
            *entry = (head, body);
            return;
        }
        if entries.len() >= LISTED {
            entries.pop_front();
        }
        entries.push_back((head, body));
    }

    /// Replaces a record in memory by its location on disk.
    pub fn set_stored(&self, id: &str, location: Location) {
        if let Some((_, body)) = lock(&self.entries).iter_mut().rev().find(|(head, _)| head.id == id) {
            *body = Body::Stored(location);
        }
    }

    /// Removes a record that could not be written; an earlier record of the incident on disk stays.
    pub fn drop_unwritten(&self, id: &str) {
        lock(&self.entries).retain(|(head, body)| head.id != id || matches!(body, Body::Stored(_)));
    }

    /// Removes the records on disk, after the journal's directory was replaced.
    pub fn remove_stored(&self) {
        lock(&self.entries).retain(|(_, body)| matches!(body, Body::Memory(_)));
    }

    /// Sorts the incidents by time: a reopened journal may hold older ones than those in memory.
    pub fn sort(&self) {
        lock(&self.entries).make_contiguous().sort_by_key(|(head, _)| head.time);
    }

    /// Removes the records in files before `oldest`, which the journal has dropped.
    pub fn remove_before(&self, oldest: Segment) {
        let is_there = |body: &Body| !matches!(body, Body::Stored(location) if location.segment < oldest);
        lock(&self.entries).retain(|(_, body)| is_there(body));
    }

    /// Returns the newest incidents, at most `most`, oldest first.
    pub fn heads(&self, most: usize) -> Vec<Head> {
        self.select(most, |_| true)
    }

    /// Returns the newest incidents that are wanted, at most `most`, oldest first.
    pub fn select(&self, most: usize, is_wanted: impl Fn(&Head) -> bool) -> Vec<Head> {
        let entries = lock(&self.entries);
        let heads = entries.iter().rev().map(|(head, _)| head).filter(|head| is_wanted(head));
        let mut newest: Vec<Head> = heads.take(most).cloned().collect();
        newest.reverse();
        newest
    }

    /// Calls `each` with the newest incident and so on, while it returns true.
    pub fn visit_newest_first(&self, mut each: impl FnMut(&Head) -> bool) {
        let _older = lock(&self.entries).iter().rev().take_while(|(head, _)| each(head)).count();
    }

    /// Finds an incident by its id; `last` is the newest.
    pub fn find(&self, id: &str) -> Option<Body> {
        let entries = lock(&self.entries);
        let found = if id == "last" { entries.back() } else { entries.iter().rev().find(|(head, _)| head.id == id) };
        found.map(|(_, body)| body.clone())
    }

    /// Reads the JSON of a record; `None` if the journal has dropped it meanwhile. Blocks on the disk.
    pub fn read(&self, body: &Body) -> io::Result<Option<Vec<u8>>> {
        match body {
            Body::Memory(json) => Ok(Some(json.to_vec())),
            Body::Stored(location) => read_back(&self.directory, *location),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Kind;
    use super::*;

    fn head(id: &str, summary: &str) -> Head {
        let (id, time, summary) = (id.to_owned(), jiff::Timestamp::UNIX_EPOCH, summary.to_owned());
        Head { id, kind: Kind::OomKill, time, summary, mode: String::new(), pod: None, outcome: None, repeated: 0 }
    }

    fn location(segment: u64) -> Location {
        Location { segment: Segment(segment), offset: 0, length: 1 }
    }

    fn ids(index: &IncidentIndex, most: usize) -> Vec<String> {
        index.heads(most).into_iter().map(|head| head.id).collect()
    }

    #[test]
    fn a_later_record_replaces_the_earlier() {
        let index = IncidentIndex::new(Path::new("/nonexistent"));
        index.put(head("a", "underway"), Body::Stored(location(1)));
        index.put(head("b", ""), Body::Stored(location(2)));
        index.put(head("a", "gone"), Body::Memory(Arc::from(*b"{}")));
        assert_eq!(ids(&index, 9), ["a", "b"]);
        assert_eq!(index.heads(9)[0].summary, "gone");
        assert_eq!(ids(&index, 1), ["b"]);
        assert_eq!(index.read(&index.find("a").unwrap()).unwrap(), Some(b"{}".to_vec()));
        assert_eq!(index.find("last"), Some(Body::Stored(location(2))));
        assert_eq!(index.read(&Body::Stored(location(2))).unwrap(), None);
        index.set_stored("a", location(3));
        index.remove_before(Segment(3));
        assert_eq!(ids(&index, 9), ["a"]);
        index.drop_unwritten("a");
        assert_eq!(ids(&index, 9), ["a"], "it is on disk");
    }

    #[test]
    fn the_list_is_bounded() {
        let index = IncidentIndex::new(Path::new("/nonexistent"));
        for number in 0..LISTED + 10 {
            index.put(head(&number.to_string(), ""), Body::Stored(location(1)));
        }
        assert_eq!(index.heads(usize::MAX).len(), LISTED);
        assert_eq!(index.heads(1)[0].id, (LISTED + 9).to_string());
    }
}
