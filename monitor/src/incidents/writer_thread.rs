//! The thread that completes records and writes them to the journal.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
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
/// The most records written with one sync.
const AT_ONCE: usize = 16;
/// The most unwritten records in memory. Beyond it the oldest are dropped.
pub(super) const KEPT: usize = 64;
/// The most bytes of unwritten records in memory.
const KEPT_BYTES: usize = 4 << 20;
/// Interval of attempts to write after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// Interval of log lines about a failing disk.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The most samples of one signal in a record.
pub const SAMPLES: usize = 20_000;
/// The trace of one eviction takes at most this part of the journal.
const TRACE_SHARE: u64 = 16;
/// The newest evictions among which one that is amended is searched for.
pub(super) const AMENDED: usize = 64;

/// A task of the thread.
#[derive(Debug)]
pub(super) enum Task {
    Record(Box<Draft>),
    /// Adds what followed to the newest eviction of the pod, which an earlier agent may have recorded.
    Amend {
        pod_uid: String,
        afterwards: String,
    },
}

/// The state of the journal that the thread and the loop share.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<Standing>);

#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) report: JournalReport,
    /// Why records cannot be written.
    pub(super) degradation: Option<String>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Standing> {
        lock(&self.0)
    }
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
#[derive(Debug)]
struct Pending {
    id: String,
    json: Arc<[u8]>,
    accounts: Vec<Account>,
}

#[derive(Debug)]
pub(super) struct Worker {
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
    /// Opens the journal. If that fails, the reason is returned, too; the thread tries again.
    pub(super) fn new(
        directory: &Path,
        max_size: Bytes,
        index: Arc<IncidentIndex>,
        shared: Arc<Shared>,
    ) -> (Self, Option<String>) {
        let (journal, missing) = match open(directory, max_size, &shared) {
            Ok(journal) => (Some(journal), None),
            Err(reason) => {
                shared.lock().degradation = Some(reason.clone());
                (None, Some(reason))
            }
        };
        let shares = Shares::new(max_size.0);
        let directory = directory.to_owned();
        (Self { directory, max_size, journal, index, shared, pending: VecDeque::new(), shares, logged: None }, missing)
    }

    /// Works until the agent drops its end of the queue. Buffers of samples are given back.
    pub(super) fn run(&mut self, work: &Receiver<Task>, give_back: &Sender<Vec<Sample>>) {
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

    fn take(&mut self, draft: Draft, give_back: &Sender<Vec<Sample>>) {
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

    fn amend(&mut self, pod_uid: &str, afterwards: String, give_back: &Sender<Vec<Sample>>) {
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
