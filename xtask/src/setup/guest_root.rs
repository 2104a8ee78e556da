//! The root file systems of the guests with systemd and containerd. Each is made once from Debian's packages, and kept as an image.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::apt::Apt;
use super::need::Lack;
use super::packaged::MMDEBSTRAP;
use crate::cmd;
use crate::paths::find_program;

/// Packages in addition to Debian's minimal system.
const PACKAGES: [&str; 9] =
    ["systemd-sysv", "udev", "dbus", "containerd", "runc", "e2fsprogs", "xfsprogs", "busybox-static", "rpm"];
/// Further packages of the guest with a cluster.
const OF_A_CLUSTER: [&str; 9] = [
    "containernetworking-plugins",
    "etcd-server",
    "iproute2",
    "iptables",
    "conntrack",
    "mount",
    // Of CRI-O: the program that watches a container, and the one that fills the store of images.
    "conmon",
    "skopeo",
    // A CRI-O that is not linked statically needs it.
    "libsqlite3-0",
];
/// Paths that the guest does not need.
const LEFT_OUT: [&str; 4] = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"];
const SIZE: &str = "1G";

/// A root file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// With containerd.
    Containers,
    /// With containerd, etcd, and the programs that a kubelet and CRI-O call. The programs of Kubernetes and CRI-O are on a disk of their own.
    Cluster,
}

impl Root {
    /// Returns the path of the image, which may not exist yet. Its name has a number, so that an image of an earlier recipe is not used.
    pub fn path(self, cache: &Path) -> PathBuf {
        let name = match self {
            Self::Containers => "guest-root",
            Self::Cluster => "guest-root-cluster",
        };
        let revision = match self {
            Self::Containers => 2,
            Self::Cluster => 3,
        };
        cache.join(format!("{name}-{revision}.img"))
    }

    fn packages(self) -> Vec<&'static str> {
        let mut packages = PACKAGES.to_vec();
        if self == Self::Cluster {
            packages.extend(OF_A_CLUSTER);
        }
        packages
    }
}

/// Returns the image if it is as large as the file system in it: a full disk truncates an image, and a crash can leave zeros.
pub fn find(root: Root, cache: &Path) -> Result<String, Lack> {
    let path = root.path(cache);
    let Ok(metadata) = path.metadata() else { return Err(Lack::Absent) };
    let size = File::open(&path).ok().and_then(|image| size_of_ext4(&image));
    match size {
        Some(size) if size == metadata.len() => Ok(path.display().to_string()),
        _ => Err(Lack::Refused(format!("{} is not used: its file system is incomplete", path.display()))),
    }
}

/// Returns the size that the superblock of an ext4 file system names, in bytes.
fn size_of_ext4(image: &File) -> Option<u64> {
    const SUPERBLOCK: u64 = 1024;
    const MAGIC: [u8; 2] = [0x53, 0xef];
    let mut superblock = [0; 0x3a];
    image.read_exact_at(&mut superblock, SUPERBLOCK).ok()?;
    let number = |at: usize| Some(u32::from_le_bytes(superblock.get(at..at + 4)?.try_into().ok()?));
    let (blocks, block_size) = (number(0x4)?, 1024_u64.checked_shl(number(0x18)?)?);
    (superblock[0x38..] == MAGIC).then_some(u64::from(blocks).checked_mul(block_size)?)
}

/// Makes the image. Its Debian suite is that of this machine, because the agent is built against this machine's C library.
pub fn make(root: Root, apt: &mut Apt, cache: &Path) -> Result<String> {
    if MMDEBSTRAP.find().is_err() {
        apt.install(&["mmdebstrap"])?;
    }
    let os = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let suite = suite(&os).context("/etc/os-release has no VERSION_CODENAME: which Debian is this?")?;
    fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
    let tree = cache.join("guest-root.part");
    remove(&tree)?;
    let mut bootstrap = Command::new("mmdebstrap");
    bootstrap.args(["--quiet", "--variant=minbase", "--aptopt=APT::Sandbox::User \"root\""]);
    bootstrap.arg(format!("--include={}", root.packages().join(",")));
    for pattern in LEFT_OUT {
        bootstrap.arg(format!("--dpkgopt=path-exclude={pattern}"));
    }
    cmd::output(bootstrap.arg(suite).arg(&tree))?;
    let image = root.path(cache);
    let part = cache.join("guest-root.img.part");
    image_of(&tree, &part, SIZE)?;
    fs::rename(&part, &image).with_context(|| format!("moving {} to {}", part.display(), image.display()))?;
    remove(&tree)?;
    Ok(format!("made from Debian {suite}"))
}

