//! The memory of each container of a pod, read when somebody wants to be told why the pod had to go.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags};

use crate::node::CgroupVersion;
use crate::node::pinned_file::keyed_value;
use crate::units::Bytes;

use super::path;

/// A pod's kill must not wait for more than that.
const MOST: usize = 16;

/// The working set of each container by the runtime's id, for the open cgroup of the pod at the path `name`. What cannot be read is left
/// out.
#[must_use]
pub fn working_sets(directory: impl AsFd, name: &str, version: CgroupVersion) -> Vec<(String, Bytes)> {
    let directory = directory.as_fd();
    let Ok(entries) = Dir::read_from(directory) else { return Vec::new() };
    let containers = entries.flatten().filter(|entry| entry.file_type() == FileType::Directory);
    let measured = containers.filter_map(|entry| {
        let child = entry.file_name();
        let id = path::container(&format!("{name}/{}", child.to_str().ok()?))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let child = rustix::fs::openat(directory, child, flags, Mode::empty()).ok()?;
        Some((id, working_set(child.as_fd(), version)?))
    });
    measured.take(MOST).collect()
}

fn working_set(directory: BorrowedFd<'_>, version: CgroupVersion) -> Option<Bytes> {
    let (usage, key) = match version {
        CgroupVersion::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
        CgroupVersion::V2 => ("memory.current", "inactive_file"),
    };
    let read = |name: &str| {
        let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        std::io::read_to_string(std::fs::File::from(file)).ok()
    };
    let usage = Bytes(read(usage)?.trim().parse().ok()?);
    Some(usage.saturating_sub(Bytes(keyed_value(&read("memory.stat")?, key)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_told_from_what_else_is_there() {
        let root = tempfile::tempdir().unwrap();
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let container = root.path().join(format!("cri-containerd-{id}.scope"));
        for directory in [&container, &root.path().join("other")] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("memory.current"), "5000\n").unwrap();
            std::fs::write(directory.join("memory.stat"), "anon 1\ninactive_file 2000\n").unwrap();
        }
        let directory = std::fs::File::open(root.path()).unwrap();
        let name = "kubepods.slice/kubepods-pod0a1b2c3d_4e5f_4a6b_8c7d_0123456789ab.slice";
        assert_eq!(working_sets(&directory, name, CgroupVersion::V2), [(id.to_owned(), Bytes(3000))]);
        assert_eq!(working_sets(&directory, name, CgroupVersion::V1), [], "nothing is guessed");
    }
}
