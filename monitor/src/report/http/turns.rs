//! What may wait for a disk, or takes its time: on a thread of its own, and one at a time.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

/// Turns that are taken one after the other.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Turns {
    /// Waits for the next one.
    pub(super) async fn next(&self) -> Result<Turn, AcquireError> {
        Arc::clone(&self.0).acquire_owned().await.map(Turn)
    }
}

/// Somebody's turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn(OwnedSemaphorePermit);

impl Turn {
    /// Does something on a thread of its own. Whoever gives up waiting does not end it: the turn is over when it is.
    pub(super) async fn spend<T: Send + 'static>(
        self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let Self(turn) = self;
        let spend = move || {
            // Such a thread has inherited the loop's precedence. Lowering it is always allowed.
            let _kept = rustix::process::setpriority_process(None, 0);
            let done = act();
            drop(turn);
            done
        };
        tokio::task::spawn_blocking(spend).await
    }
}
