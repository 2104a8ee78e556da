//! Evictions that are not finished, on file: what an agent that is killed has begun is finished by the next one.
//!
//! JSON lines, appended by one write(2) each, without fsync: they have to outlive the agent, not the node, and lie beside the lock, which
//! is usually on a tmpfs. The loop writes an intent before it touches the pod; the thread that speaks to the API server writes what was
//! done. What is not finished is what the lines say in their order; a line that was cut off says nothing.

mod record;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FallocateFlags;

use crate::units::boot_id;

use self::record::{Record, replay, text_of};
use super::evictions::{Intent, Progress};

/// Evictions that may be unfinished at a time. Each is a pod of this node.
const MOST: usize = 64;
/// Room made beforehand, as much as is used between two tidyings: under pressure, a write that needs no new page waits for nobody.
const ROOM: u64 = LARGE + (64 << 10);
/// A file that large is written anew with what is not finished.
const LARGE: u64 = 256 << 10;
/// A file that large is no ledger of ours.
const LARGEST: u64 = 4 << 20;
/// What it is called among the capabilities that are missing.
pub const CAPABILITY: &str = "eviction ledger";

/// Evictions that are not finished.
#[derive(Debug, Default)]
pub struct Ledger {
    path: Option<PathBuf>,
    /// Read once: who begins an eviction waits for nothing but its one write.
    boot: String,
    file: Mutex<Option<Arc<File>>>,
    open: Mutex<BTreeMap<String, Unfinished>>,
    trouble: Mutex<Option<String>>,
    /// The last line may be cut off: what comes next begins a line of its own.
    is_torn: AtomicBool,
}

/// One that is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// What was decided.
    pub intent: Intent,
    /// What has been done.
    pub progress: Progress,
    /// Another agent began it.
    pub is_resumed: bool,
}

/// What became of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// It is noted; the API server is to be asked.
    New,
    /// It was under way already, and goes as far.
    Already,
}

/// Why it is not noted: more wait for the API server than are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MOST} evictions wait for the API server already: no more are noted")]
pub struct Full;

impl Ledger {
    /// The ledger that goes with this lock, with what an earlier agent left unfinished. Where it cannot be read or written that is said by
    /// [`Self::degradation`], and evictions are kept in mind only.
    #[must_use]
    pub fn beside(lock_file: &Path) -> Self {
        let mut path = lock_file.as_os_str().to_owned();
        path.push(".evictions");
        Self::open(&PathBuf::from(path))
    }

    fn open(path: &Path) -> Self {
        let ledger = Self { path: Some(path.to_owned()), boot: boot_id(), ..Self::default() };
        let left = match read(path, &ledger.boot) {
            Ok(left) => left,
            Err(error) => {
                ledger.set_trouble(Some(format!(
                    "cannot read {}: {error}; what an earlier agent left unfinished is not known",
                    path.display()
                )));
                BTreeMap::new()
            }
        };
        *lock(&ledger.open) = left;
        // Without a line that was cut off, to which the next would be appended.
        ledger.write_anew();
        ledger
    }

    /// Why it cannot be kept, if so.
    #[must_use]
    pub fn degradation(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// What is not finished.
    #[must_use]
    pub fn unfinished(&self) -> Vec<Unfinished> {
        lock(&self.open).values().cloned().collect()
    }

    /// How many are not finished.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.open).len()
    }

    /// Whether all are finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// That one, if it is not finished.
    #[must_use]
    pub fn find(&self, uid: &str) -> Option<Unfinished> {
        lock(&self.open).get(uid).cloned()
    }

    /// Notes that a pod is about to go, before it is touched.
    ///
    /// # Errors
    /// When too many are not finished.
    pub fn begin(&self, intent: &Intent) -> Result<Begun, Full> {
        {
            let mut open = lock(&self.open);
            let is_full = open.len() >= MOST;
            match open.get_mut(&intent.uid) {
                // Nothing goes further than what goes for sure.
                Some(known) if known.intent.is_certain => return Ok(Begun::Already),
                // What has been done stays done.
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

    /// Notes what has been done.
    pub fn note(&self, uid: &str, progress: Progress) {
        if let Some(open) = lock(&self.open).get_mut(uid) {
            open.progress = progress;
        }
        self.append(&Record::Progress { uid: uid.to_owned(), progress });
    }

    /// Notes that nothing is left to do for this intent; another about the same pod, decided meanwhile, stays.
    pub fn end(&self, intent: &Intent) {
        let (uid, decided) = (intent.uid.clone(), intent.decided_mono_ns);
        let is_it = |open: &Unfinished| open.intent.decided_mono_ns == decided;
        // First the file: while it is in mind the file is not cleared.
        if lock(&self.open).get(&uid).is_some_and(is_it) {
            self.append(&Record::End { uid: uid.clone(), decided });
        }
        let mut open = lock(&self.open);
        if open.get(&uid).is_some_and(is_it) {
            open.remove(&uid);
        }
    }

    /// Makes the file small again. By who begins evictions, at a time when none is near.
    pub fn tidy(&self) {
        let size = lock(&self.file).as_ref().and_then(|file| file.metadata().ok()).map(|metadata| metadata.len());
        match size {
            Some(_) if self.degradation().is_some() => self.write_anew(),
            Some(0) => {}
            Some(size) if size <= LARGE && !self.is_empty() => {}
            // What could not be written may be so again.
            Some(_) | None if self.path.is_some() => self.write_anew(),
            Some(_) | None => {}
        }
    }

    /// Writes what is not finished into a new file, which takes the place of the old one as a whole. What the other thread notes meanwhile
    /// may miss the new file: then the next agent does it again, and finds it done.
    fn write_anew(&self) {
        let Some(path) = &self.path else { return };
        let text: String = lock(&self.open).values().map(|open| text_of(open, &self.boot)).collect();
        match replace(path, &text) {
            Ok(file) => {
                *lock(&self.file) = Some(Arc::new(file));
                self.is_torn.store(false, Ordering::Relaxed);
                self.set_trouble(None);
            }
            Err(error) => self.cannot_write(path, &error),
        }
    }

    fn append(&self, record: &Record) {
        let file = lock(&self.file).clone();
        let (Some(path), Some(file)) = (&self.path, file) else { return };
        let end = if self.is_torn.swap(false, Ordering::Relaxed) { "\n" } else { "" };
        let line = format!("{end}{}\n", record.line());
        // The file is opened to append: one write is one line, whoever else writes at the same time.
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
        self.set_trouble(Some(format!(
            "cannot write {}: {reason}; evictions that are under way when the agent ends are not finished",
            path.display()
        )));
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *lock(&self.trouble) = trouble;
    }
}

/// Nothing panics while holding one; if something did, what it guards is still whole. None is held while another is taken, nor for longer
/// than a copy takes.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // What is left of an earlier try, or a link that somebody put there.
    let _absent = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&new)?;
    // Not every filesystem can; then a write needs new pages.
    let _room = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, ROOM);
    file.write_all(text.as_bytes())?;
    std::fs::rename(&new, path)?;
    Ok(file)
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
