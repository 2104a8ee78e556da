//! Runs slow requests, which may wait for a disk, on a separate thread, one at a time.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

/// Queue of requests that run one after the other.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Turns {
    pub(super) async fn next(&self) -> Result<Turn, AcquireError> {
        Arc::clone(&self.0).acquire_owned().await.map(Turn)
    }
}

/// The right to run a slow request. Dropping it admits the next one.
#[derive(Debug)]
pub(super) struct Turn(OwnedSemaphorePermit);

impl Turn {
    /// Runs work on a separate thread. A cancelled caller does not stop the work: the turn ends with the work.
    pub(super) async fn spend<T: Send + 'static>(
        self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let Self(turn) = self;
        let spend = move || {
            // The thread inherits the loop's raised priority. Lowering a priority needs no privilege.
            let _kept = rustix::process::setpriority_process(None, 0);
            let done = act();
            drop(turn);
            done
        };
        tokio::task::spawn_blocking(spend).await
    }
}
