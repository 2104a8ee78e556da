//! The unfinished evictions, in a file: an agent that starts after another was killed finishes them.
//!
//! JSON lines, each appended by one write(2) without fsync: they must survive the agent, not the node, and are beside the lock file,
//! usually on a tmpfs. The loop writes an intent before it touches the pod; the working thread writes the progress. A line that was cut
//! off is ignored.

mod record;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::FallocateFlags;

use crate::node::replaced_file;
use crate::units::{boot_id, lock};

use self::record::{Record, replay, text_of};
use super::evictions::intent::{Intent, Progress};

pub use self::record::Unfinished;

/// Unfinished evictions at a time; each is a pod of this node. While the API server does not answer, an eviction stays unfinished for ten
/// minutes (`OLDEST_REMOVAL`). A node of 1,000 pods may evict 54 a minute under the default `maxPerMinute`, for each of four kinds of causes.
/// They need 2 MiB of memory, at 1 KiB each; with the longest messages 20 MiB.
const MOST: usize = 2_200;
/// Bytes allocated beforehand: under memory pressure a write must not need a new page. They hold some 300 evictions, which is more than the
/// 240 that a node of 110 pods may leave unfinished. Larger files need new pages.
const ALLOCATED: u64 = LARGE + (64 << 10);
/// Bytes; a larger file is rewritten with what is unfinished.
const LARGE: u64 = 256 << 10;
/// Bytes that are read; no ledger of ours is that large.
const LARGEST: u64 = 32 << 20;
/// Name among the missing capabilities.
pub const CAPABILITY: &str = "eviction ledger";

/// The unfinished evictions. Two threads share it.
#[derive(Debug, Default)]
pub struct Ledger {
    path: Option<PathBuf>,
    /// Read once, so that beginning an eviction costs only its one write.
    boot: String,
    file: Mutex<Option<Arc<File>>>,
    open: Mutex<BTreeMap<String, Unfinished>>,
    degradation: Mutex<Option<String>>,
    /// The last line may be cut off, so the next write starts a new line.
    is_torn: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The API server has to be asked.
    New,
    /// An eviction of this pod that cannot be refused is under way.
    Already,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("eviction not noted: {MOST} evictions wait for the API server already")]
pub struct Full;

impl Ledger {
    /// Opens the ledger beside this lock file. If it cannot be read or written, [`Self::degradation`] says so, and evictions are kept in
    /// memory only.
    pub fn beside(lock_file: &Path) -> Self {
        Self::open(&lock_file.with_added_extension("evictions"))
    }

    fn open(path: &Path) -> Self {
        let ledger = Self { path: Some(path.to_owned()), boot: boot_id(), ..Self::default() };
        let left = match read(path, &ledger.boot) {
            Ok(left) => left,
            Err(error) => {
                ledger.set_degradation(Some(format!(
                    "cannot read {}: {error}; evictions that an earlier agent left unfinished are not finished",
                    path.display()
                )));
                BTreeMap::new()
            }
        };
        *lock(&ledger.open) = left;
        // Drops a line that was cut off, to which the next would be appended.
        ledger.rewrite();
        ledger
    }

    /// Returns why the file cannot be read or written now.
    pub fn degradation(&self) -> Option<String> {
        lock(&self.degradation).clone()
    }

    pub fn unfinished(&self) -> Vec<Unfinished> {
        lock(&self.open).values().cloned().collect()
    }

