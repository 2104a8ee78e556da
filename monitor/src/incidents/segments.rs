//! The files of a journal, numbered in the order of writing: `incidents-00000042.journal`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "incidents-";
const SUFFIX: &str = ".journal";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_journal_files_are_listed_by_number() {
        let directory = tempfile::tempdir().unwrap();
        for name in [
            "incidents-00000010.journal",
            "incidents-00000009.journal",
            "incidents-8.journal",
            "incidents-+0000007.journal",
            "incidents-x.journal",
            "notes",
            "incidents-1.old",
        ] {
            fs::write(directory.path().join(name), "12345").unwrap();
        }
        fs::create_dir(directory.path().join("incidents-00000011.journal")).unwrap();
        assert_eq!(list(directory.path()).unwrap(), [(Segment(9), 5), (Segment(10), 5)]);
        assert_eq!(Segment(10).path(directory.path()), directory.path().join("incidents-00000010.journal"));
    }
}
