//! Free space and inodes of the filesystem that holds a path. Each call may block on a disk.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfs, StatVfsMountFlags};
use rustix::io::Errno;

use crate::units::{Bytes, Monotonic, kernel_text};

use super::filesystem_roles::{Choice, Role};
use super::mountinfo::{Inodes, Mount, mount_id, mounts, process_of_mounts, unescaped};

/// A filesystem in one of its roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub path: PathBuf,
    /// `major:minor`. Two subvolumes of one btrfs share their device.
    pub device: String,
    pub mount_point: PathBuf,
    pub kind: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Without the reserve of root, as the kubelet counts.
    pub available: Bytes,
    pub capacity: Bytes,
    /// Without the reserve of root.
    pub used: Bytes,
}

impl Space {
    /// Returns `None` for a filesystem without a size of its own, such as ramfs.
    pub fn of(answer: &StatVfs) -> Option<Self> {
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(answer.f_frsize));
        (answer.f_blocks > 0).then(|| Self {
            available: bytes(answer.f_bavail),
            capacity: bytes(answer.f_blocks),
            used: bytes(answer.f_blocks.saturating_sub(answer.f_bfree)),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsSample {
    pub role: Role,
    pub place: Arc<Place>,
    /// Whether the filesystem is read-only through every mount, so that its free space never changes.
    pub is_read_only: bool,
    /// `None` for a filesystem without a size, or a read-only one.
    pub space: Option<Space>,
    /// `None` for a filesystem without a limit of inodes, or a read-only one.
    pub inodes: Option<Inodes>,
    /// The time just before the call.
    pub at: Monotonic,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSample {
    /// None of the paths exists on this machine.
    Absent(String),
    /// The call failed, which tells nothing about the paths.
    Failed(String),
}

impl fmt::Display for NoSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Absent(reason) | Self::Failed(reason)) = self;
        f.write_str(reason)
    }
}

/// Samples the filesystems of this machine, in the mount namespace of its init.
#[derive(Debug, Clone)]
pub struct Statfs {
    proc_root: PathBuf,
    process: PathBuf,
    known: Vec<Known>,
}

/// A mount found earlier. The kernel reuses mount ids, so the device must match too.
#[derive(Debug, Clone)]
struct Known {
    mount: u64,
    device: u64,
    place: Arc<Place>,
    /// For a read-only mount: when the mounts were read, and whether the filesystem itself is read-only.
    read_only: Option<(Monotonic, bool)>,
}

/// How long [`Known::read_only`] is valid: a filesystem may be remounted without a change of this mount.
const READ_ONLY_AGE: Duration = Duration::from_secs(10);

/// The most mounts to remember: three roles, and some that other mounts cover by now.
const KNOWN: usize = 6;

impl Statfs {
    pub fn new(proc_root: &Path) -> Self {
        Self { proc_root: proc_root.to_owned(), process: process_of_mounts(proc_root), known: Vec::new() }
    }

    /// Samples the filesystem of the first path that exists. Each call resolves the path again, so that a new mount counts at once.
    /// Fails when no path exists, or the call fails.
    pub fn sample(&mut self, role: Role, choice: &Choice) -> Result<FsSample, NoSample> {
        let at = Monotonic::now();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = self.process.join("root");
        // Without a root, nothing is known about the paths below.
        let root = rustix::fs::open(&root, flags | OFlags::DIRECTORY, Mode::empty())
            .map_err(|errno| NoSample::Failed(cannot("open", &root, errno)))?;
        for path in &choice.paths {
            let file = match open_below(&root, path) {
                Ok(file) => file,
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(errno) => return Err(NoSample::Failed(cannot("open", path, errno))),
            };
            return self.sample_file(role, path, &file, at).map_err(NoSample::Failed);
        }
        let fix = if choice.is_configured { "correct" } else { "if it is elsewhere, name it in" };
        let (words, field) = (choice.words(), choice.field.as_str());
        Err(NoSample::Absent(format!("there is no {words}; {fix} filesystems.{field} of the configuration")))
    }

