//! Reads the memory of each container of a pod, for the explanation of an eviction.

use std::os::fd::{AsFd, BorrowedFd};

use crate::node::CgroupVersion;
use crate::node::pinned_file::keyed_value;
use crate::units::{Bytes, kernel_text};

use super::cgroup_path;
use super::cgroup_processes::{names, open, read};

/// Limit of containers, because the kill of a pod must not wait for reading many of them.
const MAX_CONTAINERS: usize = 16;

/// Returns the working set of each container by the runtime's id; `directory` is the open cgroup of the pod at the path `name`. A
/// container that cannot be read is omitted.
pub fn working_sets(directory: impl AsFd, name: &str, version: CgroupVersion) -> Vec<(String, Bytes)> {
    let children = names(&directory).unwrap_or_default();
    let measured = children.iter().filter_map(|child| {
        let id = cgroup_path::container(&format!("{name}/{}", kernel_text::name(child.to_bytes())))?;
        Some((id, working_set(open(&directory, child).ok()?.as_fd(), version)?))
    });
    measured.take(MAX_CONTAINERS).collect()
}

fn working_set(directory: BorrowedFd<'_>, version: CgroupVersion) -> Option<Bytes> {
    let (usage, key) = match version {
        CgroupVersion::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
        CgroupVersion::V2 => ("memory.current", "inactive_file"),
    };
    let usage = Bytes(read(directory, usage).ok()?.trim().parse().ok()?);
    Some(usage.saturating_sub(Bytes(keyed_value(&read(directory, "memory.stat").ok()?, key)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_container_cgroups_are_measured() {
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
        assert_eq!(working_sets(&directory, name, CgroupVersion::V1), [], "the files of v1 are missing");
    }
}
