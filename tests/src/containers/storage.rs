//! Layouts of the disks: the kubelet's files and logs on ext4; images and writable layers on the same disk or on xfs.

use std::fs;

use anyhow::{Context, Result};
use rustix::fs::StatVfs;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::runtime::Runtime;
use crate::init::mount_at;

/// The kubelet's root directory, which includes the volumes.
pub const KUBELET: &str = "/var/lib/kubelet";
/// The directory of container logs.
pub const LOGS: &str = "/var/log/pods";
/// containerd's directory of images and writable layers.
pub const CONTAINERD: &str = "/var/lib/containerd";
const NODE_DISK: &str = "/mnt/node";
const IMAGE_DISK: &str = "/mnt/images";

/// The number and purpose of filesystems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// One ext4 filesystem for everything.
    Shared,
    /// A separate xfs filesystem for images and writable layers.
    DedicatedImages,
}

impl Storage {
    /// Formats and mounts the disks. The runtime must not run.
    pub fn arrange(self, runtime: Runtime) -> Result<()> {
        for place in mounts_below(&["/run/containerd", runtime.store(), KUBELET, LOGS])? {
            // A lazy unmount also removes the mounts that a dead container left.
            unmount(place.as_str(), UnmountFlags::DETACH).with_context(|| format!("unmount {place}"))?;
        }
        let there = mounts_below(&[NODE_DISK, IMAGE_DISK])?;
        for (device, disk, kind) in [("/dev/vda", NODE_DISK, "ext4"), ("/dev/vdb", IMAGE_DISK, "xfs")] {
            if !there.iter().any(|place| place == disk) {
                mount_at(device, disk, kind, "")?;
            }
            empty(disk)?;
        }
        let images = match self {
            Self::Shared => NODE_DISK,
            Self::DedicatedImages => IMAGE_DISK,
        };
        for (disk, name, place) in
            [(NODE_DISK, "kubelet", KUBELET), (NODE_DISK, "logs", LOGS), (images, "images", runtime.store())]
        {
            let source = format!("{disk}/{name}");
            for directory in [source.as_str(), place] {
                fs::create_dir_all(directory).with_context(|| format!("create {directory}"))?;
            }
            mount_bind(source.as_str(), place).with_context(|| format!("bind {source} to {place}"))?;
        }
        Ok(())
    }
}

/// Removes the contents of a directory.
pub fn empty(directory: &str) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("read {directory}"))? {
        let entry = entry.with_context(|| format!("read {directory}"))?;
        let path = entry.path();
        if entry.file_name() == "lost+found" {
            continue;
        }
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// Returns the mount points at and below these directories, the innermost first.
fn mounts_below(directories: &[&str]) -> Result<Vec<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    Ok(parse_mounts(&text, directories))
}

fn parse_mounts(mountinfo: &str, directories: &[&str]) -> Vec<String> {
    let below = |place: &str| {
        directories
            .iter()
            .any(|directory| place.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    };
    let mut places: Vec<String> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|place| below(place))
        .map(str::to_owned)
        .collect();
    // The list is in order of mounting. A mount over or inside another mount came later.
    places.reverse();
    places
}

fn figures(directory: &str) -> Result<StatVfs> {
    rustix::fs::statvfs(directory).with_context(|| format!("statvfs {directory}"))
}

/// Returns the bytes that unprivileged users can still allocate.
pub fn available(directory: &str) -> Result<u64> {
    let figures = figures(directory)?;
    Ok(figures.f_bavail * figures.f_frsize)
}

pub fn free_inodes(directory: &str) -> Result<u64> {
    Ok(figures(directory)?.f_ffree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_comes_first() {
        let text = "\
22 1 254:32 / / rw - ext4 /dev/vdc rw
30 22 254:0 / /mnt/node rw - ext4 /dev/vda rw
31 22 254:0 /containerd /var/lib/containerd rw - ext4 /dev/vda rw
32 31 0:40 / /var/lib/containerd/x rw - overlay overlay rw
33 22 254:0 /k /var/lib/containerd2 rw - ext4 /dev/vda rw
";
        assert_eq!(parse_mounts(text, &["/var/lib/containerd"]), ["/var/lib/containerd/x", "/var/lib/containerd"]);
    }
}
