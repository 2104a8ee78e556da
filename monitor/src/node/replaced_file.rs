//! Replaces the agent's own files as a whole.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces the file at `path` by one with what `fill` writes. A crash leaves the old file or the new one. Returns the new file, which is
/// open for appending. Only root may read it.
pub fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let new = path.with_added_extension("new");
    // Left by an agent that was killed, or a symbolic link that must not be followed.
    let _absent = fs::remove_file(&new);
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&new)?;
    if let Err(error) = fill(&mut file).and_then(|()| fs::rename(&new, path)) {
        let _absent = fs::remove_file(&new);
        return Err(error);
    }
    Ok(file)
}
