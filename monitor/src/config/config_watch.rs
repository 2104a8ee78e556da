//! Polls the configuration file of a running agent, and reads it again when it changes.

use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::Duration;

use super::file_kinds::Loaded;
use super::file_watch::{FileWatch, Stamp};
use super::policy::MonitorConfig;

/// The kubelet renews a ConfigMap's files about once a minute.
const INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq)]
pub struct ConfigUpdate {
    /// The configuration with the command line's options applied, or all errors of the file.
    pub read: Result<Box<Loaded>, String>,
    /// `None` when the file could not be read.
    pub fingerprint: Option<Fingerprint>,
    /// Whether the file has the same content as before, and was read because of a request.
    pub is_same: bool,
}

/// 64-bit FNV-1a of a file's bytes, by which operators compare the configurations of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    pub fn of(bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// Parses the file's bytes, or returns all errors in them.
pub type Interpret = Box<dyn Fn(Vec<u8>) -> Result<Loaded, String> + Send>;

/// Polls the configuration file on a thread of its own. The thread ends when this value is dropped.
#[derive(Debug)]
pub struct ConfigWatch {
    file: FileWatch<ConfigUpdate>,
    path: PathBuf,
}

impl ConfigWatch {
    /// Starts to poll the file, whose fingerprint was `fingerprint` when the agent started.
    pub fn start(path: &Path, fingerprint: Fingerprint, interpret: Interpret) -> std::io::Result<Self> {
        Self::start_every(path, fingerprint, interpret, INTERVAL)
    }

    fn start_every(
        path: &Path,
        fingerprint: Fingerprint,
        interpret: Interpret,
        interval: Duration,
    ) -> std::io::Result<Self> {
        let mut polled = Polled::new(path, fingerprint, interpret);
        let thread = Builder::new().name("config".to_owned()).stack_size(1 << 20);
        let file = FileWatch::start(thread, interval, move |is_requested| polled.poll(is_requested))?;
        Ok(Self { file, path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Requests that the file is read now, changed or not. Does not wait.
    pub fn request(&self) {
        self.file.request();
    }

    /// Waits for the next update. Cancel-safe.
    pub async fn update(&self) -> ConfigUpdate {
        self.file.changed().await
    }
}

/// The file that a poll found at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Unknown,
    Missing,
    File(Stamp),
}

struct Polled {
    path: PathBuf,
    interpret: Interpret,
    found: Found,
    /// The stamp of the file at the last read.
    read: Option<Stamp>,
    /// The fingerprint at the last read, of valid and invalid content alike.
    fingerprint: Option<Fingerprint>,
    is_reported_missing: bool,
}

impl Polled {
    fn new(path: &Path, fingerprint: Fingerprint, interpret: Interpret) -> Self {
        let (path, fingerprint) = (path.to_owned(), Some(fingerprint));
        Self { path, interpret, found: Found::Unknown, read: None, fingerprint, is_reported_missing: false }
    }

    /// Reads the file after a change, once two polls find it the same: half of a file that is being written may be a valid
    /// configuration with another meaning.
    fn poll(&mut self, is_requested: bool) -> Option<ConfigUpdate> {
        let stamp = match Stamp::of(&self.path) {
            Ok(stamp) => stamp,
            Err(error) => return self.missing(&error, is_requested),
        };
        self.is_reported_missing = false;
        let is_settled = self.found == Found::File(stamp);
        self.found = Found::File(stamp);
        if !is_requested && (!is_settled || self.read == Some(stamp)) {
            return None;
        }
        let bytes = match MonitorConfig::read(&self.path) {
            Ok(bytes) => bytes,
            Err(errors) => {
                let is_new = self.read.replace(stamp) != Some(stamp);
                self.fingerprint = None;
                let update = ConfigUpdate { read: Err(errors.to_string()), fingerprint: None, is_same: false };
                return (is_requested || is_new).then_some(update);
            }
        };
        // A write during the read: the next polls decide.
        if !is_requested && Stamp::of(&self.path).ok() != Some(stamp) {
            self.found = Found::Unknown;
            return None;
        }
        self.read = Some(stamp);
        let fingerprint = Some(Fingerprint::of(&bytes));
        let is_same = self.fingerprint == fingerprint;
        self.fingerprint = fingerprint;
        let update = || ConfigUpdate { read: (self.interpret)(bytes).map(Box::new), fingerprint, is_same };
        (is_requested || !is_same).then(update)
    }

    /// Reports a missing file at the second poll in a row, because a file may be replaced by removing the old one first.
    fn missing(&mut self, error: &std::io::Error, is_requested: bool) -> Option<ConfigUpdate> {
        let was_missing = std::mem::replace(&mut self.found, Found::Missing) == Found::Missing;
        if !is_requested && (!was_missing || self.is_reported_missing) {
            return None;
        }
        self.is_reported_missing = true;
        (self.read, self.fingerprint) = (None, None);
        let reason =
            format!("{}: cannot be read: {error}; put the file back, or restart without it", self.path.display());
        Some(ConfigUpdate { read: Err(reason), fingerprint: None, is_same: false })
    }
}

#[cfg(test)]
#[path = "config_watch_tests.rs"]
mod tests;
