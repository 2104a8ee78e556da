//! `mountinfo`, as far as it tells where files lie: which overlay a process has for a root, and which directory a mount shows.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::node::filesystems::unescaped;

/// A mount, not unescaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mount<'t> {
    /// `major:minor` of the filesystem.
    pub device: &'t str,
    /// The directory of the filesystem that is shown.
    pub root: &'t str,
    /// Where.
    pub mount_point: &'t str,
    /// The filesystem's type.
    pub kind: &'t str,
    /// The filesystem's own options.
    pub options: &'t str,
}

/// Reads the text of `mountinfo`; a line that is none is left out.
pub fn mounts(text: &str) -> impl DoubleEndedIterator<Item = Mount<'_>> {
    text.lines().filter_map(|line| {
        // 43 27 0:51 / /rootfs rw,relatime shared:7 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(2);
        let (device, root, mount_point) = (fields.next()?, fields.next()?, fields.next()?);
        let mut fields = filesystem.split(' ');
        let (kind, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Mount { device, root, mount_point, kind, options })
    })
}

impl Mount<'_> {
    /// The directory in which an overlay keeps what was changed; none for another filesystem, nor for one that cannot be changed.
    pub fn upper_directory(&self) -> Option<PathBuf> {
        let is_overlay = self.kind == "overlay";
        // A comma in a path is escaped (`seq_show_option`), so that this splits between options only.
        let option = self.options.split(',').find_map(|option| option.strip_prefix("upperdir="));
        option.filter(|_| is_overlay).map(unescaped)
    }
}

/// What a process has at `/`: of several mounts there the last one is seen.
pub fn root(text: &str) -> Option<Mount<'_>> {
    mounts(text).rfind(|mount| mount.mount_point == "/")
}

/// The overlays in the eyes of the machine's init, by device. A process can make an overlay of its own look like its root (in a user
/// namespace, Linux 5.11); here only those are that the machine's own programs mounted.
pub fn overlays(text: &str) -> HashMap<String, PathBuf> {
    let upper = |mount: Mount<'_>| Some((mount.device.to_owned(), mount.upper_directory()?));
    mounts(text).filter_map(upper).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A container of containerd 1.6 (Linux 6.12), shortened, as the container sees it.
    const CONTAINER: &str = "\
500 480 0:51 / / rw,relatime master:7 - overlay overlay rw,lowerdir=/s/1/fs,upperdir=/s/12/fs,workdir=/s/12/work
501 500 0:60 / /proc rw,nosuid - proc proc rw
502 500 8:1 /pods/u/volumes/kubernetes.io~empty-dir/cache /cache rw,relatime - ext4 /dev/sda1 rw
503 500 8:1 /pods/u/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw
";

    #[test]
    fn the_root_of_a_container_is_an_overlay() {
        let root = root(CONTAINER).unwrap();
        assert_eq!((root.device, root.kind), ("0:51", "overlay"));
        assert_eq!(root.upper_directory().unwrap(), Path::new("/s/12/fs"));
        let cache = mounts(CONTAINER).find(|mount| mount.mount_point == "/cache").unwrap();
        assert_eq!((cache.device, cache.root), ("8:1", "/pods/u/volumes/kubernetes.io~empty-dir/cache"));
        assert_eq!(cache.upper_directory(), None);
    }

    #[test]
    fn of_several_mounts_at_one_place_the_last_is_seen() {
        let text = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / / rw - overlay o rw,upperdir=/u\n3 2 0:5 / /sys rw - sysfs s rw\n";
        assert_eq!(root(text).unwrap().device, "0:9");
        assert_eq!(root("3 2 0:5 / /sys rw - sysfs s rw\nnonsense\n"), None);
    }

    #[test]
    fn overlays_are_known_by_device() {
        let text = r"43 27 0:51 / /run/a/rootfs rw - overlay overlay rw,lowerdir=/l,upperdir=/with\040blank\054comma,workdir=/w
44 27 0:52 / /run/b/rootfs ro - overlay overlay ro,lowerdir=/l:/m
45 27 8:1 / / rw - ext4 /dev/sda rw,upperdir=/no
";
        let found = overlays(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found["0:51"], Path::new("/with blank,comma"));
    }
}
