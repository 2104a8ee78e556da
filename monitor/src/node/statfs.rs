//! How much is left on the filesystem that holds a path, and which one that is. Every call here may wait for a disk.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfs};
use rustix::io::Errno;

use crate::config::Bytes;

use super::clock::Monotonic;
use super::filesystems::{Inodes, Line, lines, process_of_mounts, unescaped};
use super::layout::{Choice, Role};

/// A filesystem in one of its roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The path that stands for it.
    pub path: PathBuf,
    /// `major:minor` of its device. Two subvolumes of one btrfs are one device, which they share.
    pub device: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Its type.
    pub kind: String,
}

/// What is left, and of how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// For those without privileges, as the kubelet counts: the root's reserve is left out.
    pub available: Bytes,
    /// In all.
    pub capacity: Bytes,
}

/// One look at a filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsSample {
    /// In which role.
    pub role: Role,
    /// Which.
    pub place: Arc<Place>,
    /// Its bytes; nothing where it has no size of its own (ramfs).
    pub space: Option<Space>,
    /// Its inodes; nothing where there is no limit (btrfs, tmpfs with `nr_inodes=0`).
    pub inodes: Option<Inodes>,
    /// When it was true: the moment before the call.
    pub at: Monotonic,
}

/// Asks the filesystems of this machine, in the eyes of its init.
#[derive(Debug)]
pub struct Statfs {
    proc_root: PathBuf,
    process: PathBuf,
    known: Vec<Known>,
}

/// A mount that was looked up. Ids of mounts are used again, hence the device beside.
#[derive(Debug)]
struct Known {
    mount: u64,
    device: u64,
    place: Arc<Place>,
}

/// There are three roles; what is more was mounted over by now.
const KNOWN: usize = 6;

impl Statfs {
    /// Chooses whose mounts are looked at.
    #[must_use]
    pub fn new(proc_root: &Path) -> Self {
        Self { proc_root: proc_root.to_owned(), process: process_of_mounts(proc_root), known: Vec::new() }
    }

    /// Asks the filesystem of the first path that is there. The path is followed anew each time: what is mounted over it counts at once.
    ///
    /// # Errors
    /// When none of them is there, or the filesystem does not answer.
    pub fn sample(&mut self, role: Role, choice: &Choice) -> Result<FsSample, String> {
        let at = Monotonic::now();
        for path in &choice.paths {
            let file = match self.open(path) {
                Ok(file) => file,
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(errno) => return Err(cannot("open", path, errno)),
            };
            let answer = rustix::fs::fstatvfs(&file).map_err(|errno| cannot("ask the filesystem of", path, errno))?;
            let place = self.place(path, &file)?;
            return Ok(FsSample { role, place, space: space(&answer), inodes: inodes(&answer), at });
        }
        let fix = if choice.is_configured { "correct" } else { "if it is elsewhere, name it in" };
        Err(format!("there is no {}; {fix} filesystems.{} of the configuration", choice.words(), choice.field.as_str()))
    }

    /// Opens a path without opening what lies there. Symbolic links lead to where they lead for init (`openat2`, Linux 5.6).
    fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.process.join("root"), flags | OFlags::DIRECTORY, Mode::empty())?;
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        match rustix::fs::openat2(&root, below, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            // Older kernels do not have it, and some sandboxes forbid it.
            Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(&root, below, flags, Mode::empty()),
            opened => opened,
        }
    }

    fn place(&mut self, path: &Path, file: &OwnedFd) -> Result<Arc<Place>, String> {
        let device = rustix::fs::fstat(file).map_err(|errno| cannot("look at", path, errno))?.st_dev;
        let mount = self.mount_id(file).ok_or_else(|| format!("the mount of {} is not told", path.display()))?;
        let is_it = |known: &&Known| (known.mount, known.device) == (mount, device) && known.place.path == path;
        if let Some(known) = self.known.iter().find(is_it) {
            return Ok(Arc::clone(&known.place));
        }
        let mounts = self.process.join("mountinfo");
        let text = std::fs::read(&mounts).map_err(|error| format!("cannot read {}: {error}", mounts.display()))?;
        let place = place_in(&String::from_utf8_lossy(&text), mount, path)
            .ok_or_else(|| format!("{} does not list the mount of {}", mounts.display(), path.display()))?;
        let place = Arc::new(place);
        self.known.retain(|known| known.place.path != path);
        self.known.truncate(KNOWN - 1);
        self.known.push(Known { mount, device, place: Arc::clone(&place) });
        Ok(place)
    }

    /// The id by which mountinfo lists the mount (`fdinfo`, Linux 3.15).
    fn mount_id(&self, file: &OwnedFd) -> Option<u64> {
        let name = format!("self/fdinfo/{}", file.as_raw_fd());
        // Another machine's procfs does not show us.
        let text = [&self.proc_root, Path::new("/proc")]
            .iter()
            .find_map(|root| std::fs::read_to_string(root.join(&name)).ok());
        mount_id(&text?)
    }
}

