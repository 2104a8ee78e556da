//! Process ids of the node: their limit, and the tasks that use one each.

use std::path::Path;
use std::time::Duration;

use super::pinned_file::{Buffer, FileError, PinnedFile};
use crate::units::Monotonic;

/// How long a read of the limits is valid. They are sysctls, which seldom change.
const LIMITS_AGE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidSample {
    /// The number of threads, each of which takes an id.
    pub tasks: u64,
    /// The limit: the lesser of `pid_max` and `threads-max`.
    pub most: u64,
    /// The time just before the read.
    pub at: Monotonic,
}

impl PidSample {
    pub const fn available(&self) -> u64 {
        self.most.saturating_sub(self.tasks)
    }
}

/// Keeps the files open, so that a sample needs no new process and no new file when none is left.
#[derive(Debug)]
pub struct PidReader {
    loadavg: PinnedFile,
    limits: Vec<PinnedFile>,
    most: Option<(u64, Monotonic)>,
    buffer: Buffer,
}

impl PidReader {
    /// Fails when the number of tasks, or both limits, cannot be read.
    pub fn open(proc_root: &Path) -> Result<Self, FileError> {
        let loadavg = PinnedFile::open(proc_root.join("loadavg"))?;
        let pid_max = PinnedFile::open(proc_root.join("sys/kernel/pid_max"));
        let threads_max = PinnedFile::open(proc_root.join("sys/kernel/threads-max"));
        let limits = match (pid_max, threads_max) {
            (Err(error), Err(_)) => return Err(error),
            (one, other) => [one, other].into_iter().flatten().collect(),
        };
        let mut reader = Self { loadavg, limits, most: None, buffer: Buffer::new() };
        reader.sample()?;
        Ok(reader)
    }

    /// Reads `/proc/loadavg` with one system call, and the limits every ten seconds.
    pub fn sample(&mut self) -> Result<PidSample, FileError> {
        let at = Monotonic::now();
        let text = self.loadavg.read(&mut self.buffer)?;
        let tasks =
            tasks(text).ok_or_else(|| self.loadavg.content("expected running/all tasks in the fourth field"))?;
        let most = match self.most {
            Some((most, read)) if at.since(read) < LIMITS_AGE => most,
            _ => self.read_limits(at)?,
        };
        Ok(PidSample { tasks, most, at })
    }

    fn read_limits(&mut self, at: Monotonic) -> Result<u64, FileError> {
        let mut most = u64::MAX;
        for file in &self.limits {
            let text = file.read(&mut self.buffer)?;
            most = most.min(text.trim().parse().map_err(|_| file.content("expected a number"))?);
        }
        self.most = Some((most, at));
        Ok(most)
    }
}

/// Returns the number of tasks in all pid namespaces, which follows the slash in `0.20 0.18 0.12 1/80 11206`.
fn tasks(loadavg: &str) -> Option<u64> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procfs(loadavg: &str, pid_max: Option<&str>, threads_max: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let settings = root.path().join("sys/kernel");
        std::fs::create_dir_all(&settings).unwrap();
        std::fs::write(root.path().join("loadavg"), loadavg).unwrap();
        for (name, text) in [("pid_max", pid_max), ("threads-max", threads_max)] {
            if let Some(text) = text {
                std::fs::write(settings.join(name), text).unwrap();
            }
        }
        root
    }

    #[test]
    fn the_lesser_limit_applies() {
        for (pid_max, threads_max, most) in [
            (Some("4194304\n"), Some("190000\n"), 190_000),
            (Some("4096\n"), Some("190000\n"), 4096),
            (None, Some("190000\n"), 190_000),
            (Some("4096\n"), None, 4096),
        ] {
            let root = procfs("0.20 0.18 0.12 1/80 11206\n", pid_max, threads_max);
            let sample = PidReader::open(root.path()).unwrap().sample().unwrap();
            assert_eq!((sample.tasks, sample.most, sample.available()), (80, most, most - 80));
        }
    }

    #[test]
    fn more_tasks_than_the_limit_leave_zero() {
        // A limit can be set below the number of tasks that run already.
        let root = procfs("0 0 0 3/500 7\n", Some("301"), None);
        assert_eq!(PidReader::open(root.path()).unwrap().sample().unwrap().available(), 0);
    }

    #[test]
    fn errors_name_the_file_or_the_field() {
        let root = procfs("0 0 0 3/500 7\n", None, None);
        assert!(PidReader::open(root.path()).unwrap_err().to_string().contains("pid_max"));
        let root = procfs("0 0 0\n", Some("301"), None);
        assert!(PidReader::open(root.path()).unwrap_err().to_string().contains("fourth field"));
        let root = procfs("0 0 0 1/2 3\n", Some("many"), None);
        assert!(PidReader::open(root.path()).unwrap_err().to_string().contains("expected a number"));
    }

    #[test]
    fn this_machine_has_process_ids_left() {
        let sample = PidReader::open(Path::new("/proc")).unwrap().sample().unwrap();
        assert!(sample.tasks > 0 && sample.available() > 0, "{sample:?}");
    }
}