/// Makes the image of a file system from a tree. The size is in the words of mkfs.
///
/// # Errors
/// When mkfs.ext4 is missing or fails.
pub fn image_of(tree: &Path, image: &Path, size: &str) -> Result<()> {
    let mkfs = find_program("mkfs.ext4").context("mkfs.ext4 is not there: run `cargo xtask setup`")?;
    let mut make = Command::new(mkfs);
    // The guest never writes to the image, only to a temporary copy-on-write layer. The image therefore needs no journal.
    make.args(["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0", "-m", "0", "-d"]);
    cmd::output(make.arg(tree).arg(image).arg(size)).map(drop)
}

/// Copies the image of a root file system with other programs in the place of those of the same names in `/usr/bin`.
///
/// # Errors
/// When the image cannot be copied, or debugfs (e2fsprogs) is missing or fails.
pub fn replace_programs(image: &Path, copy: &Path, programs: &[PathBuf]) -> Result<()> {
    cmd::output(Command::new("cp").arg("--sparse=always").arg(image).arg(copy))?;
    let debugfs = find_program("debugfs").context("debugfs is not there: install e2fsprogs")?;
    let mut commands = String::from("cd /usr/bin\n");
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        // What `write` makes cannot be executed.
        let _infallible =
            write!(commands, "rm {name}\nwrite {} {name}\nset_inode_field {name} mode 0100755\n", program.display());
    }
    let script = copy.with_extension("debugfs");
    fs::write(&script, commands).with_context(|| format!("writing {}", script.display()))?;
    // It exits with 0 whatever happens, and says which files it has written.
    let answer = cmd::output(Command::new(debugfs).arg("-w").arg("-f").arg(&script).arg(copy))?;
    let written = answer.matches("Allocated inode").count();
    ensure!(
        written == programs.len(),
        "debugfs wrote {written} of {} programs to {}: {answer}",
        programs.len(),
        copy.display()
    );
    Ok(())
}

fn remove(tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("removing {}", tree.display()))?;
    }
    Ok(())
}

fn suite(os_release: &str) -> Option<&str> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(value.trim_matches('"')).filter(|suite| !suite.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_or_empty_image_is_refused() {
        let cache = std::env::temp_dir().join(format!("guest-root-{}", std::process::id()));
        fs::create_dir_all(&cache).unwrap();
        let path = Root::Containers.path(&cache);
        assert_eq!(find(Root::Containers, &cache), Err(Lack::Absent));
        // 512 blocks of 4 KiB.
        let mut image = vec![0; 2 << 20];
        image[0x404..0x408].copy_from_slice(&512_u32.to_le_bytes());
        image[0x418] = 2;
        image[0x438..0x43a].copy_from_slice(&0xef53_u16.to_le_bytes());
        fs::write(&path, image).unwrap();
        assert_eq!(find(Root::Containers, &cache), Ok(path.display().to_string()));
        for size in [(2 << 20) - 4096, 1000, 0] {
            File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
            assert_ne!(find(Root::Containers, &cache), Ok(path.display().to_string()), "{size} bytes");
        }
        File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
        let story = find(Root::Containers, &cache).unwrap_err().to_string();
        assert!(story.ends_with("is not used: its file system is incomplete"), "{story}");
        fs::remove_dir_all(cache).unwrap();
    }

    #[test]
    fn the_suite_is_that_of_this_machine() {
        assert_eq!(suite("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(suite("VERSION_CODENAME=\"trixie\"\n"), Some("trixie"));
        assert_eq!(suite("ID=arch\n"), None);
    }
}
