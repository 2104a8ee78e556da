//! Project quotas (ext4, xfs): the filesystem's exact usage of a directory, including deleted files that are still open.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, opcode};

use super::host_files::open_directory;
use super::measured_usage::Held;
use crate::kernel::DeviceId;
use crate::units::Bytes;

const PROJECT: libc::c_int = 2;
/// `FS_XFLAG_PROJINHERIT` of `<linux/fs.h>`: files created in the directory belong to its project.
const INHERITS: u32 = 0x200;
/// `FS_IOC_FSGETXATTR` of `<linux/fs.h>`.
const GET_ATTRIBUTES: Opcode = opcode::read::<Attributes>(b'X', 31);

/// `struct fsxattr` of `<linux/fs.h>`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// The id of a project. The id 0 means no project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProjectId(pub u32);

/// Returns the project that contains everything below a directory and, as far as the agent can see, nothing else. The directory
/// is the root of the project, or directly inside the root: CRI-O sets the project on the directory above a container's writable
/// layer.
pub fn project_of(directory: BorrowedFd<'_>) -> Option<ProjectId> {
    let project = inherited(directory)?;
    let above = open_directory(directory, c"..").ok()?;
    if inherited(above.as_fd()) != Some(project) {
        return Some(project);
    }
    let root = open_directory(&above, c"..").ok()?;
    (inherited(root.as_fd()) != Some(project)).then_some(project)
}

fn inherited(directory: BorrowedFd<'_>) -> Option<ProjectId> {
    // SAFETY: the request reads one `fsxattr`, whose layout `Attributes` has.
    let getter = unsafe { Getter::<GET_ATTRIBUTES, Attributes>::new() };
    // SAFETY: see above; a filesystem without this request rejects it.
    let attributes = unsafe { rustix::ioctl::ioctl(directory, getter) }.ok()?;
    (attributes.project != 0 && attributes.flags & INHERITS != 0).then_some(ProjectId(attributes.project))
}

/// Returns whether the filesystem of a directory counts projects; `None` if that is unknown (no `CAP_SYS_ADMIN`, Linux before
/// 5.14). The check reads project 0, to which all files without a project belong.
pub fn is_counting(directory: BorrowedFd<'_>) -> Option<bool> {
    match charged(directory, ProjectId(0)) {
        // xfs returns `ENOENT` for an empty project.
        Ok(_) | Err(Errno::NOENT) => Some(true),
        Err(Errno::SRCH) => Some(false),
        Err(_) => None,
    }
}

/// Returns the usage of a project on the filesystem of a directory (`quotactl_fd`, Linux 5.14). Fails with `ESRCH` when the filesystem does
/// not count projects, with `ENOSYS` on older kernels, and with `EPERM` without `CAP_SYS_ADMIN`.
pub fn charged(directory: BorrowedFd<'_>, project: ProjectId) -> Result<Held, Errno> {
    match quota(directory.as_raw_fd(), project) {
        // xfs returns `ENOSYS` if it does not count projects (`xfs_fs_get_dqblk`). A kernel without the call does not check the
        // descriptor.
        Err(Errno::NOSYS) if quota(-1, project) == Err(Errno::BADF) => Err(Errno::SRCH),
        answer => answer,
    }
}

fn quota(fd: RawFd, project: ProjectId) -> Result<Held, Errno> {
    let command = libc::QCMD(libc::Q_GETQUOTA, PROJECT);
    // SAFETY: all-zero is a valid value: the struct has only numbers.
    let mut quota: libc::dqblk = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel checks the descriptor, and writes one `dqblk` to where the pointer points.
    let result = unsafe { libc::syscall(libc::SYS_quotactl_fd, fd, command, project.0, &raw mut quota) };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    }
    Ok(Held { bytes: Bytes(quota.dqb_curspace), inodes: quota.dqb_curinodes })
}

/// The places of each project, by filesystem. If two places share a project, its quota is the usage of neither.
#[derive(Debug, Default)]
pub struct Claims {
    holders: HashMap<(DeviceId, ProjectId), Vec<(String, PathBuf)>>,
}

impl Claims {
    /// Records that a place of a workload has the project. Returns whether it is the only known place.
    pub fn is_sole(&mut self, device: DeviceId, project: ProjectId, workload: &str, place: &Path) -> bool {
        let holders = self.holders.entry((device, project)).or_default();
        let is_known = holders.iter().any(|(of, path)| of == workload && path == place);
        // Two places suffice to show that the project is shared.
        if !is_known && holders.len() < 2 {
            holders.push((workload.to_owned(), place.to_owned()));
        }
        holders.len() == 1
    }

    /// Drops the places of workloads for which `is_wanted` is false.
    pub fn keep(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.holders.retain(|_, holders| {
            holders.retain(|(workload, _)| is_wanted(workload));
            !holders.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!(size_of::<Attributes>(), 28);
        // _IOR('X', 31, struct fsxattr), as strace prints it.
        assert_eq!(GET_ATTRIBUTES, 0x801c_581f);
        assert_eq!(libc::QCMD(libc::Q_GETQUOTA, PROJECT), 0x8000_0702_u32.cast_signed());
    }

    #[test]
    fn a_directory_without_a_project_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(directory.path()).unwrap();
        assert_eq!(project_of(directory.as_fd()), None);
        assert!(is_counting(directory.as_fd()) != Some(true) || charged(directory.as_fd(), ProjectId(0)).is_ok());
        let nothing = charged(directory.as_fd(), ProjectId(4_000_000_000));
        assert!(nothing.is_err() || nothing == Ok(Held::default()), "{nothing:?}");
    }

    #[test]
    fn a_shared_project_has_no_sole_place() {
        let mut claims = Claims::default();
        let (disk, project) = (DeviceId(1), ProjectId(7));
        let mut is_sole = |device, workload, path: &str| claims.is_sole(device, project, workload, Path::new(path));
        assert!(is_sole(disk, "a", "/1") && is_sole(disk, "a", "/1"));
        assert!(is_sole(DeviceId(2), "a", "/2"), "another filesystem has other projects");
        assert!(!is_sole(disk, "b", "/3"));
        assert!(!is_sole(disk, "a", "/1") && !is_sole(disk, "c", "/4"));
        claims.keep(|workload| workload == "a");
        assert!(claims.is_sole(disk, project, "a", Path::new("/1")));
    }
}
