//! Files that were deleted and are still open: no walk can see them, and they take their space until the last process closes them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

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

    /// Looks through the open files of a process, whose directory in procfs is given. One that has ended holds nothing. What lies on a
    /// mount that is not seen any more is taken for the pod's by its device, unless the process has the mounts of the machine's init.
    pub fn look(&mut self, process: &Path, shown: &Shown, is_of_init: bool) {
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
            let details = process.join("fdinfo").join(file.file_name());
            self.look_at(&file.path(), &details, shown, is_of_init);
        }
    }

    fn look_at(&mut self, file: &Path, details: &Path, shown: &Shown, is_of_init: bool) {
        // Most files are told apart by their name alone. What is before the mark says nothing: a process may have moved its mounts.
        if !readlink(file, Vec::new()).is_ok_and(|link| is_deleted(link.as_bytes())) {
            return;
        }
        let mount = std::fs::read_to_string(details).ok().and_then(|text| mount_id(&text));
        // Somebody else's filesystem may not answer: it is not asked.
        if mount.is_some_and(|mount| shown.others.contains(&mount)) {
            return;
        }
        let mask = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::INO | StatxFlags::BLOCKS;
        let Ok(status) = statx(CWD, file, AtFlags::STATX_DONT_SYNC, mask) else { return };
        let is_file = FileType::from_raw_mode(status.stx_mode.into()) == FileType::RegularFile;
        if !is_file || status.stx_nlink != 0 {
            return;
        }
        let device = device(&status);
        let is_there = |(on, _): &&(String, Part)| *on == device.to_string();
        let of_volume = mount.and_then(|mount| shown.mounts.get(&mount));
        let guessed = || shown.volumes.iter().find(is_there).filter(|_| !is_of_init).map(|(_, part)| part);
        let of_layer = shown.layer.as_ref().filter(is_there).map(|(_, part)| part);
        let Some(part) = of_volume.or(of_layer).or_else(guessed) else { return };
        if self.seen.len() >= MOST_DELETED {
            self.is_cut_off = true;
        } else if self.seen.insert((device.0, status.stx_ino)) {
            *self.by_part.entry(part.clone()).or_default() += held(&status);
        }
    }
}

/// Whether the name of an open file says that it was deleted.
fn is_deleted(link: &[u8]) -> bool {
    link.starts_with(b"/") && link.ends_with(MARK)
}

/// The mount on which a file was opened, by its `fdinfo`.
fn mount_id(details: &str) -> Option<u64> {
    details.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::units::Bytes;

    fn volume(name: &str) -> Part {
        Part::Volume { name: name.to_owned() }
    }

    /// A file that was deleted and is still open, with its mount and its device.
    fn deleted_file(directory: &Path) -> (File, u64, String) {
        let path = directory.join("big");
        let mut big = File::create(&path).unwrap();
        big.write_all(&vec![1; 300_000]).unwrap();
        big.sync_all().unwrap();
        std::fs::remove_file(&path).unwrap();
        let details = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", big.as_raw_fd())).unwrap();
        let device = device(&crate::disk::host::status(&big).unwrap()).to_string();
        (big, mount_id(&details).unwrap(), device)
    }

    fn look(shown: &Shown, is_of_init: bool) -> Deleted {
        let mut deleted = Deleted::default();
        deleted.look(Path::new("/proc/self"), shown, is_of_init);
        deleted.look(Path::new("/proc/self"), shown, is_of_init);
        assert!(deleted.is_complete() && deleted.entries() > 4);
        deleted
    }

    #[test]
    fn deleted_files_that_are_open_are_counted_once() {
        let directory = tempfile::tempdir().unwrap();
        let (big, mount, _) = deleted_file(directory.path());
        // Another descriptor of it, one that is kept, and another file of the same name.
        let again = big.try_clone().unwrap();
        let _kept = File::create(directory.path().join("kept")).unwrap();
        let _new = File::create(directory.path().join("big")).unwrap();
        let shown = Shown { mounts: [(mount, volume("cache"))].into(), ..Shown::default() };
        let metadata = big.metadata().unwrap();
        let found = look(&shown, true).of(&volume("cache"));
        drop(again);
        // Other tests have deleted files open too.
        assert!(found.inodes >= 1 && found.bytes >= Bytes(metadata.blocks() * 512), "{found:?}");
        let mut twice = Deleted::default();
        let file = format!("/proc/self/fd/{}", big.as_raw_fd());
        let details = format!("/proc/self/fdinfo/{}", big.as_raw_fd());
        for _ in 0..2 {
            twice.look_at(Path::new(&file), Path::new(&details), &shown, true);
        }
        assert_eq!(twice.of(&volume("cache")), Held { bytes: Bytes(metadata.blocks() * 512), inodes: 1 });
    }

    #[test]
    fn what_lies_on_a_mount_that_is_not_seen_counts_by_its_device() {
        let directory = tempfile::tempdir().unwrap();
        let (_big, mount, device) = deleted_file(directory.path());
        let layer = Part::WritableLayer { container: "id".to_owned() };
        let on = |device: &str| Shown {
            layer: Some((device.to_owned(), layer.clone())),
            volumes: vec![(device.to_owned(), volume("cache"))],
            ..Shown::default()
        };
        assert!(look(&on(&device), false).of(&layer).inodes >= 1);
        let volumes = Shown { layer: None, ..on(&device) };
        assert!(look(&volumes, false).of(&volume("cache")).inodes >= 1);
        // Not those of the machine's own programs, nor those on another filesystem or on a mount that shows something else.
        assert_eq!(look(&volumes, true).of(&volume("cache")), Held::default());
        assert_eq!(look(&on("9:9"), false).of(&layer), Held::default());
        let others = Shown { others: [mount].into(), ..on(&device) };
        assert_eq!(look(&others, false).of(&layer), Held::default());
        Deleted::default().look(Path::new("/nonexistent"), &volumes, false);
    }

    #[test]
    fn names_and_mounts_of_open_files() {
        for (link, expected) in [
            ("/data/a (deleted)", true),
            ("/data/a", false),
            ("pipe:[12]", false),
            ("anon_inode:x (deleted)", false),
            ("/with (deleted) (deleted)", true),
        ] {
            assert_eq!(is_deleted(link.as_bytes()), expected, "{link}");
        }
        assert_eq!(mount_id("pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t7\n"), Some(29));
        assert_eq!(mount_id("pos:\t0\n"), None);
    }
}
