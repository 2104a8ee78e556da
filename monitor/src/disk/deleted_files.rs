//! Files that are deleted but still open. A walk cannot find them, and they use space until the last process closes them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, readlink, statx};
use rustix::io::Errno;

use super::directory_walk::{device, held};
use super::measured_usage::{Held, Part};
use super::workload_places::VisibleMounts;
use crate::node::mountinfo::mount_id;
use crate::units::kernel_text;

/// The suffix of the name of a deleted file (`d_path`).
const MARK: &[u8] = b" (deleted)";
/// Limit of files scanned per process.
const MAX_FILES: usize = 16 * 1024;
/// How often the open files of a process are read at most. A busy process closes files all the time.
const MAX_LOOKS: u32 = 3;
/// Limit of deleted files remembered per workload, so that each is counted once.
const MAX_DELETED: usize = 16 * 1024;

#[derive(Debug, Default)]
pub struct DeletedFiles {
    by_part: HashMap<Part, Held>,
    seen: HashSet<(u32, u64)>,
    entries: u64,
    is_cut_off: bool,
    is_refused: bool,
}

impl DeletedFiles {
    pub fn of(&self, part: &Part) -> Held {
        self.by_part.get(part).copied().unwrap_or_default()
    }

    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns false if files were skipped because there were too many, because the process closed and opened files meanwhile, or
    /// because access was denied.
    pub const fn is_complete(&self) -> bool {
        !self.is_cut_off && !self.is_refused
    }

    pub const fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Scans the open files of the process with this directory in procfs. A process that has exited has none. A file on a mount
    /// that is no longer visible is attributed by its device, unless the process has the mounts of the machine's init.
    pub fn scan(&mut self, process: &Path, shown: &VisibleMounts, is_of_init: bool) {
        for _ in 0..MAX_LOOKS {
            match self.look(process, shown, is_of_init) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    self.is_refused |= error.kind() == std::io::ErrorKind::PermissionDenied;
                    return;
                }
            }
        }
        self.is_cut_off = true;
    }

    /// Counts the open files that are not counted yet. Returns whether all open files were read: the process may move a file to
    /// another number meanwhile.
    fn look(&mut self, process: &Path, shown: &VisibleMounts, is_of_init: bool) -> std::io::Result<bool> {
        let directory = process.join("fd");
        let files = std::fs::read_dir(&directory)?;
        // The size is the number of open files since Linux 6.2, and 0 before.
        let open = std::fs::metadata(&directory)?.len();
        let (mut read, mut is_whole) = (0, true);
        for file in files {
            if read >= MAX_FILES {
                self.is_cut_off = true;
                return Ok(true);
            }
            let Ok(file) = file else {
                is_whole = false;
                break;
            };
            read += 1;
            self.entries += 1;
            let details = process.join("fdinfo").join(file.file_name());
            is_whole &= self.count_file(&file.path(), &details, shown, is_of_init) != Err(Errno::NOENT);
        }
        let is_exited = || !directory.join(".").exists();
        Ok(is_whole && read as u64 >= open || is_exited())
    }

    fn count_file(
        &mut self,
        file: &Path,
        details: &Path,
        shown: &VisibleMounts,
        is_of_init: bool,
    ) -> Result<(), Errno> {
        // The name alone rules out most files. The part before the mark is not reliable: a process may have moved its mounts.
        if !is_deleted(readlink(file, Vec::new())?.as_bytes()) {
            return Ok(());
        }
        let mount = match kernel_text::read(details) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Errno::NOENT),
            text => text.ok().and_then(|text| mount_id(&text)),
        };
        // The file on another filesystem is not opened, because that filesystem may hang.
        if mount.is_some_and(|mount| shown.others.contains(&mount)) {
            return Ok(());
        }
        let mask = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::INO | StatxFlags::BLOCKS;
        let status = statx(CWD, file, AtFlags::STATX_DONT_SYNC, mask)?;
        let is_file = FileType::from_raw_mode(status.stx_mode.into()) == FileType::RegularFile;
        if !is_file || status.stx_nlink != 0 {
            return Ok(());
        }
        let device = device(&status);
        let is_there = |(on, _): &&(String, Part)| *on == device.to_string();
        let of_volume = mount.and_then(|mount| shown.mounts.get(&mount));
        let guessed = || shown.volumes.iter().find(is_there).filter(|_| !is_of_init).map(|(_, part)| part);
        let of_layer = shown.layer.as_ref().filter(is_there).map(|(_, part)| part);
        let Some(part) = of_volume.or(of_layer).or_else(guessed) else { return Ok(()) };
        if self.seen.len() >= MAX_DELETED {
            self.is_cut_off = true;
        } else if self.seen.insert((device.0, status.stx_ino)) {
            *self.by_part.entry(part.clone()).or_default() += held(&status);
        }
        Ok(())
    }
}

