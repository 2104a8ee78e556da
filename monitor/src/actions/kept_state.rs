//! Keeps the memory of the decider in a file: an agent that starts in the same boot goes on with the budget, the exclusions and the armed
//! thresholds of the agent before it.
//!
//! The file lies beside the lock, usually on a tmpfs: it is of use in one boot only. A thread writes it, because a write may wait for
//! memory or for a disk.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::eviction::decider::{Kept, Memory};
use crate::node::replaced_file::replace;
use crate::units::{Monotonic, boot_id, lock};

/// Name among the missing capabilities.
pub const CAPABILITY: &str = "decision state";
/// The effect of a file that cannot be written.
pub const EFFECT: &str =
    "an agent that starts again in this boot forgets what it evicted, and which thresholds are armed";
/// The version of the file. A reader ignores the file of another version.
const VERSION: u32 = 1;
/// Bytes; the file is far smaller.
const LARGEST: u64 = 1 << 20;
/// The time that the last write may take when the agent stops. The unit tests may run on a slow disk and expect the file.
const LAST_WRITE: Duration = Duration::from_secs(if cfg!(test) { 120 } else { 2 });
const POLL: Duration = Duration::from_millis(2);
/// After a failure the file is written again this often.
const RETRY: Duration = Duration::from_secs(10);

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    version: u32,
    boot: String,
    written_mono_ns: u64,
    kept: Kept,
}

/// The file, and the thread that writes it.
#[derive(Debug, Default)]
pub struct KeptState {
    /// The state that the thread was last given, or that the file had.
    last: Kept,
    shared: Arc<Shared>,
    /// `None` after a failure to start the thread.
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Exchange>,
    changed: Condvar,
}

/// The orders of the loop to the thread, and the thread's reports.
#[derive(Debug, Default)]
struct Exchange {
    /// The state that the thread has to write next.
    pending: Option<Kept>,
    /// Why the file cannot be written now.
    degradation: Option<String>,
    is_over: bool,
}

impl KeptState {
    /// Starts the thread that writes the file beside this lock. Returns the memory from which the agent goes on, and the reason if there
    /// is a file that is not used.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn beside(lock_file: &Path) -> io::Result<(Self, Memory, Option<String>)> {
        let path = path(lock_file);
        let boot = boot_id();
        let (kept, unused) = match read(&path, &boot, Monotonic::now()) {
            Ok(kept) => (kept.unwrap_or_default(), None),
            Err(reason) => (Kept::default(), Some(format!("{CAPABILITY}: {} is not used: {reason}", path.display()))),
        };
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("decisions".to_owned());
        let writer = thread.spawn(move || of_thread.write_all(&path, &boot))?;
        let state = Self { last: kept.clone(), shared, writer: Some(writer) };
        Ok((state, kept.into_memory(), unused))
    }

    /// Has the memory written if it has changed. Costs a comparison otherwise.
    pub fn keep(&mut self, memory: &Memory) {
        if self.last.is_of(memory) {
            return;
        }
        self.last = Kept::of(memory);
        self.shared.lock().pending = Some(self.last.clone());
        self.shared.changed.notify_one();
    }

    /// Returns why the file cannot be written now.
    pub fn degradation(&self) -> Option<String> {
        self.shared.lock().degradation.clone()
    }
}

/// Waits until the last state is written, but not for a disk that hangs: the agent has to stop all the same.
impl Drop for KeptState {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
        let Some(writer) = self.writer.take() else { return };
        let begun = Monotonic::now();
        while !writer.is_finished() && Monotonic::now().since(begun) < LAST_WRITE {
            std::thread::sleep(POLL);
        }
    }
}

impl Shared {
    /// Locks for as long as a copy takes. No code panics under the lock.
    fn lock(&self) -> MutexGuard<'_, Exchange> {
        lock(&self.state)
    }

    fn write_all(&self, path: &Path, boot: &str) {
        let mut failed: Option<Kept> = None;
        loop {
            let mut exchange = self.lock();
            while exchange.pending.is_none() && !exchange.is_over {
                let waited = self.changed.wait_timeout(exchange, RETRY);
                exchange = waited.unwrap_or_else(PoisonError::into_inner).0;
                if exchange.pending.is_none() {
                    exchange.pending = failed.take();
                }
            }
            let is_over = exchange.is_over;
            let Some(kept) = exchange.pending.take().or_else(|| failed.take()) else { return };
            drop(exchange);
            let written_mono_ns = Monotonic::now().0;
            let document = Document { version: VERSION, boot: boot.to_owned(), written_mono_ns, kept };
            let written = write(path, &document);
            failed = written.is_err().then_some(document.kept);
            self.lock().degradation = written.err().map(|error| format!("cannot write {}: {error}", path.display()));
            if is_over {
                return;
            }
        }
    }
}

