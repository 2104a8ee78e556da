//! Which filesystem holds what the kubelet and the container runtime keep.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::facts::{Filesystem, InodesLeft};

/// The kubelet's root, where there is one.
pub const KUBELET_ROOT: &str = "/var/lib/kubelet";
/// Where runtimes keep images and writable layers.
const STORES: [&str; 2] = ["/var/lib/containerd", "/var/lib/containers/storage"];

/// The filesystems of the machine whose root directory is `root`.
///
/// # Errors
/// When the mounts cannot be read, or the filesystem of a role cannot be asked.
pub fn by_role(root: &Path, mountinfo: &str) -> Result<Vec<Filesystem>, String> {
    let first = |places: &[&'static str]| places.iter().copied().find(|place| below(root, place).is_dir());
    let node = first(&[KUBELET_ROOT]).unwrap_or("/");
    // Without a store of its own a runtime keeps its images where everything else is.
    let store = first(&STORES).unwrap_or(node);
    [("nodefs", node), ("imagefs", store), ("containerfs", store)]
        .into_iter()
        .map(|(role, path)| ask(root, mountinfo, role, path))
        .collect()
}

fn ask(root: &Path, mountinfo: &str, role: &'static str, path: &str) -> Result<Filesystem, String> {
    let place = below(root, path);
    let failed = |error: std::io::Error| format!("cannot ask for the filesystem of {path}: {error}");
    let found = fs::metadata(&place).map_err(failed)?;
    let stat = statvfs(&place).map_err(|errno| failed(errno.into()))?;
    let Mount { mount_point, kind } = mount_of(mountinfo, path);
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Filesystem {
        role,
        path: path.into(),
        device: format!("{}:{}", rustix::fs::major(found.dev()), rustix::fs::minor(found.dev())),
        mount_point,
        kind,
        available_bytes: bytes(stat.f_bavail),
        capacity_bytes: bytes(stat.f_blocks),
        inodes: (stat.f_files > 0).then_some(InodesLeft { free: stat.f_ffree, total: stat.f_files }),
    })
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[derive(Debug, PartialEq)]
struct Mount {
    mount_point: PathBuf,
    kind: String,
}

/// The mount that `path` is in: the last one of the longest mount point, which hides the others.
fn mount_of(mountinfo: &str, path: &str) -> Mount {
    let mut found = Mount { mount_point: "/".into(), kind: "unknown".to_owned() };
    for line in mountinfo.lines() {
        // 27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
        let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (mount.split(' ').nth(4), filesystem.split(' ').next()) else { continue };
        let point = Path::new(point);
        if Path::new(path).starts_with(point) && point.components().count() >= found.mount_point.components().count() {
            found = Mount { mount_point: point.to_owned(), kind: kind.to_owned() };
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 27 0:40 / /var rw - btrfs /dev/vdb rw,subvol=/
29 28 8:1 / /var/lib/kubelet rw - ext4 /dev/sda1 rw
30 29 8:2 / /var/lib/kubelet rw - xfs /dev/sdb1 rw
31 28 0:41 / /var/lib/kubelet-not rw - tmpfs tmpfs rw
a line that is none
";

    #[test]
    fn the_mount_is_the_nearest_and_of_those_the_last() {
        for (path, point, kind) in [
            ("/var/lib/kubelet", "/var/lib/kubelet", "xfs"),
            ("/var/lib/containerd", "/var", "btrfs"),
            ("/", "/", "ext4"),
            ("/home", "/", "ext4"),
        ] {
            assert_eq!(mount_of(MOUNTS, path), Mount { mount_point: point.into(), kind: kind.to_owned() }, "{path}");
        }
        assert_eq!(mount_of("", "/var").kind, "unknown");
    }

    #[test]
    fn roles_follow_the_directories_there_are() {
        let root = tempfile::tempdir().unwrap();
        let paths = || -> Vec<PathBuf> {
            by_role(root.path(), MOUNTS).unwrap().into_iter().map(|filesystem| filesystem.path).collect()
        };
        assert_eq!(paths(), ["/", "/", "/"].map(PathBuf::from));
        fs::create_dir_all(root.path().join("var/lib/containers/storage")).unwrap();
        assert_eq!(paths()[1..], ["/var/lib/containers/storage"; 2].map(PathBuf::from));
        fs::create_dir_all(root.path().join("var/lib/kubelet")).unwrap();
        fs::create_dir_all(root.path().join("var/lib/containerd")).unwrap();
        assert_eq!(paths(), ["/var/lib/kubelet", "/var/lib/containerd", "/var/lib/containerd"].map(PathBuf::from));
        let error = by_role(Path::new("/nonexistent"), MOUNTS).unwrap_err();
        assert!(error.contains("filesystem of /"), "{error}");
    }
}
