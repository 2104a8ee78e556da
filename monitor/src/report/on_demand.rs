//! What is made for whoever asks over HTTP, and for nobody else: on most nodes nobody does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Something as the loop made it last.
#[derive(Debug)]
pub struct OnDemand<T> {
    is_wanted: AtomicBool,
    value: Mutex<Option<Arc<T>>>,
}

/// The summary, rendered.
pub type SummaryPage = OnDemand<String>;

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        Self { is_wanted: AtomicBool::new(false), value: Mutex::new(None) }
    }
}

impl<T> OnDemand<T> {
    /// Asks for it: the next look makes one.
    pub fn want(&self) {
        self.is_wanted.store(true, Ordering::Release);
    }

    /// Whether somebody has asked since the last one.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// The same, and ends the asking.
    #[must_use]
    pub fn take_wanted(&self) -> bool {
        self.is_wanted.swap(false, Ordering::AcqRel)
    }

    /// Replaces the last one.
    pub fn publish(&self, value: T) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(value));
    }

    /// The last one, which is kept no longer; nothing where it was taken already.
    #[must_use]
    pub fn take(&self) -> Option<Arc<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The last one; nothing before the first.
    #[must_use]
    pub fn value(&self) -> Option<Arc<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