    pub fn len(&self) -> usize {
        lock(&self.open).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn find(&self, uid: &str) -> Option<Unfinished> {
        lock(&self.open).get(uid).cloned()
    }

    /// Notes an eviction before the pod is touched.
    pub fn begin(&self, intent: &Intent) -> Result<Begun, Full> {
        {
            let mut open = lock(&self.open);
            let is_full = open.len() >= MOST;
            match open.get_mut(&intent.uid) {
                // An eviction that cannot be refused is not replaced, unless the pod was restarted and killed again since.
                Some(known) if known.intent.is_certain && !known.is_followed_by(intent) => return Ok(Begun::Already),
                // The progress stays.
                Some(known) => {
                    known.intent = intent.clone();
                    known.is_resumed = false;
                }
                None if is_full => return Err(Full),
                None => {
                    let (intent, progress) = (intent.clone(), Progress::default());
                    open.insert(intent.uid.clone(), Unfinished { intent, progress, is_resumed: false });
                }
            }
        }
        self.append(&Record::Intent { boot: self.boot.clone(), intent: intent.clone() });
        Ok(Begun::New)
    }

    pub fn note(&self, uid: &str, progress: Progress) {
        if let Some(open) = lock(&self.open).get_mut(uid) {
            open.progress = progress;
        }
        self.append(&Record::Progress { uid: uid.to_owned(), progress });
    }

    /// Notes that this intent is finished. A newer intent for the same pod stays.
    pub fn end(&self, intent: &Intent) {
        let (uid, decided) = (intent.uid.clone(), intent.decided_mono_ns);
        let is_it = |open: &Unfinished| open.intent.decided_mono_ns == decided;
        // The file first: it is not cleared while the eviction is in memory.
        if lock(&self.open).get(&uid).is_some_and(is_it) {
            self.append(&Record::End { uid: uid.clone(), decided });
        }
        let mut open = lock(&self.open);
        if open.get(&uid).is_some_and(is_it) {
            open.remove(&uid);
        }
    }

    /// Makes the file small again, and retries after a failure. The loop calls it when no eviction is near.
    pub fn tidy(&self) {
        let size = lock(&self.file).as_ref().and_then(|file| file.metadata().ok()).map(|metadata| metadata.len());
        match size {
            Some(_) if self.degradation().is_some() => self.rewrite(),
            Some(0) => {}
            Some(size) if size <= LARGE && !self.is_empty() => {}
            Some(_) | None if self.path.is_some() => self.rewrite(),
            Some(_) | None => {}
        }
    }

    /// Replaces the file by one with the unfinished evictions. A line that the other thread appends meanwhile may be lost: then the next
    /// agent repeats that request, and finds it done.
    fn rewrite(&self) {
        let Some(path) = &self.path else { return };
        let text: String = lock(&self.open).values().map(|open| text_of(open, &self.boot)).collect();
        match replace(path, &text) {
            Ok(file) => {
                *lock(&self.file) = Some(Arc::new(file));
                self.is_torn.store(false, Ordering::Relaxed);
                self.set_degradation(None);
            }
            Err(error) => self.cannot_write(path, &error),
        }
    }

    fn append(&self, record: &Record) {
        let file = lock(&self.file).clone();
        let (Some(path), Some(file)) = (&self.path, file) else { return };
        let end = if self.is_torn.swap(false, Ordering::Relaxed) { "\n" } else { "" };
        let line = format!("{end}{}\n", record.line());
        // O_APPEND: one write is one line, even when both threads write.
        let written = (&*file).write(line.as_bytes());
        let reason = match written {
            Ok(written) if written == line.len() => return,
            Ok(written) => format!("{written} of {} bytes were written", line.len()),
            Err(error) => error.to_string(),
        };
        self.is_torn.store(true, Ordering::Relaxed);
        self.cannot_write(path, &reason);
    }

    fn cannot_write(&self, path: &Path, reason: &dyn std::fmt::Display) {
        self.set_degradation(Some(format!(
            "cannot write {}: {reason}; evictions under way when the agent ends are not finished",
            path.display()
        )));
    }

    fn set_degradation(&self, degradation: Option<String>) {
        *lock(&self.degradation) = degradation;
    }
}

fn read(path: &Path, boot: &str) -> std::io::Result<BTreeMap<String, Unfinished>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    let mut left = replay(&String::from_utf8_lossy(&bytes), boot);
    while left.len() > MOST {
        left.pop_last();
    }
    Ok(left)
}

fn replace(path: &Path, text: &str) -> std::io::Result<File> {
    replaced_file::replace(path, |file| {
        // Filesystems without fallocate need new pages at each write.
        let _not_supported = rustix::fs::fallocate(&*file, FallocateFlags::KEEP_SIZE, 0, ALLOCATED);
        file.write_all(text.as_bytes())
    })
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
