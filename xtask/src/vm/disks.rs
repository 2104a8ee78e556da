//! The guest's disks: sparse files. All but the root file system are new for every boot.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::qemu::Disk;
use crate::cmd;
use crate::paths::find_program;

const MIB: u64 = 1024 * 1024;

/// mkfs initializes everything at once. A kernel thread that does this later would change the guest's inode counts and caches.
const EXT4: [&str; 4] = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
const XFS: [&str; 2] = ["-q", "-f"];

/// Both settings are in one option, because mkfs.ext4 uses only the last `-E`.
const EXT4_WITH_PROJECTS: [&str; 6] =
    ["-q", "-F", "-O", "quota,project", "-E", "lazy_itable_init=0,lazy_journal_init=0,quotatype=prjquota"];

/// Makes the disks: /dev/vda ext4; /dev/vdb a small ext4 with few inodes; /dev/vdc an ext4 that counts projects; /dev/vdd xfs if
/// mkfs.xfs is installed.
pub fn plain(dir: &Path) -> Result<Vec<Disk>> {
    let ext4 = mkfs_ext4()?;
    let mut disks = vec![
        disk(dir, "ext4.img", 1280, Command::new(&ext4).args(EXT4))?,
        disk(dir, "small.img", 32, Command::new(&ext4).args(EXT4).args(["-N", "2048"]))?,
        disk(dir, "projects.img", 32, Command::new(&ext4).args(EXT4_WITH_PROJECTS))?,
    ];
    if let Some(xfs) = find_program("mkfs.xfs") {
        // The minimum size of mkfs.xfs is 300 MiB.
        disks.push(disk(dir, "xfs.img", 320, Command::new(xfs).args(XFS))?);
    }
    Ok(disks)
}

/// Makes the disks of the guest with containers. /dev/vda is the node's file system, an ext4 with slightly fewer than the 100,000
/// inodes that a scenario wants. /dev/vdb is the xfs of the images. /dev/vdc has systemd and containerd.
pub fn with_containers(dir: &Path, root: PathBuf) -> Result<Vec<Disk>> {
    let node = disk(dir, "node.img", 400, Command::new(mkfs_ext4()?).args(EXT4).args(["-N", "98304"]))?;
    of_systemd(dir, node, root)
}

/// Makes the disks of the guest with a cluster: as [`with_containers`], with a larger node's file system, and /dev/vdd with the programs
/// of Kubernetes.
pub fn with_cluster(dir: &Path, root: PathBuf, programs: PathBuf) -> Result<Vec<Disk>> {
    let node = disk(dir, "node.img", 6144, Command::new(mkfs_ext4()?).args(EXT4))?;
    let mut disks = of_systemd(dir, node, root)?;
    disks.push(Disk { image: programs, kept: true });
    Ok(disks)
}

/// Returns the disks of a guest with systemd and containerd.
fn of_systemd(dir: &Path, node: Disk, root: PathBuf) -> Result<Vec<Disk>> {
    let xfs = find_program("mkfs.xfs").context("mkfs.xfs is not there: run `cargo xtask setup`")?;
    let images = disk(dir, "images.img", 400, Command::new(xfs).args(XFS))?;
    Ok(vec![node, images, Disk { image: root, kept: true }])
}

fn mkfs_ext4() -> Result<PathBuf> {
    find_program("mkfs.ext4").context("mkfs.ext4 is not there: run `cargo xtask setup`")
}

fn disk(dir: &Path, name: &str, mib: u64, mkfs: &mut Command) -> Result<Disk> {
    let image = dir.join(name);
    File::create(&image)
        .and_then(|file| file.set_len(mib * MIB))
        .with_context(|| format!("making the disk image {}", image.display()))?;
    cmd::output(mkfs.arg(&image))?;
    Ok(Disk { image, kept: false })
}