/// Returns whether the link of an open file marks it as deleted.
fn is_deleted(link: &[u8]) -> bool {
    link.starts_with(b"/") && link.ends_with(MARK)
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

    /// Makes a deleted file that is still open. Returns it with its mount and its device.
    fn deleted_file(directory: &Path) -> (File, u64, String) {
        let path = directory.join("big");
        let mut big = File::create(&path).unwrap();
        big.write_all(&vec![1; 300_000]).unwrap();
        big.sync_all().unwrap();
        std::fs::remove_file(&path).unwrap();
        let details = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", big.as_raw_fd())).unwrap();
        let device = device(&crate::disk::host_files::status(&big).unwrap()).to_string();
        (big, mount_id(&details).unwrap(), device)
    }

    fn look(shown: &VisibleMounts, is_of_init: bool) -> DeletedFiles {
        let mut deleted = DeletedFiles::default();
        deleted.scan(Path::new("/proc/self"), shown, is_of_init);
        deleted.scan(Path::new("/proc/self"), shown, is_of_init);
        assert!(deleted.entries() > 4 && !deleted.is_refused());
        deleted
    }

    #[test]
    fn deleted_files_that_are_open_are_counted_once() {
        let directory = tempfile::tempdir().unwrap();
        let (big, mount, _) = deleted_file(directory.path());
        // The test adds a second descriptor, a file that is kept, and a new file of the same name.
        let again = big.try_clone().unwrap();
        let _kept = File::create(directory.path().join("kept")).unwrap();
        let _new = File::create(directory.path().join("big")).unwrap();
        let shown = VisibleMounts { mounts: [(mount, volume("cache"))].into(), ..VisibleMounts::default() };
        let metadata = big.metadata().unwrap();
        let found = look(&shown, true).of(&volume("cache"));
        drop(again);
        // Other tests have open deleted files as well.
        assert!(found.inodes >= 1 && found.bytes >= Bytes(metadata.blocks() * 512), "{found:?}");
        let mut twice = DeletedFiles::default();
        let file = format!("/proc/self/fd/{}", big.as_raw_fd());
        let details = format!("/proc/self/fdinfo/{}", big.as_raw_fd());
        for _ in 0..2 {
            twice.count_file(Path::new(&file), Path::new(&details), &shown, true).unwrap();
        }
        assert_eq!(twice.of(&volume("cache")), Held { bytes: Bytes(metadata.blocks() * 512), inodes: 1 });
    }

    #[test]
    fn a_file_that_moves_between_numbers_is_found_or_missed_knowingly() {
        // The numbers between the two take time to list.
        const MOVES: &str = r#"exec 3<>"$0"; for n in {10..199}; do eval "exec $n</dev/null"; done; rm "$0"
            while :; do exec 200<&3 3<&-; exec 3<&200 200<&-; done"#;
        let directory = tempfile::tempdir().unwrap();
        let (big, mount, _) = deleted_file(directory.path());
        drop(big);
        let path = directory.path().join("moved");
        std::fs::write(&path, vec![1; 300_000]).unwrap();
        let mut process = std::process::Command::new("bash").args(["-c", MOVES]).arg(&path).spawn().unwrap();
        while path.exists() {
            std::thread::yield_now();
        }
        let shown = VisibleMounts { mounts: [(mount, volume("cache"))].into(), ..VisibleMounts::default() };
        let of_process = std::path::PathBuf::from(format!("/proc/{}", process.id()));
        let scans: Vec<(bool, bool)> = (0..300)
            .map(|_| {
                let mut deleted = DeletedFiles::default();
                deleted.scan(&of_process, &shown, true);
                (deleted.of(&volume("cache")).bytes >= Bytes(300_000), deleted.is_complete())
            })
            .collect();
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(scans.iter().any(|(is_found, _)| *is_found));
        assert!(scans.iter().all(|(is_found, is_complete)| *is_found || !is_complete), "{scans:?}");
    }

    #[test]
    fn the_files_of_a_calm_process_are_read_completely() {
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut deleted = DeletedFiles::default();
        let directory = std::path::PathBuf::from(format!("/proc/{}", process.id()));
        deleted.scan(&directory, &VisibleMounts::default(), true);
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(deleted.is_complete() && deleted.entries() >= 3, "{deleted:?}");
        deleted.scan(&directory, &VisibleMounts::default(), true);
        assert!(deleted.is_complete(), "the process has exited: {deleted:?}");
    }

    #[test]
    fn a_file_on_an_invisible_mount_counts_by_its_device() {
        let directory = tempfile::tempdir().unwrap();
        let (_big, mount, device) = deleted_file(directory.path());
        let layer = Part::WritableLayer { container: "id".to_owned() };
        let on = |device: &str| VisibleMounts {
            layer: Some((device.to_owned(), layer.clone())),
            volumes: vec![(device.to_owned(), volume("cache"))],
            ..VisibleMounts::default()
        };
        assert!(look(&on(&device), false).of(&layer).inodes >= 1);
        let volumes = VisibleMounts { layer: None, ..on(&device) };
        assert!(look(&volumes, false).of(&volume("cache")).inodes >= 1);
        // Files of the machine's own programs, files on another filesystem, and files on a mount that shows something else do not
        // count.
        assert_eq!(look(&volumes, true).of(&volume("cache")), Held::default());
        assert_eq!(look(&on("9:9"), false).of(&layer), Held::default());
        let others = VisibleMounts { others: [mount].into(), ..on(&device) };
        assert_eq!(look(&others, false).of(&layer), Held::default());
        DeletedFiles::default().scan(Path::new("/nonexistent"), &volumes, false);
    }

    #[test]
    fn the_names_of_deleted_files_are_marked() {
        for (link, expected) in [
            ("/data/a (deleted)", true),
            ("/data/a", false),
            ("pipe:[12]", false),
            ("anon_inode:x (deleted)", false),
            ("/with (deleted) (deleted)", true),
        ] {
            assert_eq!(is_deleted(link.as_bytes()), expected, "{link}");
        }
    }
}
