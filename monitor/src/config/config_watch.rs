//! The configuration file while the agent runs: read again when it changes, by a thread of its own, since its disk may hang.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::config_error::ConfigWarning;
use super::policy::MonitorConfig;
use super::stamp::Stamp;

/// How often it is looked whether the file has changed. The kubelet renews a ConfigMap's files about once a minute.
const EVERY: Duration = Duration::from_secs(2);

/// What a file says that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// What is asked for, the command line's options included.
    pub config: MonitorConfig,
    /// What is not wrong, but hardly meant.
    pub warnings: Vec<ConfigWarning>,
}

/// What has become of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigNews {
    /// What it says now, or all that is wrong with it.
    pub read: Result<Box<Wanted>, String>,
    /// Of its bytes.
    pub fingerprint: Option<Fingerprint>,
    /// It is what it was when it was read last, and was read since somebody asked for it.
    pub is_same: bool,
}

/// By which the same text is known again, on every node: 64 bit FNV-1a.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// That of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// Makes a configuration of the file's bytes, or says all that is wrong with them.
pub type Interpret = Box<dyn Fn(Vec<u8>) -> Result<Wanted, String> + Send>;

#[derive(Debug, Default)]
struct Shared {
    /// The latest only: what was not heard before it came is of no use any more.
    news: Mutex<Option<ConfigNews>>,
    bell: Notify,
}

/// The thread, as the loop sees it.
#[derive(Debug)]
pub struct ConfigWatch {
    shared: Arc<Shared>,
    /// The thread ends with it.
    asked: Sender<()>,
    path: PathBuf,
}

impl ConfigWatch {
    /// Begins to watch the file, which had this fingerprint when the agent started by it.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(path: &Path, fingerprint: Fingerprint, interpret: Interpret) -> std::io::Result<Self> {
        Self::start_every(path, fingerprint, interpret, EVERY)
    }

    fn start_every(
        path: &Path,
        fingerprint: Fingerprint,
        interpret: Interpret,
        pause: Duration,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (asked, asks) = channel();
        let watched = Watched {
            path: path.to_owned(),
            interpret,
            seen: Seen::Nothing,
            read: None,
            fingerprint: Some(fingerprint),
            is_told_missing: false,
        };
        let of_thread = Arc::clone(&shared);
        let run = move || serve(watched, &asks, &of_thread, pause);
        std::thread::Builder::new().name("config".to_owned()).stack_size(1 << 20).spawn(run)?;
        Ok(Self { shared, asked, path: path.to_owned() })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks for the file to be read now, changed or not. Does not wait.
    pub fn ask(&self) {
        // The thread lives as long as this.
        let _gone = self.asked.send(());
    }

    /// What has become of the file since the last call, as soon as there is something. Cancel-safe.
    pub async fn news(&self) -> ConfigNews {
        loop {
            let news = self.shared.news.lock().unwrap_or_else(PoisonError::into_inner).take();
            match news {
                Some(news) => return news,
                None => self.shared.bell.notified().await,
            }
        }
    }
}

fn serve(mut watched: Watched, asks: &Receiver<()>, shared: &Shared, pause: Duration) {
    loop {
        let is_asked = match asks.recv_timeout(pause) {
            Ok(()) => {
                // However often it was asked meanwhile.
                asks.try_iter().for_each(drop);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Some(news) = watched.look(is_asked) {
            *shared.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(news);
            shared.bell.notify_one();
        }
    }
}

/// What the last look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Missing,
    File(Stamp),
}

struct Watched {
    path: PathBuf,
    interpret: Interpret,
    seen: Seen,
    /// The stamp of the file that was read last.
    read: Option<Stamp>,
    /// Of what was read last, whether it could be used or not.
    fingerprint: Option<Fingerprint>,
    is_told_missing: bool,
}

impl Watched {
    /// Reads the file where it has changed, and stays as it is for as long as from one look to the next: half of what somebody writes may
    /// well be a file that asks for something else.
    fn look(&mut self, is_asked: bool) -> Option<ConfigNews> {
        let stamp = match Stamp::of(&self.path) {
            Ok(stamp) => stamp,
            Err(error) => return self.missing(&error, is_asked),
        };
        self.is_told_missing = false;
        let is_still = self.seen == Seen::File(stamp);
        self.seen = Seen::File(stamp);
        if !is_asked && (!is_still || self.read == Some(stamp)) {
            return None;
        }
        let bytes = match MonitorConfig::read(&self.path) {
            Ok(bytes) => bytes,
            Err(errors) => {
                let is_new = self.read.replace(stamp) != Some(stamp);
                self.fingerprint = None;
                let news = ConfigNews { read: Err(errors.to_string()), fingerprint: None, is_same: false };
                return (is_asked || is_new).then_some(news);
            }
        };
        // It was written to meanwhile: the next looks will see.
        if !is_asked && Stamp::of(&self.path).ok() != Some(stamp) {
            self.seen = Seen::Nothing;
            return None;
        }
        self.read = Some(stamp);
        let fingerprint = Some(Fingerprint::of(&bytes));
        let is_same = self.fingerprint == fingerprint;
        self.fingerprint = fingerprint;
        (is_asked || !is_same).then(|| ConfigNews { read: (self.interpret)(bytes).map(Box::new), fingerprint, is_same })
    }

    /// Whoever replaces a file may take the old one away first: only one that stays away is missing.
    fn missing(&mut self, error: &std::io::Error, is_asked: bool) -> Option<ConfigNews> {
        let stays_away = std::mem::replace(&mut self.seen, Seen::Missing) == Seen::Missing;
        if !is_asked && (!stays_away || self.is_told_missing) {
            return None;
        }
        self.is_told_missing = true;
        (self.read, self.fingerprint) = (None, None);
        let reason =
            format!("{}: cannot be read: {error}; put the file back, or restart without it", self.path.display());
        Some(ConfigNews { read: Err(reason), fingerprint: None, is_same: false })
    }
}

#[cfg(test)]
#[path = "config_watch_tests.rs"]
mod tests;
