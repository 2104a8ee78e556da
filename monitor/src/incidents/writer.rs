//! The thread that finishes records and writes them: the loop hands over what it knows and goes on.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::incident_index::{Body, IncidentIndex};
use super::journal::Journal;
use super::model::{Head, Incident, SignalHistory, millis};
use super::reader::Reader;
use super::sample_ring::Sample;
use crate::units::Bytes;

/// What it is called among the capabilities that are missing.
pub const CAPABILITY: &str = "incident journal";
/// Records that wait for the thread.
const WAITING: usize = 128;
/// Records that are made and written in one go.
const AT_ONCE: usize = 16;
/// Records that could not be written yet; beyond that the oldest are given up.
const KEPT: usize = 64;
/// And they are no larger than this together.
const KEPT_BYTES: usize = 4 << 20;
/// What could not be written is tried again this often.
const RETRY: Duration = Duration::from_secs(5);
/// A failing disk is complained of this often.
const COMPLAIN: Duration = Duration::from_secs(60);
/// With the agent stopping, what is under way gets this long to reach the disk.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// Samples of one signal in a record.
pub const SAMPLES: usize = 20_000;
/// The trace of one eviction takes at most this part of the journal.
const TRACE_SHARE: u64 = 16;
/// Buffers for them that are made beforehand.
const SPARES: usize = 2;

/// A record as the loop hands it over.
#[derive(Debug)]
pub struct Draft {
    /// Everything but the signals.
    pub incident: Incident,
    /// The signal that was looked at, its samples left out.
    pub signal: Option<(&'static str, SignalHistory)>,
    /// Its samples.
    pub samples: Vec<Sample>,
}

impl Draft {
    /// The whole record.
    fn finish(self) -> (Incident, Vec<Sample>) {
        let Self { mut incident, signal, samples } = self;
        if let Some((name, mut history)) = signal {
            let at = incident.monotonic_ns;
            let before = |sample: &Sample| match at.checked_sub(sample.at.0) {
                Some(before) => millis(before),
                None => -millis(sample.at.0 - at),
            };
            history.samples = samples.iter().map(|sample| (before(sample), sample.value)).collect();
            incident.signals.insert(name.to_owned(), history);
        }
        (incident, samples)
    }
}

/// What the thread counts.
#[derive(Debug, Default)]
struct Counters {
    journal_bytes: AtomicU64,
    write_failures: AtomicU64,
    dropped: AtomicU64,
    truncations: AtomicU64,
    /// Why nothing can be written.
    trouble: Mutex<Option<String>>,
}

impl Counters {
    fn set_trouble(&self, reason: Option<&String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = reason.cloned();
    }
}

/// Why a record was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The disk is slow, or incidents come fast.
    #[error("{WAITING} records wait for the thread that writes them")]
    Behind,
    /// It can only have died of a defect.
    #[error("the thread that writes incidents has ended; restart the agent")]
    Ended,
}

/// The figures of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalReport {
    /// Bytes on disk.
    pub bytes: u64,
    /// Times that a record could not be written; it was kept and tried again.
    pub write_failures: u64,
    /// Records given up: the thread, or the disk, was too slow for too long.
    pub dropped: u64,
    /// Times that a start cut off what a crash had left, or came upon damage.
    pub truncations: u64,
}

/// The loop's end of the thread.
#[derive(Debug)]
pub struct Writer {
    /// Taken at the end, so that the thread knows.
    queue: Option<SyncSender<Box<Draft>>>,
    spares: Receiver<Vec<Sample>>,
    ended: Receiver<()>,
    index: Arc<IncidentIndex>,
    counters: Arc<Counters>,
}

