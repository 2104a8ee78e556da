//! The thread that completes records and writes them to the journal. The agent's loop hands over drafts and does not wait.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::draft::Draft;
use super::incident_index::{Body, IncidentIndex};
use super::journal::Journal;
use super::journal_share::{Account, Admission, Shares};
use super::model::{Head, Incident, Kind, StoredHead};
use super::reader::Reader;
use super::sample_ring::Sample;
use crate::units::{Bytes, lock};

/// The journal's name among the capabilities.
pub const CAPABILITY: &str = "incident journal";
/// Capacity of the queue to the thread.
const WAITING: usize = 128;
/// The most records written with one sync.
const AT_ONCE: usize = 16;
/// The most unwritten records in memory. Beyond it the oldest are dropped.
const KEPT: usize = 64;
/// The most bytes of unwritten records in memory.
const KEPT_BYTES: usize = 4 << 20;
/// Interval of attempts to write after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// Interval of log lines about a failing disk.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The agent's exit waits this long for the last records to reach the disk.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// The most samples of one signal in a record.
pub const SAMPLES: usize = 20_000;
/// The trace of one eviction takes at most this part of the journal.
const TRACE_SHARE: u64 = 16;
/// Sample buffers allocated at the start.
const SPARES: usize = 2;

/// The newest evictions among which one that is amended is searched for.
const AMENDED: usize = 64;

/// A task of the thread.
#[derive(Debug)]
enum Task {
    Record(Box<Draft>),
    /// Adds what followed to the newest eviction of the pod, which an earlier agent may have recorded.
    Amend {
        pod_uid: String,
        afterwards: String,
    },
}

/// The state of the journal that the thread and the loop share.
#[derive(Debug, Default)]
struct Shared(Mutex<Standing>);

