//! Reads the `mountinfo` of processes line by line, because a process that may mount can make the file very long.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use crate::node::mountinfo::Mount;
use crate::units::kernel_text;

const ROOM: usize = 16 * 1024;

/// Returns the path of init's `mountinfo`, or of the agent's own if that is inaccessible.
pub fn of_init(proc: &Path) -> PathBuf {
    let init = proc.join("1/mountinfo");
    if init.exists() { init } else { proc.join("self/mountinfo") }
}

/// Passes the mounts in the first `most` bytes of a file to `take`. Returns false if there are more.
pub fn read(path: &Path, most: u64, mut take: impl FnMut(&Mount<'_>)) -> std::io::Result<bool> {
    let mut file = BufReader::with_capacity(ROOM, std::fs::File::open(path)?.take(most));
    let (mut line, mut left) = (Vec::new(), most);
    loop {
        line.clear();
        let length = file.read_until(b'\n', &mut line)?;
        left = left.saturating_sub(length as u64);
        // A truncated line could name another directory than the whole line.
        let is_cut_off = left == 0 && line.last() != Some(&b'\n');
        if length == 0 || is_cut_off {
            return Ok(left > 0);
        }
        if let Some(mount) = Mount::parse(kernel_text::text(std::mem::take(&mut line)).trim_end_matches('\n')) {
            take(&mount);
        }
    }
}

/// Returns the type of a filesystem without the part that a user can choose (`fuse.ANYTHING`), so that messages can be
/// deduplicated.
pub fn plain(kind: &str) -> &str {
    kind.split('.').next().unwrap_or(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mounts in a container of containerd 1.6 (Linux 6.12), shortened.
    const CONTAINER: &str = "\
500 480 0:51 / / rw,relatime master:7 - overlay overlay rw,lowerdir=/s/1/fs,upperdir=/s/12/fs,workdir=/s/12/work
nonsense
502 500 8:1 /pods/u/volumes/kubernetes.io~empty-dir/cache /cache rw,relatime - ext4 /dev/sda1 rw,upperdir=/no
43 27 0:52 / /run/a rw - overlay overlay rw,lowerdir=/l,upperdir=/with\\040blank\\054comma,workdir=/w
";

    fn read_first(most: u64) -> (Vec<(u64, String, Option<PathBuf>)>, bool) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), CONTAINER).unwrap();
        let mut seen = Vec::new();
        let is_all = read(file.path(), most, |mount| {
            seen.push((
                mount.id,
                format!("{} {} {}", mount.device, mount.root, mount.mount_point),
                mount.upper_directory(),
            ));
        });
        (seen, is_all.unwrap())
    }

    #[test]
    fn mounts_and_upper_directories_are_parsed() {
        let (seen, is_all) = read_first(1 << 20);
        let expected = [
            (500, "0:51 / /", Some("/s/12/fs")),
            (502, "8:1 /pods/u/volumes/kubernetes.io~empty-dir/cache /cache", None),
            (43, "0:52 / /run/a", Some("/with blank,comma")),
        ];
        let expected = expected.map(|(id, text, upper)| (id, text.to_owned(), upper.map(PathBuf::from)));
        assert_eq!((seen.as_slice(), is_all), (expected.as_slice(), true));
        assert!(read(Path::new("/nonexistent"), 1, |_| ()).is_err());
    }

    #[test]
    fn types_of_fuse_filesystems_are_shortened() {
        assert_eq!(["ext4", "fuse.a", "fuse.b", ""].map(plain), ["ext4", "fuse", "fuse", ""]);
    }

    #[test]
    fn reading_stops_at_the_limit() {
        let whole = CONTAINER.len() as u64;
        for (most, count, expected) in [(whole + 1, 3, true), (whole - 1, 2, false), (130, 1, false), (5, 0, false)] {
            let (seen, is_all) = read_first(most);
            assert_eq!((seen.len(), is_all), (count, expected), "{most}");
        }
    }
}