impl Writer {
    /// Opens the journal and starts the thread. Returns why there is no journal, too: then incidents stay in memory, and the thread
    /// tries again from time to time.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(directory: &Path, max_size: Bytes) -> std::io::Result<(Self, Option<String>)> {
        let counters = Arc::new(Counters::default());
        let index = Arc::new(IncidentIndex::new(directory));
        let (journal, missing) = match open(directory, max_size, &counters) {
            Ok(journal) => (Some(journal), None),
            Err(reason) => {
                counters.set_trouble(Some(&reason));
                (None, Some(format!("{CAPABILITY}: {}", consequence(&reason))))
            }
        };
        let (queue, work) = sync_channel(WAITING);
        let (give_back, spares) = channel();
        for _ in 0..SPARES {
            // The other end is here.
            let _sent = give_back.send(Vec::with_capacity(SAMPLES));
        }
        let (end, ended) = channel();
        let mut worker = Worker {
            directory: directory.to_owned(),
            max_size,
            journal,
            index: Arc::clone(&index),
            counters: Arc::clone(&counters),
            pending: VecDeque::new(),
            complained: None,
        };
        let run = move || {
            worker.run(&work, &give_back);
            // Nobody waits any more when this fails.
            let _unheard = end.send(());
        };
        std::thread::Builder::new().name("incidents".to_owned()).spawn(run)?;
        Ok((Self { queue: Some(queue), spares, ended, index, counters }, missing))
    }

    /// A buffer for samples that was made beforehand; `None` when all are under way.
    #[must_use]
    pub fn spare(&self) -> Option<Vec<Sample>> {
        self.spares.try_recv().ok()
    }

    /// Hands a record over.
    ///
    /// # Errors
    /// When it is dropped, which is counted: too many are waiting.
    pub fn submit(&self, draft: Draft) -> Result<(), Refused> {
        let refused = match self.queue.as_ref().map(|queue| queue.try_send(Box::new(draft))) {
            Some(Ok(())) => return Ok(()),
            Some(Err(TrySendError::Full(_))) => Refused::Behind,
            None | Some(Err(TrySendError::Disconnected(_))) => Refused::Ended,
        };
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        if refused == Refused::Ended {
            self.counters.set_trouble(Some(&refused.to_string()));
        }
        Err(refused)
    }

    /// Why nothing can be written now, and what follows from that; `None` when all is well.
    #[must_use]
    pub fn degradation(&self) -> Option<String> {
        let trouble = self.counters.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_deref().map(consequence)
    }

    /// What is shown over HTTP.
    #[must_use]
    pub fn index(&self) -> Arc<IncidentIndex> {
        Arc::clone(&self.index)
    }

    /// The figures of the journal.
    #[must_use]
    pub fn report(&self) -> JournalReport {
        let Counters { journal_bytes, write_failures, dropped, truncations, .. } = &*self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        JournalReport {
            bytes: get(journal_bytes),
            write_failures: get(write_failures),
            dropped: get(dropped),
            truncations: get(truncations),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        // A disk that hangs must not keep the agent from stopping.
        let _late = self.ended.recv_timeout(LAST_WRITES);
    }
}

fn consequence(reason: &str) -> String {
    format!("{reason}; incidents stay in memory, the last {KEPT}")
}

fn open(directory: &Path, max_size: Bytes, counters: &Counters) -> Result<Journal, String> {
    let (journal, recovery) = Journal::open(directory, max_size).map_err(|error| error.to_string())?;
    if recovery.cut_off > 0 {
        counters.truncations.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            event = "journal_recovered",
            directory = %directory.display(),
            cut_off_bytes = recovery.cut_off,
            "the journal of incidents ended in the middle of a record, which is lost; all before it are kept"
        );
    }
    counters.journal_bytes.store(journal.size(), Ordering::Relaxed);
    Ok(journal)
}

/// A record on its way to the disk.
struct Pending {
    id: String,
    json: Arc<[u8]>,
}

struct Worker {
    directory: PathBuf,
    max_size: Bytes,
    journal: Option<Journal>,
    index: Arc<IncidentIndex>,
    counters: Arc<Counters>,
    pending: VecDeque<Pending>,
    complained: Option<Instant>,
}