    fn sample_file(&mut self, role: Role, path: &Path, file: &OwnedFd, at: Monotonic) -> Result<FsSample, String> {
        let answer = rustix::fs::fstatvfs(file).map_err(|errno| cannot("get the statistics of", path, errno))?;
        let may_be_read_only = answer.f_flag.contains(StatVfsMountFlags::RDONLY);
        let (place, is_read_only) = self.place(path, file, may_be_read_only, at)?;
        let (space, inodes) = if is_read_only { (None, None) } else { (Space::of(&answer), Inodes::of(&answer)) };
        Ok(FsSample { role, place, is_read_only, space, inodes, at })
    }

    /// Returns the file's filesystem and whether that is read-only. A read-only mount does not imply it: other mounts may allow writes, as on
    /// a node that mounts its directories read-only into a container.
    fn place(
        &mut self,
        path: &Path,
        file: &OwnedFd,
        may_be_read_only: bool,
        now: Monotonic,
    ) -> Result<(Arc<Place>, bool), String> {
        let device = rustix::fs::fstat(file).map_err(|errno| cannot("stat", path, errno))?.st_dev;
        let mount = self.mount_id(file).ok_or_else(|| format!("the mount of {} is unknown", path.display()))?;
        let is_it = |known: &&mut Known| (known.mount, known.device) == (mount, device) && known.place.path == path;
        if let Some(known) = self.known.iter_mut().find(is_it) {
            if !may_be_read_only {
                known.read_only = None;
                return Ok((Arc::clone(&known.place), false));
            }
            if let Some((_, is_read_only)) = known.read_only.filter(|(read, _)| now.since(*read) < READ_ONLY_AGE) {
                return Ok((Arc::clone(&known.place), is_read_only));
            }
        }
        let mounts = self.process.join("mountinfo");
        let text = std::fs::read(&mounts).map_err(|error| format!("cannot read {}: {error}", mounts.display()))?;
        let (place, is_read_only) = place_in(&kernel_text::text(text), mount, path)
            .ok_or_else(|| format!("{} does not list the mount of {}", mounts.display(), path.display()))?;
        let (place, is_read_only) = (Arc::new(place), is_read_only && may_be_read_only);
        let read_only = may_be_read_only.then_some((now, is_read_only));
        self.known.retain(|known| known.place.path != path);
        self.known.truncate(KNOWN - 1);
        self.known.push(Known { mount, device, place: Arc::clone(&place), read_only });
        Ok((place, is_read_only))
    }

    /// Returns the mount's id in `mountinfo`, from `fdinfo` (Linux 3.15).
    fn mount_id(&self, file: &OwnedFd) -> Option<u64> {
        let name = format!("self/fdinfo/{}", file.as_raw_fd());
        // A configured procfs may be another machine's, which does not list this process.
        let text =
            [&self.proc_root, Path::new("/proc")].iter().find_map(|root| kernel_text::read(root.join(&name)).ok());
        mount_id(&text?)
    }
}

/// Opens a path with `O_PATH`. Symbolic links resolve as for init (`openat2`, Linux 5.6).
fn open_below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let below = path.strip_prefix("/").unwrap_or(path);
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    match rustix::fs::openat2(root, below, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        // Older kernels lack the call, and some sandboxes forbid it.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(root, below, flags, Mode::empty()),
        opened => opened,
    }
}

