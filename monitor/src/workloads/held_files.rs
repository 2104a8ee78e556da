//! What the open files of a process tell about it: sockets, and devices that only some programs hold.

use std::collections::HashSet;
use std::fs::{DirEntry, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use crate::node::mountinfo;
use crate::units::{Pid, kernel_text};

/// An open file that tells something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// A socket, by its inode.
    Socket(u64),
    /// `/dev/input/event*` that no user may open himself: logind, elogind or seatd hands it to the program in control of a seat. Of a gamepad
    /// udev gives the user of the seat an access list (`70-uaccess.rules`), and any program of his may hold it.
    Input,
    /// `/dev/fuse`. Any user may open it.
    Fuse,
    /// The pipe that keeps a session of logind or elogind alive (`/run/systemd/sessions/*.ref`). The login manager and what has logged the
    /// user in hold it.
    LoginRecord,
}

/// `Documentation/admin-guide/devices.txt`: input devices, and the misc device of FUSE.
const INPUT_MAJOR: u32 = 13;
const FUSE: (u32, u32) = (10, 229);

/// Returns what the first open files of the process tell, and counts the files off.
pub(super) fn of<'f>(directory: &Path, files: &'f mut usize) -> impl Iterator<Item = Held> + use<'f> {
    let most = *files;
    let entries = std::fs::read_dir(directory.join("fd")).into_iter().flatten().flatten().take(most);
    entries.filter_map(|entry| {
        *files = files.saturating_sub(1);
        held(&entry)
    })
}

/// Returns the inodes of the sockets of a process.
pub(super) fn sockets(proc_root: &Path, pid: Pid, most: usize) -> Vec<u64> {
    let socket = |held| if let Held::Socket(inode) = held { Some(inode) } else { None };
    of(&proc_root.join(pid.0.to_string()), &mut { most }).filter_map(socket).collect()
}

/// Returns whether the machine sees a FUSE mount that the process sees, too. A container that mounts for itself alone, as builders of images
/// do with fuse-overlayfs, serves nobody else.
pub(super) fn shares_fuse_mount(proc_root: &Path, pid: Pid) -> bool {
    let of = |process: String| {
        let text = kernel_text::read(proc_root.join(process).join("mountinfo")).unwrap_or_default();
        let is_fuse = |kind: &str| matches!(kind, "fuse" | "fuseblk") || kind.starts_with("fuse.");
        let fuse = mountinfo::mounts(&text).filter(|mount| is_fuse(mount.kind));
        fuse.map(|mount| mount.device.to_owned()).collect::<HashSet<String>>()
    };
    !of(pid.0.to_string()).is_disjoint(&of("1".to_owned()))
}

fn held(entry: &DirEntry) -> Option<Held> {
    let target = std::fs::read_link(entry.path()).ok()?;
    let target = target.to_str()?;
    if let Some(inode) = target.strip_prefix("socket:[") {
        return inode.strip_suffix(']')?.parse().ok().map(Held::Socket);
    }
    // A process in a mount namespace of its own may show any path, and the agent in one sees a part of it: the path tells only which files
    // are worth a closer look.
    if target.contains("systemd/sessions/") {
        return Some(Held::LoginRecord);
    }
    if !target.contains("/event") && !target.ends_with("/fuse") {
        return None;
    }
    let found = std::fs::metadata(entry.path()).ok()?;
    device(found.file_type(), &found).filter(|held| *held != Held::Input || !is_open_to_users(&entry.path(), &found))
}

/// Returns whether others than root and the group of the file may open it.
fn is_open_to_users(path: &Path, found: &Metadata) -> bool {
    const OF_OTHERS: u32 = 0o006;
    let has_access_list =
        rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0; 4096]).is_ok_and(|size| size > 0);
    found.mode() & OF_OTHERS != 0 || has_access_list
}

fn device(kind: FileType, found: &Metadata) -> Option<Held> {
    let number = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    match number {
        _ if !kind.is_char_device() => None,
        (INPUT_MAJOR, _) => Some(Held::Input),
        FUSE => Some(Held::Fuse),
        _ => None,
    }
}