impl Worker {
    fn run(&mut self, work: &Receiver<Box<Draft>>, give_back: &std::sync::mpsc::Sender<Vec<Sample>>) {
        self.list_what_is_there();
        loop {
            let idle = self.pending.is_empty() && self.journal.is_some();
            let first =
                if idle { work.recv().map_err(|_| RecvTimeoutError::Disconnected) } else { work.recv_timeout(RETRY) };
            // Those that wait go to the disk together.
            let drafts = match first {
                Ok(first) => std::iter::once(first).chain(work.try_iter().take(AT_ONCE - 1)).collect(),
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.write_pending();
                    return;
                }
            };
            for draft in drafts {
                self.take(*draft, give_back);
            }
            self.write_pending();
        }
    }

    /// Incidents of earlier runs.
    fn list_what_is_there(&mut self) {
        let index = Arc::clone(&self.index);
        let read = Reader::new(&self.directory).poll(|entry| {
            if let Ok(head) = serde_json::from_slice::<Head>(&entry.json) {
                index.put(head, Body::Stored(entry.location));
            }
        });
        let Ok(found) = read else { return };
        if found.damaged > 0 {
            self.counters.truncations.fetch_add(found.damaged, Ordering::Relaxed);
            tracing::warn!(
                event = "journal_damaged",
                directory = %self.directory.display(),
                places = found.damaged,
                "the journal of incidents is damaged: the records there are skipped"
            );
        }
    }

    fn take(&mut self, draft: Draft, give_back: &std::sync::mpsc::Sender<Vec<Sample>>) {
        let (mut incident, samples) = draft.finish();
        if let Some(eviction) = &mut incident.eviction {
            eviction.limit_trace(usize::try_from(self.max_size.0 / TRACE_SHARE).unwrap_or(usize::MAX));
        }
        if samples.capacity() >= SAMPLES {
            // The loop may have ended meanwhile.
            let _ended = give_back.send(samples);
        }
        let Ok(json) = serde_json::to_vec(&incident) else {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let json: Arc<[u8]> = json.into();
        self.index.put(Head::from(&incident), Body::Memory(Arc::clone(&json)));
        match self.pending.iter_mut().find(|pending| pending.id == incident.id) {
            Some(pending) => pending.json = json,
            None => self.pending.push_back(Pending { id: incident.id, json }),
        }
    }

    fn write_pending(&mut self) {
        let written = self.try_write();
        self.counters.set_trouble(written.as_ref().err());
        match written {
            // It is known that there is no journal, and nothing was to be written.
            Err(_) if self.pending.is_empty() => {}
            Err(reason) => {
                self.counters.write_failures.fetch_add(1, Ordering::Relaxed);
                if self.complained.is_none_or(|last| last.elapsed() >= COMPLAIN) {
                    self.complained = Some(Instant::now());
                    tracing::error!(
                        event = "degraded",
                        capability = CAPABILITY,
                        directory = %self.directory.display(),
                        reason,
                        waiting = self.pending.len(),
                        "incidents cannot be written: they are kept in memory and tried again"
                    );
                }
            }
            Ok(()) if self.complained.take().is_some() => {
                tracing::info!(event = "journal_recovered", "incidents can be written again");
            }
            Ok(()) => {}
        }
        self.give_up_oldest();
    }

    fn try_write(&mut self) -> Result<(), String> {
        let is_usable = |journal: &Journal| self.pending.is_empty() || journal.is_in_place();
        if !self.journal.as_ref().is_some_and(is_usable) {
            // The lock goes with it.
            self.journal = None;
            self.journal = Some(open(&self.directory, self.max_size, &self.counters)?);
            self.index.forget_stored();
            self.list_what_is_there();
            self.index.sort();
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let mut written = Vec::new();
        let mut result = Ok(());
        for Pending { id, json } in &self.pending {
            match journal.append(json) {
                Ok(location) => written.push((id.clone(), location)),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if !written.is_empty() {
            result = result.and(journal.sync());
            written.retain(|(_, location)| journal.holds(*location));
            self.pending.drain(..written.len());
            for (id, location) in &written {
                self.index.stored(id, *location);
            }
            self.index.forget_before(journal.oldest());
        }
        self.counters.journal_bytes.store(journal.size(), Ordering::Relaxed);
        result.map_err(|error| format!("{}: {error}", self.directory.display()))
    }

    fn give_up_oldest(&mut self) {
        let bytes = |pending: &VecDeque<Pending>| pending.iter().map(|pending| pending.json.len()).sum::<usize>();
        while self.pending.len() > KEPT || self.pending.len() > 1 && bytes(&self.pending) > KEPT_BYTES {
            if let Some(Pending { id, .. }) = self.pending.pop_front() {
                self.index.give_up(&id);
                self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
