//! The lock that allows one agent a machine: two agents would evict twice.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::config::LOCK_DIRECTORY;

const ASKED_WITHIN: Duration = Duration::from_millis(100);

/// Held while the agent runs. The kernel releases the lock when the process ends.
#[derive(Debug)]
pub struct InstanceLock {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(
        "another node-pressure-monitor is running on this machine{by}: it holds {path}; stop it first, \
         or give this one its own --lock-file if it observes another machine", path = path.display()
    )]
    AlreadyRunning {
        path: PathBuf,
        /// ` (process N)`, if the file names one.
        by: String,
    },
    #[error("cannot lock {path}: {source}; set --lock-file or lockFile to a writable path", path = path.display())]
    Unusable { path: PathBuf, source: std::io::Error },
}

impl InstanceLock {
    /// Takes the lock at `path`, creating the file.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let unusable = |source: std::io::Error| LockError::Unusable { path: path.to_owned(), source };
        make_parent(path, Path::new(LOCK_DIRECTORY)).map_err(unusable)?;
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(unusable)?;
        let mut locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        if locked == Err(Errno::WOULDBLOCK) {
            // A command that only asks whether an agent runs holds the lock for a moment.
            std::thread::sleep(ASKED_WITHIN);
            locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        }
        match locked {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let readable = file.read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
                let by = if readable { format!(" (process {})", pid.trim()) } else { String::new() };
                return Err(LockError::AlreadyRunning { path: path.to_owned(), by });
            }
            Err(errno) => return Err(unusable(errno.into())),
        }
        let write_pid = |file: &mut File| -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write_pid(&mut file).map_err(unusable)?;
        Ok(Self { _file: file })
    }

    /// Returns whether a process holds the lock at `path`.
    pub fn is_held(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }
}

/// Makes the directory of the path if it is the default one, which systemd makes for the unit. A directory that the operator has chosen must
/// exist.
fn make_parent(path: &Path, default: &Path) -> std::io::Result<()> {
    if path.parent() != Some(default) || default.exists() {
        return Ok(());
    }
    DirBuilder::new().mode(0o755).create(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_refused_with_the_firsts_pid() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = InstanceLock::take(&path).unwrap();
        let error = InstanceLock::take(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(InstanceLock::is_held(&path));
        drop(first);
        assert!(!InstanceLock::is_held(&path) && !InstanceLock::is_held(Path::new("/nonexistent/lock")));
        InstanceLock::take(&path).unwrap();
    }

    #[test]
    fn only_the_default_directory_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let (default, chosen) = (directory.path().join("default"), directory.path().join("chosen"));
        for made in [&default, &chosen] {
            make_parent(&made.join("lock"), &default).unwrap();
            make_parent(&made.join("lock"), &default).unwrap();
        }
        assert!(default.is_dir() && !chosen.exists());
    }

    #[test]
    fn an_unusable_path_is_named() {
        let error = InstanceLock::take(Path::new("/nonexistent/lock")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/lock") && error.contains("--lock-file"), "{error}");
    }
}
