//! The local filesystems, from `mountinfo`: where each device is mounted, and its inodes.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, fstatvfs, major, minor, stat, statvfs};

use crate::units::{Bytes, kernel_text};

/// Types of filesystems on local disks. Their statistics never wait for a network or for a user's process.
const LOCAL: [&str; 9] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "jfs", "nilfs2"];
/// Further types that a path may pass through without waiting: in memory, or on local disks.
const QUICK: [&str; 18] = [
    "tmpfs", "ramfs", "rootfs", "devtmpfs", "overlay", "aufs", "squashfs", "erofs", "proc", "sysfs", "cgroup",
    "cgroup2", "zfs", "vfat", "exfat", "ntfs3", "iso9660", "udf",
];
/// The most filesystems, volumes of pods included. Each is a few time series.
const MOST: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// `major:minor`, as the kernel's counters name it.
    pub device: String,
    /// The mount point in the mount namespace of the machine's init.
    pub mount_point: PathBuf,
    pub kind: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inodes {
    /// The limit, which on xfs changes with the free space.
    pub total: u64,
    pub free: u64,
}

impl Inodes {
    /// Returns `None` for a filesystem without a limit of inodes, such as btrfs or tmpfs with `nr_inodes=0`.
    pub fn of(answer: &StatVfs) -> Option<Self> {
        let (total, free) = (answer.f_files, answer.f_ffree.min(answer.f_files));
        (total > 0).then_some(Self { total, free })
    }

    pub const fn used(self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// Returns the local filesystems in the text of `mountinfo`. Each device occurs once, by the first mount of its root, or by the first
/// bind mount of a part where its root is not mounted. Overlays and filesystems in memory or on a network are excluded, and so are
/// filesystems below a network mount, for whose statistics the caller would wait.
pub fn parse(mountinfo: &str) -> Vec<Mounted> {
    let mut found: Vec<(Mounted, bool)> = Vec::new();
    let is_slow = |mount: &Mount<'_>| !LOCAL.contains(&mount.kind) && !QUICK.contains(&mount.kind);
    // A slow root is not counted: every path would be below it.
    let slow: Vec<PathBuf> = uncovered(mountinfo)
        .filter(|mount| is_slow(mount) && mount.mount_point != "/")
        .map(|mount| unescaped(mount.mount_point))
        .collect();
    for Mount { device, root, mount_point, kind, .. } in mounts(mountinfo).filter(|it| LOCAL.contains(&it.kind)) {
        let mounted = Mounted { device: device.to_owned(), mount_point: unescaped(mount_point), kind: kind.to_owned() };
        if slow.iter().any(|slow| mounted.mount_point.starts_with(slow)) {
            continue;
        }
        let is_root = root == "/";
        let has_room = found.len() < MOST;
        match found.iter_mut().find(|(known, _)| known.device == device) {
            Some(known) if is_root && !known.1 => *known = (mounted, true),
            None if has_room => found.push((mounted, is_root)),
            Some(_) | None => {}
        }
    }
    found.into_iter().map(|(mounted, _)| mounted).collect()
}

/// A line of `mountinfo`; the texts are still escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mount<'l> {
    /// The mount's id, as in `fdinfo`.
    pub id: u64,
    /// The id of the mount on which it is mounted.
    pub parent: u64,
    /// `major:minor`.
    pub device: &'l str,
    /// The directory of the filesystem that the mount shows.
    pub root: &'l str,
    pub mount_point: &'l str,
    pub kind: &'l str,
    /// The options of the filesystem, not of this mount. The first is `ro` or `rw`.
    pub options: &'l str,
}

impl<'l> Mount<'l> {
    pub fn parse(line: &'l str) -> Option<Self> {
        // 27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ');
        let (id, parent) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let (device, root, mount_point) = (fields.next()?, fields.next()?, fields.next()?);
        let mut fields = filesystem.split(' ');
        let (kind, _source) = (fields.next()?, fields.next());
        Some(Self { id, parent, device, root, mount_point, kind, options: fields.next().unwrap_or_default() })
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.options.split(',').next() == Some("ro")
    }

