//! Polls files for changes on a thread of their own, because reading from a failing disk may block.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use tokio::sync::Notify;

use crate::units::lock;

/// Device, inode, size, and the times of the last change of content and of the inode. Device and inode differ when another file takes
/// the path, as when the kubelet turns the symbolic link `..data` of a ConfigMap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of the file at a path, following symbolic links. Fails when the file is missing or cannot be examined.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self {
            file: (found.dev(), found.ino()),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// Reads at most one byte more than `limit`, so that the caller can tell a file that is too large.
pub fn read_limited(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The latest result of the thread. An unread older result is dropped.
#[derive(Debug)]
struct Latest<T> {
    result: Mutex<Option<T>>,
    changed: Notify,
}

/// A thread that polls files, and its latest result. The thread ends when this value is dropped.
#[derive(Debug)]
pub struct FileWatch<T> {
    latest: Arc<Latest<T>>,
    requests: Sender<()>,
}

impl<T: Send + 'static> FileWatch<T> {
    /// Starts the thread, which calls `poll` after each interval and for each request. The argument of `poll` is whether the call
    /// follows a request.
    pub fn start(
        thread: Builder,
        interval: Duration,
        poll: impl FnMut(bool) -> Option<T> + Send + 'static,
    ) -> io::Result<Self> {
        let latest = Arc::new(Latest { result: Mutex::new(None), changed: Notify::new() });
        let (requests, requested) = channel();
        let of_thread = Arc::clone(&latest);
        thread.spawn(move || run(poll, interval, &requested, &of_thread))?;
        Ok(Self { latest, requests })
    }

    /// Requests a poll now, and does not wait for its result.
    pub fn request(&self) {
        // The thread lives as long as this value.
        let _delivered = self.requests.send(());
    }

    /// Returns a result that was not taken before.
    pub fn take(&self) -> Option<T> {
        lock(&self.latest.result).take()
    }

    /// Waits for a result that was not taken before. Cancel-safe.
    pub async fn changed(&self) -> T {
        loop {
            match self.take() {
                Some(result) => return result,
                None => self.latest.changed.notified().await,
            }
        }
    }
}

fn run<T>(mut poll: impl FnMut(bool) -> Option<T>, interval: Duration, requested: &Receiver<()>, latest: &Latest<T>) {
    loop {
        let is_requested = match requested.recv_timeout(interval) {
            Ok(()) => {
                // One poll serves all requests so far.
                requested.try_iter().for_each(drop);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Some(result) = poll(is_requested) {
            *lock(&latest.result) = Some(result);
            latest.changed.notify_one();
        }
    }
}