#[derive(Debug, Default)]
struct Standing {
    report: JournalReport,
    /// Why records cannot be written.
    degradation: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Standing> {
        lock(&self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the queue of incidents is full: {WAITING} records wait for the disk")]
    Behind,
    #[error("the thread that writes incidents has ended because of a defect; restart the agent")]
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalReport {
    pub bytes: u64,
    /// Failed writes; the records were kept and tried again.
    pub write_failures: u64,
    /// Records dropped because the disk was too slow or unavailable.
    pub dropped: u64,
    /// Incidents that were only counted, because their workload had its share of the journal.
    pub counted: u64,
    /// Unfinished or damaged records found when the journal was opened.
    pub truncations: u64,
}

/// The agent's handle of the thread.
#[derive(Debug)]
pub struct Writer {
    /// Dropped at the end, which ends the thread.
    queue: Option<SyncSender<Task>>,
    spares: Receiver<Vec<Sample>>,
    ended: Receiver<()>,
    index: Arc<IncidentIndex>,
    shared: Arc<Shared>,
}

impl Writer {
    /// Opens the journal and starts the thread. If the journal cannot be opened, the reason is returned, too; then incidents stay in
    /// memory, and the thread tries again.
    pub fn start(directory: &Path, max_size: Bytes) -> std::io::Result<(Self, Option<String>)> {
        let shared = Arc::new(Shared::default());
        let index = Arc::new(IncidentIndex::new(directory));
        let (journal, missing) = match open(directory, max_size, &shared) {
            Ok(journal) => (Some(journal), None),
            Err(reason) => {
                shared.lock().degradation = Some(reason.clone());
                (None, Some(format!("{CAPABILITY}: {}", with_effect(&reason))))
            }
        };
        let (queue, work) = sync_channel(WAITING);
        let (give_back, spares) = channel();
        for _ in 0..SPARES {
            // The receiver lives in this function.
            let _sent = give_back.send(Vec::with_capacity(SAMPLES));
        }
        let (end, ended) = channel();
        let mut worker = Worker {
            directory: directory.to_owned(),
            max_size,
            journal,
            index: Arc::clone(&index),
            shared: Arc::clone(&shared),
            pending: VecDeque::new(),
            shares: Shares::new(max_size.0),
            logged: None,
        };
        let run = move || {
            worker.run(&work, &give_back);
            // This fails if the agent has stopped waiting.
            let _sent = end.send(());
        };
        std::thread::Builder::new().name("incidents".to_owned()).spawn(run)?;
        Ok((Self { queue: Some(queue), spares, ended, index, shared }, missing))
    }

    /// Returns a preallocated buffer for samples; `None` if all are in use.
    pub fn spare(&self) -> Option<Vec<Sample>> {
        self.spares.try_recv().ok()
    }

    /// Queues a record. A refused record counts as dropped.
    pub fn submit(&self, draft: Draft) -> Result<(), Refused> {
        self.send(Task::Record(Box::new(draft)))
    }

    /// Queues an addition to the newest recorded eviction of the pod: what followed at the API server. A refused one counts as dropped.
    pub fn amend(&self, pod_uid: &str, afterwards: String) -> Result<(), Refused> {
        self.send(Task::Amend { pod_uid: pod_uid.to_owned(), afterwards })
    }

    fn send(&self, task: Task) -> Result<(), Refused> {
        let refused = match self.queue.as_ref().map(|queue| queue.try_send(task)) {
            Some(Ok(())) => return Ok(()),
            Some(Err(TrySendError::Full(_))) => Refused::Behind,
            None | Some(Err(TrySendError::Disconnected(_))) => Refused::Ended,
        };
        self.shared.lock().report.dropped += 1;
        if refused == Refused::Ended {
            self.shared.lock().degradation = Some(refused.to_string());
        }
        Err(refused)
    }

    /// Returns why records cannot be written now and the effect; `None` if they can.
    pub fn degradation(&self) -> Option<String> {
        self.shared.lock().degradation.as_deref().map(with_effect)
    }

    pub fn index(&self) -> Arc<IncidentIndex> {
        Arc::clone(&self.index)
    }

    pub fn report(&self) -> JournalReport {
        self.shared.lock().report
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        // A hanging disk must not keep the agent from stopping.
        let _late = self.ended.recv_timeout(LAST_WRITES);
    }
}

fn with_effect(reason: &str) -> String {
    format!("{reason}; only the last {KEPT} incidents are kept, in memory")
}

fn open(directory: &Path, max_size: Bytes, shared: &Shared) -> Result<Journal, String> {
    let (journal, cut_off) = Journal::open(directory, max_size)?;
    if cut_off > 0 {
        shared.lock().report.truncations += 1;
        tracing::warn!(
            event = "journal_recovered",
            directory = %directory.display(),
            cut_off_bytes = cut_off,
            "the incident journal ended in an unfinished record, which was cut off; all earlier records are kept"
        );
    }
    shared.lock().report.bytes = journal.size();
    Ok(journal)
}

/// A record that is not on disk yet.
struct Pending {
    id: String,
    json: Arc<[u8]>,
    accounts: Vec<Account>,
}

struct Worker {
    directory: PathBuf,
    max_size: Bytes,
    journal: Option<Journal>,
    index: Arc<IncidentIndex>,
    shared: Arc<Shared>,
    pending: VecDeque<Pending>,
    shares: Shares,
    logged: Option<Instant>,
}

impl Worker {
    fn run(&mut self, work: &Receiver<Task>, give_back: &std::sync::mpsc::Sender<Vec<Sample>>) {
        self.index_journal();
        loop {
            let idle = self.pending.is_empty() && self.journal.is_some();
            let first =
                if idle { work.recv().map_err(|_| RecvTimeoutError::Disconnected) } else { work.recv_timeout(RETRY) };
            // Waiting records share one sync.
            let tasks = match first {
                Ok(first) => std::iter::once(first).chain(work.try_iter().take(AT_ONCE - 1)).collect(),
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => {
                    for incident in self.shares.unwritten() {
                        self.queue(incident, true);
                    }
                    self.write_pending();
                    return;
                }
            };
            for task in tasks {
                match task {
                    Task::Record(draft) => self.take(*draft, give_back),
                    Task::Amend { pod_uid, afterwards } => self.amend(&pod_uid, afterwards, give_back),
                }
            }
            self.write_pending();
        }
    }

    /// Adds the incidents of earlier runs to the index.
    fn index_journal(&mut self) {
        let (index, shares) = (Arc::clone(&self.index), &mut self.shares);
        shares.clear();
        let read = Reader::new(&self.directory).poll(|entry| {
            if let Ok(record) = serde_json::from_slice::<StoredHead>(&entry.json) {
                shares.add(&Account::of_stored(&record), entry.location.segment, entry.location.length);
                index.put(record.into(), Body::Stored(entry.location));
            }
        });
        let Ok(found) = read else { return };
        if found.damaged > 0 {
            self.shared.lock().report.truncations += found.damaged;
            tracing::warn!(
                event = "journal_damaged",
                directory = %self.directory.display(),
                places = found.damaged,
                "the incident journal is damaged: damaged records are skipped"
            );
        }
    }

    fn take(&mut self, draft: Draft, give_back: &std::sync::mpsc::Sender<Vec<Sample>>) {
        let (mut incident, samples) = draft.finish();
        if let Some(eviction) = &mut incident.eviction {
            eviction.limit_trace(usize::try_from(self.max_size.0 / TRACE_SHARE).unwrap_or(usize::MAX));
        }
        if samples.capacity() >= SAMPLES {
            // This fails if the agent has stopped.
            let _sent = give_back.send(samples);
        }
        let bytes = serde_json::to_vec(&incident).map_or(0, |json| json.len() as u64);
        let waiting = |account: &Account| {
            let waiting = self.pending.iter().filter(|pending| pending.accounts.contains(account));
            let (records, bytes) =
                waiting.fold((0, 0), |(records, bytes), it| (records + 1, bytes + it.json.len() as u64));
            (bytes, records * account.part() >= KEPT as u64)
        };
        match self.shares.admit(&incident, bytes, waiting) {
            Admission::Whole => self.queue(incident, true),
            Admission::Counted { incident, is_due } => {
                self.shared.lock().report.counted += 1;
                self.queue(*incident, is_due);
            }
        }
    }

    fn amend(&mut self, pod_uid: &str, afterwards: String, give_back: &std::sync::mpsc::Sender<Vec<Sample>>) {
        let Some(mut incident) = self.newest_eviction_of(pod_uid) else { return };
        if let Some(eviction) = &mut incident.eviction {
            eviction.afterwards = Some(afterwards);
        }
        self.take(Draft { incident, signal: None, samples: Vec::new() }, give_back);
    }

    fn newest_eviction_of(&self, pod_uid: &str) -> Option<Incident> {
        let heads = self.index.select(AMENDED, |head| head.kind == Kind::Eviction);
        heads.iter().rev().find_map(|head| {
            let json = self.index.read(&self.index.find(&head.id)?).ok()??;
            let incident: Incident = serde_json::from_slice(&json).ok()?;
            let is_it = incident.eviction.as_ref()?.pod_uid.as_deref() == Some(pod_uid);
            is_it.then_some(incident)
        })
    }

    /// Puts the record into the index, and with `is_due` among those to write.
    fn queue(&mut self, incident: Incident, is_due: bool) {
        let Ok(json) = serde_json::to_vec(&incident) else {
            self.shared.lock().report.dropped += 1;
            return;
        };
        let json: Arc<[u8]> = json.into();
        self.index.put(Head::from(&incident), Body::Memory(Arc::clone(&json)));
        match self.pending.iter_mut().find(|pending| pending.id == incident.id) {
            Some(pending) => pending.json = json,
            None if is_due => {
                let accounts = Account::of(&incident);
                self.pending.push_back(Pending { id: incident.id, json, accounts });
            }
            None => {}
        }
    }

    fn write_pending(&mut self) {
        let written = self.try_write();
        self.shared.lock().degradation = written.as_ref().err().cloned();
        match written {
            // A journal known to be missing is no news while no record waits.
            Err(_) if self.pending.is_empty() => {}
            Err(reason) => {
                self.shared.lock().report.write_failures += 1;
                if self.logged.is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
                    self.logged = Some(Instant::now());
                    tracing::error!(
                        event = "degraded",
                        capability = CAPABILITY,
                        directory = %self.directory.display(),
                        reason,
                        waiting = self.pending.len(),
                        "incidents cannot be written to the journal: they stay in memory; the agent tries again"
                    );
                }
            }
            Ok(()) if self.logged.take().is_some() => {
                tracing::info!(event = "journal_recovered", "incidents are written to the journal again");
            }
            Ok(()) => {}
        }
        self.drop_oldest();
    }

    fn try_write(&mut self) -> Result<(), String> {
        let is_usable = |journal: &Journal| self.pending.is_empty() || journal.is_in_place();
        if !self.journal.as_ref().is_some_and(is_usable) {
            // Dropping the journal releases its lock.
            self.journal = None;
            self.journal = Some(open(&self.directory, self.max_size, &self.shared)?);
            self.index.remove_stored();
            self.index_journal();
            self.index.sort();
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let mut written = Vec::new();
        let mut result = Ok(());
        for Pending { id, json, accounts } in &self.pending {
            match journal.append(json) {
                Ok(location) => {
                    self.shares.add(accounts, location.segment, location.length);
                    written.push((id.clone(), location));
                }
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
                self.index.set_stored(id, *location);
            }
            self.index.remove_before(journal.oldest());
            self.shares.remove_before(journal.oldest());
        }
        self.shared.lock().report.bytes = journal.size();
        result.map_err(|error| format!("{}: {error}", self.directory.display()))
    }

    fn drop_oldest(&mut self) {
        let bytes = |pending: &VecDeque<Pending>| pending.iter().map(|pending| pending.json.len()).sum::<usize>();
        while self.pending.len() > KEPT || self.pending.len() > 1 && bytes(&self.pending) > KEPT_BYTES {
            if let Some(Pending { id, .. }) = self.pending.pop_front() {
                self.index.drop_unwritten(&id);
                self.shared.lock().report.dropped += 1;
            }
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
