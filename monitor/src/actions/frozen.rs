//! Record of the frozen cgroup: if the agent is killed while it freezes a cgroup, the next agent thaws the cgroup.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::units::boot_id;

/// A file that exists only while a cgroup is frozen. The file lies beside the lock, usually on a tmpfs: the write is
/// fast, and a reboot removes the file together with the cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreezeRecord {
    path: PathBuf,
}

/// The files that thaw a cgroup, with the value to write: v1's and v2's.
const THAWERS: [(&str, &str); 2] = [("freezer.state", "THAWED"), ("cgroup.freeze", "0")];

impl FreezeRecord {
    pub fn beside(lock_file: &Path) -> Self {
        Self { path: lock_file.with_added_extension("frozen") }
    }

    /// Records that the cgroup `directory` is about to be frozen.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, directory: &Path) -> std::io::Result<()> {
        let inode = fs::metadata(directory)?.ino();
        // The path comes last and may hold anything.
        let mut record = format!("{} {inode} ", boot_id()).into_bytes();
        record.extend_from_slice(directory.as_os_str().as_bytes());
        fs::write(&self.path, record)
    }

    /// Removes the record after the thaw.
    pub(super) fn clear(&self) {
        // A leftover record is harmless: the next start thaws a thawed cgroup.
        let _stays = fs::remove_file(&self.path);
    }

    /// Thaws the cgroup that an earlier agent left frozen, if it is still the same cgroup. Returns its directory.
    ///
    /// # Errors
    /// When the cgroup exists and cannot be thawed.
    pub fn thaw(&self) -> Result<Option<PathBuf>, String> {
        let record = match fs::read(&self.path) {
            Ok(record) => record,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", self.path.display())),
        };
        let thawed = match parse(&record) {
            Some((inode, directory)) if is_same(&directory, inode) => {
                thaw(&directory)?;
                Some(directory)
            }
            // The cgroup is gone or another one, or the record is truncated and nothing was frozen.
            _ => None,
        };
        self.clear();
        Ok(thawed)
    }
}

fn parse(record: &[u8]) -> Option<(u64, PathBuf)> {
    let mut fields = record.splitn(3, |byte| *byte == b' ');
    let (boot, inode, directory) = (fields.next()?, fields.next()?, fields.next()?);
    // The inode number of another boot belongs to another cgroup.
    (boot == boot_id().as_bytes()).then_some(())?;
    let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
    Some((inode, PathBuf::from(OsStr::from_bytes(directory))))
}

fn is_same(directory: &Path, inode: u64) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.ino() == inode)
}

fn thaw(directory: &Path) -> Result<(), String> {
    let thawers = THAWERS.map(|(name, word)| (directory.join(name), word));
    // The file is not created: only the kernel's own file thaws a cgroup.
    let open = |path: &Path| fs::OpenOptions::new().write(true).open(path);
    let Some((path, word)) = thawers.iter().find(|(path, _)| path.exists()) else { return Ok(()) };
    let say = |error| format!("cannot write {word} to {}: {error}; do it by hand", path.display());
    std::io::Write::write_all(&mut open(path).map_err(say)?, word.as_bytes()).map_err(say)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_of_any_name_is_thawed() {
        for name in [b"\xff".as_slice(), b"caf\xc3", b"with blank \xfe"] {
            let root = tempfile::tempdir().unwrap();
            let cgroup = root.path().join(OsStr::from_bytes(name));
            fs::create_dir(&cgroup).unwrap();
            fs::write(cgroup.join("cgroup.freeze"), "1").unwrap();
            let record = FreezeRecord::beside(&root.path().join("lock"));
            record.write(&cgroup).unwrap();
            assert_eq!(record.thaw(), Ok(Some(cgroup.clone())), "{name:?}");
            assert_eq!(fs::read_to_string(cgroup.join("cgroup.freeze")).unwrap(), "0");
        }
    }

    #[test]
    fn a_recorded_cgroup_is_thawed_once_if_it_is_the_same() {
        let root = tempfile::tempdir().unwrap();
        let record = FreezeRecord::beside(&root.path().join("lock"));
        assert_eq!(record.path, root.path().join("lock.frozen"));
        assert_eq!(record.thaw(), Ok(None), "nothing was frozen");
        let cgroup = root.path().join("a pod");
        let state = cgroup.join("freezer.state");
        fs::create_dir(&cgroup).unwrap();
        let frozen = || fs::write(&state, "FROZEN").unwrap();
        let now = || fs::read_to_string(&state).unwrap();

        frozen();
        record.write(&cgroup).unwrap();
        assert_eq!(record.thaw(), Ok(Some(cgroup.clone())));
        assert_eq!((now().as_str(), record.thaw()), ("THAWED", Ok(None)));

        frozen();
        let inode = fs::metadata(&cgroup).unwrap().ino();
        for other in [
            format!("{} {} {}", boot_id(), inode + 1, cgroup.display()),
            format!("another-boot {inode} {}", cgroup.display()),
            format!("{} {inode}", boot_id()),
            String::new(),
        ] {
            fs::write(&record.path, &other).unwrap();
            assert_eq!(record.thaw(), Ok(None), "{other}");
            assert_eq!(now(), "FROZEN", "{other}");
            assert!(!record.path.exists());
        }
        record.write(&cgroup).unwrap();
        fs::remove_dir_all(&cgroup).unwrap();
        assert_eq!(record.thaw(), Ok(None), "it is gone");
    }
}
