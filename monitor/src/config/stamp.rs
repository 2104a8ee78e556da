//! By what a file is known to be another than before.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Device, inode, size, and the times of the last change of content and of the inode: another file under the same path, which a symbolic
/// link may have been turned to (a ConfigMap's `..data`), is told by the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// That of the file which the path leads to now.
    ///
    /// # Errors
    /// When there is none, or it cannot be looked at.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self {
            file: (found.dev(), found.ino()),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}
