//! Reading the kernel's small files again and again without opening them again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// What went wrong with which file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be opened.
    #[error("cannot open {path}: {source}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file cannot be read. `ENODEV` means that the cgroup it belongs to is gone.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file says something unexpected.
    #[error("{path}: {what}", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was expected.
        what: String,
    },
}

/// Whether the cgroup that a file belongs to has been removed: its path is free (`ENOENT`), or its open file is dead (`ENODEV`).
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// A kernel file held open and read from its start each time: one system call a read, no allocation, and for a cgroup's
/// file a proof of identity, for the read fails once that cgroup is removed, even when another takes its path.
#[derive(Debug)]
pub struct PinnedFile {
    file: OwnedFd,
    path: PathBuf,
}

impl PinnedFile {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, FileError> {
        let path = path.into();
        match File::open(&path) {
            Ok(file) => Ok(Self { file: file.into(), path }),
            Err(source) => Err(FileError::Open { path, source }),
        }
    }

    /// Opens `name` below an open directory; `directory_path` is for messages only.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open_at(directory: impl AsFd, directory_path: &Path, name: &str) -> Result<Self, FileError> {
        let path = directory_path.join(name);
        match rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => Ok(Self { file, path }),
            Err(errno) => Err(FileError::Open { path, source: errno.into() }),
        }
    }

    /// Reads the file into `buffer` with one system call. The kernel hands out files of one record, which all those read
    /// this way are, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be read or is not text.
    pub fn read<'b>(&self, buffer: &'b mut Buffer) -> Result<&'b str, FileError> {
        let length = rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut *buffer.0, 0))
            .map_err(|errno| FileError::Read { path: self.path.clone(), source: errno.into() })?;
        let text = buffer.0.get(..length).unwrap_or_default();
        std::str::from_utf8(text).map_err(|error| self.content(error.to_string()))
    }

    /// Reads a file of many records, of which the kernel hands out a page at a time (`seq_file`), to its end or to the
    /// end of the buffer, whichever comes first.
    ///
    /// # Errors
    /// When it cannot be read or is not text.
    pub fn read_whole<'b>(&self, buffer: &'b mut Buffer) -> Result<&'b str, FileError> {
        let mut length = 0;
        while let Some(room) = buffer.0.get_mut(length..).filter(|room| !room.is_empty()) {
            let offset = u64::try_from(length).unwrap_or(u64::MAX);
            let read = rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut *room, offset))
                .map_err(|errno| FileError::Read { path: self.path.clone(), source: errno.into() })?;
            if read == 0 {
                break;
            }
            length += read;
        }
        let text = buffer.0.get(..length).unwrap_or_default();
        std::str::from_utf8(text).map_err(|error| self.content(error.to_string()))
    }

    /// An error about what this file says.
    #[must_use]
    pub fn content(&self, what: impl Into<String>) -> FileError {
        FileError::Content { path: self.path.clone(), what: what.into() }
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Room for one read, allocated before memory is short.
#[derive(Debug)]
pub struct Buffer(Box<[u8]>);

impl Buffer {
    /// Enough for `memory.stat` and `/proc/meminfo` of today's kernels four times over.
    #[must_use]
    pub fn new() -> Self {
        Self(vec![0; 16 * 1024].into_boxed_slice())
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

/// The value of `key` in a file of `key value` lines, as `memory.stat` and `cgroup.events` are.
#[must_use]
pub fn keyed_value(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.split_ascii_whitespace().next())
        .and_then(|value| value.parse().ok())
}

/// A file that holds one number, or `max`, which is `None`: no limit.
///
/// # Errors
/// The text, when it is neither.
pub fn number_or_max(text: &str) -> Result<Option<u64>, String> {
    match text.trim() {
        "max" => Ok(None),
        number => number.parse().map(Some).map_err(|_| format!("expected a number or \"max\", found {number:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_whole_words_only() {
        let text = "inactive_file 7\nfile 12\nactive_file 3\n";
        assert_eq!(keyed_value(text, "file"), Some(12));
        assert_eq!(keyed_value(text, "inactive_file"), Some(7));
        assert_eq!(keyed_value(text, "inactive"), None);
    }

    #[test]
    fn limits_may_be_max() {
        assert_eq!(number_or_max("max\n"), Ok(None));
        assert_eq!(number_or_max("4096\n"), Ok(Some(4096)));
        assert!(number_or_max("many").is_err());
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = PinnedFile::open("/nonexistent/memory.current").unwrap_err().to_string();
        assert!(error.contains("/nonexistent/memory.current"), "{error}");
    }

    #[test]
    fn a_file_of_many_pages_is_read_to_its_end() {
        // More than the page that one read of it gives.
        let file = PinnedFile::open("/proc/self/smaps").unwrap();
        let mut buffer = Buffer::new();
        let text = file.read_whole(&mut buffer).unwrap();
        assert!(text.len() > 4096, "{}", text.len());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("long");
        std::fs::write(&path, "x".repeat(100_000)).unwrap();
        let whole = PinnedFile::open(&path).unwrap().read_whole(&mut buffer).unwrap().len();
        assert_eq!(whole, 16 * 1024, "never more than there is room for");
    }

    #[test]
    fn a_pinned_file_is_read_from_its_start_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory.current");
        std::fs::write(&path, "1\n").unwrap();
        let file = PinnedFile::open(&path).unwrap();
        let mut buffer = Buffer::new();
        assert_eq!(file.read(&mut buffer).unwrap(), "1\n");
        std::fs::write(&path, "22\n").unwrap();
        assert_eq!(file.read(&mut buffer).unwrap(), "22\n");
    }
}