/// Returns the mount with this id, and whether its filesystem is read-only.
fn place_in(mountinfo: &str, mount: u64, path: &Path) -> Option<(Place, bool)> {
    let mount = mounts(mountinfo).find(|it| it.id == mount)?;
    let is_read_only = mount.is_read_only();
    let Mount { device, mount_point, kind, .. } = mount;
    let (device, kind) = (device.to_owned(), kind.to_owned());
    Some((Place { path: path.to_owned(), device, mount_point: unescaped(mount_point), kind }, is_read_only))
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
    fn a_mount_is_found_by_its_id() {
        let text = "22 27 0:21 / /proc rw - proc proc rw\n27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            41 27 8:17 / /mnt/with\\040blank rw master:3 - xfs /dev/sdb1 rw\n42 27 8:18 / /mnt/with\\040blank rw - ext4 /dev/c rw\n";
        let place =
            |id| place_in(text, id, Path::new("/x")).map(|(place, _)| (place.device, place.kind, place.mount_point));
        let blank = PathBuf::from("/mnt/with blank");
        assert_eq!(place(41), Some(("8:17".to_owned(), "xfs".to_owned(), blank.clone())));
        assert_eq!(place(42), Some(("8:18".to_owned(), "ext4".to_owned(), blank)), "mounted over it");
        assert_eq!(place(4), None);
    }

    #[test]
    fn the_first_existing_path_is_sampled() {
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
        let NoSample::Absent(error) = error else { panic!("{error:?}") };
        assert!(error.contains("missing") && error.contains("filesystems.imagefs"), "{error}");
        // A symbolic link to itself exists, but cannot be opened.
        let to_itself = directory.path().join("loop");
        std::os::unix::fs::symlink(&to_itself, &to_itself).unwrap();
        let error = statfs.sample(Role::Image, &choice(&[&to_itself, &there])).unwrap_err();
        assert!(matches!(error, NoSample::Failed(_)), "{error:?}");
        let mut statfs = Statfs { process: missing, ..statfs };
        let error = statfs.sample(Role::Image, &choice(&[&there])).unwrap_err();
        assert!(matches!(error, NoSample::Failed(_)), "{error:?}");
    }

    #[test]
    fn read_only_filesystems_have_no_figures() {
        let text = "1 1 254:0 / / ro,relatime - squashfs /dev/root ro,errors=continue\n\
            2 1 8:1 / /given ro,relatime - ext4 /dev/sda1 rw,discard\n3 1 0:2 / /run rw - tmpfs  rw,size=4k\n\
            4 1 8:2 / /broken rw - ext4 /dev/sdb ro,errors=remount-ro\n5 1 0:3 / /cut rw - rootfs\n";
        for (id, expected) in [(1, true), (2, false), (3, false), (4, true), (5, false)] {
            let (place, is_read_only) = place_in(text, id, Path::new("/x")).unwrap();
            assert_eq!(is_read_only, expected, "{place:?}");
        }
        // The read-only filesystems of this machine: sysfs in a container, an image of the system.
        let mut statfs = Statfs::new(Path::new("/proc"));
        let mountinfo = std::fs::read_to_string(statfs.process.join("mountinfo")).unwrap();
        for mount in mounts(&mountinfo).filter(Mount::is_read_only) {
            let path = unescaped(mount.mount_point);
            let Ok(sample) = statfs.sample(Role::Node, &choice(&[&path])) else { continue };
            if sample.place.device == mount.device {
                assert_eq!((sample.is_read_only, sample.space, sample.inodes), (true, None, None), "{sample:?}");
            }
        }
    }

    #[test]
    fn symbolic_links_are_followed_to_their_mount() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        let mut statfs = Statfs::new(Path::new("/proc"));
        let procfs = statfs.sample(Role::Container, &choice(&[&link])).unwrap();
        assert_eq!((procfs.place.kind.as_str(), procfs.place.mount_point.as_path()), ("proc", Path::new("/proc")));
        assert_eq!((procfs.space, procfs.inodes), (None, None), "procfs has no size");
        let root = statfs.sample(Role::Node, &choice(&[Path::new("/")])).unwrap();
        assert_ne!(root.place.device, procfs.place.device);
    }

    #[test]
    fn without_a_size_or_a_limit_there_is_no_figure() {
        let mut answer = rustix::fs::statvfs("/").unwrap();
        (answer.f_frsize, answer.f_blocks, answer.f_bavail, answer.f_files, answer.f_ffree) = (4096, 100, 10, 50, 60);
        answer.f_bfree = 15;
        let expected = Space { available: Bytes(40_960), capacity: Bytes(409_600), used: Bytes(348_160) };
        assert_eq!(Space::of(&answer), Some(expected));
        assert_eq!(Inodes::of(&answer), Some(Inodes { total: 50, free: 50 }), "at most the total");
        (answer.f_blocks, answer.f_files) = (0, 0);
        assert_eq!((Space::of(&answer), Inodes::of(&answer)), (None, None));
    }
}
