//! What is frozen right now, on file: an agent that is killed while it holds a cgroup still must not leave it so for ever.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::units::boot_id;

/// A file that exists only while a cgroup is frozen. It lies beside the lock, usually on a tmpfs: written in no time, and gone
/// with the cgroups that it could mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreezeRecord {
    path: PathBuf,
}

/// The files that thaw, with what is written to them: v1's and v2's.
const THAWERS: [(&str, &str); 2] = [("freezer.state", "THAWED"), ("cgroup.freeze", "0")];

impl FreezeRecord {
    /// The record that goes with this lock.
    #[must_use]
    pub fn beside(lock_file: &Path) -> Self {
        let mut path = lock_file.as_os_str().to_owned();
        path.push(".frozen");
        Self { path: path.into() }
    }

    /// Notes that `directory`, a cgroup, is about to be frozen.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&self, directory: &Path) -> std::io::Result<()> {
        let inode = fs::metadata(directory)?.ino();
        // The path comes last and may hold anything.
        fs::write(&self.path, format!("{} {inode} {}", boot_id(), directory.display()))
    }

    /// Notes that nothing is frozen any more.
    pub(super) fn clear(&self) {
        // A record that stays is looked at by the next start, which thaws what is thawed.
        let _stays = fs::remove_file(&self.path);
    }

    /// Thaws what an earlier agent left frozen, if it is still the same cgroup; returns its directory.
    ///
    /// # Errors
    /// When there is such a cgroup and it cannot be thawed.
    pub fn thaw(&self) -> Result<Option<PathBuf>, String> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", self.path.display())),
        };
        let thawed = match parse(&text) {
            Some((inode, directory)) if is_same(&directory, inode) => {
                thaw(&directory)?;
                Some(directory)
            }
            // Gone, another by now, or cut off before anything was frozen.
            _ => None,
        };
        self.clear();
        Ok(thawed)
    }
}

fn parse(text: &str) -> Option<(u64, PathBuf)> {
    let mut fields = text.splitn(3, ' ');
    let (boot, inode, directory) = (fields.next()?, fields.next()?, fields.next()?);
    // In another boot the same inode number is another cgroup's.
    (boot == boot_id()).then_some(())?;
    Some((inode.parse().ok()?, PathBuf::from(directory)))
}

fn is_same(directory: &Path, inode: u64) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.ino() == inode)
}

fn thaw(directory: &Path) -> Result<(), String> {
    let thawers = THAWERS.map(|(name, word)| (directory.join(name), word));
    // Opened without creating: only the kernel's own file thaws anything.
    let open = |path: &Path| fs::OpenOptions::new().write(true).open(path);
    let Some((path, word)) = thawers.iter().find(|(path, _)| path.exists()) else { return Ok(()) };
    let say = |error| format!("cannot write {word} to {}: {error}; do it by hand", path.display());
    std::io::Write::write_all(&mut open(path).map_err(say)?, word.as_bytes()).map_err(say)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_thawed_once_and_only_the_same() {
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