    pub fn upper_directory(&self) -> Option<PathBuf> {
        let is_overlay = self.kind == "overlay";
        // A comma in a path is escaped (`seq_show_option`), so this splits only between options.
        let option = self.options.split(',').find_map(|option| option.strip_prefix("upperdir="));
        option.filter(|_| is_overlay).map(unescaped)
    }
}

pub fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(Mount::parse)
}

/// As [`mounts`], without those that another one covers whole, such as the autofs of a systemd automount whose filesystem is mounted.
fn uncovered(mountinfo: &str) -> impl Iterator<Item = Mount<'_>> {
    let over = mounts(mountinfo).filter(|mount| mount.parent != mount.id);
    let covered: HashSet<(u64, &str)> = over.map(|mount| (mount.parent, mount.mount_point)).collect();
    mounts(mountinfo).filter(move |mount| !covered.contains(&(mount.id, mount.mount_point)))
}

/// Returns the mount of an open file, from the text of its `fdinfo` (Linux 3.15).
pub fn mount_id(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Decodes a path of `mountinfo`, where blanks, backslashes and, in options, commas are written as three octal digits.
pub fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// A tmpfs that is mounted deeper than this belongs to one pod: a volume, or its `/dev/shm`.
const SHARED_DEPTH: usize = 2;

/// The mounts of the machine's init, for questions about single paths.
#[derive(Debug)]
pub struct NodeMounts {
    process: PathBuf,
    text: String,
}

impl NodeMounts {
    pub fn read(proc_root: &Path) -> Self {
        let process = process_of_mounts(proc_root);
        let bytes = std::fs::read(process.join("mountinfo")).unwrap_or_default();
        Self { process, text: kernel_text::text(bytes) }
    }

    /// Returns where the agent finds the tmpfs that holds `path`, and those of the whole node that are mounted below `path`. Leaves out those
    /// on whose way a slow filesystem is mounted.
    pub fn in_memory(&self, path: &Path) -> Vec<PathBuf> {
        if !path.is_absolute() {
            return Vec::new();
        }
        let all: Vec<(PathBuf, &str)> =
            uncovered(&self.text).map(|mount| (unescaped(mount.mount_point), mount.kind)).collect();
        let holder =
            all.iter().rev().filter(|(point, _)| path.starts_with(point)).max_by_key(|(point, _)| depth(point));
        let below = all
            .iter()
            .filter(|(point, _)| point.starts_with(path) && point.as_path() != path && depth(point) <= SHARED_DEPTH);
        let is_quick = |point: &Path| {
            let mut passed = all.iter().filter(|(passed, _)| point.starts_with(passed));
            passed.all(|(_, kind)| LOCAL.contains(kind) || QUICK.contains(kind))
        };
        let in_memory = holder.into_iter().chain(below).filter(|(point, kind)| *kind == "tmpfs" && is_quick(point));
        in_memory.map(|(point, _)| self.process.join("root").join(point.strip_prefix("/").unwrap_or(point))).collect()
    }
}

/// Returns how many directories a path is below the root.
fn depth(path: &Path) -> usize {
    path.components().count().saturating_sub(1)
}

/// Returns how much of a filesystem is in use. A filesystem that does not tell is taken for full of anything.
pub fn used(filesystem: impl AsFd) -> Bytes {
    match fstatvfs(filesystem) {
        Ok(answer) if answer.f_blocks > 0 => {
            Bytes(answer.f_blocks.saturating_sub(answer.f_bfree).saturating_mul(answer.f_frsize))
        }
        _ => Bytes(u64::MAX),
    }
}

/// Returns the `/proc` directory of the process whose mounts are read: init where permitted, because an agent in a container has other
/// mounts.
pub(super) fn process_of_mounts(proc_root: &Path) -> PathBuf {
    let init = proc_root.join("1");
    if init.join("root/.").exists() { init } else { proc_root.join("self") }
}

#[derive(Debug, Clone)]
pub struct Filesystems {
    process: PathBuf,
}

impl Filesystems {
    pub fn new(proc_root: &Path) -> Self {
        Self { process: process_of_mounts(proc_root) }
    }

    pub fn mounted(&self) -> Result<Vec<Mounted>, String> {
        let path = self.process.join("mountinfo");
        let bytes = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(parse(&kernel_text::text(bytes)))
    }

    /// Returns the inodes of a filesystem now, or `None` where it has no limit, or where another filesystem is mounted there by now.
    pub fn inodes(&self, mounted: &Mounted) -> Option<Inodes> {
        let below_root = mounted.mount_point.strip_prefix("/").unwrap_or(&mounted.mount_point);
        let path = self.process.join("root").join(below_root);
        let device = stat(&path).ok()?.st_dev;
        if format!("{}:{}", major(device), minor(device)) != mounted.device {
            return None;
        }
        Inodes::of(&statvfs(&path).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_memory_is_found_by_its_mount() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("1/root")).unwrap();
        let line = |point: &str, kind: &str| format!("1 1 0:1 / {point} rw - {kind} x rw\n");
        let text = [
            line("/", "ext4"),
            line("/dev", "devtmpfs"),
            line("/dev/shm", "tmpfs"),
            line("/run", "tmpfs"),
            line("/run/disk", "ext4"),
            line("/net", "nfs4"),
            line("/net/ram", "tmpfs"),
            line("/run/containerd/sandbox/shm", "tmpfs"),
            line("/var/lib/kubelet/pods/u/volumes/x", "tmpfs"),
            line("/with\\040blank", "tmpfs"),
        ];
        std::fs::write(root.path().join("1/mountinfo"), text.concat()).unwrap();
        let mounts = NodeMounts::read(root.path());
        for (path, expected) in [
            ("/var/log", &[][..]),
            ("/dev/shm", &["dev/shm"]),
            ("/dev/shm/a/b", &["dev/shm"]),
            ("/dev", &["dev/shm"]),
            ("/run/lock", &["run"]),
            ("/run/disk/x", &[]),
            ("/net/ram/x", &[]),
            ("/runner", &[]),
            ("/with blank/x", &["with blank"]),
            ("/", &["dev/shm", "run", "with blank"]),
            ("relative", &[]),
            ("", &[]),
        ] {
            let expected: Vec<_> = expected.iter().map(|it| root.path().join("1/root").join(it)).collect();
            assert_eq!(mounts.in_memory(Path::new(path)), expected, "{path}");
        }
        assert!(NodeMounts::read(&root.path().join("none")).in_memory(Path::new("/dev/shm")).is_empty());
    }

    /// A node with kubelet and containerd (Linux 6.12), and other kinds of mounts.
    const TEXT: &str = r"22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
31 27 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw
40 27 8:17 /pods/a/volumes/data /var/lib/kubelet/pods/a/volume-subpaths/data rw - xfs /dev/sdb1 rw
41 27 8:17 / /mnt/with\040blank\134s rw,relatime shared:7 master:3 - xfs /dev/sdb1 rw
42 27 8:17 / /mnt/again rw,relatime - xfs /dev/sdb1 rw
43 27 0:51 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs rw - overlay overlay rw,lowerdir=/a
44 27 0:52 / /var/lib/kubelet/pods/b/volumes/nfs rw - nfs4 server:/export rw
45 27 0:53 / /mnt/fuse rw - fuse.sshfs host:/ rw
46 27 0:54 / /run/secrets rw - tmpfs tmpfs rw,size=4k
47 27 0:40 /@home /home rw - btrfs /dev/sdc rw,subvol=/@home
48 27 8:33 /sub /srv rw - ext4 /dev/sdc1 rw
49 27 254:0 /var/lib/docker /mnt/bind rw - ext4 /dev/vda rw
a line that is none
50 27 8:49
";

    #[test]
    fn each_device_occurs_once_by_its_root() {
        let found = parse(TEXT);
        let shown: Vec<_> = found
            .iter()
            .map(|mounted| format!("{} {} {}", mounted.device, mounted.kind, mounted.mount_point.display()))
            .collect();
        assert_eq!(shown, ["254:0 ext4 /", r"8:17 xfs /mnt/with blank\s", "0:40 btrfs /home", "8:33 ext4 /srv"]);
    }

    #[test]
    fn filesystems_below_a_network_mount_are_excluded() {
        let text = "27 1 0:2 / / rw - 9p host rw\n28 27 8:1 / /data rw - ext4 /dev/a rw\n\
            29 27 0:52 / /mnt/nfs rw - nfs4 server:/export rw\n30 29 8:2 / /mnt/nfs/disk rw - xfs /dev/b rw\n\
            31 27 8:3 / /mnt/nfs-not rw - ext4 /dev/c rw\n32 27 8:4 / /over rw - ext4 /dev/d rw\n\
            33 32 0:60 / /over rw - fuse.sshfs host:/ rw\n";
        let devices: Vec<_> = parse(text).into_iter().map(|mounted| mounted.device).collect();
        assert_eq!(devices, ["8:1", "8:3"]);
    }

    /// systemd.automount(5), `x-systemd.automount` of fstab: the autofs stays below the filesystem.
    #[test]
    fn a_filesystem_over_its_automount_is_there() {
        let text = "27 1 8:1 / / rw - ext4 /dev/a rw\n28 27 0:30 / /data rw - autofs systemd-1 rw\n\
            29 28 8:2 / /data rw - xfs /dev/b rw\n30 27 0:31 / /idle rw - autofs systemd-1 rw\n\
            31 29 8:3 / /data/inner rw - ext4 /dev/c rw\n32 27 0:32 / /net rw - autofs systemd-1 rw\n\
            33 32 0:60 / /net rw - nfs4 server:/ rw\n34 33 8:4 / /net/disk rw - ext4 /dev/d rw\n";
        let devices: Vec<_> = parse(text).into_iter().map(|mounted| mounted.device).collect();
        assert_eq!(devices, ["8:1", "8:2", "8:3"]);
    }

    #[test]
    fn the_number_of_filesystems_is_bounded() {
        let many: String =
            (0..1000).map(|number| format!("1 1 8:{number} / /mnt/{number} rw - ext4 /dev/x rw\n")).collect();
        assert_eq!(parse(&many).len(), MOST);
    }

    /// The kernel escapes blanks and backslashes of a mount point, and leaves all other bytes as they are.
    /// prometheus/node_exporter#3662 (a mount point), linuxmint/mintupgrade#121 (the source of a mount).
    #[test]
    fn a_mount_point_may_have_any_bytes() {
        use std::os::unix::ffi::OsStrExt as _;
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("1/root")).unwrap();
        let names: [&[u8]; 4] = [b"/mnt/\xff", b"/mnt/caf\xc3", br"/mnt/with\040blank", br"/mnt/\134377"];
        let lines = (1..).zip(names).map(|(number, name)| {
            [format!("{number} 1 8:{number} / ").as_bytes(), name, b" rw - ext4 \xb1x:\xbdy rw\n"].concat()
        });
        std::fs::write(root.path().join("1/mountinfo"), lines.collect::<Vec<_>>().concat()).unwrap();
        let found = Filesystems::new(root.path()).mounted().unwrap();
        let points: Vec<&[u8]> = found.iter().map(|mounted| mounted.mount_point.as_os_str().as_bytes()).collect();
        assert_eq!(points, [b"/mnt/\xff".as_slice(), b"/mnt/caf\xc3", b"/mnt/with blank", br"/mnt/\377"]);
        let shown: Vec<_> = found.iter().map(|mounted| kernel_text::of_path(&mounted.mount_point)).collect();
        assert_eq!(shown, [r"/mnt/\377", r"/mnt/caf\303", "/mnt/with blank", r"/mnt/\134377"]);
    }

    #[test]
    fn odd_escapes_are_kept() {
        for (text, expected) in [(r"/a\", r"/a\"), (r"/a\04", r"/a\04"), (r"/a\999", r"/a\999"), (r"/a\011b", "/a\tb")]
        {
            assert_eq!(unescaped(text), Path::new(expected), "{text}");
        }
    }

    #[test]
    fn the_mount_of_an_open_file_is_parsed() {
        assert_eq!(mount_id("pos:\t0\nflags:\t012100000\nmnt_id:\t41\nino:\t2\n"), Some(41));
        assert_eq!(mount_id("pos:\t0\n"), None);
    }

    #[test]
    fn inodes_of_this_machine_are_plausible() {
        let filesystems = Filesystems::new(Path::new("/proc"));
        for mounted in filesystems.mounted().unwrap() {
            if let Some(Inodes { total, free }) = filesystems.inodes(&mounted) {
                assert!(free <= total, "{mounted:?}");
            }
            // Another filesystem at the mount point has another device.
            let elsewhere = Mounted { mount_point: "/proc".into(), ..mounted };
            assert_eq!(filesystems.inodes(&elsewhere), None);
        }
    }
}