/// Returns what an agent with this lock file has left in this boot, if there is such a file.
///
/// # Errors
/// The reason for which an agent that starts now does not use the file.
pub fn left_beside(lock_file: &Path, now: Monotonic) -> Result<Option<Kept>, String> {
    read(&path(lock_file), &boot_id(), now)
}

pub fn path(lock_file: &Path) -> PathBuf {
    lock_file.with_added_extension("decisions")
}

/// Reads what an agent left in this boot. Returns `None` if there is no file.
fn read(path: &Path, boot: &str, now: Monotonic) -> Result<Option<Kept>, String> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    let damaged = |error: serde_json::Error| format!("it is damaged: {error}");
    let header: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
    match header["version"].as_u64() {
        Some(version) if version != u64::from(VERSION) => {
            return Err(format!("it has version {version}, not {VERSION}"));
        }
        _ => {}
    }
    let Document { boot: of, written_mono_ns, kept, .. } = serde_json::from_value(header).map_err(damaged)?;
    if of != boot || boot.is_empty() {
        return Err("it is of another boot".to_owned());
    }
    if written_mono_ns > now.0 {
        return Err("its time lies in the future".to_owned());
    }
    Ok(Some(kept))
}

fn write(path: &Path, document: &Document) -> io::Result<()> {
    let fill = |file: &mut fs::File| {
        file.write_all(serde_json::to_string(document)?.as_bytes())?;
        file.sync_all()
    };
    replace(path, fill).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::decider::Decider;

    /// A memory with one eviction in its budget.
    fn spent() -> Memory {
        serde_json::from_str::<Kept>(r#"{"budget": {"effects": [["HardMemory", 5]]}}"#).unwrap().into_memory()
    }

    fn opened(lock: &Path) -> (Memory, Option<String>) {
        let (_state, memory, unused) = KeptState::beside(lock).unwrap();
        (memory, unused)
    }

    #[test]
    fn the_next_agent_of_the_boot_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        assert_eq!(opened(&lock), (Memory::default(), None), "no file");
        let (mut state, ..) = KeptState::beside(&lock).unwrap();
        state.keep(&Memory::default());
        state.keep(&spent());
        drop(state);
        assert_eq!(opened(&lock), (spent(), None));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
        let decider = Decider::<crate::workloads::WorkloadUsage>::remembering(opened(&lock).0);
        assert!(Kept::of(&spent()).is_of(decider.memory()));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_reported_and_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        let kept = r#"{"budget": {"effects": [["HardMemory", 5]]}}"#;
        let boot = boot_id();
        for (text, reason) in [
            (String::new(), "it is damaged"),
            ("{\"version\": 1, ".to_owned(), "it is damaged"),
            ("[1]".to_owned(), "it is damaged"),
            (format!(r#"{{"version": 2, "boot": "{boot}", "decisions": []}}"#), "it has version 2, not 1"),
            (format!(r#"{{"version": 1, "boot": "b", "writtenMonoNs": 1, "kept": {kept}}}"#), "it is of another boot"),
            (
                format!(r#"{{"version": 1, "boot": "{boot}", "writtenMonoNs": {}, "kept": {kept}}}"#, u64::MAX),
                "its time lies in the future",
            ),
            (
                format!(r#"{{"version": 1, "boot": "{boot}", "writtenMonoNs": 1, "kept": {{"budget": 7}}}}"#),
                "it is damaged",
            ),
        ] {
            fs::write(path(&lock), &text).unwrap();
            let (memory, unused) = opened(&lock);
            assert_eq!(memory, Memory::default(), "{text}");
            assert!(unused.as_ref().is_some_and(|unused| unused.contains(reason)), "{text}: {unused:?}");
        }
        fs::write(path(&lock), format!(r#"{{"version": 1, "boot": "{boot}", "writtenMonoNs": 1, "kept": {kept}}}"#))
            .unwrap();
        assert_eq!(opened(&lock), (spent(), None), "and a good one is used");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_a_degradation() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("absent/lock");
        let (mut state, ..) = KeptState::beside(&lock).unwrap();
        state.keep(&spent());
        while state.degradation().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(state.degradation().unwrap().contains("lock.decisions"), "{:?}", state.degradation());
        // Nothing is lost: the thread tries again, at the latest when the agent ends.
        fs::create_dir(directory.path().join("absent")).unwrap();
        drop(state);
        assert_eq!(opened(&lock), (spent(), None));
    }

    #[test]
    fn a_failed_write_leaves_no_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        fs::create_dir(path(&lock)).unwrap();
        let document = Document { version: VERSION, boot: boot_id(), written_mono_ns: 1, kept: Kept::of(&spent()) };
        assert!(write(&path(&lock), &document).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
