//! Files that were deleted and are still open: no walk can see them, and they take their space until the last process closes them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, readlink, statx};

use super::places::Shown;
use super::tree::{device, held};
use super::usage::{Held, Part};

/// How the kernel ends the name of such a file (`d_path`).
const MARK: &[u8] = b" (deleted)";
/// Files of one process that are looked at.
const MOST_FILES: usize = 16 * 1024;
/// Deleted files of one workload that are remembered, so that each is counted once.
const MOST_DELETED: usize = 16 * 1024;

/// The deleted files of one workload.
#[derive(Debug, Default)]
pub struct Deleted {
    by_part: HashMap<Part, Held>,
    /// Filesystem and inode.
    seen: HashSet<(u32, u64)>,
    entries: u64,
    is_cut_off: bool,
    is_refused: bool,
}

impl Deleted {
    /// What was found of a part.
    pub fn of(&self, part: &Part) -> Held {
        self.by_part.get(part).copied().unwrap_or_default()
    }

    /// How many files were looked at.
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// False when there were too many, or some could not be seen.
    pub const fn is_complete(&self) -> bool {
        !self.is_cut_off && !self.is_refused
    }

    /// Whether a process would not be looked at.
    pub const fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Looks through the open files of a process, whose directory in procfs is given. One that has ended holds nothing.
    pub fn look(&mut self, process: &Path, shown: &[Shown]) {
        let files = match std::fs::read_dir(process.join("fd")) {
            Ok(files) => files,
            Err(error) => {
                self.is_refused |= error.kind() == std::io::ErrorKind::PermissionDenied;
                return;
            }
        };
        for (number, file) in files.flatten().enumerate() {
            if number >= MOST_FILES {
                self.is_cut_off = true;
                return;
            }
            self.entries += 1;
            self.look_at(&file.path(), shown);
        }
    }

    fn look_at(&mut self, file: &Path, shown: &[Shown]) {
        // Most files are told apart by their name alone.
        let Some(path) = readlink(file, Vec::new()).ok().and_then(|link| deleted_path(link.as_bytes())) else { return };
        let places = shown.iter().filter(|place| path.starts_with(&place.mount_point));
        let Some(place) = places.max_by_key(|place| place.mount_point.as_os_str().len()) else { return };
        let mask = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::INO | StatxFlags::BLOCKS;
        let Ok(status) = statx(CWD, file, AtFlags::STATX_DONT_SYNC, mask) else { return };
        let is_file = FileType::from_raw_mode(status.stx_mode.into()) == FileType::RegularFile;
        let device = device(&status);
        // A file of this very name may have been made since, and something else may be mounted there: memory, a disk of its own.
        if !is_file || status.stx_nlink != 0 || device.to_string() != place.device {
            return;
        }
        if self.seen.len() >= MOST_DELETED {
            self.is_cut_off = true;
        } else if self.seen.insert((device.0, status.stx_ino)) {
            *self.by_part.entry(place.part.clone()).or_default() += held(&status);
        }
    }
}

/// The path of a deleted file as the process sees it.
fn deleted_path(link: &[u8]) -> Option<PathBuf> {
    let path = link.strip_suffix(MARK).filter(|path| path.starts_with(b"/"))?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::config::Bytes;

    fn place(directory: &Path, device: &str) -> Shown {
        let part = Part::Volume { name: "cache".to_owned() };
        Shown { mount_point: directory.to_owned(), device: device.to_owned(), part }
    }

    #[test]
    fn deleted_files_that_are_open_are_counted_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("big");
        let mut big = File::create(&path).unwrap();
        big.write_all(&vec![1; 300_000]).unwrap();
        big.sync_all().unwrap();
        let again = File::open(&path).unwrap();
        let metadata = big.metadata().unwrap();
        let _kept = File::create(directory.path().join("kept")).unwrap();
        std::fs::remove_file(&path).unwrap();
        // One of the same name is another file.
        let _new = File::create(&path).unwrap();

        let status = crate::disk::host::status(&big).unwrap();
        let shown = [place(Path::new("/"), "0:0"), place(directory.path(), &device(&status).to_string())];
        let mut deleted = Deleted::default();
        deleted.look(Path::new("/proc/self"), &shown);
        deleted.look(Path::new("/proc/self"), &shown);
        drop(again);
        let expected = Held { bytes: Bytes(metadata.blocks() * 512), inodes: 1 };
        assert_eq!(deleted.of(&shown[0].part), expected);
        assert!(deleted.is_complete() && deleted.entries() > 4);
    }

    #[test]
    fn what_lies_on_another_filesystem_is_not_counted() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("a")).unwrap();
        std::fs::remove_file(directory.path().join("a")).unwrap();
        let mut deleted = Deleted::default();
        deleted.look(Path::new("/proc/self"), &[place(directory.path(), "9:9")]);
        deleted.look(Path::new("/proc/self"), &[]);
        deleted.look(Path::new("/nonexistent"), &[]);
        drop(file);
        assert_eq!(deleted.of(&Part::Volume { name: "cache".to_owned() }), Held::default());
    }

    #[test]
    fn names_of_open_files() {
        for (link, path) in [
            ("/data/a (deleted)", Some("/data/a")),
            ("/data/a", None),
            ("pipe:[12]", None),
            ("anon_inode:x (deleted)", None),
            ("/with (deleted) (deleted)", Some("/with (deleted)")),
        ] {
            assert_eq!(deleted_path(link.as_bytes()).as_deref(), path.map(Path::new), "{link}");
        }
    }
}
