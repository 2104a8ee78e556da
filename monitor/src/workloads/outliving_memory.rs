//! Shared memory that a pod's end does not give back: files on a tmpfs of the node, which others can open, and System V segments of the node's
//! namespace. The tmpfs of an emptyDir and the pod's own `/dev/shm` end with the pod.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::node::mountinfo::{self, NodeMounts};
use crate::node::pinned_file::{Buffer, PinnedFile};
use crate::units::Bytes;

use super::pod::Pod;

/// The node's files of POSIX shared memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// More filesystems are not looked at.
const MOST: usize = 4;

/// Where a pod can leave shared memory behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Places {
    paths: BTreeSet<PathBuf>,
    has_segments: bool,
}

impl Places {
    pub(super) fn of(pod: &Pod) -> Self {
        let spec = &pod.spec;
        let on_node = spec.volumes.iter().filter_map(|volume| volume.host_path.as_ref());
        let shared = spec.host_ipc.then(|| PathBuf::from(SHARED_MEMORY));
        let paths = on_node.map(|on_node| real(Path::new(&on_node.path))).chain(shared).collect();
        Self { paths, has_segments: spec.host_ipc }
    }
}

/// Returns the path without the usual link.
fn real(path: &Path) -> PathBuf {
    path.strip_prefix("/var/run").map_or_else(|_| path.to_owned(), |rest| Path::new("/run").join(rest))
}

/// The open filesystems and files that tell how much memory of a pod may outlive it.
#[derive(Debug)]
pub(super) struct Outliving {
    filesystems: Vec<OwnedFd>,
    segments: Option<PinnedFile>,
}

impl Outliving {
    /// Opens what is in memory at these places. Returns `None` if nothing is.
    pub(super) fn open(places: &Places, mounts: &NodeMounts, proc_root: &Path) -> Option<Self> {
        let found: BTreeSet<PathBuf> = places.paths.iter().flat_map(|path| mounts.in_memory(path)).collect();
        let open = |path: &PathBuf| {
            rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
        };
        let filesystems: Vec<_> = found.iter().take(MOST).filter_map(open).collect();
        let segments = places.has_segments.then(|| PinnedFile::open(proc_root.join("sysvipc/shm")).ok()).flatten();
        (!filesystems.is_empty() || segments.is_some()).then_some(Self { filesystems, segments })
    }

    /// Returns the most shared memory that may stay: all that is there, whoever has put it there.
    pub(super) fn most(&self, buffer: &mut Buffer) -> Bytes {
        let on_files = self.filesystems.iter().map(mountinfo::used).fold(Bytes::ZERO, Bytes::saturating_add);
        let in_segments = self.segments.as_ref().and_then(|file| Some(segments(file.read_whole(buffer).ok()?)));
        on_files.saturating_add(in_segments.unwrap_or(Bytes::ZERO))
    }
}

/// Returns the memory of the System V segments, in the text of `/proc/sysvipc/shm`.
fn segments(text: &str) -> Bytes {
    let mut lines = text.lines();
    let place = lines.next().and_then(|names| names.split_ascii_whitespace().position(|name| name == "rss"));
    let resident = |line: &str| line.split_ascii_whitespace().nth(place?)?.parse().ok().map(Bytes);
    lines.filter_map(resident).fold(Bytes::ZERO, Bytes::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_added_up() {
        let text = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n\
                    0          0  1600   4096   1 1 2 0 0 0 0 1 2 3   4096   0\n         0          1  1600   8192   1 1 2 0 0 0 0 1 2 3   8192   0\n";
        assert_eq!(segments(text), Bytes(12_288));
        assert_eq!(segments(""), Bytes::ZERO);
        assert_eq!(segments("key shmid\n1 2\n"), Bytes::ZERO);
    }

    #[test]
    fn places_come_from_host_paths_and_the_namespace() {
        let of = |spec: &str| Places::of(&serde_json::from_str::<Pod>(&format!(r#"{{"spec": {spec}}}"#)).unwrap());
        let own = r#"{"volumes": [{"name": "a", "emptyDir": {"medium": "Memory"}}, {"name": "b", "hostPath": null}]}"#;
        assert_eq!(of(own), Places::default());
        let shared = of(r#"{"hostIPC": true}"#);
        assert!(shared.has_segments && shared.paths.contains(Path::new("/dev/shm")));
        let on_node = of(r#"{"volumes": [{"name": "a", "hostPath": {"path": "/var/run/x", "type": "Directory"}}]}"#);
        assert!(!on_node.has_segments && on_node.paths.contains(Path::new("/run/x")));
    }

    /// The filesystem of a directory stands for a tmpfs: what is in use there bounds what may stay.
    #[test]
    fn what_is_in_use_bounds_what_stays() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("1");
        std::fs::create_dir_all(process.join("root/dev/shm")).unwrap();
        std::fs::create_dir(root.path().join("sysvipc")).unwrap();
        std::fs::write(
            process.join("mountinfo"),
            "27 1 0:1 / / rw - ext4 /dev/vda rw\n28 27 0:2 / /dev/shm rw - tmpfs shm rw\n",
        )
        .unwrap();
        let mounts = NodeMounts::read(root.path());
        let places = |spec: &str| Places::of(&serde_json::from_str::<Pod>(&format!(r#"{{"spec": {spec}}}"#)).unwrap());
        let disk = places(r#"{"volumes": [{"name": "a", "hostPath": {"path": "/var/log"}}]}"#);
        assert!(Outliving::open(&disk, &mounts, root.path()).is_none());
        let shared = Outliving::open(&places(r#"{"hostIPC": true}"#), &mounts, root.path()).unwrap();
        assert!(shared.segments.is_none() && shared.most(&mut Buffer::new()) > Bytes::ZERO);
        std::fs::write(root.path().join("sysvipc/shm"), "rss\n4096\n").unwrap();
        let with_segments = Outliving::open(&places(r#"{"hostIPC": true}"#), &mounts, root.path()).unwrap();
        assert!(with_segments.segments.is_some());
    }
}
