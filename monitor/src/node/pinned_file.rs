//! The kernel's small files, kept open and read again and again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot open {path}: {source}", path = path.display())]
    Open { path: PathBuf, source: io::Error },
    /// `ENODEV` means that the cgroup of the file has been removed.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: {what}", path = path.display())]
    Content { path: PathBuf, what: String },
}

impl FileError {
    /// Returns whether the file's cgroup has been removed.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Read { source, .. } => is_gone(source),
            Self::Content { .. } => false,
        }
    }
}

/// Returns whether the error means that the file's cgroup has been removed: `ENOENT` for its path, `ENODEV` for an open file.
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// A kernel file kept open and read from its start each time, with one system call per read and no allocation. Reading a cgroup's file
/// fails once that cgroup is removed, even when another cgroup takes its path, so a successful read proves the cgroup's identity.
#[derive(Debug)]
pub struct PinnedFile {
    file: OwnedFd,
    path: PathBuf,
}

impl PinnedFile {
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, FileError> {
        let path = path.into();
        match File::open(&path) {
            Ok(file) => Ok(Self { file: file.into(), path }),
            Err(source) => Err(FileError::Open { path, source }),
        }
    }

    /// Opens `name` in an open directory. Only messages use `directory_path`.
    pub fn open_at(directory: impl AsFd, directory_path: &Path, name: &str) -> Result<Self, FileError> {
        let path = directory_path.join(name);
        match rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => Ok(Self { file, path }),
            Err(errno) => Err(FileError::Open { path, source: errno.into() }),
        }
    }

    /// Reads a file of one record into `buffer` with one system call. The kernel returns such a file whole or not at all.
    /// Fails when the file cannot be read or is not UTF-8.
    pub fn read<'b>(&self, buffer: &'b mut Buffer) -> Result<&'b str, FileError> {
        let length = self.read_at(&mut buffer.0, 0)?;
        self.text(buffer, length)
    }

    /// Reads a file of one decimal number.
    pub fn read_number(&self, buffer: &mut Buffer) -> Option<u64> {
        self.read(buffer).ok()?.trim().parse().ok()
    }

    /// Reads a file of many records (`seq_file`), which the kernel returns page by page, to its end or to the end of the buffer.
    /// Fails when the file cannot be read or is not UTF-8.
    pub fn read_whole<'b>(&self, buffer: &'b mut Buffer) -> Result<&'b str, FileError> {
        let mut length = 0;
        while let Some(room) = buffer.0.get_mut(length..).filter(|room| !room.is_empty()) {
            match self.read_at(room, length)? {
                0 => break,
                read => length += read,
            }
        }
        self.text(buffer, length)
    }

    fn read_at(&self, room: &mut [u8], offset: usize) -> Result<usize, FileError> {
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut *room, offset))
            .map_err(|errno| FileError::Read { path: self.path.clone(), source: errno.into() })
    }

    fn text<'b>(&self, buffer: &'b Buffer, length: usize) -> Result<&'b str, FileError> {
        let text = buffer.0.get(..length).unwrap_or_default();
        std::str::from_utf8(text).map_err(|error| self.content(error.to_string()))
    }

    pub fn content(&self, what: impl Into<String>) -> FileError {
        FileError::Content { path: self.path.clone(), what: what.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Memory for one read, allocated before memory is short.
#[derive(Debug)]
pub struct Buffer(Box<[u8]>);

impl Buffer {
    /// Allocates four times the size of `memory.stat` and `/proc/meminfo` of current kernels.
    pub fn new() -> Self {
        Self::of(16 * 1024)
    }

    /// Allocates so many bytes.
    pub fn of(length: usize) -> Self {
        Self(vec![0; length].into_boxed_slice())
    }

    pub fn capacity(&self) -> usize {
        self.0.len()
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the value of `key` in a file of `key value` lines, such as `memory.stat` and `cgroup.events`.
pub fn keyed_value(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.split_ascii_whitespace().next())
        .and_then(|value| value.parse().ok())
}

/// Parses a file that holds one number, or `max` for no limit (`None`). Fails when the text is neither.
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
    fn keys_match_as_whole_words() {
        let text = "inactive_file 7\nfile 12\nactive_file 3\n";
        assert_eq!(keyed_value(text, "file"), Some(12));
        assert_eq!(keyed_value(text, "inactive_file"), Some(7));
        assert_eq!(keyed_value(text, "inactive"), None);
    }

    #[test]
    fn a_limit_may_be_max() {
        assert_eq!(number_or_max("max\n"), Ok(None));
        assert_eq!(number_or_max("4096\n"), Ok(Some(4096)));
        assert!(number_or_max("many").is_err());
    }

    #[test]
    fn the_error_names_a_missing_file() {
        let error = PinnedFile::open("/nonexistent/memory.current").unwrap_err().to_string();
        assert!(error.contains("/nonexistent/memory.current"), "{error}");
    }

    #[test]
    fn a_file_of_many_pages_is_read_to_its_end() {
        // Larger than the page that one read returns.
        let file = PinnedFile::open("/proc/self/smaps").unwrap();
        let mut buffer = Buffer::new();
        let text = file.read_whole(&mut buffer).unwrap();
        assert!(text.len() > 4096, "{}", text.len());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("long");
        std::fs::write(&path, "x".repeat(100_000)).unwrap();
        let whole = PinnedFile::open(&path).unwrap().read_whole(&mut buffer).unwrap().len();
        assert_eq!(whole, 16 * 1024, "at most the buffer's size");
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
