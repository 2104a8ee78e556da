//! The summary at any time, for whoever asks over HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The page as the loop rendered it last. It is rendered for those who ask only: nobody does on most nodes.
#[derive(Debug, Default)]
pub struct SummaryPage {
    is_wanted: AtomicBool,
    text: Mutex<String>,
}

impl SummaryPage {
    /// Asks for a page: the next look makes one.
    pub fn want(&self) {
        self.is_wanted.store(true, Ordering::Release);
    }

    /// Whether somebody has asked since the last page.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// The same, and ends the asking.
    #[must_use]
    pub fn take_wanted(&self) -> bool {
        self.is_wanted.swap(false, Ordering::AcqRel)
    }

    /// Replaces the page.
    pub fn publish(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// The last page; empty before the first.
    #[must_use]
    pub fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