fn mount_id(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

fn place_in(mountinfo: &str, mount: u64, path: &Path) -> Option<Place> {
    let Line { device, mount_point, kind, .. } = lines(mountinfo).find(|line| line.id.parse() == Ok(mount))?;
    let (device, kind) = (device.to_owned(), kind.to_owned());
    Some(Place { path: path.to_owned(), device, mount_point: unescaped(mount_point), kind })
}

fn space(answer: &StatVfs) -> Option<Space> {
    let bytes = |blocks: u64| Bytes(blocks.saturating_mul(answer.f_frsize));
    (answer.f_blocks > 0).then(|| Space { available: bytes(answer.f_bavail), capacity: bytes(answer.f_blocks) })
}

fn inodes(answer: &StatVfs) -> Option<Inodes> {
    (answer.f_files > 0).then(|| Inodes { total: answer.f_files, free: answer.f_ffree.min(answer.f_files) })
}

fn cannot(what: &str, path: &Path, errno: Errno) -> String {
    format!("cannot {what} {}: {}", path.display(), std::io::Error::from(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(paths: &[&Path]) -> Choice {
        Choice {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            is_configured: false,
            field: Role::Image,
        }
    }

    #[test]
    fn a_mount_is_known_by_its_id() {
        let text = "22 27 0:21 / /proc rw - proc proc rw\n27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            41 27 8:17 / /mnt/with\\040blank rw master:3 - xfs /dev/sdb1 rw\n42 27 8:18 / /mnt/with\\040blank rw - ext4 /dev/c rw\n";
        let place = |id| place_in(text, id, Path::new("/x")).map(|place| (place.device, place.kind, place.mount_point));
        let blank = PathBuf::from("/mnt/with blank");
        assert_eq!(place(41), Some(("8:17".to_owned(), "xfs".to_owned(), blank.clone())));
        assert_eq!(place(42), Some(("8:18".to_owned(), "ext4".to_owned(), blank)), "mounted over it");
        assert_eq!(place(4), None);
        assert_eq!(mount_id("pos:\t0\nflags:\t012100000\nmnt_id:\t41\nino:\t2\n"), Some(41));
        assert_eq!(mount_id("pos:\t0\n"), None);
    }

    #[test]
    fn the_first_path_that_is_there_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("there");
        std::fs::create_dir(&there).unwrap();
        let missing = directory.path().join("missing");
        let mut statfs = Statfs::new(Path::new("/proc"));
        let sample = statfs.sample(Role::Image, &choice(&[&missing, &there])).unwrap();
        assert_eq!(sample.place.path, there);
        let expected = rustix::fs::statvfs(&there).unwrap();
        assert_eq!(sample.space.unwrap().capacity, Bytes(expected.f_blocks * expected.f_frsize));
        assert_eq!(sample.inodes.is_some(), expected.f_files > 0);
        let again = statfs.sample(Role::Image, &choice(&[&there])).unwrap();
        assert!(Arc::ptr_eq(&again.place, &sample.place), "the mounts are read once");
        let error = statfs.sample(Role::Image, &choice(&[&missing])).unwrap_err();
        assert!(error.contains("missing") && error.contains("filesystems.imagefs"), "{error}");
    }

    #[test]
    fn links_are_followed_and_two_mounts_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        let mut statfs = Statfs::new(Path::new("/proc"));
        let procfs = statfs.sample(Role::Container, &choice(&[&link])).unwrap();
        assert_eq!((procfs.place.kind.as_str(), procfs.place.mount_point.as_path()), ("proc", Path::new("/proc")));
        assert_eq!((procfs.space, procfs.inodes), (None, None), "there is nothing that could run out");
        let root = statfs.sample(Role::Node, &choice(&[Path::new("/")])).unwrap();
        assert_ne!(root.place.device, procfs.place.device);
    }

    #[test]
    fn without_a_size_or_a_limit_there_is_no_figure() {
        let mut answer = rustix::fs::statvfs("/").unwrap();
        (answer.f_frsize, answer.f_blocks, answer.f_bavail, answer.f_files, answer.f_ffree) = (4096, 100, 10, 50, 60);
        assert_eq!(space(&answer), Some(Space { available: Bytes(40_960), capacity: Bytes(409_600) }));
        assert_eq!(inodes(&answer), Some(Inodes { total: 50, free: 50 }), "never more than there are");
        (answer.f_blocks, answer.f_files) = (0, 0);
        assert_eq!((space(&answer), inodes(&answer)), (None, None));
    }
}
