//! The agent's handle of the journal: the loop hands over drafts and does not wait.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

use super::draft::Draft;
use super::incident_index::IncidentIndex;
use super::sample_ring::Sample;
use super::writer_thread::{KEPT, Shared, Task, Worker};
use crate::units::Bytes;

pub use super::writer_thread::{CAPABILITY, JournalReport, SAMPLES};

/// Capacity of the queue to the thread.
const WAITING: usize = 128;
/// The agent's exit waits this long for the last records to reach the disk.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// Sample buffers allocated at the start.
const SPARES: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the queue of incidents is full: {WAITING} records wait for the disk")]
    Behind,
    #[error("the thread that writes incidents has ended because of a defect; restart the agent")]
    Ended,
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
        let (mut worker, missing) = Worker::new(directory, max_size, Arc::clone(&index), Arc::clone(&shared));
        let missing = missing.map(|reason| format!("{CAPABILITY}: {}", with_effect(&reason)));
        let (queue, work) = sync_channel(WAITING);
        let (give_back, spares) = channel();
        for _ in 0..SPARES {
            // The receiver lives in this function.
            let _sent = give_back.send(Vec::with_capacity(SAMPLES));
        }
        let (end, ended) = channel();
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

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
